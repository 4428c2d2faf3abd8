"""Minimise ln M over a half-space by continuation: first for a fraction of the counts.

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
from evenhand.procedure.evidence.newton_step import Model, newton
from evenhand.procedure.evidence.tilt_minimum import model_of, start, tangent_in_a_box, weakest_multiplier
from evenhand.procedure.evidence.tilt_mixture import ASIDE, Cells, measure

Array = NDArray[np.float64]

EASY = 4.0  # log likelihood ratio of the first stage, approximately
STAGE = 4.0  # counts grow by this factor from stage to stage
STAGES = 64  # maximum; half as many cover all counts that floating point can distinguish
ROUNDS = 60  # of Newton's method in a stage: three are usual
NEAR = 1e-2  # convergence of a stage but the last: difference of bound and value
CLOSE = 1e-9  # convergence of the last stage
HALVINGS = 30
DAMPING = 1e-3  # initial relative curvature that is added
LEAST_DAMPING, MOST_DAMPING = 1e-14, 1e6
SETTLED = 3  # the search ends after so many steps that change ln M by no more than its rounding error


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
