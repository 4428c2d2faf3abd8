"""Rows: the only thing figures, tables and the page ever see. Frozen, in the user's own units, no arrays.

A number nobody knows (the mean of an empty cell, an open end of an interval) is None, never 0 or a NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from evenhand.model.rows import PolicyRow

MET, FAILED, UNDECIDED = "met", "failed", "undecided"


@dataclass(frozen=True)
class Share:
    """One cell's share of the samples, and the share it should have had."""

    policy: str
    group: str
    share: float
    intended: float | None = None
    n: int | None = None


@dataclass(frozen=True)
class Evidence:
    """The weakest piece's evidence after so many samples, in nats, and the line it must reach."""

    samples: int
    evidence: float
    needed: float
    weakest: str


@dataclass(frozen=True)
class Bar:
    """How many runs ended with a number of samples in [low, high)."""

    low: float
    high: float
    count: int


@dataclass(frozen=True)
class Duration:
    """How long one procedure takes: the distribution of its samples to a decision."""

    name: str
    bars: tuple[Bar, ...]
    quantiles: tuple[tuple[float, float], ...]  # (chance to finish by then, samples)
    unfinished: float = 0.0  # share of runs that reached the cap undecided; they count at the cap
    bound: float | None = None  # no procedure with this risk needs fewer on average


@dataclass(frozen=True)
class Success:
    """The share of runs whose answer was right after so many samples, with its interval."""

    name: str
    samples: int
    rate: float
    low: float
    high: float


Row = TypeVar("Row")


def in_order(rows: Sequence[Row], standings: Iterable[PolicyRow]) -> list[Row]:
    """Cell rows sorted by their policy's place, groups as they came: one order for all pictures."""
    places = {standing.policy: standing.place for standing in standings}
    return sorted(rows, key=lambda row: places.get(row.policy, len(places) + 1))  # type: ignore[attr-defined]


def plain(rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Rows as dictionaries, ready for JSON."""
    return [asdict(row) for row in rows]
