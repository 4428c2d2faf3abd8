"""One Newton step for a convex function on {a.lam = c}, every lam between 0 and `high`.

The Hessian has two blocks of cells. The step minimises the quadratic model inside the domain by an active-set
method: a cell that would leave the domain is fixed at its bound, and a fixed cell whose slope points inwards
is freed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel

Array = NDArray[np.float64]


class Model(NamedTuple):
    """The quadratic model around lam and the step; columns of `hess` count within a block."""

    first: int  # number of cells in the first block
    high: float  # upper end of the domain
    a: Array
    scale: Array  # a typical curvature of each cell
    lam: Array
    grad: Array
    step: Array
    aim: Array  # movement of the free cells per unit of the multiplier
    held: Array  # -1: fixed at 0, 1: fixed at `high`, 0: free
    hess: Array
    factor: Array


@kernel
def close_gap(model: Model, c: float) -> float:
    """Put lam on {a.lam = c} from the point in `step`, along a / scale; return the multiplier there."""
    eta = 0.0
    for _ in range(100):  # the closed gap is piecewise linear in eta: a few rounds are enough
        gap, ease = c, 0.0
        for v in range(model.lam.size):
            x = model.step[v] + eta * model.a[v] / model.scale[v]
            model.lam[v] = min(max(x, 0.0), model.high)
            gap -= model.a[v] * model.lam[v]
            if model.lam[v] == x:
                ease += model.a[v] * model.a[v] / model.scale[v]
        if abs(gap) < 1e-14 or ease == 0.0:
            break
        eta += gap / ease
    return eta


@kernel
def newton(model: Model, c: float, eta: float, ridge: float) -> float:
    """Write the step to model.step and return its multiplier; `eta` is the previous one.

    `ridge` times `scale` is added to the curvature, so that the step stays finite where the function is
    nearly linear.
    """
    m = model.lam.size
    for j in range(m):
        pull = model.grad[j] - eta * model.a[j]
        at_low, at_high = model.lam[j] <= 0.0, model.lam[j] >= model.high
        model.held[j] = -1.0 if at_low and pull > 0.0 else (1.0 if at_high and pull < 0.0 else 0.0)
    for _ in range(2 * m + 8):
        eta = _solved(model, c, eta, ridge)
        if not _fix_leaving_cells(model) and not _free_cells(model, eta):
            break
    return eta


@kernel
def _solved(model: Model, c: float, eta: float, ridge: float) -> float:
    """Write the step that is stationary in the free cells and lies on the hyperplane."""
    m, a, step, aim = model.lam.size, model.a, model.step, model.aim
    for j in range(m):
        if model.held[j] != 0.0:
            step[j] = (model.high if model.held[j] > 0.0 else 0.0) - model.lam[j]
    for block in range(2):
        begin, end = (0, model.first) if block == 0 else (model.first, m)
        for j in range(begin, end):
            aim[j] = 0.0 if model.held[j] != 0.0 else a[j]
            if model.held[j] == 0.0:
                step[j] = -model.grad[j]
                for d in range(begin, end):
                    if model.held[d] != 0.0:
                        step[j] -= model.hess[j, d - begin] * step[d]
        _factorise(model, begin, end, ridge)
        _back_substitute(model, begin, end, step)
        _back_substitute(model, begin, end, aim)
    along, across = c, 0.0
    for j in range(m):
        along -= a[j] * (model.lam[j] + step[j])
        across += a[j] * aim[j]
    if across > 0.0:
        eta = max(along / across, 0.0)
    for j in range(m):
        step[j] += eta * aim[j]
    return eta


@kernel
def _fix_leaving_cells(model: Model) -> bool:
    """Fix the free cells whose step leaves the domain; return whether there were any."""
    found = False
    for j in range(model.lam.size):
        to = model.lam[j] + model.step[j]
        if model.held[j] == 0.0 and (to < 0.0 or to > model.high):
            model.held[j] = -1.0 if to < 0.0 else 1.0
            found = True
    return found


@kernel
def _free_cells(model: Model, eta: float) -> bool:
    """Free the fixed cells whose slope after the step points inwards; return whether any were."""
    found = False
    for j in range(model.lam.size):
        if model.held[j] == 0.0:
            continue
        begin, end = (0, model.first) if j < model.first else (model.first, model.lam.size)
        pull = model.grad[j] - eta * model.a[j]
        for d in range(begin, end):
            pull += model.hess[j, d - begin] * model.step[d]
        if pull * model.held[j] > 0.0:
            model.held[j] = 0.0
            found = True
    return found


@kernel
def _factorise(model: Model, begin: int, end: int, ridge: float) -> None:
    """Compute the Cholesky factor of the free cells' curvature in a block."""
    factor, held = model.factor, model.held
    for j in range(begin, end):
        if held[j] != 0.0:
            continue
        own = model.hess[j, j - begin] + ridge * model.scale[j]
        for d in range(begin, j + 1):
            if held[d] != 0.0:
                continue
            total = own if d == j else model.hess[j, d - begin]
            for e in range(begin, d):
                if held[e] == 0.0:
                    total -= factor[j, e - begin] * factor[d, e - begin]
            if j == d:
                factor[j, j - begin] = np.sqrt(max(total, 1e-14 * own))
            else:
                factor[j, d - begin] = total / factor[d, d - begin]


@kernel
def _back_substitute(model: Model, begin: int, end: int, x: Array) -> None:
    """Multiply x by the inverse of the curvature, free cells only."""
    factor, held = model.factor, model.held
    for j in range(begin, end):
        if held[j] != 0.0:
            continue
        for d in range(begin, j):
            if held[d] == 0.0:
                x[j] -= factor[j, d - begin] * x[d]
        x[j] /= factor[j, j - begin]
    for j in range(end - 1, begin - 1, -1):
        if held[j] != 0.0:
            continue
        for d in range(j + 1, end):
            if held[d] == 0.0:
                x[j] -= factor[d, j - begin] * x[d]
        x[j] /= factor[j, j - begin]
