"""Checks of arguments: kinds, numbers and tables, each refused in one sentence."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.errors import BadInput, shown

T = TypeVar("T")


def instance_of(value: Any, kind: type[T], name: str) -> T:
    """Return the value, refused unless it is of this class."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIO" else "a"
        raise BadInput(f"{name} must be {article} {kind.__name__}; it is {shown(value)}.")
    return value


def optional(value: Any, kind: type[T], name: str) -> T | None:
    """Return the value, refused unless it is of this class or None."""
    return None if value is None else instance_of(value, kind, name)


def whole_number(value: Any, name: str, least: int, most: int = 2**63 - 1) -> int:
    """Return the value as an int, refused unless it is a whole number in this range."""
    if not is_whole(value) or not least <= value <= most:
        limits = f", at least {least}" if most == 2**63 - 1 else f" from {least} to {most}"
        raise BadInput(f"{name} must be a whole number{limits}; it is {shown(value)}.")
    return int(value)


def share(value: Any, name: str) -> float:
    """Return the value as a float, refused unless it is a number from 0 to 1."""
    if not is_number(value) or not 0 <= value <= 1:
        raise BadInput(f"{name} must be a number from 0 to 1; it is {shown(value)}.")
    return float(value)


def number_between(value: Any, name: str, low: float, high: float) -> float:
    """Return the value as a float, refused unless it lies strictly between these."""
    if not is_number(value) or not low < value < high:
        raise BadInput(f"{name} must lie strictly between {low:g} and {high:g}; it is {shown(value)}.")
    return float(value)


def flag(value: Any, name: str) -> bool:
    """Return the value as a bool, refused unless it is true or false, of Python or of NumPy."""
    if not isinstance(value, (bool, np.bool_)):
        raise BadInput(f"{name} must be true or false; it is {shown(value)}.")
    return bool(value)


def callable_or_none(value: Any, name: str) -> Any:
    """Return the value, refused unless it can be called or is None."""
    if value is not None and not callable(value):
        raise BadInput(f"{name} must be a function; it is {shown(value)}.")
    return value


Array = NDArray[np.float64]


class Scale(NamedTuple):
    """The parts of a problem that are needed to write a requirement in unit scale."""

    policies: int
    groups: int
    shares: Array
    low: float
    width: float
    domain: tuple[float, float]
    policy_names: tuple[str, ...] = ()
    group_names: tuple[str, ...] = ()
    family: str = ""


def is_number(value: object) -> bool:
    """Return whether this is a finite number; booleans are not."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.floating, np.integer)):
        return False
    size: Any = abs(python_number(value))
    return bool(size <= sys.float_info.max)  # an int may have any size


def is_whole(value: object) -> bool:
    """Return whether this is a whole number."""
    return is_number(value) and float(value) == int(value)  # type: ignore[arg-type,call-overload]


def check_positive(value: object, what: str) -> None:
    """Refuse anything but a positive finite number."""
    if not is_number(value) or value <= 0:  # type: ignore[operator]
        raise BadInput(f"{what} must be a positive finite number; it is {shown(value)}.")


def python_number(value: Any) -> Any:
    """Return a NumPy scalar as Python's own value; anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def as_python_numbers(value: object, *names: str) -> None:
    """Convert NumPy scalars in these fields to Python's, so that the repr of the value can be evaluated."""
    for name in names:
        object.__setattr__(value, name, python_number(getattr(value, name)))


def checked_table(value: ArrayLike, what: str) -> Array:
    """Return finite numbers as an array; text and labelled tables are refused."""
    if hasattr(value, "to_numpy"):  # a frame or series whose labels would be lost
        raise BadInput(
            f"{what} must be plain numbers, not a {type(value).__name__}; its labels mean nothing here."
        )
    try:
        table = float_array(value)
    except (TypeError, ValueError, OverflowError):
        raise BadInput(f"{what} must be a number or a table of numbers; it is {shown(value)}.") from None
    if table.size == 0 or not np.all(np.isfinite(table)):
        raise BadInput(f"{what} must hold finite numbers only; it is {shown(value)}.")
    return table


def float_array(value: Any) -> Array:
    """Return numbers as an array of floats; raise TypeError for complex ones, which NumPy would cut."""
    found = np.asarray(value)
    if found.dtype.kind == "c":
        raise TypeError("complex numbers")
    return np.asarray(found, dtype=float)


def per_cell(value: Any, what: str, scale: Scale) -> Array:
    """Return bounds as an (L, K) table in unit scale, strictly inside the family's domain."""
    table = np.asarray(value, dtype=float)
    if table.ndim == 1 and table.size != scale.groups:
        raise BadInput(f"{what}s need one number per group, {scale.groups}; there are {table.size}.")
    if table.ndim == 2 and table.shape != (scale.policies, scale.groups):
        raise BadInput(
            f"{what}s need a row per policy and a column per group, {scale.policies} x {scale.groups}; "
            f"they are {table.shape[0]} x {table.shape[1]}."
        )
    low, high = scale.domain
    if np.any(table <= low) or np.any(table >= high):
        bad = table[(table <= low) | (table >= high)].flat[0]
        raise BadInput(
            f"a {what} must lie strictly inside the family's domain ({low:g}, {high:g}); one is {bad:g}."
        )
    full = np.broadcast_to(table, (scale.policies, scale.groups))
    return np.ascontiguousarray(((full - scale.low) / scale.width).T)


def in_words(value: Any) -> str:
    """Return a number, or the range of several, as text for a sentence."""
    if isinstance(value, Mapping):
        value = tuple(x for part in value.values() for x in _numbers(part))
    if isinstance(value, tuple):
        flat = np.asarray(value, dtype=float).ravel()
        return f"{flat.min():g} to {flat.max():g}" if flat.min() < flat.max() else f"{flat[0]:g}"
    return f"{value:g}"


def _numbers(value: Any) -> list[float]:
    """Return all numbers of a table by name."""
    if isinstance(value, Mapping):
        return [x for part in value.values() for x in _numbers(part)]
    return list(value) if isinstance(value, tuple) else [value]
