"""Kelley's cutting planes: a linear program over the cuts of all alternatives found so far.

    maximise t  subject to  t <= cut . w  for every cut,  w an allocation of the mode

Solved by HiGHS, which keeps its basis while rows are added and deleted. Its results are not relied upon: the
caller recomputes the bound from the dual shares (`Cuts.mixture`, `mode.support`), so solver tolerances affect
accuracy, never correctness.
"""

from __future__ import annotations

from typing import NamedTuple

import highspy
import numpy as np
from numpy.typing import NDArray

from evenhand.theory.alternatives import Cuts
from evenhand.theory.bracket import Bracket
from evenhand.theory.modes import Active

Array = NDArray[np.float64]

# a cut is dropped after this number of solves without dual weight
PATIENCE = 12
# the smallest feasibility tolerance HiGHS accepts
TOLERANCE = 1e-10


# the number of rounds, and the fractions of the way to the vertex at which to solve, in turn
ROUNDS = 400
STEPS = (0.5, 0.2)


def cutting_planes(found: Bracket, gap: float, cuts: Cuts) -> None:
    """Narrow the bracket by Kelley's method, between the vertex and the best allocation so far."""
    answer, control = found.alternatives.answer, found.alternatives.control
    programme = LinearProgram(found.mode, answer, control, found.value)
    programme.add(cuts)
    for turn in range(ROUNDS):
        vertex = programme.solve()
        if vertex is None:
            return  # the solver gives no further solution; the bracket stays as it is
        found.bound(programme.cuts, vertex.share)
        if found.closed(gap):
            return
        step = STEPS[turn % len(STEPS)]
        fresh = found.solve_at(found.positive(step * vertex.w + (1.0 - step) * found.w)).cuts
        fresh = fresh.join(found.solve_at(found.positive(vertex.w)).cuts)
        programme.forget()
        # a cut that the vertex satisfies would not move it
        programme.add(fresh.take(fresh.values(vertex.w, answer, control) < vertex.value))
        if found.closed(gap):
            return


class Vertex(NamedTuple):
    """An optimum of the linear program."""

    w: Array  # K x L
    value: float  # t, the least cut at w
    share: Array  # dual weight of each cut, summing to 1


class LinearProgram:
    """The linear program over the cuts; cuts that stay slack are dropped."""

    def __init__(self, mode: Active, answer: int | None, control: int | None, scale: float) -> None:
        self._mode = mode
        self._answer = answer
        self._control = control
        self._scale = scale  # values are divided by this, to be near 1
        self._idle = np.zeros(0, dtype=np.int64)
        self.cuts = Cuts.none(mode.cost.shape[1])
        self._highs = _blank(mode)
        self._fixed_rows = len(mode.equalities())

    def add(self, cuts: Cuts) -> None:
        """Add cuts."""
        n = len(cuts.policy)
        if n == 0:
            return
        columns, coefficients = self._mode.coefficients(cuts.policy, cuts.own)
        if self._answer is not None:
            answer = np.full(n, self._answer)
            more_columns, more = self._mode.coefficients(answer, cuts.shared)
            columns, coefficients = np.hstack([columns, more_columns]), np.hstack([coefficients, more])
        if self._control is not None and self._control != self._answer:
            more_columns, more = self._mode.coefficients(np.full(n, self._control), cuts.aside)
            columns, coefficients = np.hstack([columns, more_columns]), np.hstack([coefficients, more])
        objective = np.full((n, 1), self._mode.columns, dtype=np.int32)
        columns = np.hstack([objective, columns])
        coefficients = np.hstack([np.ones((n, 1)), -coefficients / self._scale])
        # the answer's cuts have shared = 0, the control's aside = 0: otherwise a column would occur twice
        used = coefficients != 0.0
        starts = np.concatenate([[0], np.cumsum(used.sum(axis=1))[:-1]]).astype(np.int32)
        self._highs.addRows(
            n,
            np.full(n, -highspy.kHighsInf),
            np.zeros(n),
            int(used.sum()),
            starts,
            columns[used],
            coefficients[used],
        )
        self.cuts = self.cuts.join(cuts)
        self._idle = np.concatenate([self._idle, np.zeros(n, dtype=np.int64)])

    def solve(self) -> Vertex | None:
        """Return the optimum over the cuts so far; None if the solver finds none."""
        self._highs.run()
        if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        solution = self._highs.getSolution()
        x = np.array(solution.col_value)
        dual = np.maximum(-np.array(solution.row_dual)[self._fixed_rows :], 0.0)
        self._idle = np.where(dual > 0.0, 0, self._idle + 1)
        total = dual.sum()
        if not total > 0.0:
            return None
        return Vertex(self._mode.weights(x), float(x[self._mode.columns]) * self._scale, dual / total)

    def forget(self) -> None:
        """Drop the cuts that have been slack for PATIENCE solves."""
        old = np.nonzero(self._idle > PATIENCE)[0]
        if len(old) < len(self._idle) // 5:
            return  # too few to be worth a change of the basis
        self._highs.deleteRows(len(old), (old + self._fixed_rows).astype(np.int32))
        kept = self._idle <= PATIENCE
        self.cuts, self._idle = self.cuts.take(kept), self._idle[kept]


def _blank(mode: Active) -> highspy.Highs:
    """Return the linear program without cuts."""
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in (
        ("output_flag", False),
        ("threads", 1),
        ("primal_feasibility_tolerance", TOLERANCE),
        ("dual_feasibility_tolerance", TOLERANCE),
    ):
        highs.setOptionValue(option, value)
    columns = mode.columns + 1
    highs.addVars(columns, np.zeros(columns), np.full(columns, highspy.kHighsInf))
    highs.changeColCost(mode.columns, -1.0)
    for rhs, where, coefficients in mode.equalities():
        highs.addRow(rhs, rhs, len(where), where, coefficients)
    return highs
