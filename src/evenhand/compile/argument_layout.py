"""Arguments of a call from Python, for the specialiser.

A named tuple is split into numbers and arrays, its leaves. Numbers of named tuples, lengths of arrays and
offsets of arrays are entries of the header, unless they are compiled into the code.
"""

from __future__ import annotations

import math
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evenhand.compile import arrays
from evenhand.compile.annotations import Named, Number, Table, Type, field_types
from evenhand.compile.values import (
    FLOAT,
    INT,
    Constant,
    Dynamic,
    Record,
    Scalar,
    Value,
    View,
    constant,
    header_entry,
    variable,
)

_OWN = (arrays.HEADER, arrays.ARGUMENTS, arrays.RESULTS, arrays.CONSTANTS, arrays.UNIFORM)
_GROUPS = [letter for letter in string.ascii_uppercase if letter not in _OWN]
NUMBER, LENGTH, STRIDE, OFFSET = "number", "length", "stride", "offset"


@dataclass(frozen=True)
class Target:
    """Options of a program: memory layout of its arrays, and what is compiled in.

    Arrays whose path begins with an entry of `groups` belong to that group, others to the group "". Arrays of
    the groups in `packed` are contiguous in one buffer for each kind of number: their lengths and offsets are
    constants. Neighbouring elements of the buffers of a packed group are `strides` apart in memory, 1 unless
    named. Groups in `read_only` are never written. Numbers of named tuples in the groups `fixed`, and arrays
    there whose elements are all equal, are compiled into the code.
    """

    name: str = "cpu"
    groups: tuple[tuple[str, str], ...] = ()
    packed: frozenset[str] = frozenset()
    strides: tuple[tuple[str, int], ...] = ()
    read_only: frozenset[str] = frozenset()
    fixed: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for _, group in self.groups:
            if group not in _GROUPS:
                raise ValueError(f"a group must be one of {', '.join(_GROUPS)}; it is {group!r}.")

    def group_of(self, path: str) -> str:
        """Return the group of an array; the most specific entry counts."""
        found = [
            (len(prefix), group) for prefix, group in self.groups if (path + ".").startswith(prefix + ".")
        ]
        return max(found)[1] if found else ""

    def is_packed(self, path: str) -> bool:
        return self.group_of(path) in self.packed

    def is_fixed(self, path: str) -> bool:
        return self.group_of(path) in self.fixed


CPU = Target()


