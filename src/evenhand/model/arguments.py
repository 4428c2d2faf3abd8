"""Checks of the arguments of public functions: each refuses a wrong kind of value in one sentence."""

from __future__ import annotations

from typing import Any, TypeVar

from evenhand.errors import BadInput, shown
from evenhand.model.bounds import is_number, is_whole

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
        limits = f"at least {least}" if most == 2**63 - 1 else f"from {least} to {most}"
        raise BadInput(f"{name} must be a whole number, {limits}; it is {shown(value)}.")
    return int(value)


def number_between(value: Any, name: str, low: float, high: float) -> float:
    """Return the value as a float, refused unless it lies strictly between these."""
    if not is_number(value) or not low < value < high:
        raise BadInput(f"{name} must lie strictly between {low:g} and {high:g}; it is {shown(value)}.")
    return float(value)


def flag(value: Any, name: str) -> bool:
    """Return the value, refused unless it is true or false."""
    if not isinstance(value, bool):
        raise BadInput(f"{name} must be True or False; it is {shown(value)}.")
    return value


def callable_or_none(value: Any, name: str) -> Any:
    """Return the value, refused unless it can be called or is None."""
    if value is not None and not callable(value):
        raise BadInput(f"{name} must be a function; it is {shown(value)}.")
    return value
