"""Tilt evidence for Bernoulli, binomial, bounded, Poisson and single exponential cells.

`tilt_mixture` declares the martingale M. Its log is convex in the null lam, so its least over a half-space
{a.lam >= c} is a convex programme (`tilt_minimum`), solved by Newton's method (`newton_step`) and, where that
fails, at large counts, by continuation in the counts (`tilt_continuation`).

Tilts have a smallest size: for a smaller difference their evidence does not grow with the data. So the
mixture over all means (`likelihood_mixture`), whose evidence grows for any difference, has a weight of
e^-MIXTURE_COST. The weight of the tilts, 1 - e^-MIXTURE_COST, is 1 in floating point, and the larger of the
two parts bounds their sum.
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
from evenhand.procedure.evidence.tilt_minimum import (
    distance_off,
    least,
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

ROUNDS = 100  # maximum for Newton's method; five are usual
CLOSE = 2e-10  # convergence: difference of bound and value
LOOSE = 1e-5  # the same, where rounding errors prevent more
FAR = 0.1  # relative difference of bound and value beyond which the bound counts as not found
PLENTY = 60.0  # evidence above this is never needed, and its last digits take most of the time
RIDGE = 1e-3  # relative curvature added far from the minimum
OFF = 1e-9  # relative distance from the hyperplane at which a null counts as on it
MIXTURE_COST = 37.5  # minus the log of the weight of the mixture over means


@kernel
def ahead(spec: Spec, state: State, i: int, k: int, enough: float, work: Array) -> float:
    """Return a lower bound on the ln e-value against {q.mu_k >= q.mu_i + indifference}.

    Above `enough` the bound need not be tight.
    """
    groups = spec.shares.size
    m = _gather(spec, state, i, spec.shares, -1.0, 0, work)
    m = _gather(spec, state, k, spec.shares, 1.0, m, work)
    cells = _cells(spec.code, m // 2, m, work, 2 * groups)
    bound, most = half_space(cells, spec.indifference, enough, spec.evidence, work[6 * groups :])
    ceiling = atom_ceiling(spec)
    if bound >= min(enough, ceiling) or most - MIXTURE_COST <= max(bound, 0.0):
        return bound
    return combined(bound, likelihood_mixture.ahead(spec, state, i, k, work), ceiling)


@kernel
def row(spec: Spec, state: State, k: int, a: Array, c: float, work: Array) -> float:
    """Return a lower bound on the ln e-value against {a.mu_k >= c}."""
    m = _gather(spec, state, k, a, 1.0, 0, work)
    cells = _cells(spec.code, m, m, work, 2 * a.size)
    bound, most = half_space(cells, c, math.inf, spec.evidence, work[6 * a.size :])
    ceiling = atom_ceiling(spec)
    if bound >= ceiling or most - MIXTURE_COST <= max(bound, 0.0):
        return bound
    return combined(bound, likelihood_mixture.row(spec, state, k, a, c, work), ceiling)


@kernel
def pair(
    spec: Spec, state: State, g: int, k: int, a_k: float, j: int, a_j: float, c: float, work: Array
) -> float:
    """Return a lower bound on the ln e-value against {a_k mu_k + a_j mu_j >= c} in group g."""
    for place, policy, a in ((0, k, a_k), (1, j, a_j)):
        work[place] = a
        work[2 + place] = state.n[g, policy] / spec.phi[g, policy]
        work[4 + place] = state.s[g, policy] / spec.phi[g, policy]
    bound, most = half_space(_cells(spec.code, 2, 2, work, 2), c, math.inf, spec.evidence, work[6:])
    ceiling = atom_ceiling(spec)
    if bound >= ceiling or most - MIXTURE_COST <= max(bound, 0.0):
        return bound
    return combined(bound, likelihood_mixture.pair(spec, state, g, k, a_k, j, a_j, c, work), ceiling)


@kernel
def cell(code: int, n: float, s: float, c: float, sign: float) -> float:
    """Return the tilt ln e-value of one cell against {mean <= c} (sign 1) or {mean >= c} (-1).

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
    """Return the evidence of tilts and mixture; the mixture counts from 0 to the ceiling.

    NOT_COMPUTED where the tilts were not computed, unless the mixture reaches the ceiling.
    """
    other = min(mixed - MIXTURE_COST, ceiling)
    if other <= 0.0 or (tilted == NOT_COMPUTED and other < ceiling):
        return tilted
    return max(tilted, other)


@kernel
def half_space(cells: Cells, c: float, enough: float, version: int, work: Array) -> tuple[float, float]:
    """Return a certified lower bound on ln M over {a.lam >= c}.

    Above `enough` the bound need not be tight. Also returns a log likelihood ratio of the estimates to a null
    in the half-space, an upper bound on the minimum. The first version of the evidence has no continuation
    and no mixture, and returns 0 for it.
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
    """Run Newton's method; return the bound, and ln M where it ends, at model.lam."""
    m = cells.a.size
    model, trial, rest = model_of(cells, work)
    lam, step = model.lam, model.step
    value = measure(cells, lam, model, rest)
    best, noise, calm, ridge = m * ASIDE, noise_of(cells), 0, RIDGE  # every cell contributes at least ASIDE
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
    """Append policy k's cells with a weight to the table in `work`; return the number of rows."""
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
