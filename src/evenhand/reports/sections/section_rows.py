"""Rows and histograms that several sections use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.model.problem import Problem
from evenhand.model.region import CUSTOM, bounds_at, margin_of
from evenhand.model.result_rows import CellRow, PolicyRow
from evenhand.reports.figure_rows import FAILED, MET, Bar, Share
from evenhand.reports.page_parts import Picture

CHANCES = (0.5, 0.7, 0.8, 0.9)
BARS = 40


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


def guardrail_pictures(
    problem: Problem, means: Mapping[str, Any] | None, standings: Sequence[PolicyRow], title: str
) -> list[Picture]:
    """Return the figures of assumed means of every guard-rail against their bounds."""
    from evenhand.reports.captioned_figures import floors_picture  # the plotting library is heavy

    found = []
    for j, (name, table) in enumerate((means or {}).items(), start=1):
        estimates = true_estimates(problem, table, standings, j)
        own = standings_by(problem, standings, estimates)
        picture = floors_picture(estimates, own, f"{title} of {name}")
        found.append(replace(picture, name=f"guard-rail-{j}"))
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
