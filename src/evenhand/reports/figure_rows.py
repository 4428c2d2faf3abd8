"""Rows: the input of figures, tables and pages. Frozen, in the units of the user, without arrays.

A number that is not known (the mean of an empty cell, an open end of an interval) is None, never 0 or a NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from evenhand.model.result_rows import PolicyRow

MET, FAILED, UNDECIDED = "met", "failed", "undecided"


@dataclass(frozen=True)
class Share:
    """The share of the samples of one cell, and the intended share."""

    policy: str
    group: str
    share: float
    intended: float | None = None
    n: int | None = None


@dataclass(frozen=True)
class RequirementMark:
    """A requirement that involves several groups at once, for one policy, at its estimated means."""

    policy: str
    words: str  # what it is and what it must be: "gap 0.29, at most 0.15"
    excess: float | None = None  # how far beyond what is allowed; negative: so much to spare
    limit: float | None = None  # gap and ratio: no group mean may be below this,
    largest: float | None = None  # given the largest group mean
    smallest: float | None = None
    centre: float | None = None  # dispersion: the mean to which distances are measured
    counted: tuple[str, ...] | None = None  # quota: the groups that reach their floor


@dataclass(frozen=True)
class Evidence:
    """The evidence of the weakest comparison at a number of samples, in nats, and its threshold."""

    samples: int
    evidence: float
    needed: float
    weakest: str


@dataclass(frozen=True)
class IntervalShares:
    """The published shares of one interval, by group and policy."""

    interval: int
    shares: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Bar:
    """The number of runs that ended with samples in [low, high)."""

    low: float
    high: float
    count: int


@dataclass(frozen=True)
class Duration:
    """The distribution of the samples that one procedure takes to a decision."""

    name: str
    bars: tuple[Bar, ...]
    quantiles: tuple[tuple[float, float], ...]  # (chance to finish by then, samples)
    unfinished: float = 0.0  # share of runs that reached the cap undecided; they count at the cap
    bound: float | None = None  # no procedure with this risk needs fewer on average


@dataclass(frozen=True)
class Success:
    """The share of runs with the right answer at a number of samples, with its interval."""

    name: str
    samples: int
    rate: float
    low: float
    high: float


Row = TypeVar("Row")


def in_order(rows: Sequence[Row], standings: Iterable[PolicyRow]) -> list[Row]:
    """Return rows of cells sorted by the rank of their policy: the same order in all figures."""
    places = {standing.policy: standing.place for standing in standings}
    return sorted(rows, key=lambda row: places.get(row.policy, len(places) + 1))  # type: ignore[attr-defined]


def plain(rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Return rows as dicts, for JSON."""
    return [asdict(row) for row in rows]
