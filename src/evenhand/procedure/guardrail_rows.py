"""The rows of guard-rails: verdicts and intervals of their cells, in the user's units."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.model.families import GaussianUnknown
from evenhand.model.problem import Problem
from evenhand.model.region import BOX, RELATIVE
from evenhand.model.result_rows import GuardrailRows
from evenhand.procedure.estimates import refresh
from evenhand.procedure.guardrail_spec import GuardrailSpec
from evenhand.procedure.intervals import cell_rows, every_interval, judge_every_cell
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State, new_work

Ints = NDArray[np.int64]
# verdicts and ends of the intervals of every cell, (L, K), in unit scale
Judged = tuple[Ints, NDArray[np.float64] | None, NDArray[np.float64] | None]


def guardrail_rows(
    problem: Problem,
    spec: Spec,
    state: State,
    intervals: bool = True,
    judged: Callable[[int], Judged] | None = None,
) -> tuple[GuardrailRows, ...]:
    """Return the cells of every guard-rail with their verdicts and, unless left out, intervals.

    `judged` gives those of guard-rail j where another rule than the study's judges them.
    """
    found = []
    for j, rail in enumerate(problem.guardrails):
        own, told = metric_spec(problem, spec, j), metric_state(state, j)
        verdict, low, high = judged(j) if judged else _by_stopping_rule(own, told, intervals)
        cells = cell_rows(guardrail_problem(problem, j), own, told, verdict, low, high)
        found.append(GuardrailRows(rail.name, cells, int(state.n.sum() - told.n.sum())))
    return tuple(found)


def _by_stopping_rule(spec: Spec, state: State, intervals: bool) -> Judged:
    work, verdict = new_work(spec), np.zeros(spec.phi.shape, dtype=np.int64)
    refresh(spec, state, work, False)
    judge_every_cell(spec, state, work, verdict)
    if not intervals:
        return verdict, None, None
    low, high = np.zeros(spec.phi.shape), np.zeros(spec.phi.shape)
    every_interval(spec, state, low, high)
    return verdict, low, high


def guardrail_problem(problem: Problem, j: int) -> Problem:
    """Return the problem with the outcomes and the requirement of guard-rail j alone."""
    rail = problem.guardrails[j]
    # with room for others one policy is enough, as in the whole problem
    room = problem.max_policies
    return Problem(
        problem.policies, problem.groups, rail.family, rail.constraint, goal=problem.goal, max_policies=room
    )


def metric_spec(problem: Problem, spec: Spec, j: int) -> Spec:
    """Return the specification with guard-rail j in place of the outcome; thresholds stay the same."""
    standard = problem.standards[j + 1]
    return spec._replace(
        code=standard.code,
        phi=standard.phi,
        region=standard.region,
        kept=standard.region,
        unknown_variance=isinstance(problem.guardrails[j].family, GaussianUnknown),
        guardrails=_with_outcome(spec, j),
        linear_bets=False,
        shared_items=False,
        bounded=False,
    )


def metric_state(state: State, j: int) -> State:
    """Return the state with the outcomes of guard-rail j in place of the outcome's."""
    return state._replace(n=state.rail_n[j], s=state.rail_s[j], ss=state.rail_ss[j], bets=state.rail_bets[j])


def _with_outcome(spec: Spec, j: int) -> GuardrailSpec:
    """Return the guard-rails with the bounds of the outcome in place of those of j: their number stays."""
    rails, own = spec.guardrails, spec.region
    plain = own.kind in (BOX, RELATIVE)
    swapped: dict[str, Any] = {
        name: np.array(getattr(rails, name))
        for name in ("lo", "hi", "floor_ratio", "floor_margin", "cap_ratio", "cap_margin")
    }
    for name, table in swapped.items():
        ratio = name.endswith("ratio")
        table[j] = getattr(own, name) if plain else 1.0 if ratio else -np.inf if name == "lo" else np.inf
    return rails._replace(**swapped)
