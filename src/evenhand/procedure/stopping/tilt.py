"""Evidence from Bernoulli, binomial, bounded and Poisson outcomes, and from one exponential cell: tilts.

`tilt_mixture` declares the martingale M. Its log is convex in the null lam, so its least over a half-space
{a.lam >= c} is a convex programme, solved by Newton's method (`quadratic`). At any lam0 and any eta >= 0 the
tangent plane certifies

    min ln M >= ln M(lam0) + eta (c - a.lam0)
                + sum over cells of the least of (grad - eta a) (lam - lam0), lam in the domain,

so ending early costs evidence, never truth.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand._kernel import kernel
from evenhand.model.units import BERNOULLI, POISSON, edge_high
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State
from evenhand.procedure.stopping.quadratic import Model, newton
from evenhand.procedure.stopping.tilt_mixture import (
    ASIDE,
    GRID,
    LIFTS,
    LOG_GRID,
    SIZES,
    Cells,
    measure,
    slack,
)

Array = NDArray[np.float64]


ROUNDS = 100  # of Newton's method: five are usual
CLOSE = 2e-10  # bound and value this near: done
PLENTY = 60.0  # evidence beyond this is never needed, and its last digits cost most
RIDGE = 1e-3  # relative curvature added while far from the minimum


@kernel(apart=True)
def ahead(spec: Spec, state: State, i: int, k: int, enough: float, work: Array) -> float:
    """ln e-value against {q.mu_k >= q.mu_i}: the leader i is ahead of its rival k. A lower bound.

    More than `enough` is never needed.
    """
    groups = spec.shares.size
    m = _gather(spec, state, i, spec.shares, -1.0, 0, work)
    m = _gather(spec, state, k, spec.shares, 1.0, m, work)
    return half_space(_cells(spec.code, m // 2, m, work, 2 * groups), 0.0, enough, work[6 * groups :])


@kernel(apart=True)
def row(spec: Spec, state: State, k: int, a: Array, c: float, work: Array) -> float:
    """ln e-value against {a.mu_k >= c}. A lower bound."""
    m = _gather(spec, state, k, a, 1.0, 0, work)
    return half_space(_cells(spec.code, m, m, work, 2 * a.size), c, math.inf, work[6 * a.size :])


@kernel(apart=True)
def cell(code: int, n: float, s: float, c: float, sign: float) -> float:
    """ln e-value of one cell against {mean <= c} (sign 1) or {mean >= c} (sign -1), exactly.

    n and s count unit samples. Exponential outcomes are tilted by shifts t of the log of the mean: those of
    mean c e^t against those of mean c have the likelihood ratio exp((1 - e^-t) s / c - n t).
    """
    side, family = (1 if sign > 0.0 else 0), (0 if code == BERNOULLI else 1)
    peak, total = -math.inf, 0.0
    for g in range(GRID):
        tau, lift = sign * SIZES[family, g], LIFTS[side, family, g]
        if code == BERNOULLI:
            term = tau * s - n * math.log(1.0 + c * lift)
        elif code == POISSON:
            term = tau * s - n * c * lift
        else:
            term = -LIFTS[1 - side, family, g] * s / c - n * tau
        if term > peak:
            total, peak = total * math.exp(peak - term) + 1.0, term
        else:
            total += math.exp(term - peak)
    return peak + math.log(total) - LOG_GRID


@kernel
def half_space(cells: Cells, c: float, enough: float, work: Array) -> float:
    """The least ln M over {a.lam >= c}, a certified lower bound; more than `enough` is never needed."""
    m = cells.a.size
    floor = m * ASIDE  # all cells stand aside
    model, trial, rest = _model(cells, work)
    lam, step = model.lam, model.step
    eta = _start(cells, model, c)
    if not 0.0 < eta < math.inf:
        return math.inf if eta > 0.0 else floor
    value = measure(cells, lam, model, rest)
    best, noise, calm, ridge = floor, _noise(cells), 0, RIDGE
    for _ in range(ROUNDS):
        eta = newton(model, c, eta, ridge)
        best = max(best, value + _tangent(cells, model, c, eta))
        slope = 0.0
        for j in range(m):
            slope += model.grad[j] * step[j]
        calm += -slope <= noise
        if best > enough or value - best <= CLOSE or calm > 2 or best > max(PLENTY, 0.9 * value):
            break
        ridge, reach = min(RIDGE, -slope), 1.0
        found = math.inf
        for _ in range(40):
            for j in range(m):
                trial[j] = lam[j] + reach * step[j]
            found = measure(cells, trial, model, rest)
            if found <= value + 1e-4 * reach * slope + noise:
                break
            reach *= 0.5
        value = found
        for j in range(m):
            lam[j] = trial[j]
    return best


@kernel
def _gather(spec: Spec, state: State, k: int, a: Array, sign: float, m: int, work: Array) -> int:
    """Policy k's cells with a weight, from row m of the table in `work` on; how many rows it has then."""
    size = 2 * a.size
    for g in range(a.size):
        if a[g] != 0.0:
            work[m] = sign * a[g]
            work[size + m] = state.n[g, k] / spec.phi[g, k]
            work[2 * size + m] = state.s[g, k] / spec.phi[g, k]
            m += 1
    return m


