"""An interior-point method for the general convex program (`convex_program`).

Newton's steps follow the central path, on which slack times multiplier is the same for every condition, from
an infeasible start. The steps certify nothing: the certified bound is computed by `dual_bound` from the
multipliers at every iteration.

Every condition has a slack and a multiplier, and so has every end of a cell's interval. Newton's method is
applied jointly to the gradient of the Lagrangian, the slacks, and the products of slack and multiplier, with
Mehrotra's correction.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model import unit_families
from evenhand.model.unit_families import GAUSSIAN
from evenhand.theory.regions.convex_program import (
    SPARE,
    ConvexProgram,
    conditions,
    dual_bound,
    entry,
    feasible,
    gap,
    program_cost,
    tangent,
)
from evenhand.theory.regions.linear_algebra import factor, solve
from evenhand.theory.regions.single_cell import copy, fill
from evenhand.theory.tilted_means import weighted_divergence

Array = NDArray[np.float64]

TURNS = 80
FARTHER_OUT = (1.0, 1e3, 1e6)  # complementarity at the start of the path; the first is nearly always enough
LEAST_COST = 1e-8  # relative, to start the path where no cell has weight
LEAST = 1e-22  # of the first complementarity: below this only rounding remains
CLOSE, ENOUGH = 1e-12, 1e-9  # relative distance of cost and bound at which to stop, and not to restart
IDLE = 20  # iterations without progress after the first feasible point


def work_size(cells: int, rows: int) -> int:
    """Return the scratch size that `minimise` needs."""
    return cells * (cells + VECTORS + SPARE) + COLUMNS * (rows + 1)


@kernel
def minimise(
    code: int, p: ConvexProgram, scale: float, cutoff: float, x: Array, work: Array
) -> tuple[float, float]:
    """Return the cost at x (infinite if no feasible x was found) and a certified lower bound.

    Stops as soon as the bound exceeds the cutoff. `scale` is the unit of divergences: 1, except for
    scale-free means.
    """
    n, m = x.shape[0], p.rows.shape[0] + 1
    h = work[: n * n].reshape((n, n))
    cell = work[n * n : n * (n + VECTORS)].reshape((VECTORS, n))
    rest = work[n * (n + VECTORS) :]
    spare, row = (
        rest[: SPARE * n].reshape((SPARE, n)),
        rest[SPARE * n : SPARE * n + COLUMNS * m].reshape((COLUMNS, m)),
    )
    for c in range(n):
        x[c] = min(max(p.mu[c], p.lo[c]), p.hi[c])
    if feasible(p, x, cell[NORMAL]):
        value = program_cost(code, p, x)
        return value, value
    value, lower = math.inf, 0.0
    for boost in FARTHER_OUT:
        value, lower = _follow(code, p, scale, cutoff, boost, value, lower, x, cell, spare, row, h)
        if lower >= min(value * (1.0 - ENOUGH), cutoff):
            break
    copy(cell[BEST], x)
    return value, min(lower, value)


@kernel
def _follow(
    code: int, p: ConvexProgram, scale: float, cutoff: float, boost: float, value: float, lower: float,
    x: Array, cell: Array, spare: Array, row: Array, h: Array,
) -> tuple[float, float]:  # fmt: skip
    """Follow the path from this complementarity; return the least cost and best bound."""
    span, level = _start(code, p, scale, boost, x, cell, row)
    idle = 0
    for _ in range(TURNS):
        barrier = measure(code, p, span, x, cell, row)
        proved = dual_bound(code, p, span, x, row[Y], row[PROOF], spare, h)
        idle += 1 if value < math.inf else 0
        if proved > lower:
            lower, idle = proved, 0
        if feasible(p, x, cell[NORMAL]) and program_cost(code, p, x) < value:
            value, idle = program_cost(code, p, x), 0
            copy(x, cell[BEST])
        if lower >= min(value * (1.0 - CLOSE), cutoff) or idle > IDLE or barrier < LEAST * level:
            break
        assemble(code, p, span, barrier, x, cell, row, h)
        factor(h)
        advance(p, aim(code, p, barrier, x, cell, row, h), x, cell, row)
    return value, lower


@kernel
def _start(
    code: int, p: ConvexProgram, scale: float, boost: float, x: Array, cell: Array, row: Array
) -> tuple[float, float]:
    """Write a start near the means, inside the bounds; return the scales of length and cost."""
    n, m = x.shape[0], p.rows.shape[0]
    span = 0.0
    for j in range(m):
        norm, short = 0.0, p.rhs[j]
        for c in range(n):
            norm += p.rows[j, c] ** 2
            short -= p.rows[j, c] * p.mu[c]
        span = max(span, abs(short) / math.sqrt(norm))
    if p.limit < math.inf:
        trace = 0.0
        for c in range(p.quad.shape[0]):
            trace += p.quad[c, c]
        span = max(span, math.sqrt(p.limit / trace) if trace > 0.0 else 0.0)
    span = span if span > 0.0 else 1.0
    for c in range(n):
        room = 0.1 * min(span, 0.5 * (p.hi[c] - p.lo[c]))
        x[c] = min(max(p.mu[c], p.lo[c] + room), p.hi[c] - room)
        cell[NORMAL, c] = 0.0
    tangent(p, x, cell[NORMAL])
    level = 0.0
    for c in range(n):
        up = min(p.mu[c] + span, 0.5 * (p.mu[c] + p.hi[c]))
        down = max(p.mu[c] - span, 0.5 * (p.mu[c] + p.lo[c]))
        level = max(
            level,
            weighted_divergence(code, p.v[c], p.mu[c], up),
            weighted_divergence(code, p.v[c], p.mu[c], down),
        )
    level = boost * max(0.1 * level, LEAST_COST * (span * span if code == GAUSSIAN else scale))
    for j in range(conditions(p)):
        norm = 0.0
        for c in range(n):
            norm += entry(p, cell[NORMAL], j, c) ** 2
        row[SLACK, j] = max(abs(gap(p, x, cell[NORMAL], j)), 0.3 * span * math.sqrt(norm))
    for j in range(conditions(p)):
        row[Y, j] = level / row[SLACK, j]
    for c in range(n):
        low, high = aims(code, p, c)
        cell[Z_LO, c] = (low if low > 0.0 else level) / (x[c] - p.lo[c])
        cell[Z_HI, c] = (high if high > 0.0 else level) / (p.hi[c] - x[c])
    return span, level


BALANCE = 1e-3  # least product of slack and multiplier, relative to the mean product
# rows of the scratch, for cells and for conditions
SLOPE, DX, Z_LO, Z_HI, DZ_LO, DZ_HI, C_LO, C_HI, T_LO, T_HI, NORMAL, BEST, VECTORS = range(13)
SLACK, Y, D_SLACK, DY, MISS, CORRECTION, PROOF, COLUMNS = range(8)


@kernel
def measure(code: int, p: ConvexProgram, span: float, x: Array, cell: Array, row: Array) -> float:
    """Write the Lagrangian's gradient and slack residuals; return the mean complementarity."""
    n, m = x.shape[0], conditions(p)
    tangent(p, x, cell[NORMAL])
    total, many = 0.0, m
    for j in range(m):
        row[MISS, j] = gap(p, x, cell[NORMAL], j) - row[SLACK, j]
        total += row[SLACK, j] * row[Y, j]
    for c in range(n):
        low, high = aims(code, p, c)
        if p.lo[c] > -math.inf and low == 0.0:
            total += cell[Z_LO, c] * (x[c] - p.lo[c])
            many += 1
        if p.hi[c] < math.inf and high == 0.0:
            total += cell[Z_HI, c] * (p.hi[c] - x[c])
            many += 1
    barrier = total / many
    for c in range(n):
        # a small quadratic term, decreasing with the barrier, keeps cells of weight 0 from diverging
        pull = barrier / span * ((x[c] - p.mu[c]) / span)
        for j in range(m):
            pull -= row[Y, j] * entry(p, cell[NORMAL], j, c)
        cell[SLOPE, c] = _slope(code, p, c, x[c]) + pull - cell[Z_LO, c] + cell[Z_HI, c]
    return barrier


