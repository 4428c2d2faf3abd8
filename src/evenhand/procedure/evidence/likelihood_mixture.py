"""Evidence against any set of means with an inner solver: likelihood ratios minus regret.

A mixture over the means of a cell has a regret R against the best mean in hindsight, and the ratio of the
mixture's likelihood to that of a null lam is a martingale under lam. Summed over the cells of the null, ln E
= min over the null of sum v d(mean, lam) - sum R, which is an inner problem:

    family        mixture over the mean (fixed before the data)            v          R
    gaussian      N(lam, sd^2 / N0): shifts, so the ratio itself shrinks   n^2/(n+N0)  1/2 ln(1 + n/N0)
    bernoulli     Beta(1/2, 1/2)                                           n          from the Beta integral
    poisson       Gamma(1/2, rate), averaged over RATES                    n          from the Gamma integral
    exponential   Jeffreys' posterior given the cell's first outcome       n - 1      from the Gamma integral
                  (in intervals, given the first n0 outcomes: n - n0)
    unknown sd    as gaussian, at the largest plausible sd (`gaussian_unknown`)

Counts are in unit samples. The exponential's outcomes have no natural scale: its first outcome only sets the
scale. Bounded outcomes make the Bernoulli mixture a supermartingale, by convexity.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.region import Region
from evenhand.model.unit_families import BERNOULLI, EXPONENTIAL, GAUSSIAN, divergence, edge_high, edge_low
from evenhand.procedure.evidence.gaussian_unknown import LOG_ON_MEANS, plausible
from evenhand.procedure.log_space import NOT_COMPUTED, NOTHING, add, known
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import FIRST, LENGTH, State, Work
from evenhand.theory import inner
from evenhand.theory.regions.halfspace import reach

Array = NDArray[np.float64]

MANY = 1e7  # from this many outcomes on, the log of the Gamma function loses too many digits to cancellation
N0 = 4.0  # gaussian: shifts of about half a standard deviation
TINY = 1e-300  # smaller means are 0: the solvers would lose them to underflow
RATES = np.array([1.0, 1e-2, 1e-4, 1e-6])  # poisson: means of about 1/2, 50, 5,000, 500,000
ENTER, LEAVE, BEAT = range(3)  # what the null is: policy k meets, policy i violates, rival k reaches policy i


@kernel
def enters(spec: Spec, state: State, work: Work, r: Region, k: int, ceiling: float) -> float:
    """Return a lower bound on the ln e-value against {policy k's means lie in r}."""
    return _against(spec, state, work, r, ENTER, k, k, ceiling)


@kernel
def leaves(spec: Spec, state: State, work: Work, r: Region, i: int, ceiling: float) -> float:
    """Return a lower bound on the ln e-value against {policy i's means lie outside r}."""
    return _against(spec, state, work, r, LEAVE, i, i, ceiling)


@kernel
def beats(spec: Spec, state: State, work: Work, r: Region, i: int, k: int, ceiling: float) -> float:
    """Return a lower bound on the ln e-value against {k in r scores i's score + indifference}."""
    return _against(spec, state, work, r, BEAT, i, k, ceiling)


@kernel
def ahead(spec: Spec, state: State, i: int, k: int, work: Array) -> float:
    """Return a lower bound on the ln e-value against {q.mu_k >= q.mu_i + indifference}."""
    groups = spec.shares.size
    table, rest = work[: 12 * groups].reshape((6, 2 * groups)), work[12 * groups :]
    regret = _line(spec, state, i, spec.shares, -1.0, 0, table)
    regret += _line(spec, state, k, spec.shares, 1.0, groups, table)
    return _half_space(spec, regret, table, spec.indifference, rest)


@kernel
def row(spec: Spec, state: State, k: int, a: Array, c: float, work: Array) -> float:
    """Return a lower bound on the ln e-value against {a.mu_k >= c}."""
    table, rest = work[: 6 * a.size].reshape((6, a.size)), work[6 * a.size :]
    regret = _line(spec, state, k, a, 1.0, 0, table)
    return _half_space(spec, regret, table, c, rest)


@kernel
def pair(
    spec: Spec, state: State, g: int, k: int, a_k: float, j: int, a_j: float, c: float, work: Array
) -> float:
    """Return a lower bound on the ln e-value against {a_k mu_k + a_j mu_j >= c} in group g."""
    table, rest = work[:12].reshape((6, 2)), work[12:]
    v, mean, regret = _cell(spec, state, g, k)
    table[0, 0], table[1, 0], table[2, 0] = a_k, v, mean
    v, mean, other = _cell(spec, state, g, j)
    table[0, 1], table[1, 1], table[2, 1] = a_j, v, mean
    return _half_space(spec, regret + other, table, c, rest)


@kernel
def cell(spec: Spec, state: State, g: int, k: int, c: float, sign: float) -> float:
    """Return the exact ln e-value of one cell against {mean <= c} (sign 1) or {mean >= c} (-1)."""
    v, mean, regret = _cell(spec, state, g, k)
    if regret >= -NOTHING:
        return NOTHING
    return known((v * divergence(spec.code, mean, c) if sign * (mean - c) > 0.0 else 0.0) - regret)


@kernel
def _line(spec: Spec, state: State, k: int, a: Array, sign: float, start: int, table: Array) -> float:
    """Write policy k's cells to the rows a, v, mean of the table; return their regret."""
    total = 0.0
    for g in range(a.size):
        v, mean, regret = _cell(spec, state, g, k)
        table[0, start + g], table[1, start + g], table[2, start + g] = sign * a[g], v, mean
        total += regret if a[g] != 0.0 else 0.0
    return total


@kernel
def _half_space(spec: Spec, regret: float, table: Array, c: float, work: Array) -> float:
    if regret >= -NOTHING:
        return NOTHING
    a, v, mean, low, high, lam = table[0], table[1], table[2], table[3], table[4], table[5]
    for j in range(a.size):
        low[j], high[j] = edge_low(spec.code), edge_high(spec.code)
    _, lower = reach(spec.code, v, mean, a, c, low, high, lam, work)
    return known(lower - regret)


@kernel
def _against(
    spec: Spec, state: State, work: Work, r: Region, null: int, i: int, k: int, ceiling: float
) -> float:
    """Return the cost of the cheapest null minus the regret of its cells."""
    groups, sides = spec.shares.size, 2 if null == BEAT else 1
    table, rest = work.scratch[: 4 * groups].reshape((2, groups, 2)), work.scratch[4 * groups :]
    v, mean, regret = table[0], table[1], 0.0
    for side in range(sides):
        p = i if side == 0 else k
        for g in range(groups):
            v[g, side], mean[g, side], lost = _cell(spec, state, g, p)
            if spec.unknown_variance:
                _, largest = plausible(state, g, p, sides * groups, ceiling)
                v[g, side], lost = v[g, side] / largest, -NOTHING if largest == math.inf else lost
            if math.isnan(v[g, side] * mean[g, side]):
                return NOT_COMPUTED
            regret += lost
    if regret >= -NOTHING:
        return NOTHING
    lower = _cheapest(spec, work, r, null, v, mean, rest) - regret
    if spec.unknown_variance:
        lower = min(lower + LOG_ON_MEANS, ceiling)  # in this order NaN is kept
    return max(lower, NOTHING) if -math.inf < lower <= math.inf else NOT_COMPUTED


@kernel
def _cheapest(spec: Spec, work: Work, r: Region, null: int, v: Array, mean: Array, rest: Array) -> float:
    """Return a lower bound on the cost of the null; its means are in lam_i (beat) and lam_k."""
    if null == ENTER:
        return inner.enter(spec.code, r, 0, v, mean, work.lam_k, work.lam_0, rest)[1]
    if null == LEAVE:
        return inner.leave(spec.code, r, 0, v, mean, work.lam_k, work.lam_0, rest)[1]
    return inner.beat(
        spec.code, r, spec.shares, spec.indifference, 0, 1, v, mean, work.lam_i, work.lam_k, work.lam_0, rest
    )[1]  # fmt: skip


@kernel
def _cell(spec: Spec, state: State, g: int, k: int) -> tuple[float, float, float]:
    """Return v, mean and regret of cell (k, g)."""
    n, phi = state.n[g, k], spec.phi[g, k]
    if spec.code == GAUSSIAN:
        mean = state.s[g, k] / n if n > 0.0 else 0.0
        return n * n / ((n + N0) * phi), mean, 0.5 * math.log1p(n / N0)
    if spec.code == EXPONENTIAL:
        groups = state.n.shape[0]
        opening = max(-state.bets[LENGTH * groups + g, k], 1.0)  # more than 1 where intervals are counted
        return _exponential(n, state.s[g, k], 1.0 / phi, opening, state.bets[FIRST * groups + g, k])
    units, total = n / phi, state.s[g, k] / phi
    if n == 0.0:
        return 0.0, 0.5, 0.0
    regret = _beta_regret(units, total) if spec.code == BERNOULLI else _gamma_regret(units, total)
    mean = total / units
    return units, mean if mean > TINY else 0.0, regret


@kernel
def _beta_regret(n: float, s: float) -> float:
    if n > MANY:
        return 0.5 * math.log(0.5 * math.pi * n) - half_excess(s) - half_excess(n - s) + 1.0 / (12.0 * n)
    best = _times_log(s, s / n) + _times_log(n - s, (n - s) / n)
    return best - (math.lgamma(0.5 + s) + math.lgamma(0.5 + n - s) - math.lgamma(1.0 + n)) + math.log(math.pi)


@kernel
def _gamma_regret(n: float, s: float) -> float:
    mixed = -math.inf
    if n > MANY or s > MANY:
        for j in range(RATES.size):
            rate = RATES[j]
            mixed = add(mixed, 0.5 * math.log(2.0 * rate / n) - (0.5 + s) * math.log1p(rate / n))
        return math.log(float(RATES.size)) - half_excess(s) - mixed
    for j in range(RATES.size):
        mixed = add(mixed, 0.5 * math.log(RATES[j]) - (0.5 + s) * math.log(RATES[j] + n))
    mixed += math.lgamma(0.5 + s) - 0.5 * math.log(math.pi) - math.log(float(RATES.size))
    return _times_log(s, s / n) - s - mixed


@kernel
def half_excess(s: float) -> float:
    """Return ln Gamma(s + 1/2) minus s ln s - s + 1/2 ln 2 pi, which cancels in a regret."""
    if s > 32.0:
        y = 1.0 / (s * s)
        return -(1.0 - y * (7.0 / 120.0 - y * 31.0 / 1344.0)) / (24.0 * s)
    return math.lgamma(s + 0.5) - _times_log(s, s) + s - 0.5 * math.log(2.0 * math.pi)


@kernel
def _exponential(
    n: float, s: float, shape: float, opening: float, first: float
) -> tuple[float, float, float]:
    """Return v, mean and regret after an opening with this sum; no evidence where it was not recorded."""
    if n < opening + 1.0 or first <= 0.0:
        return 0.0, 1.0, -NOTHING
    units, rest = shape * (n - opening), s - first
    start = shape * opening
    best = units * (math.log(units / rest) - 1.0)
    bet = start * math.log(first) - math.lgamma(start) + math.lgamma(shape * n) - shape * n * math.log(s)
    return units, rest / (n - opening), best - bet


@kernel
def _times_log(x: float, y: float) -> float:
    return x * math.log(y) if x > 0.0 else 0.0
