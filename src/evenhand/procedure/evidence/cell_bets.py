"""Bets of one cell at a bound, for outcomes in [0, 1] of any distribution.

Against {mean <= c} the e-value is the mean over sizes of prod (1 + lambda (x - c)), with
lambda = l / (1 + c l) and l = e^size - 1; against {mean >= c} with l = e^-size - 1.
A factor is (1 + l x) / (1 + l c), so

    ln e = ln 1/8 sum over sizes of exp( sum ln(1 + l x) - n ln(1 + l c) ),

which needs one sum for each size and side, whatever the bound, and does not depend on the order of outcomes.
For outcomes 0 and 1 it is the e-value of `tilts.cell`; for others it is larger, since ln(1 + l x) is concave.

Without replacement from a pool of n items, linear bets are used (`linear_bets`), whose log factor W - B m is
known for every mean m of the pool. After N draws with sum S, m lies between S/n and (S + n - N)/n: a null
outside is refuted with certainty, and at N = n the mean is known.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import Axes, kernel
from evenhand.procedure.evidence.linear_bets import FIXED, MOST_GROWTH, SIZES, TILTS, place_bets
from evenhand.procedure.evidence.tilt_mixture import GRID, LIFTS, LOG_GRID
from evenhand.procedure.log_space import NOTHING

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Sums = Annotated[Array, Axes("L", "K", 2, GRID)]  # sums of ln(1 + l x): sides down and up, by size
Bets = Annotated[Array, Axes("L", "K", 2, TILTS)]  # W or B: sides down and up, by tilt
PerCell = Annotated[Array, Axes("L", "K")]

ROUNDING = 1e-12  # of a mean of the pool


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


class PoolBets(NamedTuple):
    """Linear bets on every cell of pools, drawn without replacement."""

    pool: Annotated[Array, Axes("L")]  # items of each group
    n: PerCell
    s: PerCell
    w: Bets
    b: Bets


def new_pool_bets(pool: Array, policies: int) -> PoolBets:
    """Return bets without outcomes."""
    shape = (pool.size, policies)
    bets = np.zeros((*shape, 2, TILTS))
    return PoolBets(np.array(pool, dtype=float), np.zeros(shape), np.zeros(shape), bets, bets.copy())


@kernel
def add_pool_outcomes(bets: PoolBets, policies: Ints, groups: Ints, outcomes: Array) -> None:
    """Add outcomes in unit scale, in the order of their items."""
    for r in range(outcomes.size):
        g, k, x = groups[r], policies[r], outcomes[r]
        n, s = bets.n[g, k], bets.s[g, k]
        left = bets.pool[g] - n
        ahead, behind, estimate = bets.pool[g] / left, s / left, (0.5 + s) / (n + 1.0)
        scale = min(ahead, MOST_GROWTH)
        place_bets(
            bets.w[g, k, 0], bets.b[g, k, 0], FIXED, scale, x, estimate, 1.0 - estimate, -1.0, ahead, behind
        )
        place_bets(bets.w[g, k, 1], bets.b[g, k, 1], FIXED, scale, x, estimate, estimate, 1.0, ahead, behind)
        bets.n[g, k] += 1.0
        bets.s[g, k] += x


def pool_range(bets: PoolBets, g: int, k: int) -> tuple[float, float]:
    """Return the least and the largest possible mean of a cell's pool."""
    n, s, size = float(bets.n[g, k]), float(bets.s[g, k]), float(bets.pool[g])
    return s / size, (s + size - n) / size


def pool_evidence(bets: PoolBets, g: int, k: int, c: float, sign: float, at_cap: bool = False) -> float:
    """Return the ln e-value of one cell against {mean < c} (sign 1) or {mean >= c} (sign -1) in the pool.

    At a cap, which a mean equal to it meets: against {mean <= c} (sign 1) or {mean > c} (sign -1).
    """
    low, high = pool_range(bets, g, k)
    edge = c + ROUNDING if at_cap else c - ROUNDING
    above, below = (low > edge, high <= edge) if at_cap else (low >= edge, high < edge)
    if (sign > 0 and above) or (sign < 0 and below):
        return math.inf
    side, at = (1, min(c, high)) if sign > 0 else (0, max(c, low))
    logs = bets.w[g, k, side, 1:-1] - bets.b[g, k, side, 1:-1] * at
    peak = float(logs.max())
    return peak + math.log(float(np.exp(logs - peak).sum())) - math.log(SIZES)
