"""Abstract values: what is known of a value before the program runs.

    Constant   a number known now
    Dynamic    a number known at run time, and the expression that holds it
    View       an array: a buffer, and the offset, lengths and strides of its elements in it
    Record     a named tuple of values
    Several    a plain tuple of values

The offset, lengths and strides of a view are Constant or Dynamic like any other number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

# kinds of numbers, as in the annotations of kernels; a word is an unsigned 64-bit integer
FLOAT, INT, BOOL, WORD = "float", "int", "bool", "word"


@dataclass(frozen=True, slots=True)
class Constant:
    """A number known now; code is specialised for a structural one."""

    value: Any
    kind: str
    structural: bool = False


@dataclass(frozen=True, slots=True)
class Dynamic:
    """A number known at run time.

    `text` is the expression, `names` the variables in it. `reads` is set where it loads from memory or calls
    a kernel, so that it must not be moved across a write; a call may also write. `header` is set where it is
    an entry of the header, which is the same variable in every function.
    """

    text: str
    kind: str
    names: frozenset[str] = frozenset()
    reads: bool = False
    calls: bool = False
    atom: bool = True  # needs no parentheses
    header: bool = False


Scalar: TypeAlias = Constant | Dynamic


@dataclass(frozen=True, slots=True)
class View:
    """An array of one kind of number inside a buffer; offset, lengths and strides in elements."""

    buffer: str
    kind: str
    offset: Scalar
    lengths: tuple[Scalar, ...]
    strides: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """A named tuple."""

    type: type
    fields: dict[str, Value]

    @property
    def items(self) -> tuple[Value, ...]:
        return tuple(self.fields.values())


@dataclass(frozen=True, slots=True)
class TupleValue:
    """A plain tuple."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Unusable:
    """A variable that must not be read, and the reason."""

    reason: str


Value: TypeAlias = Constant | Dynamic | View | Record | TupleValue | Unusable
Compound: TypeAlias = View | Record | TupleValue

ZERO, ONE = Constant(0, INT, True), Constant(1, INT, True)
COMPOUND = (View, Record, TupleValue)


def constant(value: Any, structural: bool = False) -> Constant:
    """Return the constant of a Python or NumPy number."""
    if isinstance(value, (bool, np.bool_)):
        return Constant(bool(value), BOOL, structural)
    if isinstance(value, np.uint64):
        return Constant(int(value), WORD, structural)
    if isinstance(value, (int, np.integer)):
        return Constant(int(value), INT, structural)
    return Constant(float(value), FLOAT, structural)


def variable(name: str, kind: str) -> Dynamic:
    """Return a number held by a variable."""
    return Dynamic(name, kind, frozenset((name,)))


def header_entry(slot: int, kind: str) -> Dynamic:
    """Return a number that is loaded from the header at the start of each function."""
    name = f"{kind}_{slot}_"
    return Dynamic(name, kind, frozenset((name,)), header=True)


def text_of(value: Scalar) -> str:
    """Return the expression of a number, in parentheses where they may be needed."""
    if isinstance(value, Dynamic):
        return value.text if value.atom else f"({value.text})"
    return literal(value.value, value.kind)


def bare(value: Scalar) -> str:
    """Return the expression of a number, without parentheses."""
    return value.text if isinstance(value, Dynamic) else literal(value.value, value.kind)


def literal(value: Any, kind: str) -> str:
    """Return a constant as source text; negative ones in parentheses."""
    if kind == WORD:
        return f"word_{int(value):x}"
    if kind == BOOL:
        return repr(bool(value))
    if kind == INT:
        return repr(int(value)) if value >= 0 else f"({int(value)})"
    if math.isnan(value):
        return "math.nan"
    if math.isinf(value):
        return "math.inf" if value > 0 else "(-math.inf)"
    return repr(float(value)) if math.copysign(1.0, value) > 0 else f"({float(value)!r})"


def key(value: Value) -> tuple[Any, ...]:
    """Return a key for an argument: run-time numbers are alike, all else must be equal."""
    if isinstance(value, Constant):
        return ("constant", value.kind, repr(value.value))
    if isinstance(value, Dynamic):
        return ("dynamic", value.kind, value.text if value.header else "")
    if isinstance(value, View):
        shape = tuple(key(n) for n in (value.offset, *value.lengths, *value.strides))
        return ("view", value.buffer, value.kind, shape)
    if isinstance(value, Record):
        return ("record", value.type, tuple(map(key, value.items)))
    if isinstance(value, TupleValue):
        return ("several", tuple(map(key, value.items)))
    raise TypeError(value.reason)


def same(one: Value, other: Value) -> bool:
    """Return whether these are the same value, expression by expression."""
    if isinstance(one, Dynamic) and isinstance(other, Dynamic):
        return one.text == other.text and one.kind == other.kind and not one.reads
    if isinstance(one, View) and isinstance(other, View):
        return (
            (one.buffer, one.kind) == (other.buffer, other.kind)
            and len(one.lengths) == len(other.lengths)
            and all(map(same, numbers_of(one), numbers_of(other)))
        )
    if isinstance(one, (Record, TupleValue)) and type(one) is type(other) and not isinstance(other, Unusable):
        parts, others = one.items, other.items
        alike = not isinstance(one, Record) or one.type is other.type  # type: ignore[union-attr]
        return alike and len(parts) == len(others) and all(map(same, parts, others))
    if isinstance(one, Constant) and isinstance(other, Constant):
        return key(one) == key(other)
    return False


def numbers_of(view: View) -> tuple[Scalar, ...]:
    """Return offset, lengths and strides."""
    return (view.offset, *view.lengths, *view.strides)


def with_numbers(view: View, numbers: tuple[Scalar, ...]) -> View:
    """Return the same view with another offset, lengths and strides."""
    axes = len(view.lengths)
    return View(view.buffer, view.kind, numbers[0], numbers[1 : 1 + axes], numbers[1 + axes :])


def scalars(value: Value) -> Iterator[Scalar]:
    """Return all numbers of a value, from left to right."""
    if isinstance(value, (Constant, Dynamic)):
        yield value
    elif isinstance(value, View):
        yield from numbers_of(value)
    elif isinstance(value, (Record, TupleValue)):
        for item in value.items:
            yield from scalars(item)
    else:
        raise TypeError(value.reason)


def rebuilt(value: Value, change: Callable[[Scalar, str], Scalar], path: str = "") -> Value:
    """Return the value with every number changed; `change` also gets the name's path."""
    if isinstance(value, (Constant, Dynamic)):
        return change(value, path)
    if isinstance(value, View):
        axes = len(value.lengths)
        labels = ["offset", *(f"n{a}" for a in range(axes)), *(f"s{a}" for a in range(axes))]
        numbers = zip(numbers_of(value), labels, strict=True)
        return with_numbers(value, tuple(change(number, f"{path}__{label}") for number, label in numbers))
    if isinstance(value, Record):
        fields = {name: rebuilt(part, change, f"{path}__{name}") for name, part in value.fields.items()}
        return Record(value.type, fields)
    if isinstance(value, TupleValue):
        return TupleValue(tuple(rebuilt(part, change, f"{path}__{i}") for i, part in enumerate(value.items)))
    raise TypeError(value.reason)


def blank(value: Value) -> Value:
    """Return the structure of a value, regardless of its numbers."""
    return rebuilt(value, lambda number, _: variable("", number.kind))
