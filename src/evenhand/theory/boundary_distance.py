"""Distances of the means to where the answer changes, and why no policy is allowed.

Questions that no number of samples decides; near ties and means near a boundary, as warnings; and, where no
policy meets the requirement, the group in which each policy fails and a requirement that one would meet.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.model import region as regions
from evenhand.model import unit_families
from evenhand.model.problem import Problem
from evenhand.model.region import BOX, RELATIVE, Region
from evenhand.model.requirements import (
    Caps,
    Constraint,
    Convex,
    Dispersion,
    Floors,
    Gap,
    Polyhedron,
    Quota,
    Ratio,
)
from evenhand.theory import inner
from evenhand.theory.alternatives import cut_all, solve_all
from evenhand.theory.metrics import Metric, spread_of
from evenhand.theory.question import Question

Array = NDArray[np.float64]

NEARLY = 0.05  # standard deviations of one outcome: nearer than this is worth a warning


def margins(problem: Problem, means: Array) -> Array:
    """Return how far each policy lies inside its region, in unit scale, 0 if within rounding.

    NaN for a set without a kernel.
    """
    region = problem.standard.region
    if region.kind == regions.CUSTOM:
        return np.full(len(means), math.nan)
    unit = problem.unit_means(means)
    return np.array([regions.margin_of(region, k, unit) for k in range(len(means))])


def why_undecided(asked: Question, i: int | None) -> str | None:
    """def:S: return why no number of samples certifies answer i; None where some number does."""
    if i is None:
        return None  # a policy exactly on the boundary counts as feasible, so none is on it here
    problem = asked.problem
    name, inside = problem.policies[i], asked.margins(i)
    if _on_the_edge(asked, i):
        return (
            f"{name!r} would be the answer but lies exactly on the boundary of its requirement, and no "
            "number of samples decides on which side; move its means or the requirement."
        )
    for rail, margin in zip(problem.guardrails, inside[1:], strict=True):
        if margin == 0.0:
            return (
                f"{name!r} would be the answer but lies exactly on the boundary of its guard-rail "
                f"{rail.name!r}, and no number of samples decides on which side; move its means or the bound."
            )
    for k in np.nonzero(asked.allowed)[0].tolist():
        if k != i and asked.lead(i, k) == 0.0:
            return _tied(problem, i, k, asked.indifference)
    return None


def _tied(problem: Problem, i: int, k: int, indifference: float) -> str:
    if indifference > 0.0:
        return (
            f"{problem.policies[k]!r} is better than {problem.policies[i]!r} by exactly the indifference, "
            f"{indifference:g}, and no number of samples decides whether by more; move a mean."
        )
    return (
        f"{problem.policies[i]!r} and {problem.policies[k]!r} are tied for the best overall mean, and no "
        "number of samples decides between them; move a mean."
    )


def near_changes(asked: Question, i: int | None) -> Iterator[str]:
    """Yield a sentence for each fact about answer i that a small error in the means changes."""
    problem, feasible, scores = asked.problem, asked.allowed, asked.scores
    for k, policy in enumerate(problem.policies):
        contender = i is None or k == i or (not feasible[k] and scores[k] > scores[i])
        region = asked.kept if k == i else problem.standard.region
        if contender and _near_the_edge(asked, region, k):
            side = "meets" if _meets(asked, region, k) else "misses"
            yield f"{policy!r} only just {side} its requirement; a small error in its means matters."
        elif i is not None and k != i and feasible[k] and asked.lead(i, k) < NEARLY * deviation(asked, i, k):
            yield _nearly_tied(asked, i, k)
        if contender:
            yield from _near_guardrails(asked, k)


def _nearly_tied(asked: Question, i: int, k: int) -> str:
    names, scores = asked.problem.policies, asked.scores
    if asked.indifference > 0.0:
        return (
            f"{names[k]!r} is better than {names[i]!r} by nearly the indifference (overall means "
            f"{scores[k]:.4g} and {scores[i]:.4g}); a small error in the means matters."
        )
    return (
        f"{names[k]!r} is nearly tied with {names[i]!r} (overall means "
        f"{scores[k]:.4g} and {scores[i]:.4g}); a small error in the means matters."
    )


def _near_guardrails(asked: Question, k: int) -> Iterator[str]:
    rails = zip(asked.problem.guardrails, asked.metrics[1:], asked.deviations[1:], strict=True)
    for rail, (standard, mu), spread in rails:
        if abs(_depth(standard.region, k, mu, float(spread[k].mean()))) <= NEARLY:
            side = "meets" if regions.is_inside(standard.region, k, mu) else "misses"
            yield (
                f"{asked.problem.policies[k]!r} only just {side} its guard-rail {rail.name!r}; "
                "a small error in its means matters."
            )


def deviation(asked: Question, i: int, k: int) -> float:
    """Return the sd of one sample of the difference of two overall means, in unit scale."""
    spread = asked.deviations[0]
    return math.sqrt(float(asked.problem.shares @ (spread[k] ** 2 + spread[i] ** 2)))


@dataclass(frozen=True)
class FailedGroup:
    """The group in which a policy fails most clearly."""

    policy: str
    group: str
    mean: float
    metric: str | None = None  # the guard-rail, where it is one


@dataclass(frozen=True)
class WhyNone:
    """Why no policy meets the requirement, and a requirement that one would meet."""

    policies: tuple[FailedGroup, ...]
    nearest: str  # the policy that misses by least
    largest_floor: (
        float | None
    )  # the largest floor for all groups that some policy meets; None for other requirements
    words: str

    def to_dict(self) -> dict[str, Any]:
        blames = [
            {"policy": b.policy, "group": b.group, "mean": b.mean}
            | ({"metric": b.metric} if b.metric else {})
            for b in self.policies
        ]
        return {
            "policies": blames,
            "nearest": self.nearest,
            "largest_floor": self.largest_floor,
            "words": self.words,
        }


def why_none(problem: Problem, means: Array, allocation: Array) -> WhyNone:
    """Return for each policy the group whose samples show that it fails."""
    groups = problem.group_names
    bounded = problem.standard.region.kind == regions.BOX
    worst = np.argmax(_shortfalls(problem, means) if bounded else allocation, axis=1).tolist()
    blames = tuple(
        FailedGroup(policy, groups[g], float(means[k, g]))
        for k, (policy, g) in enumerate(zip(problem.policies, worst, strict=True))
    )
    inside, unit = margins(problem, means), problem.unit_means(means)
    typical = float(spread_of(Metric(problem.standard, unit)).mean())
    depths = [_depth(problem.standard.region, k, unit, typical) for k in range(len(means))]
    nearest = 0 if np.isnan(inside).any() else int(np.argmax(depths))
    name, words = problem.policies[nearest], ""
    floor = None
    if isinstance(problem.constraint, Floors):
        best = int(np.argmax(means.min(axis=1)))
        floor = float(means[best].min())
        words = (
            f"The largest floor that a policy meets in every group is {floor:.4g} ({problem.policies[best]})."
        )
    elif not np.isnan(inside).any():
        words = _nearly_met(
            problem.constraint, means[nearest], float(inside[nearest]) * problem.family.width, name
        )
    return WhyNone(blames, name, floor, words)


def _shortfalls(problem: Problem, means: Array) -> Array:
    """Return the evidence of one sample of each cell against its floor or cap, K x L."""
    standard, unit = problem.standard, problem.unit_means(means)
    nearest = np.clip(unit, standard.region.lo, standard.region.hi)
    tells = [
        unit_families.divergence(standard.code, mean, bound) if mean != bound else 0.0
        for mean, bound in zip(unit.flat, nearest.flat, strict=True)
    ]
    return np.asarray((np.reshape(tells, unit.shape) / standard.phi).T)


def _nearly_met(constraint: Constraint, means: Array, margin: float, name: str) -> str:
    """Return what the nearest policy would meet; `margin` is negative, in the user's units."""
    if isinstance(constraint, Gap):
        return f"The smallest gap of any policy is {float(np.ptp(means)):.4g} ({name})."
    if isinstance(constraint, Ratio):
        return f"{name} comes nearest, with a ratio of {float(means.min() / means.max()):.4g}."
    if isinstance(constraint, Dispersion):
        return f"{name} comes nearest to the dispersion allowed."
    if isinstance(constraint, (Caps, Quota, Polyhedron)):
        return f"{name} comes nearest: it would meet every bound loosened by {-margin:.4g}."
    return f"{name} comes nearest to meeting the requirement."


