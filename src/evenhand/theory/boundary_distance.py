"""How near the means lie to where the answer changes.

What no number of samples decides; what is only just so; and, where nobody meets the requirement, who is to
blame and what someone would meet.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import uncompiled
from evenhand.errors import Undecidable
from evenhand.model import region as regions
from evenhand.model import unit_families
from evenhand.model.problem import Problem
from evenhand.model.region import Region
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

Array = NDArray[np.float64]

NEARLY = 0.05  # standard deviations of one outcome: nearer than this is worth a warning


def margins(problem: Problem, means: Array) -> Array:
    """How far each policy lies inside its region, in unit scale and 0 where that is rounding.

    Not a number where only Python knows.
    """
    region = problem.standard.region
    if region.kind == regions.CUSTOM:
        return np.full(len(means), math.nan)
    unit = problem.unit_means(means)
    return np.array([regions.margin(region, k, unit) for k in range(len(means))])


def refuse_undecidable(problem: Problem, means: Array, answer: int | None) -> None:
    """def:S: raise where the means lie on the edge between two answers, so that T* is infinite."""
    if answer is None:
        return  # whoever lies exactly on the boundary counts as feasible, so nobody does
    name = problem.policies[answer]
    unit = problem.unit_means(means)
    if _on_the_edge(problem, means[answer], unit, answer):
        raise Undecidable(
            f"{name!r} would be the answer but lies exactly on the boundary of its requirement, and no "
            "number of samples decides on which side; move its means or the requirement."
        )
    tied = _tied_with(problem, means, unit, answer)
    for k in np.nonzero(problem.feasible(means) & tied)[0].tolist():
        if k != answer:
            raise Undecidable(
                f"{name!r} and {problem.policies[k]!r} are tied for the best overall mean, and no number of "
                "samples decides between them; move a mean."
            )


def near_changes(problem: Problem, means: Array, answer: int | None) -> Iterator[str]:
    """A sentence for everything that a small error in the means would overturn."""
    feasible, scores, spread = problem.feasible(means), problem.scores(means), _spread(problem, means)
    unit = problem.unit_means(means)
    for k, policy in enumerate(problem.policies):
        contender = answer is None or k == answer or (not feasible[k] and scores[k] > scores[answer])
        if contender and _near_the_edge(problem, means[k], unit, k, float(spread[k].mean())):
            side = "meets" if feasible[k] else "misses"
            yield f"{policy!r} only just {side} its requirement; a small error in its means matters."
        elif answer is not None and k != answer and feasible[k]:
            # standard deviation of one sample of the difference of two overall means
            noise = math.sqrt(float(problem.shares @ (spread[k] ** 2 + spread[answer] ** 2)))
            if (scores[answer] - scores[k]) / problem.family.width < NEARLY * noise:
                yield (
                    f"{policy!r} is nearly tied with {problem.policies[answer]!r} (overall means "
                    f"{scores[k]:.4g} and {scores[answer]:.4g}); a small error in the means matters."
                )


@dataclass(frozen=True)
class Blame:
    """The group in which a policy fails most clearly."""

    policy: str
    group: str
    mean: float


@dataclass(frozen=True)
class WhyNone:
    """Why nobody meets the requirement, and what someone would meet."""

    policies: tuple[Blame, ...]
    nearest: str  # the policy that misses by least
    largest_floor: (
        float | None
    )  # the largest floor for all groups that someone meets; None for other requirements
    words: str

    def to_dict(self) -> dict[str, Any]:
        blames = [{"policy": b.policy, "group": b.group, "mean": b.mean} for b in self.policies]
        return {
            "policies": blames,
            "nearest": self.nearest,
            "largest_floor": self.largest_floor,
            "words": self.words,
        }


def why_none(problem: Problem, means: Array, allocation: Array) -> WhyNone:
    """Who is to blame: for each policy the group whose samples show its failure."""
    groups = problem.group_names
    bounded = problem.standard.region.kind == regions.BOX
    worst = np.argmax(_shortfalls(problem, means) if bounded else allocation, axis=1).tolist()
    blames = tuple(
        Blame(policy, groups[g], float(means[k, g]))
        for k, (policy, g) in enumerate(zip(problem.policies, worst, strict=True))
    )
    inside, unit = margins(problem, means), problem.unit_means(means)
    typical = float(_spread(problem, means).mean())
    depths = [_depth(problem.standard.region, k, unit, typical) for k in range(len(means))]
    nearest = 0 if np.isnan(inside).any() else int(np.argmax(depths))
    name, words = problem.policies[nearest], ""
    floor = None
    if isinstance(problem.constraint, Floors):
        best = int(np.argmax(means.min(axis=1)))
        floor = float(means[best].min())
        words = (
            f"The largest floor that someone meets in every group is {floor:.4g} ({problem.policies[best]})."
        )
    elif not np.isnan(inside).any():
        words = _nearly_met(
            problem.constraint, means[nearest], float(inside[nearest]) * problem.family.width, name
        )
    return WhyNone(blames, name, floor, words)


def _shortfalls(problem: Problem, means: Array) -> Array:
    """What one sample of each cell tells against its floor or cap, K x L."""
    standard, unit = problem.standard, problem.unit_means(means)
    nearest = np.clip(unit, standard.region.lo, standard.region.hi)
    tells = [
        unit_families.divergence(standard.code, mean, bound) if mean != bound else 0.0
        for mean, bound in zip(unit.flat, nearest.flat, strict=True)
    ]
    return np.asarray((np.reshape(tells, unit.shape) / standard.phi).T)


def _nearly_met(constraint: Constraint, means: Array, margin: float, name: str) -> str:
    """What the nearest policy would meet; `margin` is negative, in the user's units."""
    if isinstance(constraint, Gap):
        return f"The smallest gap that someone keeps is {float(np.ptp(means)):.4g} ({name})."
    if isinstance(constraint, Ratio):
        return f"{name} comes nearest, with a ratio of {float(means.min() / means.max()):.4g}."
    if isinstance(constraint, Dispersion):
        return f"{name} comes nearest to the dispersion allowed."
    if isinstance(constraint, (Caps, Quota, Polyhedron)):
        return f"{name} comes nearest: it would meet every bound loosened by {-margin:.4g}."
    return f"{name} comes nearest to meeting the requirement."


