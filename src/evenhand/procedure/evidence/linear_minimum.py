"""Lower bounds on linear-bet evidence over a half-space: a small convex programme with a certificate.

The variables are, for each group, the means of i and of k where some item was answered by one of them only;
otherwise their difference, with 0 in place of the second. Each lies in a known interval, scaled to [0, 1]
here, and the null is {a.lam >= c}. At any lam0 and any eta >= 0 the tangent plane certifies

    min ln M >= ln M(lam0) + eta (c - a.lam0)
                + sum over variables of the least of (grad - eta a) (lam - lam0), lam in [0, 1],

so a search that ends early loses evidence but stays valid.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.procedure.evidence.linear_bets import BOTH, KINDS, ONLY_I, ONLY_K, SIZES, Block, share_of_pairs
from evenhand.procedure.evidence.newton_step import Model, close_gap, newton
from evenhand.procedure.log_space import NOTHING

Array = NDArray[np.float64]

LOG_SIZES = math.log(SIZES)
ROUNDS = 100
CLOSE = 1e-10  # convergence: difference of bound and value
RIDGE = 1e-3  # relative curvature added far from the minimum
ROUNDING = 4e-15  # relative rounding error of W and B
NEGLIGIBLE = -40.0  # terms whose log is this far below the largest are left out
OFF_PLANE = 1e-9  # distance from the plane at which a step counts as off it
SHORTENED = 12  # how often the ridge grows until the step stays on the plane
EMPTY = 1e-12  # a null that is missed by no more than this is not empty


class Null(NamedTuple):
    """The half-space {sum of weight (first - second) <= bound}; variables lie between low and high."""

    weight: Array  # (L,)
    bound: float
    low: Array  # (2 L,)
    high: Array  # (2 L,)


class Tables(NamedTuple):
    """Scratch of one evaluation of ln M."""

    slopes: Array  # (2 L, SIZES) of the log of each size's product
    curves: Array  # (3 L, SIZES) of the cells
    logs: Array  # (SIZES,)


def scratch(groups: int) -> Array:
    """Return working memory for `least`."""
    m = 2 * groups
    return np.zeros((8 + 2 * m) * m + SIZES * (m + KINDS * groups + 1))


@kernel
def least(block: Block, null: Null, multipliers: Array, enough: float, work: Array) -> float:
    """Return a lower bound on ln M over the null; infinite where the null is empty.

    Above `enough` the bound need not be tight. Where the estimates lie in the null there is no evidence.
    """
    model, trial, tables = _views(block, work)
    c = _scale(null, model)
    eta = _start(block, null, model, c)
    if not 0.0 < eta < math.inf:
        return math.inf if eta > 0.0 else NOTHING
    return _descend(block, null, multipliers, model, trial, tables, c, eta, enough)


@kernel
def _descend(
    block: Block, null: Null, multipliers: Array, model: Model, trial: Array, tables: Tables, c: float,
    eta: float, enough: float,
) -> float:  # fmt: skip
    """Run Newton's method from model.lam; return the best bound."""
    noise = _noise(block)
    value = _measure(block, null, multipliers, model, model.lam, tables)
    best, calm, ridge = NOTHING, 0, RIDGE
    for _ in range(ROUNDS):
        eta = _step_on_plane(model, c, eta, ridge)
        best = max(best, value + _tangent(model, c, eta) - noise)
        slope = 0.0
        for j in range(trial.size):
            slope += model.grad[j] * model.step[j]
        calm += -slope <= noise
        if best > enough or value - best <= CLOSE + noise or calm > 2:
            return best
        ridge, reach = min(RIDGE, -slope), 1.0
        found, falls = math.inf, False
        for _ in range(40):
            for j in range(trial.size):
                trial[j] = model.lam[j] + reach * model.step[j]
            found = _measure(block, null, multipliers, model, trial, tables)
            falls = found <= value + 1e-4 * reach * slope + noise
            if falls:
                break
            reach *= 0.5
        if not falls:
            return best
        value = found
        for j in range(trial.size):
            model.lam[j] = trial[j]
    return best


