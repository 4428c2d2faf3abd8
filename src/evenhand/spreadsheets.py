"""Text that a spreadsheet would read as a formula: written with an apostrophe, read without it."""

from __future__ import annotations

from typing import TypeVar

# a field that starts with one of these is a formula to a spreadsheet
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\0")
T = TypeVar("T")


def escaped(field: T) -> T | str:
    """Return a field as it is written into a CSV file: text that looks like a formula is marked."""
    return f"'{field}" if isinstance(field, str) and field.startswith(FORMULA) else field


def unescaped(field: str) -> str:
    """Return a field without the apostrophe that `escaped` or a spreadsheet put before it."""
    return field[1:] if field.startswith("'") and field[1:].startswith(FORMULA) else field