@kernel
def assemble(
    code: int, p: ConvexProgram, span: float, barrier: float, x: Array, cell: Array, row: Array, h: Array
) -> None:
    """Write Newton's matrix: curvature of cost and quadratic, and each condition's gradient."""
    n, m = x.shape[0], conditions(p)
    for c in range(n):
        for d in range(c + 1):
            h[c, d] = 0.0
        h[c, c] = _curvature(code, p, c, x[c]) + barrier / (span * span)
        if p.lo[c] > -math.inf:
            h[c, c] += cell[Z_LO, c] / (x[c] - p.lo[c])
        if p.hi[c] < math.inf:
            h[c, c] += cell[Z_HI, c] / (p.hi[c] - x[c])
    for j in range(m):
        weight = row[Y, j] / row[SLACK, j]
        for c in range(n):
            g = weight * entry(p, cell[NORMAL], j, c)
            if g != 0.0:
                for d in range(c + 1):
                    h[c, d] += g * entry(p, cell[NORMAL], j, d)
    if p.limit < math.inf:
        for c in range(p.quad.shape[0]):
            for d in range(c + 1):
                h[c, d] += 2.0 * row[Y, m - 1] * p.quad[c, d]


@kernel
def aim(code: int, p: ConvexProgram, barrier: float, x: Array, cell: Array, row: Array, h: Array) -> float:
    """Choose the direction by predictor and corrector; return the step length."""
    _no_corrections(cell, row)
    _direction(code, p, 0.0, x, cell, row, h)
    reach = _longest(p, x, cell, row)
    goal = barrier * min(1.0, (_correct(code, p, reach, x, cell, row) / barrier) ** 3)
    _direction(code, p, goal, x, cell, row, h)
    step = _balanced(code, p, barrier, x, cell, row)
    if step < 0.3 * reach:
        # the second-order corrections fail for long predictor steps: omit them and stay nearer to the path
        _no_corrections(cell, row)
        _direction(code, p, max(goal, 0.3 * barrier), x, cell, row, h)
        step = _balanced(code, p, barrier, x, cell, row)
    return step


