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

from evenhand.errors import Undecidable
from evenhand.model import region as regions
from evenhand.model import units
from evenhand.model.constraints import (
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
from evenhand.model.problem import Problem

Array = NDArray[np.float64]

EXACTLY = 1e-12  # unit scale: two numbers nearer than this are equal up to rounding
NEARLY = 0.05  # standard deviations of one outcome: nearer than this is worth a warning


def margins(problem: Problem, means: Array) -> Array:
    """How far each policy lies inside its region, in unit scale; not a number where only Python knows."""
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
    if _near_edge(problem, means[answer], margins(problem, means)[answer], EXACTLY):
        raise Undecidable(
            f"{name!r} would be the answer but lies exactly on the boundary of its requirement, and no "
            "number of samples decides on which side; move its means or the requirement."
        )
    scores = problem.scores(means) / problem.family.width
    for k in np.nonzero(problem.feasible(means))[0].tolist():
        if k != answer and abs(scores[answer] - scores[k]) <= EXACTLY * max(1.0, abs(scores[k])):
            raise Undecidable(
                f"{name!r} and {problem.policies[k]!r} are tied for the best overall mean, and no number of "
                "samples decides between them; move a mean."
            )


def near_changes(problem: Problem, means: Array, answer: int | None) -> Iterator[str]:
    """A sentence for everything that a small error in the means would overturn."""
    feasible, inside, scores = problem.feasible(means), margins(problem, means), problem.scores(means)
    spread = _spread(problem, means)
    for k, policy in enumerate(problem.policies):
        contender = answer is None or k == answer or (not feasible[k] and scores[k] > scores[answer])
        if contender and _near_edge(problem, means[k], inside[k], NEARLY * _yardstick(problem, spread[k])):
            side = "meets" if feasible[k] else "misses"
            yield f"{policy!r} only just {side} its requirement; a small error in its means matters."
        elif answer is not None and k != answer and feasible[k]:
            # standard deviation of one sample of the difference of two overall means
            unit = math.sqrt(float(problem.shares @ (spread[k] ** 2 + spread[answer] ** 2)))
            if (scores[answer] - scores[k]) / problem.family.width < NEARLY * unit:
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
    inside = margins(problem, means)
    nearest = 0 if np.isnan(inside).any() else int(np.argmax(inside))
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
        units.divergence(standard.code, mean, bound) if mean != bound else 0.0
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


def _near_edge(problem: Problem, means: Array, margin: float, distance: float) -> bool:
    """Does the requirement's edge lie within this distance, in unit scale, of one policy's means?"""
    if not isinstance(problem.constraint, Convex):
        return abs(margin) <= distance
    # only Python knows the set, and only who is inside: move one group at a time and look
    contains, now = problem.constraint.contains, problem.constraint.contains(means)
    moves = distance * problem.family.width * np.eye(len(means))
    moved = np.clip(means + np.vstack([moves, -moves]), *problem.family.domain)
    return any(contains(row) != now for row in moved)


def _spread(problem: Problem, means: Array) -> Array:
    """Standard deviation of one outcome in every cell, K x L, in unit scale."""
    code, _, phi, _ = problem.standard
    unit = problem.unit_means(means)
    variance = np.vectorize(lambda mu: units.variance(code, mu), otypes=[float])(unit)
    return np.asarray(np.sqrt(variance * phi).T)


def _yardstick(problem: Problem, spread: Array) -> float:
    """What margins are measured against: one outcome's standard deviation, its square for a dispersion."""
    typical = float(spread.mean())
    return typical**2 if isinstance(problem.constraint, Dispersion) else typical
