"""The exact verdict where every policy has answered every item of the pool: the means are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evenhand.model.problem import Problem
from evenhand.model.region import ROUNDING, bounds_at
from evenhand.model.result_rows import GuardrailRows
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.guardrail_rows import guardrail_rows, metric_spec
from evenhand.procedure.intervals import FAILED, MET
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import NONE, State, new_state
from evenhand.verdicts.apply_rule import CellVerdicts, RuleResult, result_rows
from evenhand.verdicts.forecast import nothing_more

if TYPE_CHECKING:
    from evenhand.verdicts.judge import Verdict

Array = NDArray[np.float64]


def exact_guardrails(problem: Problem, state: State) -> dict[str, Array]:
    """Return the means of every guard-rail by name, K x L, where all of their outcomes are known."""
    return {
        rail.name: np.asarray(rail.family.low + rail.family.width * (state.rail_s[j] / state.rail_n[j]).T)
        for j, rail in enumerate(problem.guardrails)
    }


def exact_verdict(
    verdict: Verdict, sums: Array, counts: Array, guardrails: Mapping[str, Array] | None = None
) -> Verdict:
    """Return the verdict at the means of the whole pool, from sums and counts (K x L).

    `guardrails` are the means of the guard-rails by name.
    """
    problem = verdict.problem
    spec = compile_spec(problem, verdict.procedure)
    state = new_state(spec)
    means = sums / counts
    unit = np.ascontiguousarray(problem.family.to_unit(means).T)
    state.n[:], state.s[:] = counts.T, counts.T * unit
    feasible = problem.feasible(means, guardrails)
    chooses = feasible.any() and not spec.screens
    answer = int(np.argmax(np.where(feasible, problem.scores(means), -np.inf))) if chooses else NONE
    cells = CellVerdicts(unit, unit, _exact_cells(spec, unit))
    weight = RuleResult(answer, True, verdict.evidence, verdict.needed, 0, np.where(feasible, MET, FAILED))
    of_cells, of_policies = result_rows(problem, spec, state, cells, weight)
    return replace(
        verdict,
        cells=of_cells,
        policies=of_policies,
        decided=True,
        leader=None if answer == NONE else problem.policies[answer],
        exact=True,
        delta_needed=None,
        forecast=nothing_more(problem, verdict.samples),
        alternatives=(),
        guardrails=_exact_rows(problem, spec, counts, guardrails or {}),
    )


def _exact_rows(
    problem: Problem, spec: Spec, counts: Array, means: Mapping[str, Array]
) -> tuple[GuardrailRows, ...]:
    """Return the rows of guard-rails whose means are known."""
    state, judged = new_state(spec), []
    for j, rail in enumerate(problem.guardrails):
        unit = np.ascontiguousarray(rail.family.to_unit(means[rail.name]).T)
        state.rail_n[j], state.rail_s[j] = counts.T, counts.T * unit
        judged.append((_exact_cells(metric_spec(problem, spec, j), unit), unit, unit))
    state.n[:] = counts.T
    return guardrail_rows(problem, spec, state, judged=lambda j: judged[j])


def _exact_cells(spec: Spec, unit: Array) -> NDArray[np.int64]:
    """Return the verdicts of cells at known means."""
    lo, hi = bounds_at(spec.region, unit)
    meets = (unit >= lo - _rounding(spec, unit, lo)) & (unit <= hi + _rounding(spec, unit, hi))
    return np.where(meets, MET, FAILED)


def _rounding(spec: Spec, unit: Array, bound: Array) -> Array:
    """Return how far a mean may miss its bound through rounding."""
    return np.asarray(ROUNDING * (np.abs(unit) + np.abs(bound)) + spec.region.resolution)
