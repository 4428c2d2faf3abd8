"""Evidence from Gaussian outcomes of unknown variance: known-variance evidence, worst case.

A null is a pair (lam, sigma). The e-process against it is

    9/10 M(lam, sigma) + 1/10 the mean over its cells of S(sigma)

with M the martingale for known variance (`gaussian`), and S an e-process against every mean with this sigma.
The opening of a cell is its outcomes up to the first that differs from the very first. S is the predictive
density of the later outcomes given all before, under the prior 1/sigma, over the null likelihood at the best
mean in hindsight. Where S reaches 10 times the number of cells times e^ceiling, the mixture reaches
e^ceiling. So

    ln E >= min(ceiling, ln(9/10) + least ln M over the null and over sigmas with smaller S),

and each cell's plausible sigmas form an interval. The ceiling is the evidence that a stop requires, fixed
before the data. Multiplying all outcomes by a number, or adding one to them, changes nothing.

With r the ratio of the variance after the opening to sigma^2, n' outcomes after it, and B the regret of the
predictive density against the best normal one, ln S = B + n'/2 (r - 1 - ln r).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.procedure.evidence import gaussian
from evenhand.procedure.evidence.gaussian import N1, Block
from evenhand.procedure.log_space import NOTHING
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import LEAP, LENGTH, SHIFTED, SQUARES, State

Array = NDArray[np.float64]

ON_SIGMA = 0.1  # weight of the part about sigma
LOG_ON_MEANS = math.log1p(-ON_SIGMA)
LOG_PI = math.log(math.pi)
LOG_2_PI_E = math.log(2.0 * math.pi) + 1.0


@kernel
def ahead(spec: Spec, state: State, i: int, k: int, ceiling: float, work: Array) -> float:
    """Return a bound, up to the ceiling, on the ln e-value against {q.mu_k >= q.mu_i + indifference}."""
    groups = spec.shares.size
    low, high = work[: 2 * groups].reshape((2, groups)), work[2 * groups : 4 * groups].reshape((2, groups))
    cells = 2 * _count(spec.shares)
    if not _plausible(state, i, spec.shares, cells, ceiling, low[0], high[0]):
        return NOTHING
    if not _plausible(state, k, spec.shares, cells, ceiling, low[1], high[1]):
        return NOTHING
    one = gaussian.block(state.n[:, i], state.s[:, i], high[0], spec.shares)
    two = gaussian.block(state.n[:, k], state.s[:, k], high[1], spec.shares)
    gap = one.dot - two.dot + spec.indifference
    eta, z1, z2, p1, p2 = gaussian.solve(gap, one, two)
    first = _worst(state.n[:, i], spec.shares, low[0], high[0], one, eta, z1, p1)
    second = _worst(state.n[:, k], spec.shares, low[1], high[1], two, eta, z2, p2)
    return min(LOG_ON_MEANS + eta * gap + first + second, ceiling)


@kernel
def row(state: State, k: int, a: Array, c: float, ceiling: float, work: Array) -> float:
    """Return a lower bound, up to the ceiling, on the ln e-value against {a.mu_k >= c}."""
    low, high = work[: a.size], work[a.size : 2 * a.size]
    if not _plausible(state, k, a, _count(a), ceiling, low, high):
        return NOTHING
    one = gaussian.block(state.n[:, k], state.s[:, k], high, a)
    gap = c - one.dot
    eta, z, _, p, _ = gaussian.solve(gap, one, Block(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, False))
    worst = _worst(state.n[:, k], a, low, high, one, eta, z, p)
    return min(LOG_ON_MEANS + eta * gap + worst, ceiling)


@kernel
def cell(state: State, g: int, k: int, c: float, sign: float, ceiling: float) -> float:
    """Return the ln e-value of one cell, up to the ceiling.

    The null is {mean <= c} (sign 1) or {mean >= c} (sign -1).
    """
    low, high = plausible(state, g, k, 1, ceiling)
    if high == math.inf:
        return NOTHING
    n, s = state.n[g, k], state.s[g, k]
    least = min(gaussian.cell(n, s, low, c, sign), gaussian.cell(n, s, high, c, sign))
    return min(LOG_ON_MEANS + least, ceiling)


@kernel
def plausible(state: State, g: int, k: int, cells: int, ceiling: float) -> tuple[float, float]:
    """Return the interval of variances of cell (k, g) at which S stays below its limit."""
    bets, groups, n = state.bets, state.n.shape[0], state.n[g, k]
    opening, leap = bets[LENGTH * groups + g, k], bets[LEAP * groups + g, k]
    total, squares = bets[SHIFTED * groups + g, k], bets[SQUARES * groups + g, k]
    rest = n - opening
    if opening == 0.0 or rest < 2.0:
        return 0.0, math.inf
    shift, square = (total - leap) / rest, (squares - leap * leap) / rest
    variance, around = square - shift * shift, squares - total * total / n
    if variance <= 1e-12 * square or around <= 0.0:  # all equal, up to rounding
        return 0.0, math.inf
    bet = _log_marginal(n, around) - _log_marginal(opening, leap * leap * (1.0 - 1.0 / opening))
    regret = bet + 0.5 * rest * (LOG_2_PI_E + math.log(variance))
    away = 2.0 * (ceiling + math.log(cells / ON_SIGMA) - regret) / rest
    if away == math.inf:  # the square of the first difference underflows to 0
        return 0.0, math.inf
    return variance * math.exp(-_above(away)), variance * math.exp(_below(away))


@kernel
def _log_marginal(n: float, around: float) -> float:
    """Return the log of the likelihood of n outcomes, averaged over mean and 1/sigma.

    Up to a constant factor. `around` is the sum of their squared distances to their mean.
    """
    half = 0.5 * (n - 1.0)
    return math.lgamma(half) - half * (LOG_PI + math.log(around)) - 0.5 * math.log(n)


@kernel
def _below(y: float) -> float:
    """Return the t >= 0 with e^-t - 1 + t = y: r - 1 - ln r = y at r = e^-t below 1."""
    t = y + math.sqrt(2.0 * y)  # above the root of a convex function: Newton's method decreases monotonically
    for _ in range(60):
        step = (math.expm1(-t) + t - y) / -math.expm1(-t)
        t -= step
        if abs(step) <= 1e-15 * t:
            break
    return t * (1.0 + 1e-14)


@kernel
def _above(y: float) -> float:
    """Return the t >= 0 with e^t - 1 - t = y: r - 1 - ln r = y at r = e^t above 1."""
    t = min(math.sqrt(2.0 * y), math.log1p(2.0 * y) + 1.0)  # above the root
    for _ in range(60):
        step = (math.expm1(t) - t - y) / math.expm1(t)
        t -= step
        if abs(step) <= 1e-15 * t:
            break
    return t * (1.0 + 1e-14)


@kernel
def _plausible(state: State, k: int, a: Array, cells: int, ceiling: float, low: Array, high: Array) -> bool:
    """Write the variances of policy k's cells with a weight; return whether the data suffice."""
    for g in range(a.size):
        low[g], high[g] = 1.0, 1.0
        if a[g] != 0.0:
            low[g], high[g] = plausible(state, g, k, cells, ceiling)
            if high[g] == math.inf:
                return False
    return True


@kernel
def _count(a: Array) -> int:
    used = 0
    for g in range(a.size):
        used += a[g] != 0.0
    return used


@kernel
def _worst(
    counts: Array, a: Array, low: Array, high: Array, cells: Block, eta: float, z: float, slope: float
) -> float:
    """Return a block's part of the dual at eta and z, psi'(z) = slope, at the worst variances.

    In a cell the dual minimises kappa x^2/2 + slope b x - eta v x, with v = |a| sigma: over x > 0 the largest
    sigma is worst, over x < 0 the smallest.
    """
    total = 0.0
    for g in range(a.size):
        if a[g] != 0.0:
            n = counts[g]
            pulled = slope * cells.reach * N1 * n / (n + N1)
            up = max(eta * abs(a[g]) * math.sqrt(high[g]) - pulled, 0.0)
            down = max(pulled - eta * abs(a[g]) * math.sqrt(low[g]), 0.0)
            farthest = max(up, down)
            total += farthest * farthest * (n + N1) / (n * n)
    return gaussian.psi(z) - slope * z - 0.5 * total - cells.penalty
