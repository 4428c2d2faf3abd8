"""How a number, a sentence and a table look as text: one hand for HTML and Markdown."""

from __future__ import annotations

import math

from evenhand.report.sections import Field, Table

SYMBOLS = {"met": "●", "failed": "✕", "undecided": "○", "meets": "●", "fails": "✕"}
SHARES = ("share", "right", "reached the cap", "error")


def field_text(value: Field, column: str = "") -> str:
    """A table's field as a person reads it; verdicts carry their symbol, shares are percentages."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return f"{SYMBOLS[value]} {value}" if column == "verdict" and value in SYMBOLS else value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return "–"
    if column.startswith(SHARES):
        return f"{value:.1%}"
    return decimal(value)


def decimal(value: float) -> str:
    """Enough digits to compare by, and no more: four decimals below 10, fewer above, thousands set apart."""
    if value != 0 and abs(value) < 0.001:
        return f"{value:.2e}"
    if abs(value) < 10:
        return f"{value:.4f}"
    return f"{value:.1f}" if abs(value) < 1000 else f"{value:,.0f}"


def is_number(table: Table, column: int) -> bool:
    """Is this a column of numbers, to be set flush right?"""
    values = [row[column] for row in table.rows if row[column] is not None]
    return bool(values) and all(isinstance(value, (int, float)) for value in values)
