"""Evidence from Bernoulli, binomial, bounded and Poisson outcomes, and from one exponential cell: tilts.

`tilt_mixture` declares the martingale M. Its log is convex in the null lam, so its least over a half-space
{a.lam >= c} is a convex programme (`tilt_programme`), solved by Newton's method (`quadratic`) and, where that
fails, which is at large counts, by continuation in the counts (`continuation`).

Tilts have a smallest size: from a difference too small for it they learn nothing, however many outcomes there
are. So a part e^-MIXTURE_COST of the bets is on the mixture over all means (`mixture`), whose evidence grows
with the data whatever the difference. The rest, 1 - e^-MIXTURE_COST, is 1 in floating point: it is bet on the
tilts, and the larger of the two parts bounds their sum.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.unit_families import BERNOULLI, POISSON
from evenhand.procedure.evidence import likelihood_mixture
from evenhand.procedure.evidence.newton_step import newton
from evenhand.procedure.evidence.thresholds import atom_ceiling
from evenhand.procedure.evidence.tilt_continuation import least
from evenhand.procedure.evidence.tilt_minimum import (
    distance_off,
    likelihood_ratio,
    model_of,
    noise_of,
    start,
    tangent,
)
from evenhand.procedure.evidence.tilt_mixture import ASIDE, GRID, LIFTS, LOG_GRID, SIZES, Cells, measure
from evenhand.procedure.log_space import NOT_COMPUTED
from evenhand.procedure.spec import FIRST_EVIDENCE, Spec
from evenhand.procedure.state import State

Array = NDArray[np.float64]

ROUNDS = 100  # of Newton's method: five are usual
CLOSE = 2e-10  # bound and value this near: done
LOOSE = 1e-5  # bound and value that rounding errors keep from being nearer
FAR = 0.1  # bound and value farther apart than this part of the value: the bound was not found
PLENTY = 60.0  # evidence beyond this is never needed, and its last digits cost most
RIDGE = 1e-3  # relative curvature added while far from the minimum
OFF = 1e-9  # relative distance from the hyperplane of a null that counts as on it
MIXTURE_COST = 37.5  # what the mixture over means loses by its small weight


@kernel
def ahead(spec: Spec, state: State, i: int, k: int, enough: float, work: Array) -> float:
    """ln e-value against {q.mu_k >= q.mu_i}: the leader i is ahead of its rival k. A lower bound.

    More than `enough` is never needed.
    """
    groups = spec.shares.size
    m = _gather(spec, state, i, spec.shares, -1.0, 0, work)
    m = _gather(spec, state, k, spec.shares, 1.0, m, work)
    cells = _cells(spec.code, m // 2, m, work, 2 * groups)
    bound, most = half_space(cells, 0.0, enough, spec.evidence, work[6 * groups :])
    ceiling = atom_ceiling(spec)
    if bound >= min(enough, ceiling) or most - MIXTURE_COST <= max(bound, 0.0):
        return bound
    return combined(bound, likelihood_mixture.ahead(spec, state, i, k, work), ceiling)


@kernel
def row(spec: Spec, state: State, k: int, a: Array, c: float, work: Array) -> float:
    """ln e-value against {a.mu_k >= c}. A lower bound."""
    m = _gather(spec, state, k, a, 1.0, 0, work)
    cells = _cells(spec.code, m, m, work, 2 * a.size)
    bound, most = half_space(cells, c, math.inf, spec.evidence, work[6 * a.size :])
    ceiling = atom_ceiling(spec)
    if bound >= ceiling or most - MIXTURE_COST <= max(bound, 0.0):
        return bound
    return combined(bound, likelihood_mixture.row(spec, state, k, a, c, work), ceiling)


@kernel
def cell(code: int, n: float, s: float, c: float, sign: float) -> float:
    """ln e-value of one cell against {mean <= c} (sign 1) or {mean >= c} (sign -1), by tilts alone, exactly.

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
def combined(tilted: float, mixed: float, ceiling: float) -> float:
    """The evidence of both parts of the bets; that of the mixture over means counts from 0 to the ceiling.

    What was not computed of the tilts is missed unless the mixture is all that is ever asked for.
    """
    other = min(mixed - MIXTURE_COST, ceiling)
    if other <= 0.0 or (tilted == NOT_COMPUTED and other < ceiling):
        return tilted
    return max(tilted, other)


@kernel
def half_space(cells: Cells, c: float, enough: float, version: int, work: Array) -> tuple[float, float]:
    """The least ln M over {a.lam >= c}, a certified lower bound; more than `enough` is never needed.

    Also a likelihood ratio of the estimates to a null in the half-space, not below the least; nothing in the
    first version, which went on where Newton's method failed and had no bets beside the tilts.
    """
    model, _, _ = model_of(cells, work)
    eta = start(cells, model, c)
    if math.isnan(eta):
        return NOT_COMPUTED, 0.0
    if not 0.0 < eta < math.inf:
        return (math.inf if eta > 0.0 else cells.a.size * ASIDE), 0.0
    bound, value = _descend(cells, c, eta, enough, version, work)
    if version == FIRST_EVIDENCE:
        return bound, 0.0
    solved = distance_off(cells, model, c) <= OFF
    solved = solved and (value - bound <= LOOSE or bound > max(PLENTY, 0.9 * value))
    if not solved and bound <= enough:
        bound, value = least(cells, c, enough, work)
        if bound <= enough and not value - bound <= FAR * max(abs(value), 1.0):
            bound = NOT_COMPUTED
    return bound, likelihood_ratio(cells, model.lam)


@kernel
def _descend(
    cells: Cells, c: float, eta: float, enough: float, version: int, work: Array
) -> tuple[float, float]:
    """Newton's method from the start on: the bound, and ln M where it ends, in model.lam."""
    m = cells.a.size
    model, trial, rest = model_of(cells, work)
    lam, step = model.lam, model.step
    value = measure(cells, lam, model, rest)
    best, noise, calm, ridge = m * ASIDE, noise_of(cells), 0, RIDGE  # at the least all cells stand aside
    for _ in range(ROUNDS):
        eta = newton(model, c, eta, ridge)
        best = max(best, value + tangent(cells, model, c, eta))
        slope = 0.0
        for j in range(m):
            slope += model.grad[j] * step[j]
        calm += -slope <= noise
        if best > enough or value - best <= CLOSE or calm > 2 or best > max(PLENTY, 0.9 * value):
            return best, value
        ridge, reach = min(RIDGE, -slope), 1.0
        found, falls = math.inf, False
        for _ in range(40):
            for j in range(m):
                trial[j] = lam[j] + reach * step[j]
            found = measure(cells, trial, model, rest)
            falls = found <= value + 1e-4 * reach * slope + noise
            if falls:
                break
            reach *= 0.5
        if not falls and version != FIRST_EVIDENCE:
            return best, math.inf
        value = found
        for j in range(m):
            lam[j] = trial[j]
    return best, math.inf


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
