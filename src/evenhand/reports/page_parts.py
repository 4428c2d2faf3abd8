"""Sections: what the page says about one source, in words, pictures and tables, whatever it is written as.

How a number, a sentence and a table look as text: one hand for HTML and Markdown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from evenhand.reports.guarantees import Methods

if TYPE_CHECKING:  # tables and sentences are shown without loading matplotlib
    from evenhand.reports.figures.style import Canvas


@dataclass(frozen=True)
class Strong:
    """A name or number the eye should catch."""

    text: str


Words = tuple[
    str | Strong, ...
]  # a sentence; names from users are spans of their own and escaped where they are shown
Field = str | int | float | None


@dataclass(frozen=True)
class Table:
    """A caption, column titles and rows; numbers stay numbers until they are shown."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Field, ...], ...]


@dataclass(frozen=True)
class Picture:
    """A drawing, the sentence that says what it shows, and the table behind it."""

    name: str
    title: str
    says: str
    draw: Callable[[int], Canvas]  # by width in pixels
    table: Table


@dataclass(frozen=True)
class Section:
    """One source: its leading sentence, what else is worth saying, its pictures and tables, its numbers."""

    kind: str
    title: str
    lead: Words
    notes: tuple[Words, ...] = ()
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)
    highlights: tuple[tuple[str, str], ...] = ()  # a few numbers to see first: (label, value)
    progress: float | None = None  # share of the evidence needed, where there is a decision to wait for
    facts: tuple[tuple[str, str], ...] = ()  # seeds, hashes: what one needs to make it again
    code: str = ""  # the commands that make it again
    methods: Methods | None = None  # what holds for this source, where that is not its study's stopping rule


def text(words: Words) -> str:
    """A sentence without emphasis."""
    return "".join(part.text if isinstance(part, Strong) else part for part in words)


def names(found: Sequence[str], joined: str = "and") -> Words:
    """Names in a sentence: A, B and C."""
    parts: list[str | Strong] = []
    for number, name in enumerate(found):
        if number:
            parts.append(f" {joined} " if number == len(found) - 1 else ", ")
        parts.append(Strong(name))
    return tuple(parts)


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Field]]) -> Table:
    return Table(caption, tuple(columns), tuple(map(tuple, rows)))


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
