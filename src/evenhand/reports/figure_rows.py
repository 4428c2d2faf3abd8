"""Rows: the input of figures, tables and pages. Frozen, in the units of the user, without arrays.

A number that is not known (the mean of an empty cell, an open end of an interval) is None, never 0 or a NaN.
A figure of a large problem has the policies ranked first, in the groups that matter most (`drawn_cells`);
the table of a report has every cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.model.problem import Problem
from evenhand.model.region import CUSTOM, bounds_at, margin_of
from evenhand.model.result_rows import CellRow, PolicyRow

MET, FAILED = "met", "failed"
MOST_CELLS = 80  # in one figure
FEWEST_GROUPS, FEWEST_POLICIES = 8, 3  # drawn even if there are many of the other
LONG_NAME = 80  # characters
BARS = 40  # of a histogram


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


class Drawn(NamedTuple):
    """The policies and groups of a figure, and a sentence on what is left out; "" if nothing is."""

    policies: frozenset[str]
    groups: frozenset[str]
    note: str

    def of(self, rows: Iterable[Row]) -> list[Row]:
        """Return the rows of cells that are drawn."""
        return [row for row in rows if row.policy in self.policies and row.group in self.groups]  # type: ignore[attr-defined]


def drawn_cells(policies: Sequence[str], groups: Sequence[str], which: str) -> Drawn:
    """Return what is drawn of these policies and groups, both the most important first.

    `which` says how the groups were ordered, as in "the groups nearest to their bounds".
    """
    k, g = len(policies), len(groups)
    if k * g > MOST_CELLS:
        # a name in ten lines takes the room, and the time, of several
        part = 1 if max(map(len, (*policies, *groups))) <= LONG_NAME else 2
        g = min(g, max(FEWEST_GROUPS // part, MOST_CELLS // k))
        k = min(k, max(FEWEST_POLICIES // part, MOST_CELLS // (part * part * g)))
    left_out = [f"the {k} policies ranked first of {len(policies)}"] if k < len(policies) else []
    left_out += [f"{g} of {len(groups)} groups, {which}"] if g < len(groups) else []
    note = f" Drawn are {' and '.join(left_out)}; the numbers have all cells." if left_out else ""
    return Drawn(frozenset(policies[:k]), frozenset(groups[:g]), note)


def drawn_estimates(cells: Sequence[CellRow], standings: Sequence[PolicyRow]) -> Drawn:
    """Return the estimates that a figure has: leader and control first, groups by the leader's margin."""
    ranked = [row.policy for row in sorted(standings, key=lambda row: (not row.leads, row.place))]
    controls = dict.fromkeys(bound.control for cell in cells for bound in cell.relative if bound is not None)
    policies = list(dict.fromkeys([*ranked[:1], *controls, *ranked, *(cell.policy for cell in cells)]))
    first = [cell for cell in cells if cell.policy == (policies or [""])[0]]
    groups = [cell.group for cell in sorted(first, key=_margin)]
    highest = max(first, key=lambda cell: -1e300 if cell.mean is None else cell.mean, default=None)
    if highest is not None:  # the distance between groups is that of the extremes
        groups = list(dict.fromkeys([*groups[:1], highest.group, *groups]))
    return drawn_cells(policies, groups, "those nearest to their bounds")


def _margin(cell: CellRow) -> tuple[bool, float]:
    """Return how far a cell is above its floor or below its cap; cells without an estimate come last."""
    if cell.mean is None:
        return True, 0.0
    if cell.floor is None and cell.cap is not None:
        return False, cell.cap - cell.mean
    return False, cell.mean - (cell.floor or 0.0)


def true_standings(
    problem: Problem, means: ArrayLike, answer: str | None, guardrails: Mapping[str, Any] | None = None
) -> list[PolicyRow]:
    """Return the policies at assumed means, where it is known which meet the requirement."""
    table = np.asarray(means, dtype=float)
    scores, feasible = problem.scores(table), problem.feasible(table, guardrails)
    order = sorted(range(len(scores)), key=lambda k: (-scores[k], k))
    return [
        PolicyRow(name, float(scores[k]), MET if feasible[k] else FAILED, order.index(k) + 1, name == answer)
        for k, name in enumerate(problem.policies)
    ]


def true_estimates(
    problem: Problem, means: ArrayLike, standings: Sequence[PolicyRow], metric: int = 0
) -> list[CellRow]:
    """Return assumed means and their bounds; metric j + 1 is guard-rail j.

    A cell without a bound has the verdict of its policy, which with guard-rails may fail by another metric.
    """
    table, region = np.asarray(means, dtype=float), problem.standards[metric].region
    family = problem.guardrails[metric - 1].family if metric else problem.family
    unit = np.ascontiguousarray(family.to_unit(table).T)
    lo, hi = bounds_at(region, unit)
    meets = [region.kind == CUSTOM or margin_of(region, k, unit) >= 0.0 for k in range(len(table))]
    found = []
    for k, policy in enumerate(problem.policies):
        for g, group in enumerate(problem.group_names):
            floor, cap = (_user(family.low + family.width * b[g, k]) for b in (lo, hi))
            mean = float(table[k, g])
            short = (floor is not None and mean < floor) or (cap is not None and mean > cap)
            bounded = floor is not None or cap is not None
            own = MET if problem.guardrails and meets[k] else standings[k].verdict
            verdict = (FAILED if short else MET) if bounded else own
            found.append(CellRow(policy, group, 0, mean, mean, mean, verdict, floor, cap))
    return found


def standings_by(
    problem: Problem, standings: Sequence[PolicyRow], cells: Sequence[CellRow]
) -> list[PolicyRow]:
    """Return the policies with the overall means of these cells, such as those of a guard-rail."""
    found = []
    for row in standings:
        means = [cell.mean for cell in cells if cell.policy == row.policy]
        known = [mean for mean in means if mean is not None]
        overall = float(problem.shares @ np.array(known)) if len(known) == len(problem.groups) else None
        found.append(replace(row, mean=overall))
    return found


def shares(
    problem: Problem, real: ArrayLike, intended: ArrayLike | None = None, n: ArrayLike | None = None
) -> list[Share]:
    """Return K x L tables as rows."""
    table = np.asarray(real, dtype=float)
    aim = None if intended is None else np.asarray(intended, dtype=float)
    counts = None if n is None else np.asarray(n)
    return [
        Share(
            policy, group, float(table[k, g]), None if aim is None else float(aim[k, g]),
            None if counts is None else int(counts[k, g]),
        )
        for k, policy in enumerate(problem.policies)
        for g, group in enumerate(problem.group_names)
    ]  # fmt: skip


def bars(samples: NDArray[np.int64]) -> tuple[Bar, ...]:
    """Return a histogram; the last bar contains the tail."""
    top = float(np.quantile(samples, 0.995)) if len(samples) > 1 else float(samples[0])
    low = float(samples.min())
    edges = np.linspace(low, max(top, low + 1.0), BARS + 1)
    counts, _ = np.histogram(np.minimum(samples, edges[-1]), bins=edges)
    return tuple(Bar(float(a), float(b), int(c)) for a, b, c in zip(edges, edges[1:], counts, strict=False))


def _user(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
