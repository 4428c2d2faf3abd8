"""What would change the plan: the requirement tightened or loosened, and other risks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput, Undecidable
from evenhand.model.problem import Problem
from evenhand.model.requirements import (
    All,
    Caps,
    Constraint,
    Dispersion,
    Floors,
    Gap,
    Penalty,
    Polyhedron,
    Quota,
    Ratio,
)
from evenhand.theory.plan import Plan, plan

Array = NDArray[np.float64]

STEPS = (-1.0, -0.5, 0.5, 1.0)  # times the requirement's natural step; positive is tighter
DELTAS = (0.2, 0.1, 0.05, 0.01, 0.001)
GAP = 1e-4  # for a table of four digits

# which number of a requirement makes it tighter, and in which direction
BOUNDS: dict[type[Constraint], tuple[str, float]] = {
    Floors: ("at_least", 1.0),
    Caps: ("at_most", -1.0),
    Gap: ("at_most", -1.0),
    Ratio: ("at_least", 1.0),
    Quota: ("at_least", 1.0),
    Dispersion: ("at_most", -1.0),
    Polyhedron: ("b", 1.0),
    Penalty: ("floor", 1.0),
}


@dataclass(frozen=True)
class Shift:
    """The plan with the requirement tighter by `change` (looser where negative), in the bound's units."""

    change: float
    answer: str | None
    time_low: float | None  # None where no number of samples decides
    time_high: float | None


@dataclass(frozen=True)
class Sensitivity:
    """What moving the requirement or the risk does."""

    shifts: tuple[Shift, ...]
    samples: dict[float, float]  # delta -> samples_at_least

    def to_dict(self) -> dict[str, Any]:
        shifts = [
            {"change": s.change, "answer": s.answer, "time_low": s.time_low, "time_high": s.time_high}
            for s in self.shifts
        ]
        return {
            "requirement": shifts,
            "delta": [{"delta": d, "samples_at_least": n} for d, n in self.samples.items()],
        }


def sensitivity(base: Plan) -> Sensitivity:
    """The plan again with the requirement moved both ways, and its samples at other risks."""
    shifts = []
    for step in STEPS:
        try:
            moved = tightened(base.problem.constraint, step, base.means)
            problem = replace(base.problem, constraint=moved)
        except BadInput:
            continue  # a bound that has left its domain asks for nothing, or for the impossible
        change = step * natural_step(base.problem.constraint, base.means)
        if moved != base.problem.constraint:
            shifts.append(_shift(problem, base.means, change))
    return Sensitivity(tuple(shifts), {delta: base.samples_at_least(delta) for delta in DELTAS})


def tightened(constraint: Constraint, steps: float, means: Array) -> Constraint:
    """The requirement moved by so many of its natural steps; those without bounds stay as they are."""
    if isinstance(constraint, All):
        return All(tuple(tightened(part, steps, means) for part in constraint.of))
    if type(constraint) not in BOUNDS:
        return constraint
    name, sign = BOUNDS[type(constraint)]
    bound = np.asarray(getattr(constraint, name), dtype=float)
    moved = bound + sign * steps * natural_step(constraint, means)
    return replace(constraint, **{name: moved.tolist()})


def natural_step(constraint: Constraint, means: Array) -> float:
    """A tenth of what matters: the means' range, a dispersion's bound, the room between a ratio and 1."""
    if isinstance(constraint, All):
        return 1.0  # every part moves by a step of its own
    if isinstance(constraint, Ratio):
        return _rounded((1.0 - constraint.at_least) / 10.0)
    if isinstance(constraint, Dispersion):
        return _rounded(constraint.at_most / 10.0)
    return _rounded(float(np.ptp(means)) / 10.0)


def _shift(problem: Problem, means: Array, change: float) -> Shift:
    try:
        moved = plan(problem, means, gap=GAP)
    except Undecidable:
        answer = problem.answer(means)
        return Shift(change, None if answer is None else problem.policies[answer], None, None)
    high = moved.time_high if math.isfinite(moved.time_high) else None
    return Shift(change, moved.answer, moved.time_low, high)


def _rounded(step: float) -> float:
    """One significant digit, so that tables read well."""
    if step <= 0.0:
        return 0.0
    digits = -math.floor(math.log10(step))
    return round(step, digits)