def _on_the_edge(asked: Question, k: int) -> bool:
    """Return whether policy k lies on the boundary of an answer's requirements, up to rounding."""
    constraint, region = asked.problem.constraint, asked.kept
    if not isinstance(constraint, Convex):
        return asked.margins(k)[0] == 0.0
    reach = regions.ROUNDING * np.abs(asked.metrics[0].mu[:, k]) + region.resolution[:, k]
    return _answer_changes_within(asked.problem, constraint, asked.means[k], reach)


def _near_the_edge(asked: Question, region: Region, k: int) -> bool:
    """Return whether policy k is near enough to the boundary of its requirement for a warning."""
    typical = float(asked.deviations[0][k].mean())  # standard deviation of one of its outcomes, in unit scale
    constraint = asked.problem.constraint
    if not isinstance(constraint, Convex):
        return abs(_depth(region, k, asked.metrics[0].mu, typical)) <= NEARLY
    reach = np.full(asked.means.shape[1], NEARLY * typical)
    return _answer_changes_within(asked.problem, constraint, asked.means[k], reach)


def _meets(asked: Question, region: Region, k: int) -> bool:
    """Return whether policy k meets the requirement of this region, or of the user's own set."""
    constraint = asked.problem.constraint
    if isinstance(constraint, Convex):
        return bool(constraint.contains(asked.means[k]))
    return regions.is_inside(region, k, asked.metrics[0].mu)


