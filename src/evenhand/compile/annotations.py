"""Types of kernels, read from their annotations.

A parameter, a field of a named tuple or a result is a number (`int`, `float`, `bool`, `np.uint64`), an array
of numbers (`NDArray[...]`), a named tuple or a tuple of these. Two markers add information:

    Static[int]                          structural: compiled code is made for each of its values
    Annotated[Array, Axes("L", "K", 3)]  the lengths of the axes: equal names are equal lengths within a call,
                                         a number is the length itself, None is any length
"""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from evenhand.compile.values import BOOL, FLOAT, INT, WORD

T = TypeVar("T")

Static = Annotated[T, "static"]


class Axes:
    """The lengths of an array's axes."""

    def __init__(self, *lengths: str | int | None) -> None:
        self.lengths = lengths

    def __repr__(self) -> str:
        return f"Axes{self.lengths}"


@dataclass(frozen=True)
class Number:
    kind: str
    static: bool = False


@dataclass(frozen=True)
class Table:
    """An array; without `axes`, it has any number of axes of any lengths."""

    kind: str
    axes: tuple[str | int | None, ...] | None = None


@dataclass(frozen=True)
class Named:
    """A named tuple."""

    type: type


@dataclass(frozen=True)
class Tuple:
    items: tuple[Type, ...]


@dataclass(frozen=True)
class Nothing:
    """No result."""


Type: TypeAlias = Number | Table | Named | Tuple | Nothing

_NUMBERS: dict[Any, str] = {float: FLOAT, int: INT, bool: BOOL, np.uint64: WORD}
DTYPES: dict[str, Any] = {FLOAT: np.float64, INT: np.int64, BOOL: np.bool_, WORD: np.uint64}
_KINDS = {np.dtype(dtype): kind for kind, dtype in DTYPES.items()}


@cache
def parameter_types(function: Any) -> dict[str, Type]:
    """Return the types of a kernel's parameters, in order."""
    hints = typing.get_type_hints(function, include_extras=True)
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    return {name: _read(hints[name], f"{function.__qualname__}, {name}") for name in names}


def takes_numbers_only(function: Any) -> bool:
    """Return whether a kernel has no arrays, so that it cannot write."""
    return all(isinstance(type_, Number) for type_ in parameter_types(function).values())


@cache
def result_type(function: Any) -> Type:
    """Return the type of a kernel's result."""
    hints = typing.get_type_hints(function, include_extras=True)
    return _read(hints["return"], f"{function.__qualname__}, its result")


@cache
def field_types(record: type) -> dict[str, Type]:
    """Return the types of a named tuple's fields, in order."""
    hints = typing.get_type_hints(record, include_extras=True)
    names: tuple[str, ...] = record._fields  # type: ignore[attr-defined]
    return {name: _read(hints[name], f"{record.__qualname__}.{name}") for name in names}


def is_record(thing: object) -> bool:
    """Return whether this is the class of a named tuple."""
    return isinstance(thing, type) and issubclass(thing, tuple) and hasattr(thing, "_fields")


def _read(hint: Any, where: str) -> Type:
    marks: tuple[Any, ...] = ()
    if typing.get_origin(hint) is Annotated:
        hint, *rest = typing.get_args(hint)
        marks = tuple(rest)
    axes = next((mark.lengths for mark in marks if isinstance(mark, Axes)), None)
    if hint in (None, types.NoneType):
        return Nothing()
    if isinstance(hint, type) and hint in _NUMBERS:
        return Number(_NUMBERS[hint], "static" in marks)
    if is_record(hint):
        return Named(hint)
    scalar = _scalar_of(hint)
    if scalar is not None:
        return Table(_KINDS[np.dtype(scalar)], axes)
    if typing.get_origin(hint) is tuple:
        return Tuple(tuple(_read(item, where) for item in typing.get_args(hint)))
    raise TypeError(
        f"{where} must be int, float, bool, np.uint64, an array of these, a named tuple or a tuple; "
        f"it is {hint!r}."
    )


def _scalar_of(hint: Any) -> Any:
    """Return the type of the elements of NDArray[...]; None for another type.

    From NumPy 2.5 on, on Python 3.12 and newer, NDArray is an alias that is not expanded.
    """
    if typing.get_origin(hint) is NDArray:
        return typing.get_args(hint)[0]
    if typing.get_origin(hint) is np.ndarray:
        return typing.get_args(typing.get_args(hint)[1])[0]
    return None
