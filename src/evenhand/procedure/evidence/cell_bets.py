"""Bets of one cell at a bound, for outcomes in [0, 1] of any distribution.

Against {mean <= c} the e-value is the mean over sizes of prod (1 + lambda (x - c)), with
lambda = l / (1 + c l) and l = e^size - 1; against {mean >= c} with l = e^-size - 1.
A factor is (1 + l x) / (1 + l c), so

    ln e = ln 1/8 sum over sizes of exp( sum ln(1 + l x) - n ln(1 + l c) ),

which needs one sum for each size and side, whatever the bound, and does not depend on the order of outcomes.
For outcomes 0 and 1 it is the e-value of `tilts.cell`; for others it is larger, since ln(1 + l x) is concave.
"""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import Axes, kernel
from evenhand.procedure.evidence.tilt_mixture import GRID, LIFTS, LOG_GRID
from evenhand.procedure.log_space import NOTHING

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Sums = Annotated[Array, Axes("L", "K", 2, GRID)]  # sums of ln(1 + l x): sides down and up, by size


def new_sums(shape: tuple[int, int]) -> Array:
    """Return the sums of L x K cells without outcomes."""
    return np.zeros((*shape, 2, GRID))


@kernel
def add_outcomes(sums: Sums, policies: Ints, groups: Ints, outcomes: Array) -> None:
    """Add outcomes in unit scale to the sums of their cells."""
    for r in range(outcomes.size):
        g, k, x = groups[r], policies[r], outcomes[r]
        for side in range(2):
            for j in range(GRID):
                sums[g, k, side, j] += math.log1p(LIFTS[side, 0, j] * x)


def bounded_evidence(sums: Array, n: float, c: float, sign: float) -> float:
    """Return the ln e-value of one cell against {mean <= c} (sign 1) or {mean >= c} (sign -1)."""
    if sign * (c - (1.0 if sign > 0 else 0.0)) >= 0.0:
        return NOTHING  # the null holds every mean
    if c < 0.0 or c > 1.0:
        return math.inf  # the null holds no mean
    side = 1 if sign > 0 else 0
    logs = sums[side] - n * np.log1p(LIFTS[side, 0] * c)
    peak = float(logs.max())
    return peak + math.log(float(np.exp(logs - peak).sum())) - LOG_GRID
