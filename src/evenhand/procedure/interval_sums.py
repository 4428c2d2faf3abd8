"""Add the sums of an interval to a cell whose outcomes have no known scale.

Evidence from such outcomes needs an opening, on which nothing is staked (`evidence.gaussian_unknown`,
`evidence.likelihood_mixture`). One by one it is the first outcomes of the cell. Counts have no order, so here
it is all outcomes of the first interval of the cell, and of the following ones until two outcomes differ: any
data that are complete before the outcomes that follow may be the opening.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.unit_families import EXPONENTIAL
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import FIRST, LEAP, LENGTH, SHIFTED, SQUARES, State

Array = NDArray[np.float64]

SAME = 1e-12  # a variance below this part of the mean square is rounding: all outcomes are equal


@kernel
def add_sums(spec: Spec, state: State, k: int, g: int, n: float, s: float, ss: float) -> None:
    """Add n outcomes, their sum and their sum of squares (unit scale); call it before n and s are added."""
    if spec.unknown_variance:
        _add_squares(state.bets, state.n[g, k], state.s[g, k], k, g, n, s, ss)
    elif spec.code == EXPONENTIAL:
        _add_opening(state.bets, k, g, n, s)


@kernel
def add_guardrail_sums(
    spec: Spec, state: State, j: int, k: int, g: int, n: float, s: float, ss: float
) -> None:
    """Do the same for the outcomes of guard-rail j."""
    if spec.guardrails.unknown_variance[j]:
        _add_squares(state.rail_bets[j], state.rail_n[j, g, k], state.rail_s[j, g, k], k, g, n, s, ss)
    elif spec.guardrails.code[j] == EXPONENTIAL:
        _add_opening(state.rail_bets[j], k, g, n, s)


@kernel
def _add_opening(bets: Array, k: int, g: int, n: float, s: float) -> None:
    """Record the sum and, as a negative LENGTH, the number of the outcomes of a cell's first interval."""
    groups = bets.shape[0] // 5
    if n > 0.0 and bets[FIRST * groups + g, k] == 0.0:
        bets[FIRST * groups + g, k], bets[LENGTH * groups + g, k] = s, -n


@kernel
def _add_squares(
    bets: Array, before: float, sum_before: float, k: int, g: int, n: float, s: float, ss: float
) -> None:
    """Add distances to a fixed point, and their squares.

    With n outcomes of mean m and of squared distances V to it in the opening, the point is m - d with
    d^2 = V / (n (n - 1)): then the squares of the opening's distances sum to the square of their sum, as they
    do one by one, where all distances but the last are 0.
    """
    if n == 0.0:
        return
    groups = bets.shape[0] // 5
    mean = s / n
    around = max(ss - s * mean, 0.0)
    around = around if around > SAME * ss else 0.0
    if bets[LENGTH * groups + g, k] == 0.0:
        if before > 0.0:  # all outcomes before are equal
            apart = mean - sum_before / before
            around += apart * apart * before * n / (before + n)
        size, total = before + n, sum_before + s
        if around > SAME * (ss + before * (sum_before / max(before, 1.0)) ** 2) and size >= 2.0:
            away = math.sqrt(around / (size * (size - 1.0)))
            bets[FIRST * groups + g, k], bets[LENGTH * groups + g, k] = total / size - away, size
            bets[LEAP * groups + g, k] = bets[SHIFTED * groups + g, k] = size * away
            bets[SQUARES * groups + g, k] = (size * away) ** 2
        else:
            bets[FIRST * groups + g, k] = total / size
        return
    apart = mean - bets[FIRST * groups + g, k]
    bets[SHIFTED * groups + g, k] += n * apart
    bets[SQUARES * groups + g, k] += around + n * apart * apart