@dataclass(frozen=True, slots=True)
class Leaf:
    """A number or an array of the arguments, and its path."""

    path: str
    type: Number | Table
    in_record: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the header: its meaning, leaf and axis."""

    what: str
    leaf: int
    axis: int = 0


def leaves(types: Mapping[str, Type]) -> list[Leaf]:
    """Return all leaves of arguments of these types, in order."""
    return [leaf for name, type_ in types.items() for leaf in _leaves(type_, name, False)]


def _leaves(type_: Type, path: str, in_record: bool) -> Iterator[Leaf]:
    if isinstance(type_, (Number, Table)):
        yield Leaf(path, type_, in_record)
    elif isinstance(type_, Named):
        for name, part in field_types(type_.type).items():
            yield from _leaves(part, f"{path}.{name}", True)
    else:
        raise TypeError(f"{path} cannot be passed from Python")


def flattened(types: Sequence[Type], arguments: Sequence[Any]) -> list[Any]:
    """Return the values of all leaves, in order."""
    found: list[Any] = []
    for type_, argument in zip(types, arguments, strict=True):
        _flatten(type_, argument, found)
    return found


def _flatten(type_: Type, argument: Any, found: list[Any]) -> None:
    if isinstance(type_, Named):
        for part, value in zip(field_types(type_.type).values(), argument, strict=True):
            _flatten(part, value, found)
    else:
        found.append(argument)


@dataclass
class Layout:
    """The layout of arguments: header, buffers, and numbers that are passed.

    `known` are the values of leaves that are compiled in: of an array, the common value of its elements.
    `shapes` are the lengths of arrays where they matter: of packed arrays, and of those whose axes are not
    declared.
    """

    leaves: Sequence[Leaf]
    known: Mapping[int, Any]
    shapes: Mapping[int, tuple[int, ...]]
    target: Target = CPU
    whole: list[Entry] = field(default_factory=list)  # integers and bools of the header
    real: list[Entry] = field(default_factory=list)  # floats of the header
    passed: list[int] = field(default_factory=list)  # leaves that are separate parameters
    buffers: dict[int, str] = field(default_factory=dict)  # of arrays
    places: dict[int, int] = field(default_factory=dict)  # of packed arrays in their buffers
    sizes: dict[str, int] = field(default_factory=dict)  # of buffers that hold packed arrays
    uniform: dict[str, Constant] = field(default_factory=dict)  # buffers of equal numbers, not in memory

    def __post_init__(self) -> None:
        self._shared: dict[str, Scalar] = {}
        for i, leaf in enumerate(self.leaves):
            if isinstance(leaf.type, Table) and leaf.type.axes and self.target.is_packed(leaf.path):
                for name, length in zip(leaf.type.axes, self.shapes[i], strict=True):
                    self._shared |= {name: constant(length, True)} if isinstance(name, str) else {}
        self.values: list[Value] = [self._abstract(i, leaf) for i, leaf in enumerate(self.leaves)]

    def arguments(self, types: Mapping[str, Type]) -> list[Value]:
        """Return the arguments, rebuilt from their leaves."""
        waiting = iter(self.values)
        return [_assembled(type_, waiting) for type_ in types.values()]

    def _abstract(self, i: int, leaf: Leaf) -> Value:
        if isinstance(leaf.type, Table):
            return self._array(i, leaf, leaf.type)
        if i in self.known:
            return constant(self.known[i], leaf.type.static)
        if not leaf.in_record:
            self.passed.append(i)
            return variable("", leaf.type.kind)
        return self._entry(Entry(NUMBER, i), leaf.type.kind)

    def _array(self, i: int, leaf: Leaf, type_: Table) -> View:
        group = self.target.group_of(leaf.path)
        if i in self.known:
            return self._uniform(i, type_)
        buffer = self.buffers[i] = arrays.buffer_name(group, type_.kind)
        lengths, strides = self._axes(i, type_)
        if group in self.target.packed:
            self.places[i] = self.sizes.get(buffer, 0)
            self.sizes[buffer] = self.places[i] + math.prod(self.shapes[i])
            return View(buffer, type_.kind, constant(self.places[i], True), lengths, strides)
        return View(buffer, type_.kind, self._entry(Entry(OFFSET, i)), lengths, strides)

    def _uniform(self, i: int, type_: Table) -> View:
        buffer = arrays.buffer_name(f"{arrays.UNIFORM}{len(self.uniform)}", type_.kind)
        self.uniform[buffer] = constant(self.known[i])
        return View(buffer, type_.kind, constant(0, True), *self._axes(i, type_))

    def _axes(self, i: int, type_: Table) -> tuple[tuple[Scalar, ...], tuple[Scalar, ...]]:
        """Return lengths and strides."""
        axes = type_.axes if type_.axes is not None else (None,) * len(self.shapes[i])
        lengths = tuple(self._length(i, axis, length) for axis, length in enumerate(axes))
        strides = tuple(self._stride(i, axis, n) for axis, n in enumerate(arrays.contiguous(lengths)))
        return lengths, strides

    def _length(self, i: int, axis: int, length: str | int | None) -> Scalar:
        if isinstance(length, int):
            return constant(length, True)
        if self.target.is_packed(self.leaves[i].path):
            return constant(self.shapes[i][axis], True)
        if length is None:
            return self._entry(Entry(LENGTH, i, axis))
        if length not in self._shared:
            self._shared[length] = self._entry(Entry(LENGTH, i, axis))
        return self._shared[length]

    def _stride(self, i: int, axis: int, stride: Scalar) -> Scalar:
        """Return a constant, a length, or a header entry shared by equal products of lengths."""
        if isinstance(stride, Constant) or stride.header:
            return stride
        if stride.text not in self._shared:
            self._shared[stride.text] = self._entry(Entry(STRIDE, i, axis))
        return self._shared[stride.text]

    def _entry(self, entry: Entry, kind: str = INT) -> Dynamic:
        header = self.real if kind == FLOAT else self.whole
        header.append(entry)
        return header_entry(len(header) - 1, kind)


def _assembled(type_: Type, waiting: Iterator[Value]) -> Value:
    if isinstance(type_, Named):
        fields = {name: _assembled(part, waiting) for name, part in field_types(type_.type).items()}
        return Record(type_.type, fields)
    return next(waiting)