@kernel
def _step_on_plane(model: Model, c: float, eta: float, ridge: float) -> float:
    """Write a Newton step that stays on {a.lam = c}; return its multiplier.

    Where every variable would leave the domain, all are fixed at its edge, off the plane. With more ridge the
    step is shorter, and fewer leave.
    """
    found = newton(model, c, eta, ridge)
    for _ in range(SHORTENED):
        off = -c
        for j in range(model.lam.size):
            off += model.a[j] * (model.lam[j] + model.step[j])
        if abs(off) <= OFF_PLANE:
            break
        ridge *= 30.0
        found = newton(model, c, eta, ridge)
    return found


@kernel
def _measure(block: Block, null: Null, multipliers: Array, model: Model, lam: Array, tables: Tables) -> float:
    """Return ln M at lam; write its gradient and Hessian to the model."""
    groups, m = block.q.size, lam.size
    for j in range(SIZES):
        tables.logs[j] = 0.0
        for v in range(m):
            tables.slopes[v, j] = 0.0
    for g in range(groups):
        first = null.low[g] + (null.high[g] - null.low[g]) * lam[g]
        h = groups + g
        second = null.low[h] + (null.high[h] - null.low[h]) * lam[h]
        _mix_cell(block, multipliers, BOTH, g, first - second, g, h, tables)
        _mix_cell(block, multipliers, ONLY_I, g, first, g, -1, tables)
        _mix_cell(block, multipliers, ONLY_K, g, second, h, -1, tables)
    peak, total = -math.inf, 0.0
    for j in range(SIZES):
        peak = max(peak, tables.logs[j])
    for j in range(SIZES):
        total += _exp(tables.logs[j] - peak)
    for j in range(SIZES):
        tables.logs[j] = _exp(tables.logs[j] - peak) / total
    _write_model(groups, null, model, tables)
    return peak + math.log(total) - LOG_SIZES


@kernel
def _mix_cell(
    block: Block, multipliers: Array, kind: int, g: int, mean: float, up: int, down: int, tables: Tables
) -> None:
    """Multiply one cell's factor at this mean into every size; `up` and `down` are its variables."""
    c = kind * block.q.size + g
    for j in range(SIZES):
        tables.curves[c, j] = 0.0
        if block.n[c] == 0.0:
            continue
        peak = multipliers[0]
        for t in range(3):
            peak = max(peak, multipliers[1 + t] + block.w[c, j + t] - block.b[c, j + t] * mean)
        total, slope, curve = _exp(multipliers[0] - peak), 0.0, 0.0
        for t in range(3):
            b = block.b[c, j + t]
            share = _exp(multipliers[1 + t] + block.w[c, j + t] - b * mean - peak)
            total += share
            slope -= share * b
            curve += share * b * b
        slope /= total
        tables.curves[c, j] = max(curve / total - slope * slope, 0.0)
        tables.logs[j] += peak + math.log(total)
        tables.slopes[up, j] += slope
        if down >= 0:
            tables.slopes[down, j] -= slope


@kernel
def _write_model(groups: int, null: Null, model: Model, tables: Tables) -> None:
    """Write gradient and Hessian in scaled variables; tables.logs holds the weights of the sizes."""
    m = 2 * groups
    grad, hess = model.grad, model.hess
    for v in range(m):
        grad[v] = 0.0
        for j in range(SIZES):
            grad[v] += tables.logs[j] * tables.slopes[v, j]
    for v in range(m):
        for u in range(v + 1):
            both = 0.0
            for j in range(SIZES):
                both += tables.logs[j] * (tables.slopes[v, j] - grad[v]) * (tables.slopes[u, j] - grad[u])
            hess[v, u] = both
    for g in range(groups):
        pair, only_i, only_k = 0.0, 0.0, 0.0
        for j in range(SIZES):
            pair += tables.logs[j] * tables.curves[BOTH * groups + g, j]
            only_i += tables.logs[j] * tables.curves[ONLY_I * groups + g, j]
            only_k += tables.logs[j] * tables.curves[ONLY_K * groups + g, j]
        hess[g, g] += pair + only_i
        hess[groups + g, groups + g] += pair + only_k
        hess[groups + g, g] -= pair
    for v in range(m):
        wide = null.high[v] - null.low[v]
        grad[v] *= wide
        for u in range(v + 1):
            hess[v, u] *= wide * (null.high[u] - null.low[u])
            hess[u, v] = hess[v, u]


@kernel
def _scale(null: Null, model: Model) -> float:
    """Write the null as {a.lam >= c} for scaled variables; return c."""
    groups = null.weight.size
    c = -null.bound
    for v in range(2 * groups):
        weight = null.weight[v] if v < groups else -null.weight[v - groups]
        model.a[v] = -weight * (null.high[v] - null.low[v])
        c += weight * null.low[v]
    return c