def _on_the_edge(problem: Problem, means: Array, unit: Array, k: int) -> bool:
    """Does policy k lie on the edge of its requirement, up to rounding?"""
    region = problem.standard.region
    if not isinstance(problem.constraint, Convex):
        return bool(regions.margin(region, k, unit) == 0.0)
    reach = regions.ROUNDING * np.abs(unit[:, k]) + region.resolution[:, k]
    return _answer_changes_within(problem, problem.constraint, means, reach)


def _near_the_edge(problem: Problem, means: Array, unit: Array, k: int, typical: float) -> bool:
    """Does policy k lie so near the edge of its requirement that it is worth a warning?

    `typical` is the standard deviation of one of its outcomes, in unit scale.
    """
    if not isinstance(problem.constraint, Convex):
        return abs(_depth(problem.standard.region, k, unit, typical)) <= NEARLY
    reach = np.full(len(means), NEARLY * typical)
    return _answer_changes_within(problem, problem.constraint, means, reach)


def _answer_changes_within(problem: Problem, constraint: Convex, means: Array, reach: Array) -> bool:
    """Does moving one group's mean by its reach, in unit scale, lead into or out of the user's own set?"""
    contains, now = constraint.contains, constraint.contains(means)
    moves = problem.family.width * np.diag(reach)
    moved = np.clip(means + np.vstack([moves, -moves]), *problem.family.domain)
    return any(contains(row) != now for row in moved)


def _tied_with(problem: Problem, means: Array, unit: Array, answer: int) -> NDArray[np.bool_]:
    """Which policies have the answer's score, up to rounding."""
    region, shares = problem.standard.region, problem.shares
    weight = shares * (1.0 + region.gamma)
    size, blur = weight @ np.abs(unit), weight @ region.resolution
    if region.kind == regions.PENALTY:
        size = size + (shares * region.gamma) @ np.abs(region.lo)
    scores = problem.scores(means) / problem.family.width
    allowed = regions.ROUNDING * (size + size[answer]) + blur + blur[answer]
    return np.asarray(np.abs(scores - scores[answer]) <= allowed)


def _depth(region: Region, k: int, unit: Array, typical: float) -> float:
    """The margin in standard deviations of one outcome, whatever the units of the tightest condition."""
    if region.kind == regions.CUSTOM:
        return math.nan
    kind = regions.CONVEX if region.kind == regions.DISPERSION else region.kind
    linear = region._replace(kind=kind, limit=math.inf)
    depth = _times(regions.margin(linear, k, unit), typical)
    if region.limit < math.inf:
        squares = region._replace(kind=regions.DISPERSION, rows=region.rows[:0], rhs=region.rhs[:0])
        depth = min(depth, _times(regions.margin(squares, k, unit), typical**2))
    return depth


def _times(margin: float, unit: float) -> float:
    """How many times the unit a margin is; where outcomes do not vary, endlessly often."""
    if margin == 0.0:
        return 0.0
    return margin / unit if unit > 0.0 else math.copysign(math.inf, margin)


def _spread(problem: Problem, means: Array) -> Array:
    """Standard deviation of one outcome in every cell, K x L, in unit scale."""
    code, _, phi, _ = problem.standard
    unit = problem.unit_means(means)
    variance = np.vectorize(lambda mu: uncompiled(unit_families.variance)(code, mu), otypes=[float])(unit)
    return np.asarray(np.sqrt(variance * phi).T)
