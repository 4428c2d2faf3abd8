"""Sections: what the page says about one source, in words, pictures and tables, whatever it is written as."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evenhand.report.figures.style import Canvas
from evenhand.report.methods import Methods


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
