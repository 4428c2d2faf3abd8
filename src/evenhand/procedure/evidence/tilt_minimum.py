"""Minimise ln M over a half-space {a.lam >= c}: starting points and lower bounds.

At any lam0 and any eta >= 0 the tangent plane certifies

    min ln M >= ln M(lam0) + eta (c - a.lam0)
                + sum over cells of the least of (grad - eta a) (lam - lam0), lam in the domain,

so ending a search early loses evidence but stays valid.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.unit_families import BERNOULLI, POISSON, divergence, edge_high
from evenhand.procedure.evidence.newton_step import Model
from evenhand.procedure.evidence.tilt_mixture import LIFTS, SIZES, Cells, slack

Array = NDArray[np.float64]

SATURATED = 30.0  # e^-30 is negligible beside the constant term 1/4 of a cell
ROUNDING = 1e-15  # relative error of a sum of a few dozen terms


@kernel
def model_of(cells: Cells, work: Array) -> tuple[Model, Array, Array]:
    """Return views of the scratch: the quadratic model, a trial point, and the rest."""
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
def start(cells: Cells, model: Model, c: float) -> float:
    """Put lam on {a.lam = c} near the least likelihood ratio; return the multiplier there.

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
    for _ in range(100):  # the closed gap is piecewise linear in eta: a few rounds are enough
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
def noise_of(cells: Cells) -> float:
    """Return the rounding error of ln M: its terms are as large as the counts."""
    total = 1.0
    for j in range(cells.n.size):
        total += cells.n[j] + cells.s[j]
    return 1e-15 * total


@kernel
def tangent(cells: Cells, model: Model, c: float, eta: float) -> float:
    """Return how far the tangent plane, tilted along a by eta, can fall below its value at lam."""
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


@kernel
def tangent_in_a_box(cells: Cells, model: Model, c: float, eta: float) -> float:
    """Return the same over the means that matter only, minus its rounding error.

    Beyond `_aside_at` a cell contributes a constant and ln M no longer changes, so a null there is no weaker
    than one with the cell at this end; and no cell with a > 0 has to move farther than closes the whole gap
    alone.
    """
    m = cells.a.size
    farthest = c
    for j in range(m):
        if cells.a[j] < 0.0:
            farthest -= cells.a[j] * _aside_at(cells, j)
    total, size = eta * c, abs(eta * c)
    for j in range(m):
        a, lam = cells.a[j], model.lam[j]
        spare = slack(cells, j) if cells.code == POISSON else 0.0
        grad = model.grad[j] + spare
        low, high = (0.0, _aside_at(cells, j)) if a < 0.0 else (_aside_at(cells, j), farthest / a)
        pull = grad - eta * a
        fall = pull * max(lam - low, 0.0) if pull > 0.0 else -pull * max(min(high, model.high) - lam, 0.0)
        total += spare * lam - eta * a * lam - fall
        size += (abs(grad) + eta * abs(a)) * (lam + cells.s[j] / cells.n[j])
    return total - 64.0 * ROUNDING * size - 4.0 * m * math.exp(-SATURATED)


@kernel
def weakest_multiplier(cells: Cells, model: Model) -> float:
    """Return the largest eta at which no cell moves farther into the half-space."""
    least = math.inf
    for j in range(cells.a.size):
        spare = slack(cells, j) if cells.code == POISSON else 0.0
        least = min(least, max((model.grad[j] + spare) / cells.a[j], 0.0))
    return least


@kernel
def _aside_at(cells: Cells, j: int) -> float:
    """Return the mean beyond which all terms of a cell are at most e^-30.

    The direction is away from the half-space. The term of the smallest tilt is the last to reach this size.
    """
    up, family = cells.a[j] < 0.0, 0 if cells.code == BERNOULLI else 1
    lift = LIFTS[1 if up else 0, family, 0]
    exponent = SIZES[family, 0] * cells.s[j]
    exponent = (SATURATED + exponent if up else SATURATED - exponent) / cells.n[j]
    return max((math.expm1(exponent) if cells.code == BERNOULLI else exponent) / lift, 0.0)


@kernel
def distance_off(cells: Cells, model: Model, c: float) -> float:
    """Return the distance of lam from {a.lam = c}, relative to the size of the terms."""
    off, size = c, abs(c)
    for j in range(cells.a.size):
        off -= cells.a[j] * model.lam[j]
        size += abs(cells.a[j] * model.lam[j])
    return abs(off) / size if size > 0.0 else 0.0


@kernel
def likelihood_ratio(cells: Cells, lam: Array) -> float:
    """Return the log likelihood ratio of the estimates to the null lam.

    Where lam is in the half-space, it is an upper bound on the minimum.
    """
    total = 0.0
    for j in range(cells.a.size):
        total += cells.n[j] * divergence(cells.code, cells.s[j] / cells.n[j], lam[j])
    return total
