"""Arrays as views of flat buffers: indexing, slicing, reshaping, loads and stores."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from evenhand.compile.arithmetic import KindMismatch, binary, cast_to, combined, converted
from evenhand.compile.values import (
    BOOL,
    FLOAT,
    INT,
    ONE,
    WORD,
    ZERO,
    Constant,
    Dynamic,
    Scalar,
    View,
    bare,
    constant,
    same,
)

_LETTER = {FLOAT: "F", INT: "I", BOOL: "B", WORD: "W"}
_KIND = {letter: kind for kind, letter in _LETTER.items()}

Slice = tuple[Scalar | None, Scalar | None]


class Misuse(TypeError):
    """An unsupported use of an array."""


# groups of buffers internal to a program, named by capital letters
HEADER = "H"  # numbers that are the same in every function
ARGUMENTS, RESULTS = "A", "Z"  # numbers that are passed and returned
CONSTANTS = "K"  # arrays that are defined outside kernels
UNIFORM = "U"  # arrays of equal numbers, which are compiled in


def buffer_name(group: str, kind: str) -> str:
    """Return the name of the buffer for arrays of this kind and group."""
    return group + _LETTER[kind]


def buffer_kind(buffer: str) -> str:
    """Return the kind of the numbers in a buffer."""
    return _KIND[buffer[-1]]


def add(one: Scalar, other: Scalar) -> Scalar:
    return binary(ast.Add(), one, other)


def subtract(one: Scalar, other: Scalar) -> Scalar:
    return ZERO if same(one, other) else binary(ast.Sub(), one, other)


def multiply(one: Scalar, other: Scalar) -> Scalar:
    return binary(ast.Mult(), one, other)


def contiguous(lengths: Sequence[Scalar]) -> tuple[Scalar, ...]:
    """Return the strides of a C-contiguous array."""
    strides: list[Scalar] = []
    stride: Scalar = ONE
    for length in reversed(lengths):
        strides.append(stride)
        stride = multiply(stride, length)
    return tuple(reversed(strides))


def size_of(view: View) -> Scalar:
    """Return the number of elements."""
    size: Scalar = ONE
    for length in view.lengths:
        size = multiply(size, length)
    return size


def index(view: View, parts: Sequence[Scalar | Slice]) -> View:
    """Return the view of one element, a row, or a range; an element is a view without axes."""
    if len(parts) > len(view.lengths):
        raise Misuse(f"{len(parts)} indices for an array of {len(view.lengths)} axes")
    whole: list[Scalar | Slice] = [(None, None)] * (len(view.lengths) - len(parts))
    offsets, lengths, strides = [], [], []
    for part, length, stride in zip([*parts, *whole], view.lengths, view.strides, strict=True):
        if isinstance(part, tuple):
            first, last = _range(part, length)
            offsets.append(multiply(first, stride))
            lengths.append(_structural(subtract(last, first)))
            strides.append(stride)
        else:
            offsets.append(multiply(_position(part, length), stride))
    offset = view.offset
    for step in offsets:
        offset = add(offset, step)
    return View(view.buffer, view.kind, offset, tuple(lengths), tuple(strides))


def reshaped(view: View, lengths: Sequence[Scalar]) -> View:
    """Return the same elements with other axes; they must be contiguous."""
    expected = contiguous(view.lengths)
    if not all(map(same, view.strides, expected)):
        raise Misuse("reshape of an array whose elements are not side by side")
    found = [_structural(length) for length in lengths]
    known = [length.value for length in (*view.lengths, *found) if isinstance(length, Constant)]
    if len(known) == len(view.lengths) + len(found):
        before, after = size_of(view), size_of(View(view.buffer, view.kind, ZERO, tuple(found), ()))
        if not same(before, after):
            raise Misuse(f"reshape of {bare(before)} elements to {bare(after)}")
    return View(view.buffer, view.kind, view.offset, tuple(found), contiguous(found))


def reinterpreted(view: View, kind: str) -> View:
    """Return a read-only view of the bits of floats as words."""
    if view.kind != FLOAT or kind != WORD:
        raise Misuse("only floating-point numbers can be viewed, as np.uint64")
    return View(view.buffer, kind, view.offset, view.lengths, view.strides)


def place(view: View, stride: int) -> str:
    """Return `buffer[offset]`; `stride` is the distance of adjacent elements in memory."""
    if stride == 1:
        return f"{view.buffer}[{bare(view.offset)}]"
    return f"{view.buffer}[{bare(multiply(view.offset, constant(stride)))}]"


def load(view: View, stride: int) -> Dynamic:
    """Return the number at an element."""
    text, parts = place(view, stride), (view.offset,)
    if buffer_kind(view.buffer) == BOOL:
        return combined(parts, f"{text} != 0", BOOL, reads=True)
    if view.kind == WORD and buffer_kind(view.buffer) == FLOAT:
        return combined(parts, f"bits_of({text})", WORD, atom=True, reads=True)
    return combined(parts, text, view.kind, atom=True, reads=True)


def storable(view: View, value: Scalar) -> Scalar:
    """Return the number as it is written to an element of this array."""
    if view.kind != buffer_kind(view.buffer):
        raise Misuse("a view of bits cannot be written")
    return converted(value, view.kind)


def _range(part: Slice, length: Scalar) -> tuple[Scalar, Scalar]:
    first = ZERO if part[0] is None else _position(part[0], None)
    last = length if part[1] is None else _position(part[1], None)
    beyond = isinstance(last, Constant) and isinstance(length, Constant) and last.value > length.value
    if beyond or (isinstance(first, Constant) and isinstance(last, Constant) and first.value > last.value):
        raise Misuse(f"a range from {bare(first)} to {bare(last)} of an axis of length {bare(length)}")
    return first, last


def _position(value: Scalar, length: Scalar | None) -> Scalar:
    """Return an index; negative ones are refused."""
    if value.kind == WORD:
        value = cast_to(value, INT)
    if value.kind != INT:
        raise KindMismatch(f"an index must be a whole number; it is a {value.kind}")
    if isinstance(value, Constant):
        if value.value < 0:
            raise Misuse(f"index {value.value}: negative indices do not wrap round")
        if isinstance(length, Constant) and value.value >= length.value:
            raise Misuse(f"index {value.value} of an axis of length {length.value}")
    return value


def _structural(value: Scalar) -> Scalar:
    """Mark a known length as structural: code is specialised for it."""
    if isinstance(value, Constant):
        if value.kind != INT:
            raise KindMismatch(f"a length must be a whole number; it is a {value.kind}")
        return Constant(value.value, INT, True)
    return value
