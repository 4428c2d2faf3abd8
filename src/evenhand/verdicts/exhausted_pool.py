"""The exact verdict where every policy has answered every item of the pool: the means are known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evenhand.model.region import ROUNDING, bounds_at
from evenhand.procedure.intervals import FAILED, MET
from evenhand.procedure.spec import Spec, compile_spec
from evenhand.procedure.state import NONE, new_state
from evenhand.verdicts.apply_rule import CellVerdicts, RuleResult, result_rows
from evenhand.verdicts.forecast import nothing_more

if TYPE_CHECKING:
    from evenhand.verdicts.judge import Verdict

Array = NDArray[np.float64]


def exact_verdict(verdict: Verdict, sums: Array, counts: Array) -> Verdict:
    """Return the verdict at the means of the whole pool, from sums and counts (K x L)."""
    problem = verdict.problem
    spec = compile_spec(problem, verdict.procedure)
    state = new_state(spec)
    means = sums / counts
    unit = np.ascontiguousarray(problem.family.to_unit(means).T)
    state.n[:], state.s[:] = counts.T, counts.T * unit
    feasible = problem.feasible(means)
    chooses = feasible.any() and not spec.screens
    answer = int(np.argmax(np.where(feasible, problem.scores(means), -np.inf))) if chooses else NONE
    lo, hi = bounds_at(spec.region, unit)
    meets = (unit >= lo - _rounding(spec, unit, lo)) & (unit <= hi + _rounding(spec, unit, hi))
    cells = CellVerdicts(unit, unit, np.where(meets, MET, FAILED))
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
    )


def _rounding(spec: Spec, unit: Array, bound: Array) -> Array:
    """Return how far a mean may miss its bound through rounding."""
    return np.asarray(ROUNDING * (np.abs(unit) + np.abs(bound)) + spec.region.resolution)
