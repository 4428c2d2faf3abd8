"""Everything was evaluated: the means of the pool are known, and nothing is left to chance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from evenhand.judge.forecast import nothing_more
from evenhand.judge.standing import cell_rows, policy_rows
from evenhand.judge.verdict import Verdict
from evenhand.judge.weigh import Cells, Weight
from evenhand.model.region import ROUNDING
from evenhand.procedure.spec import Spec, compile_spec
from evenhand.procedure.state import NONE, new_state
from evenhand.procedure.verdicts import FAILED, MET

Array = NDArray[np.float64]


def census(verdict: Verdict, sums: Array, counts: Array) -> Verdict:
    """The verdict of the means themselves, from sums and counts (K x L) of all there is."""
    problem = verdict.problem
    spec = compile_spec(problem, verdict.procedure)
    state = new_state(spec)
    means = sums / counts
    unit = np.ascontiguousarray(problem.family.to_unit(means).T)
    state.n[:], state.s[:] = counts.T, counts.T * unit
    feasible = problem.feasible(means)
    answer = int(np.argmax(np.where(feasible, problem.scores(means), -np.inf))) if feasible.any() else NONE
    meets = (unit >= spec.region.lo - _rounding(spec, unit, spec.region.lo)) & (
        unit <= spec.region.hi + _rounding(spec, unit, spec.region.hi)
    )
    cells = Cells(unit, unit, np.where(meets, MET, FAILED))
    weight = Weight(answer, True, verdict.evidence, verdict.needed, 0, np.where(feasible, MET, FAILED))
    return replace(
        verdict,
        cells=cell_rows(problem, spec, state, cells, weight),
        policies=policy_rows(problem, spec, state, cells, weight),
        decided=True,
        leader=None if answer == NONE else problem.policies[answer],
        exact=True,
        delta_needed=None,
        forecast=nothing_more(problem, verdict.samples),
        alternatives=(),
    )


def _rounding(spec: Spec, unit: Array, bound: Array) -> Array:
    """What a mean may miss its bound by through rounding."""
    return np.asarray(ROUNDING * (np.abs(unit) + np.abs(bound)) + spec.region.resolution)
