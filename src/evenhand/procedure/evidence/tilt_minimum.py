"""Minimise ln M over a half-space {a.lam >= c}, by continuation, with lower bounds.

At any lam0 and any eta >= 0 the tangent plane certifies

    min ln M >= ln M(lam0) + eta (c - a.lam0)
                + sum over cells of the least of (grad - eta a) (lam - lam0), lam in the domain,

so ending a search early loses evidence but stays valid.

Minimise ln M over a half-space by continuation: first for a fraction of the counts.

At large counts ln M has high curvature at a few places and is nearly linear elsewhere, and Newton's method
from a distant start oscillates. With counts divided by `times` the curvature is moderate; the null found
there is a good start for counts divided by less.

M is an average, over tilts fixed before the data, of likelihood ratios. With all counts divided by `times`
each ratio is raised to the power 1/times, so by Jensen's inequality

    M(counts) >= M(counts / times)^times,

and `times` times the bound of any stage bounds the whole: it grows with the data even where later stages
fail. The search keeps to the hyperplane {a.lam = c}, on which the least lies.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.unit_families import BERNOULLI, POISSON, divergence, edge_high
from evenhand.procedure.evidence.newton_step import Model, close_gap, newton
from evenhand.procedure.evidence.tilt_mixture import ASIDE, LIFTS, SIZES, Cells, measure, slack

Array = NDArray[np.float64]

SATURATED = 30.0  # e^-30 is negligible compared with the constant term 1/4 of a cell
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
    return close_gap(model, c)


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


EASY = 4.0  # log likelihood ratio of the first stage, approximately
STAGE = 4.0  # counts grow by this factor from stage to stage
STAGES = 64  # maximum; half as many cover all counts that floating point can distinguish
ROUNDS = 60  # of Newton's method in a stage: three are usual
NEAR = 1e-2  # convergence of a stage but the last: difference of bound and value
CLOSE = 1e-9  # convergence of the last stage
HALVINGS = 30
DAMPING = 1e-3  # initial relative curvature that is added
LEAST_DAMPING, MOST_DAMPING = 1e-14, 1e6
SETTLED = 3  # the search ends after this number of steps that change ln M by no more than its rounding error


@kernel
def least(cells: Cells, c: float, enough: float, work: Array) -> tuple[float, float]:
    """Return a certified lower bound on ln M over {a.lam >= c}, and ln M at the end.

    Above `enough` the bound need not be tight. There must be outcomes in every cell, and {a.lam >= c} must
    hold some means but not the estimates. The null found is left in `work` as `model_of(cells, work)` reads
    it.
    """
    m = cells.a.size
    model, trial, rest = model_of(cells, work)
    part = Cells(cells.code, cells.first, cells.a, rest[:m], rest[m : 2 * m])
    eta = start(cells, model, c)
    times = _first_fraction(cells, c, eta)
    eta /= times
    for j in range(m):
        model.scale[j] /= times
    best, value = m * ASIDE, math.inf  # lower bound on ln M: every cell contributes at least ASIDE
    for _ in range(STAGES):
        for j in range(m):
            part.n[j], part.s[j] = cells.n[j] / times, cells.s[j] / times
        close = NEAR if times > 1.0 else CLOSE
        value, bound, eta = _descend(part, model, c, eta, close, trial, rest[2 * m :])
        best = max(best, times * bound)
        if times == 1.0 or best > enough:
            break
        more = min(STAGE, times)
        times /= more
        eta *= more
        for j in range(m):
            model.scale[j] *= more
    return best, times * value


@kernel
def _first_fraction(cells: Cells, c: float, eta: float) -> float:
    """Return the divisor of the counts for the first stage."""
    gap = c
    for j in range(cells.a.size):
        gap -= cells.a[j] * cells.s[j] / cells.n[j]
    return max(0.5 * eta * gap / EASY, 1.0)  # half of eta gap is the log likelihood ratio of a quadratic


@kernel
def _descend(
    cells: Cells, model: Model, c: float, eta: float, close: float, trial: Array, rest: Array
) -> tuple[float, float, float]:
    """Run Newton's method from model.lam; return the value, the bound and the multiplier."""
    lam = model.lam
    value = measure(cells, lam, model, rest)
    bound, damping, calm = cells.a.size * ASIDE, DAMPING, 0
    for _ in range(ROUNDS):
        eta = newton(model, c, eta, damping)
        bound = max(bound, value + tangent_in_a_box(cells, model, c, eta))
        bound = max(bound, value + tangent_in_a_box(cells, model, c, weakest_multiplier(cells, model)))
        if value - bound <= close or calm > SETTLED or damping > MOST_DAMPING:
            break
        on_plane, slope = _corrected(model, c)
        noise = 1e-15 * _size(cells, model)
        calm += -slope <= noise
        found, reach = math.inf, 1.0
        if on_plane and slope < noise:
            found, reach = _search(cells, model, value, slope, noise, trial, rest)
        if found < math.inf:
            for j in range(lam.size):
                lam[j] = trial[j]
            value = found
            damping = max(min(0.1 * damping if reach == 1.0 else 4.0 * damping, abs(slope)), LEAST_DAMPING)
        else:
            value = measure(cells, lam, model, rest)  # recompute the slopes, which are those of the trial
            damping *= 100.0
    return value, bound, eta


@kernel
def _corrected(model: Model, c: float) -> tuple[bool, float]:
    """Correct the rounding error of the step, so that it ends on {a.lam = c}.

    Returns whether it does, and the slope along the step.
    """
    off, ease, slope, size = c, 0.0, 0.0, abs(c)
    for j in range(model.lam.size):
        end = model.a[j] * (model.lam[j] + model.step[j])
        off, size = off - end, size + abs(end)
        if model.held[j] == 0.0:
            ease += model.a[j] * model.a[j] / model.scale[j]
    for j in range(model.lam.size):
        if model.held[j] == 0.0:
            model.step[j] += off / ease * model.a[j] / model.scale[j]
        slope += model.grad[j] * model.step[j]
    return (ease > 0.0 or abs(off) <= 1e-12 * size) and math.isfinite(slope), slope


@kernel
def _size(cells: Cells, model: Model) -> float:
    """Return the size of the terms that make up ln M where its curvature is high."""
    total = 1.0
    for j in range(model.lam.size):
        total += abs(model.grad[j]) * (model.lam[j] + cells.s[j] / cells.n[j])
    return total


@kernel
def _search(
    cells: Cells, model: Model, value: float, slope: float, noise: float, trial: Array, rest: Array
) -> tuple[float, float]:
    """Search along the step for a sufficient decrease; return ln M there and the step length."""
    found, reach = math.inf, 1.0
    for _ in range(HALVINGS):
        inside = True
        for j in range(trial.size):
            trial[j] = model.lam[j] + reach * model.step[j]
            inside = inside and 0.0 <= trial[j] <= model.high
        if inside:
            found = measure(cells, trial, model, rest)
            if found <= value + 1e-4 * reach * slope + noise:
                return found, reach
        reach *= 0.5
    return math.inf, reach