@kernel
def _balanced(code: int, p: ConvexProgram, barrier: float, x: Array, cell: Array, row: Array) -> float:
    """Return the longest step that keeps the products of slack and multiplier balanced."""
    step = min(1.0, 0.995 * _longest(p, x, cell, row))
    for _ in range(40):
        total, many, least = 0.0, 0, math.inf
        for j in range(conditions(p)):
            product = (row[SLACK, j] + step * row[D_SLACK, j]) * (row[Y, j] + step * row[DY, j])
            total, many, least = total + product, many + 1, min(least, product)
        fine = True
        for c in range(x.shape[0]):
            low, high = aims(code, p, c)
            product = (x[c] - p.lo[c] + step * cell[DX, c]) * (cell[Z_LO, c] + step * cell[DZ_LO, c])
            if low > 0.0:
                fine = fine and product >= BALANCE * low
            elif p.lo[c] > -math.inf:
                total, many, least = total + product, many + 1, min(least, product)
            product = (p.hi[c] - x[c] - step * cell[DX, c]) * (cell[Z_HI, c] + step * cell[DZ_HI, c])
            if high > 0.0:
                fine = fine and product >= BALANCE * high
            elif p.hi[c] < math.inf:
                total, many, least = total + product, many + 1, min(least, product)
        mean = total / many
        if fine and least >= BALANCE * mean and 0.05 * (1.0 - step) * barrier <= mean <= 1.5 * barrier:
            break
        step *= 0.8
    return step


@kernel
def _no_corrections(cell: Array, row: Array) -> None:
    fill(row[CORRECTION], 0.0)
    fill(cell[C_LO], 0.0)
    fill(cell[C_HI], 0.0)


@kernel
def _direction(code: int, p: ConvexProgram, goal: float, x: Array, cell: Array, row: Array, h: Array) -> None:
    """Write Newton's direction to slack * multiplier = goal (or `aims`), less corrections."""
    n, m = x.shape[0], conditions(p)
    dx = cell[DX]
    for c in range(n):
        low, high = aims(code, p, c)
        cell[T_LO, c] = (low if low > 0.0 else goal) - cell[C_LO, c]
        cell[T_HI, c] = (high if high > 0.0 else goal) - cell[C_HI, c]
        dx[c] = -cell[SLOPE, c]
        dx[c] += cell[T_LO, c] / (x[c] - p.lo[c]) - cell[Z_LO, c]
        dx[c] -= cell[T_HI, c] / (p.hi[c] - x[c]) - cell[Z_HI, c]
        for j in range(m):
            miss = (goal - row[CORRECTION, j] - row[Y, j] * row[MISS, j]) / row[SLACK, j] - row[Y, j]
            dx[c] += entry(p, cell[NORMAL], j, c) * miss
    solve(h, dx)
    for j in range(m):
        row[D_SLACK, j] = row[MISS, j]
        for c in range(n):
            row[D_SLACK, j] += entry(p, cell[NORMAL], j, c) * dx[c]
        row[DY, j] = (goal - row[CORRECTION, j] - row[Y, j] * row[D_SLACK, j]) / row[SLACK, j] - row[Y, j]
    for c in range(n):
        low, high = x[c] - p.lo[c], p.hi[c] - x[c]
        cell[DZ_LO, c] = (cell[T_LO, c] - cell[Z_LO, c] * dx[c]) / low - cell[Z_LO, c]
        cell[DZ_HI, c] = (cell[T_HI, c] + cell[Z_HI, c] * dx[c]) / high - cell[Z_HI, c]


