"""Sensitivity: the plan with the requirement tightened or loosened, and at other risks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput, Undecidable
from evenhand.model.labels import is_named
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
GAP = 1e-4  # for a table with four digits
RATIO_STEP = 0.02  # of a ratio to a control

# the number of a requirement that makes it tighter, and in which direction
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
    """The plan with the requirement tighter by `change` (looser if negative), in its units."""

    change: float
    answer: str | None
    time_low: float | None  # None where no number of samples is enough
    time_high: float | None


@dataclass(frozen=True)
class Sensitivity:
    """The effects of moving the requirement or the risk."""

    shifts: tuple[Shift, ...]
    samples: dict[float, float]  # delta -> samples_at_least
    costs: dict[float, float]  # delta -> cost_at_least; empty without sampling costs

    def to_dict(self) -> dict[str, Any]:
        shifts = [
            {"change": s.change, "answer": s.answer, "time_low": s.time_low, "time_high": s.time_high}
            for s in self.shifts
        ]
        risks = [{"delta": d, "samples_at_least": n} for d, n in self.samples.items()]
        for risk, price in zip(risks, self.costs.values(), strict=False):
            risk["cost_at_least"] = price
        return {"requirement": shifts, "delta": risks}


def sensitivity(base: Plan) -> Sensitivity:
    """Return the plan with the requirement moved both ways, and its samples at other risks."""
    shifts = []
    for step in STEPS:
        try:
            moved = tightened(base.problem.constraint, step, base.means)
            problem = replace(base.problem, constraint=moved)
        except BadInput:
            continue  # a bound outside its domain requires nothing or the impossible
        change = step * natural_step(base.problem.constraint, base.means)
        if moved != base.problem.constraint:
            shifts.append(_shift(base, problem, change))
    prices = {delta: base.cost_at_least(delta) for delta in DELTAS}
    costs = {delta: price for delta, price in prices.items() if price is not None}
    return Sensitivity(tuple(shifts), {delta: base.samples_at_least(delta) for delta in DELTAS}, costs)


def tightened(constraint: Constraint, steps: float, means: Array) -> Constraint:
    """Return the requirement moved by this many natural steps; without bounds it is unchanged."""
    if isinstance(constraint, All):
        return All(tuple(tightened(part, steps, means) for part in constraint.of))
    if type(constraint) not in BOUNDS:
        return constraint
    name, sign = BOUNDS[type(constraint)]
    if isinstance(constraint, (Floors, Caps)) and constraint.relative_to is not None:
        # a floor rises with its ratio, a cap falls; a smaller margin makes either tighter
        name, sign = ("ratio", sign) if constraint.ratio is not None else ("margin", -1.0)
    given, step = getattr(constraint, name), sign * steps * natural_step(constraint, means)
    if is_named(given):
        return replace(constraint, **{name: {group: number + step for group, number in given}})
    return replace(constraint, **{name: (np.asarray(given, dtype=float) + step).tolist()})


def natural_step(constraint: Constraint, means: Array) -> float:
    """Return a tenth of the means' range, a dispersion's bound, or 1 less a ratio, rounded."""
    if isinstance(constraint, All):
        return 1.0  # every part moves by its own step
    if isinstance(constraint, Ratio):
        return _rounded((1.0 - constraint.at_least) / 10.0)
    if isinstance(constraint, Dispersion):
        return _rounded(constraint.at_most / 10.0)
    if isinstance(constraint, (Floors, Caps)) and constraint.ratio is not None:
        return RATIO_STEP
    return _rounded(float(np.ptp(means)) / 10.0)


def _shift(base: Plan, problem: Problem, change: float) -> Shift:
    """Return the plan with another requirement and everything else the same."""
    try:
        moved = plan(
            problem, base.means, GAP, guardrails=base.guardrails, indifference=base.indifference,
            tolerance=base.tolerance,
        )  # fmt: skip
    except Undecidable:
        answer = problem.answer(base.means, base.guardrails)
        return Shift(change, None if answer is None else problem.policies[answer], None, None)
    high = moved.time_high if math.isfinite(moved.time_high) else None
    return Shift(change, moved.answer, moved.time_low, high)


def _rounded(step: float) -> float:
    """Round to one significant digit."""
    if step <= 0.0:
        return 0.0
    digits = -math.floor(math.log10(step))
    return round(step, digits)