def _answer_changes_within(problem: Problem, constraint: Convex, means: Array, reach: Array) -> bool:
    """Return whether moving one group's mean by its reach (unit scale) crosses the boundary."""
    contains, now = constraint.contains, constraint.contains(means)
    moves = problem.family.width * np.diag(reach)
    moved = np.clip(means + np.vstack([moves, -moves]), *problem.family.domain)
    return any(contains(row) != now for row in moved)


def _depth(region: Region, k: int, unit: Array, typical: float) -> float:
    """Return the margin in standard deviations of one outcome, whatever its units."""
    if region.kind == regions.CUSTOM:
        return math.nan
    kind = regions.CONVEX if region.kind == regions.DISPERSION else region.kind
    linear = region._replace(kind=kind, limit=math.inf)
    depth = _times(regions.margin_of(linear, k, unit), typical)
    if region.limit < math.inf:
        squares = region._replace(kind=regions.DISPERSION, rows=region.rows[:0], rhs=region.rhs[:0])
        depth = min(depth, _times(regions.margin_of(squares, k, unit), typical**2))
    return depth


def _times(margin: float, unit: float) -> float:
    """Return the margin as a multiple of the unit; infinite where outcomes do not vary."""
    if margin == 0.0:
        return 0.0
    return margin / unit if unit > 0.0 else math.copysign(math.inf, margin)


def evidence_against_each(asked: Question, allocation: Array) -> WhyNone:
    """Return for each policy the bound against which one sample gives most evidence."""
    problem = asked.problem
    if not problem.guardrails and problem.standard.region.kind != RELATIVE:
        return why_none(problem, asked.means, allocation)
    evidence = np.array([_evidence_per_sample(one, allocation) for one in asked.metrics])  # (metrics, K, L)
    blames = []
    for k, policy in enumerate(problem.policies):
        metric, g = np.unravel_index(int(np.argmax(evidence[:, k])), evidence[:, k].shape)
        mean = (asked.means, *asked.guardrails)[metric][k, g]
        name = problem.guardrails[metric - 1].name if metric else None
        blames.append(FailedGroup(policy, problem.group_names[g], float(mean), name))
    nearest = blames[int(np.argmin(evidence.sum(axis=(0, 2))))]
    what = "its requirement" if nearest.metric is None else f"its guard-rail {nearest.metric!r}"
    words = f"{nearest.policy} comes nearest: it misses {what} most clearly in {nearest.group}."
    return WhyNone(tuple(blames), nearest.policy, None, words)


def _evidence_per_sample(metric: Metric, allocation: Array) -> Array:
    """Return the evidence of one sample of each cell against a policy being inside; K x L."""
    (code, shares, phi, region), mu = metric
    groups, policies = mu.shape
    v = np.ascontiguousarray(np.ones((groups, policies)) / phi)
    cost, bound, lam = np.empty(policies), np.empty(policies), np.zeros((policies, 3, groups))
    unused = np.empty(policies, dtype=np.intp)
    work = np.empty(inner.work_size(groups, region.rows.shape[0]))
    solve_all(code, region, region, shares, 0.0, -1, v, mu, cost, bound, unused, lam, work)
    own, ignored, aside = (np.zeros((policies, groups)) for _ in range(3))
    cut_all(code, -1, region.control, mu, phi, cost, lam, own, ignored, aside)
    if region.kind in (BOX, RELATIVE):
        return own + aside
    # other regions do not separate by group: name the group that is sampled most
    return np.where(allocation == allocation.max(axis=1, keepdims=True), cost[:, None], 0.0)