@kernel
def _longest(p: ConvexProgram, x: Array, cell: Array, row: Array) -> float:
    """Return the longest step, up to 1 / 0.995, that keeps every slack and multiplier positive."""
    step = 1.0 / 0.995
    for j in range(conditions(p)):
        step = min(step, _step_to_zero(row[SLACK, j], row[D_SLACK, j]), _step_to_zero(row[Y, j], row[DY, j]))
    for c in range(x.shape[0]):
        step = min(
            step, _step_to_zero(x[c] - p.lo[c], cell[DX, c]), _step_to_zero(p.hi[c] - x[c], -cell[DX, c])
        )
        step = min(
            step, _step_to_zero(cell[Z_LO, c], cell[DZ_LO, c]), _step_to_zero(cell[Z_HI, c], cell[DZ_HI, c])
        )
    return step


@kernel
def _step_to_zero(value: float, change: float) -> float:
    return -value / change if change < 0.0 else math.inf


@kernel
def _correct(code: int, p: ConvexProgram, step: float, x: Array, cell: Array, row: Array) -> float:
    """Return the mean complementarity after this step; write Mehrotra's corrections."""
    n, m = x.shape[0], conditions(p)
    step = min(step, 1.0)
    total, many = 0.0, m
    for j in range(m):
        total += (row[SLACK, j] + step * row[D_SLACK, j]) * (row[Y, j] + step * row[DY, j])
        row[CORRECTION, j] = row[D_SLACK, j] * row[DY, j]
    for c in range(n):
        low, high = aims(code, p, c)
        dx = cell[DX, c]
        cell[C_LO, c], cell[C_HI, c] = dx * cell[DZ_LO, c], -dx * cell[DZ_HI, c]
        if p.lo[c] > -math.inf and low == 0.0:
            total += (x[c] - p.lo[c] + step * dx) * (cell[Z_LO, c] + step * cell[DZ_LO, c])
            many += 1
        if p.hi[c] < math.inf and high == 0.0:
            total += (p.hi[c] - x[c] - step * dx) * (cell[Z_HI, c] + step * cell[DZ_HI, c])
            many += 1
    return max(total / many, 0.0)


@kernel
def advance(p: ConvexProgram, step: float, x: Array, cell: Array, row: Array) -> None:
    for j in range(conditions(p)):
        row[SLACK, j] += step * row[D_SLACK, j]
        row[Y, j] += step * row[DY, j]
    for c in range(x.shape[0]):
        # at least one unit in the last place inside the bounds, so that no distance to them rounds to 0
        least, most = p.lo[c] + max(2e-16 * abs(p.lo[c]), 1e-300), p.hi[c] - 2e-16 * abs(p.hi[c])
        x[c] = min(max(x[c] + step * cell[DX, c], least), most)
        cell[Z_LO, c] += step * cell[DZ_LO, c]
        cell[Z_HI, c] += step * cell[DZ_HI, c]


@kernel
def aims(code: int, p: ConvexProgram, c: int) -> tuple[float, float]:
    """Return the products of slack and multiplier that a cell's cost requires at its ends.

    -v mu ln x - v (1 - mu) ln(1 - x) is a barrier already: its derivatives are multipliers whose products
    with the distances to the ends are v mu and v (1 - mu). Treated as such, they add no curvature to the
    steps.
    """
    if code == unit_families.BERNOULLI:
        return p.v[c] * p.mu[c], p.v[c] * (1.0 - p.mu[c])
    if code == unit_families.POISSON:
        return p.v[c] * p.mu[c], 0.0
    return 0.0, 0.0


@kernel
def _slope(code: int, p: ConvexProgram, c: int, x: float) -> float:
    """Return the slope of the cost, less the part that `aims` accounts for."""
    if p.v[c] <= 0.0 or code == unit_families.BERNOULLI:
        return 0.0
    if code == unit_families.POISSON:
        return p.v[c]
    return p.v[c] * (p.rate[c] if x > p.bend[c] else unit_families.slope(code, p.mu[c], x))


@kernel
def _curvature(code: int, p: ConvexProgram, c: int, x: float) -> float:
    """Return the curvature of the cost, less the part that `aims` accounts for."""
    if p.v[c] <= 0.0 or code == unit_families.BERNOULLI or code == unit_families.POISSON or x > p.bend[c]:
        return 0.0
    return p.v[c] * max(unit_families.curvature(code, p.mu[c], x), 0.0)
