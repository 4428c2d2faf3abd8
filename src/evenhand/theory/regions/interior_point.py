"""An interior-point method for the general convex program (`convex_program`).

Newton's steps (`interior_point_step`) follow the central path, on which slack times multiplier is the same
for every condition, from an infeasible start. The steps certify nothing: the certified bound is computed by
`dual_bound` from the multipliers at every iteration.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
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
from evenhand.theory.regions.interior_point_step import (
    BEST,
    COLUMNS,
    NORMAL,
    PROOF,
    SLACK,
    VECTORS,
    Z_HI,
    Z_LO,
    Y,
    advance,
    aim,
    aims,
    assemble,
    measure,
)
from evenhand.theory.regions.linear_algebra import factor
from evenhand.theory.regions.single_cell import copy
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