@kernel
def _cells(code: int, first: int, m: int, work: Array, size: int) -> Cells:
    return Cells(code, first, work[:m], work[size : size + m], work[2 * size : 2 * size + m])


@kernel
def _model(cells: Cells, work: Array) -> tuple[Model, Array, Array]:
    """Room for the quadratic model, for a trial point, and the rest of the scratch."""
    m = cells.a.size
    width = max(cells.first, m - cells.first)
    used = (7 + 2 * width) * m
    hess = work[7 * m : (7 + width) * m].reshape((m, width))
    factor = work[(7 + width) * m : used].reshape((m, width))
    scale, lam, grad = work[:m], work[m : 2 * m], work[2 * m : 3 * m]
    step, aim, held, trial = (
        work[3 * m : 4 * m],
        work[4 * m : 5 * m],
        work[5 * m : 6 * m],
        work[6 * m : 7 * m],
    )
    high = edge_high(cells.code)
    model = Model(cells.first, high, cells.a, scale, lam, grad, step, aim, held, hess, factor)
    return model, trial, work[used:]


@kernel
def _start(cells: Cells, model: Model, c: float) -> float:
    """Put lam on {a.lam = c}, about where the likelihood ratio is least; the multiplier there.

    Not positive where the estimates, or all means, lie in the half-space; infinite where no means do.
    """
    top, gap = 0.0, c
    for j in range(cells.a.size):
        if cells.n[j] == 0.0:
            return 0.0
        mean = (cells.s[j] + 0.5) / (cells.n[j] + 1.0)
        model.step[j] = mean
        model.scale[j] = (cells.n[j] + 1.0) / (mean * (1.0 - mean) if cells.code == BERNOULLI else mean)
        top += max(cells.a[j] * model.high, 0.0)
        gap -= cells.a[j] * mean
    if gap <= 0.0 or top < c:
        return 0.0 if gap <= 0.0 else math.inf
    eta = 0.0
    for _ in range(100):  # what is closed grows piecewise linearly with eta: this ends after a few
        gap, ease = c, 0.0
        for j in range(cells.a.size):
            x = model.step[j] + eta * cells.a[j] / model.scale[j]
            model.lam[j] = min(max(x, 0.0), model.high)
            gap -= cells.a[j] * model.lam[j]
            if model.lam[j] == x:
                ease += cells.a[j] * cells.a[j] / model.scale[j]
        if abs(gap) < 1e-14 or ease == 0.0:
            break
        eta += gap / ease
    return eta


@kernel
def _noise(cells: Cells) -> float:
    """Rounding error of ln M: its terms are as large as the counts."""
    total = 1.0
    for j in range(cells.n.size):
        total += cells.n[j] + cells.s[j]
    return 1e-15 * total


@kernel
def _tangent(cells: Cells, model: Model, c: float, eta: float) -> float:
    """How far the tangent plane, levelled along a by eta, may fall below its value at lam in the domain."""
    total = eta * c
    for j in range(cells.a.size):
        total -= eta * cells.a[j] * model.lam[j]
        spare = slack(cells, j) if cells.code == POISSON else 0.0
        pull = model.grad[j] + spare - eta * cells.a[j]
        if pull > 0.0:
            total -= (pull - spare) * model.lam[j]
        elif pull < 0.0:
            total += pull * (model.high - model.lam[j])
    return total
