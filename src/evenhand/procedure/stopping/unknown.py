"""Evidence from Gaussian outcomes whose variance nobody knows: universal inference, cell by cell.

A cell's opening is its outcomes up to the first that differs from the very first. What follows is bet on with
the predictive density given all before, under the prior 1/sigma; the product of these has the closed form
m(all) / m(opening) with

    m(n outcomes) = 1/2 n^(-1/2) pi^(-(n-1)/2) Gamma((n-1)/2) Q^(-(n-1)/2),   Q = squares about the mean.

The null may choose the mean lam in its set, and sigma as it likes: n' outcomes after the opening, of mean m'
and variance S2, then have likelihood at most exp(-n'/2 ln(2 pi e (S2 + (m' - lam)^2))). The ratio is at most
the likelihood ratio at the true parameters, a martingale however cells are chosen. So with the regret B of a
cell that was left free,

    ln E = sum B + V,    V = min over the null of sum n'/2 ln(1 + (m' - lam)^2 / S2).

Multiplying all outcomes by a number, or adding one to them, changes nothing.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand._kernel import kernel
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import FIRST, LEAP, LENGTH, SHIFTED, SQUARES, State
from evenhand.procedure.stopping.logs import NOTHING
from evenhand.procedure.stopping.saturating import cheapest

Array = NDArray[np.float64]

LOG_PI = math.log(math.pi)
LOG_2_PI_E = math.log(2.0 * math.pi) + 1.0


class Tail(NamedTuple):
    """A cell's outcomes after its opening."""

    n: float
    mean: float
    variance: float
    regret: (
        float  # B, not positive but for luck with the opening; NOTHING where there is too little to bet on
    )


@kernel
def ahead(spec: Spec, state: State, i: int, k: int, work: Array) -> float:
    """ln e-value against {q.mu_k >= q.mu_i}: the leader i is ahead of its rival k. A lower bound."""
    groups = spec.shares.size
    size = 2 * groups
    regret, dot, m = _gather(state, i, spec.shares, 0, size, work)
    other, dot_k, m = _gather(state, k, spec.shares, m, size, work)
    if regret == NOTHING or other == NOTHING:
        return NOTHING
    return regret + other + _cost(dot - dot_k, m, size, work)


@kernel
def row(spec: Spec, state: State, k: int, a: Array, c: float, work: Array) -> float:
    """ln e-value against {a.mu_k >= c}. A lower bound."""
    regret, dot, m = _gather(state, k, a, 0, 2 * a.size, work)
    return NOTHING if regret == NOTHING else regret + _cost(c - dot, m, 2 * a.size, work)


@kernel
def cell(state: State, g: int, k: int, c: float, sign: float) -> float:
    """ln e-value of one cell against {mean <= c} (sign 1) or {mean >= c} (sign -1), exactly."""
    tail = after_opening(state, g, k)
    away = sign * (tail.mean - c)
    if tail.regret == NOTHING or away <= 0.0:
        return tail.regret
    return tail.regret + 0.5 * tail.n * math.log1p(away * away / tail.variance)


@kernel
def after_opening(state: State, g: int, k: int) -> Tail:
    """What the null must explain of cell (k, g), and what betting on it cost."""
    bets, groups, n = state.bets, state.n.shape[0], state.n[g, k]
    opening, leap = bets[LENGTH * groups + g, k], bets[LEAP * groups + g, k]
    total, squares = bets[SHIFTED * groups + g, k], bets[SQUARES * groups + g, k]
    rest = n - opening
    if opening == 0.0 or rest < 2.0:
        return Tail(0.0, 0.0, 1.0, NOTHING)
    shift, square = (total - leap) / rest, (squares - leap * leap) / rest
    variance, around = square - shift * shift, squares - total * total / n
    if variance <= 1e-12 * square or around <= 0.0:  # all alike, up to rounding
        return Tail(0.0, 0.0, 1.0, NOTHING)
    opened = _log_marginal(opening, leap * leap * (1.0 - 1.0 / opening))
    bet = _log_marginal(n, around) - opened
    regret = bet + 0.5 * rest * (LOG_2_PI_E + math.log(variance))
    return Tail(rest, bets[FIRST * groups + g, k] + shift, variance, regret)


@kernel
def _log_marginal(n: float, around: float) -> float:
    """ln m, but for its factor 1/2."""
    half = 0.5 * (n - 1.0)
    return math.lgamma(half) - half * (LOG_PI + math.log(around)) - 0.5 * math.log(n)


@kernel
def _gather(state: State, k: int, a: Array, m: int, size: int, work: Array) -> tuple[float, float, int]:
    """Policy k's cells with a weight, from row m of the table on; their regret, a.mean, and the next row."""
    regret, dot = 0.0, 0.0
    for g in range(a.size):
        if a[g] == 0.0:
            continue
        tail = after_opening(state, g, k)
        if tail.regret == NOTHING:
            return NOTHING, 0.0, m
        regret += tail.regret
        dot += a[g] * tail.mean
        work[m] = tail.n
        work[size + m] = a[g] * a[g] * tail.variance
        m += 1
    return regret, dot, m


@kernel
def _cost(gap: float, m: int, size: int, work: Array) -> float:
    """V for a half-space that lies `gap` away."""
    if gap <= 0.0:
        return 0.0
    return cheapest(work[:m], work[size : size + m], gap, work[2 * size :])
