"""The tilt mixture: a martingale for every null lam, with its gradient and Hessian in lam.

For one cell with n outcomes of sum S, exp(tau S - n K(tau, lam)) is a martingale under the mean lam for every
tilt tau, K the cumulant: ln(1 + lam (e^tau - 1)) for Bernoulli outcomes, lam (e^tau - 1) for Poisson. Bounded
outcomes only make it smaller on average, being convex in the outcome. Against a half-space {a.lam >= c} every
cell is tilted away from it (up where a < 0, down where a > 0) by a common size per block of cells, once,
twice, or not at all:

    M(lam) = prod over blocks of mean over sizes of prod over cells of
             1/4 + 1/2 exp(tau S - n K(tau, lam)) + 1/4 exp(2 tau S - n K(2 tau, lam)),    |tau| = size

Sizes and weights are fixed before the data. The constant term 1/4 bounds the loss from a cell that was
sampled far more than its weight requires: without it the null of such a cell would cancel the evidence of all
the others.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.unit_families import BERNOULLI, POISSON
from evenhand.procedure.evidence.newton_step import Model

Array = NDArray[np.float64]

# shifts of the log-odds; and of the log of the mean, where the domain has no upper end
SIZES = np.array([0.02 * 1.8 ** np.arange(8), 0.01 * 2.0 ** np.arange(8)])
GRID = SIZES.shape[1]
LOG_GRID = math.log(GRID)
LIFTS = np.array([np.expm1(-SIZES), np.expm1(SIZES)])  # (down or up, family, size): e^tau - 1
ASIDE, ONCE, TWICE = math.log(0.25), math.log(0.5), math.log(0.25)
SLACK = 1e-8  # least slope of a tangent, per mean, where the domain has no upper end
NEGLIGIBLE = -40.0  # terms whose log is this far below the largest are left out


class Cells(NamedTuple):
    """The cells of a half-space problem in unit samples, one block after the other."""

    code: int
    first: int  # number of cells in the first block
    a: Array
    n: Array
    s: Array


@kernel
def measure(cells: Cells, lam: Array, model: Model, work: Array) -> float:
    """Return ln M at lam; write its gradient and its Hessian, block by block, to the model.

    Where the domain has no upper end a tangent must not decrease: a small multiple of lam is subtracted from
    ln M there, so that at the minimum the tangent to ln M increases at this rate.
    """
    m = lam.size
    slopes = work[: GRID * m].reshape((m, GRID))
    curves = work[GRID * m : 2 * GRID * m].reshape((m, GRID))
    logs, sums = work[2 * GRID * m : 2 * GRID * m + GRID], work[2 * GRID * m + GRID : 2 * GRID * m + 2 * GRID]
    value = 0.0
    for block in range(2):
        begin, end = (0, cells.first) if block == 0 else (cells.first, m)
        for g in range(GRID):
            logs[g], sums[g] = 0.0, 1.0
        for j in range(begin, end):
            _mix_cell(cells, j, lam[j], slopes[j], curves[j], logs, sums)
        if begin < end:
            value += _mix_block(begin, end, slopes, curves, logs, sums, model)
    if cells.code == POISSON:
        for j in range(m):
            value -= slack(cells, j) * lam[j]
            model.grad[j] -= slack(cells, j)
    return value


@kernel
def _mix_cell(
    cells: Cells, j: int, lam: float, slopes: Array, curves: Array, logs: Array, sums: Array
) -> None:
    """Multiply one cell's sum into exp(logs), by size; write its log's slope and curvature."""
    side, family = (1 if cells.a[j] < 0.0 else 0), (0 if cells.code == BERNOULLI else 1)
    n, s = cells.n[j], (cells.s[j] if side == 1 else -cells.s[j])
    for g in range(GRID):
        lift = LIFTS[side, family, g]
        twice = lift * (lift + 2.0)
        once_log, twice_log = ONCE + SIZES[family, g] * s, TWICE + 2.0 * SIZES[family, g] * s
        if cells.code == BERNOULLI:
            once_log -= n * math.log(1.0 + lam * lift)
            twice_log -= n * math.log(1.0 + lam * twice)
            t1, t2 = -n * lift / (1.0 + lam * lift), -n * twice / (1.0 + lam * twice)
            bend = 1.0 + 1.0 / n  # the cumulant's own curvature is slope^2 / n
        else:
            once_log -= n * lam * lift
            twice_log -= n * lam * twice
            t1, t2, bend = -n * lift, -n * twice, 1.0
        peak = max(ASIDE, once_log, twice_log)
        p1, p2 = _share(once_log - peak), _share(twice_log - peak)
        total = _share(ASIDE - peak) + p1 + p2
        slopes[g] = (p1 * t1 + p2 * t2) / total
        curves[g] = bend * (p1 * t1 * t1 + p2 * t2 * t2) / total - slopes[g] * slopes[g]
        logs[g] += peak
        sums[g] *= total


@kernel
def _share(log: float) -> float:
    if log == 0.0:
        return 1.0
    return math.exp(log) if log > NEGLIGIBLE else 0.0


@kernel
def _mix_block(
    begin: int, end: int, slopes: Array, curves: Array, logs: Array, sums: Array, model: Model
) -> float:
    """Return the log of a block's mean over sizes; write its gradient and Hessian to the model."""
    peak, total = -math.inf, 0.0
    for g in range(GRID):
        logs[g] += math.log(sums[g])
        peak = max(peak, logs[g])
    for g in range(GRID):
        sums[g] = _share(logs[g] - peak)
        total += sums[g]
    grad, hess = model.grad, model.hess
    for j in range(begin, end):
        grad[j] = 0.0
        for g in range(GRID):
            grad[j] += sums[g] * slopes[j, g] / total
    for j in range(begin, end):
        for d in range(begin, j + 1):
            both = 0.0
            for g in range(GRID):
                both += sums[g] * (slopes[j, g] - grad[j]) * (slopes[d, g] - grad[d])
                if d == j:
                    both += sums[g] * max(curves[j, g], 0.0)
            hess[j, d - begin] = hess[d, j - begin] = both / total
    return peak + math.log(total) - LOG_GRID


@kernel
def slack(cells: Cells, j: int) -> float:
    return SLACK / (1.0 + cells.s[j] / cells.n[j]) + 1e-14 * cells.n[j]
