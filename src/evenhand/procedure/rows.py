"""The rows of cells and policies for counts and verdicts, in the user's units."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.model.problem import Problem
from evenhand.model.rows import CellRow, PolicyRow, RelativeBound
from evenhand.procedure.intervals import WORDS
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


def cell_rows(
    problem: Problem,
    spec: Spec,
    state: State,
    verdict: Ints,
    low: Array | None = None,
    high: Array | None = None,
    pending: Array | None = None,
) -> tuple[CellRow, ...]:
    """Return one row for each cell, policy by policy; all tables are (L, K), intervals in unit scale."""
    family, region = problem.family, spec.region

    def user(unit: float) -> float | None:
        return family.low + family.width * float(unit) if math.isfinite(unit) else None

    return tuple(
        CellRow(
            policy=problem.policies[k],
            group=problem.group_names[g],
            n=int(state.n[g, k]),
            mean=user(state.s[g, k] / state.n[g, k]) if state.n[g, k] > 0 else None,
            low=None if low is None else user(low[g, k]),
            high=None if high is None else user(high[g, k]),
            verdict=WORDS[verdict[g, k]],
            floor=user(region.lo[g, k]),
            cap=user(region.hi[g, k]),
            pending=None if pending is None else round(float(pending[g, k]), 6),
            **_relative_bounds(problem, spec, state, g, k),
        )
        for k in range(len(problem.policies))
        for g in range(len(problem.groups))
    )


def _relative_bounds(problem: Problem, spec: Spec, state: State, g: int, k: int) -> dict[str, RelativeBound]:
    """Return the floor and the cap of a cell that are relative to the control."""
    r, family, found = spec.region, problem.family, {}
    if r.control < 0 or k == r.control:
        return {}
    n = float(state.n[g, r.control])
    for name, ratio, margin, sign in (
        ("relative_floor", float(r.floor_ratio[g]), float(r.floor_margin[g]), -1.0),
        ("relative_cap", float(r.cap_ratio[g]), float(r.cap_margin[g]), 1.0),
    ):
        if math.isfinite(margin):
            # with a ratio the margin is 0, whatever the origin of the unit scale makes of it
            own = float(f"{family.width * margin:.12g}") if ratio == 1.0 else 0.0
            mean = family.low + family.width * float(state.s[g, r.control]) / n if n > 0 else None
            value = None if mean is None else ratio * mean + sign * own
            found[name] = RelativeBound(problem.policies[r.control], ratio, own, value)
    return found


def spent_on(problem: Problem, state: State) -> float | None:
    """Return what the samples have cost; None where the problem has no costs."""
    return None if problem.costs is None else float((problem.sampling_costs.T * state.n).sum())


def policy_rows(
    problem: Problem, spec: Spec, state: State, verdict: Ints, leader: int
) -> tuple[PolicyRow, ...]:
    """Return one row for each policy; `leader` is its number, or NONE."""
    family = problem.family
    means = np.where(state.n > 0, state.s / np.maximum(state.n, 1.0), 0.0)
    scores = problem.scores((family.low + family.width * means).T)
    known = ((state.n > 0) | (spec.shares[:, None] == 0)).all(axis=0)
    order = sorted(range(len(scores)), key=lambda k: (not known[k], -scores[k], k))
    place = {k: number for number, k in enumerate(order, start=1)}
    return tuple(
        PolicyRow(name, float(scores[k]) if known[k] else None, WORDS[verdict[k]], place[k], k == leader)
        for k, name in enumerate(problem.policies)
    )
