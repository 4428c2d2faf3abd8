"""The parts of a page, independent of its format: sections, figures, tables, sentences, formatted fields."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from evenhand.reports.guarantees import Methods

if TYPE_CHECKING:  # tables and sentences are shown without loading matplotlib
    from evenhand.reports.figures.canvas import Canvas


@dataclass(frozen=True)
class Strong:
    """A name or number that is emphasised."""

    text: str


Words = tuple[
    str | Strong, ...
]  # a sentence; names from users are separate parts, escaped when they are shown
Field = str | int | float | None
GUARDRAIL = "guard-rail-"  # the names of figures of guard-rails begin with it
AT_THE_BEGINNING = ", when the experiment began"  # the names of facts about that time end with it


@dataclass(frozen=True)
class Table:
    """A caption, column titles and rows; numbers stay numbers until they are shown."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Field, ...], ...]


@dataclass(frozen=True)
class Picture:
    """A figure, a sentence about what it shows, and its table."""

    name: str
    title: str
    says: str
    draw: Callable[[int], Canvas]  # by width in pixels
    table: Table


@dataclass(frozen=True)
class Section:
    """What a page contains about one source: sentences, figures, tables and numbers."""

    kind: str
    title: str
    lead: Words
    notes: tuple[Words, ...] = ()
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)
    highlights: tuple[tuple[str, str], ...] = ()  # the main numbers: (label, value)
    progress: float | None = None  # share of the evidence needed, where there is a decision to wait for
    facts: tuple[tuple[str, str], ...] = ()  # seeds and hashes needed to make it again
    code: str = ""  # the commands that make it again
    methods: Methods | None = None  # the guarantee, where it is not that of the stopping rule of the study


def text(words: Words) -> str:
    """Return a sentence without emphasis."""
    return "".join(part.text if isinstance(part, Strong) else part for part in words)


def names(found: Sequence[str], joined: str = "and") -> Words:
    """Return names in a sentence: A, B and C."""
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
    """Return a field of a table as text; verdicts have a symbol, shares are percentages."""
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
    """Return a number with four decimals below 10, more below 0.001 and fewer above, thousands separated."""
    if 0.0 < value < 1e-6:
        return "<0.000001"
    if value != 0 and abs(value) < 0.001:
        return f"{value:.6f}" if abs(value) >= 1e-6 else f"{value:.2e}"
    if abs(value) < 10:
        return f"{value:.4f}"
    return f"{value:.1f}" if abs(value) < 1000 else f"{value:,.0f}"


def is_number(table: Table, column: int) -> bool:
    """Return whether this is a column of numbers, to be aligned right."""
    values = [row[column] for row in table.rows if row[column] is not None]
    return bool(values) and all(isinstance(value, (int, float)) for value in values)