@kernel
def _start(block: Block, null: Null, model: Model, c: float) -> float:
    """Put lam on {a.lam = c} near the estimates; return the multiplier there.

    Not positive where the estimates lie in the null; infinite where the null is empty.
    """
    groups, m = block.q.size, model.lam.size
    top, gap = 0.0, c
    for v in range(m):
        g = v % groups
        wide = null.high[v] - null.low[v]
        mean, information = _estimate(block, g, v >= groups)
        model.step[v] = min(max((mean - null.low[v]) / wide, 0.0), 1.0) if wide > 0.0 else 0.0
        model.scale[v] = max(information * wide * wide, 1e-6)
        top += max(model.a[v], 0.0)
        gap -= model.a[v] * model.step[v]
    if top < c - EMPTY:
        return math.inf
    if gap <= 0.0:
        return 0.0
    return close_gap(model, c)


@kernel
def _estimate(block: Block, g: int, second: bool) -> tuple[float, float]:
    """Return the estimate of a variable of group g and the information about it.

    Where no item was answered by one policy only, the first variable is the difference.
    """
    groups = block.q.size
    only_i, only_k = ONLY_I * groups + g, ONLY_K * groups + g
    away, known = _mean(block, g), _information(block, g)
    if block.n[only_i] + block.n[only_k] == 0.0:
        return (0.0, 0.0) if second else (away, known)
    mean_i = _mean(block, only_i) if block.n[only_i] > 0.0 else _mean(block, only_k) + away
    mean_k = _mean(block, only_k) if block.n[only_k] > 0.0 else _mean(block, only_i) - away
    move = 0.5 * share_of_pairs(block, g, -1) * (away - (mean_i - mean_k)) if block.n[g] > 0.0 else 0.0
    if second:
        return mean_k - move, known + _information(block, only_k)
    return mean_i + move, known + _information(block, only_i)


@kernel
def _mean(block: Block, c: int) -> float:
    return block.s[c] / block.n[c] if block.n[c] > 0.0 else 0.0


@kernel
def _information(block: Block, c: int) -> float:
    n = block.n[c]
    return n * (n + 1.0) / (0.25 + block.v[c])


@kernel
def _tangent(model: Model, c: float, eta: float) -> float:
    """Return how far the tangent plane, tilted along a by eta, can fall below its value at lam."""
    total = eta * c
    for j in range(model.lam.size):
        total -= eta * model.a[j] * model.lam[j]
        pull = model.grad[j] - eta * model.a[j]
        total += -pull * model.lam[j] if pull > 0.0 else pull * (1.0 - model.lam[j])
    return total


@kernel
def _noise(block: Block) -> float:
    """Return a bound on the rounding error of ln M."""
    total = 1.0
    for c in range(block.n.size):
        largest = 0.0
        for j in range(block.w.shape[1]):
            largest = max(largest, abs(block.w[c, j]) + abs(block.b[c, j]))
        total += largest
    return ROUNDING * total


@kernel
def _exp(log: float) -> float:
    return math.exp(log) if log > NEGLIGIBLE else 0.0


@kernel
def _views(block: Block, work: Array) -> tuple[Model, Array, Tables]:
    """Return views of the scratch: the quadratic model, a trial point, and the tables."""
    m, cells = 2 * block.q.size, block.n.size
    hess = work[8 * m : (8 + m) * m].reshape((m, m))
    factor = work[(8 + m) * m : (8 + 2 * m) * m].reshape((m, m))
    a, scale, lam, grad = work[:m], work[m : 2 * m], work[2 * m : 3 * m], work[3 * m : 4 * m]
    step, aim, held = work[4 * m : 5 * m], work[5 * m : 6 * m], work[6 * m : 7 * m]
    trial = work[7 * m : 8 * m]
    model = Model(m, 1.0, a, scale, lam, grad, step, aim, held, hess, factor)
    used = (8 + 2 * m) * m
    slopes = work[used : used + SIZES * m].reshape((m, SIZES))
    used = used + SIZES * m
    curves = work[used : used + SIZES * cells].reshape((cells, SIZES))
    used = used + SIZES * cells
    return model, trial, Tables(slopes, curves, work[used : used + SIZES])
