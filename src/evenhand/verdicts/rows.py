"""The rows of a judgement, and the coverage of its intervals."""

from __future__ import annotations

import math

import numpy as np

from evenhand.model.problem import Problem
from evenhand.model.rows import CellRow, PolicyRow
from evenhand.procedure import rows
from evenhand.procedure.evidence.by_family import threshold
from evenhand.procedure.intervals import reconciled, requirement_kind
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State
from evenhand.verdicts.apply_rule import Cells, Weight


def result_rows(
    problem: Problem, spec: Spec, state: State, cells: Cells, weight: Weight
) -> tuple[tuple[CellRow, ...], tuple[PolicyRow, ...]]:
    """Return a row for each cell and one for each policy."""
    of_cells, of_policies = reconciled(requirement_kind(spec), cells.verdict, weight.policies)
    return (
        rows.cell_rows(problem, spec, state, of_cells, cells.low, cells.high),
        rows.policy_rows(problem, spec, state, of_policies, weight.leader),
    )


def coverage(spec: Spec) -> float:
    """Return the coverage of the intervals (see `procedure.intervals`): nominal unless certified."""
    each = math.exp(-threshold(spec))  # the probability that an end at the threshold ever misses
    bounds = (np.isfinite(spec.region.lo).sum(axis=0) + np.isfinite(spec.region.hi).sum(axis=0)).min()
    one_sided = np.isfinite(spec.region.lo).all() != np.isfinite(spec.region.hi).all()
    return float(1.0 - each * (1.0 + 1.0 / bounds if one_sided and bounds else 2.0))
