"""The general convex inner problem, and lower bounds on it from any multipliers.

least sum v d(mu, x)  subject to  rows x >= rhs,  x' quad x <= limit,  lo <= x <= hi

The conditions are numbered, the quadratic last; its gradient depends on the point and is passed as `normal`.
Beyond `bend` a cell's cost is continued linearly with slope `rate`: `convex_envelope` makes the exponential
convex in this way. For the other families lo and hi are the boundary of the domain.

A lower bound on a convex program from any multipliers.

For any y >= 0, and the tangent of the quadratic at any point, the Lagrangian separates into cells:

    lower = sum min_x [v d(mu, x) - s (x - mu)] + y.(rhs - rows mu),     s = rows' y

It bounds the true cost, with or without bends. Multipliers from rounded arithmetic are corrected first: a
cell of weight 0 and unbounded range gives no finite bound unless its tilt s is exactly 0, nor does a Poisson
cell whose tilt exceeds its weight. Values treated as 0 are below the rounding error of s itself.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model import unit_families
from evenhand.theory.regions.linear_algebra import factor, solve
from evenhand.theory.regions.single_cell import copy, fill, tilted_cost, tilted_minimiser
from evenhand.theory.tilted_means import weighted_divergence

Array = NDArray[np.float64]

FEASIBLE = 1e-13  # relative rounding error of a condition


class ConvexProgram(NamedTuple):
    """The problem; the largest weight is 1, or all are 0. The quadratic has the first cells."""

    v: Array
    mu: Array
    lo: Array
    hi: Array
    bend: Array
    rate: Array
    rows: Array  # (m, n)
    rhs: Array  # (m,)
    quad: Array  # (p, p), p <= n
    limit: float  # +inf where there is no quadratic


@kernel
def conditions(p: ConvexProgram) -> int:
    """Return the number of conditions, the quadratic included."""
    return p.rows.shape[0] + (1 if p.limit < math.inf else 0)


@kernel
def entry(p: ConvexProgram, normal: Array, j: int, c: int) -> float:
    """Return entry c of condition j's gradient."""
    return p.rows[j, c] if j < p.rows.shape[0] else normal[c]


@kernel
def tangent(p: ConvexProgram, x: Array, normal: Array) -> None:
    """Write the gradient -2 quad x of limit - x' quad x."""
    for c in range(p.quad.shape[0]):
        normal[c] = 0.0
        for d in range(p.quad.shape[0]):
            normal[c] -= 2.0 * p.quad[c, d] * x[d]


@kernel
def gap(p: ConvexProgram, x: Array, normal: Array, j: int) -> float:
    """Return the slack of condition j at x."""
    total = 0.0
    if j < p.rows.shape[0]:
        for c in range(x.shape[0]):
            total += p.rows[j, c] * x[c]
        return total - p.rhs[j]
    for c in range(p.quad.shape[0]):
        total += normal[c] * x[c]
    return p.limit + 0.5 * total


@kernel
def program_cost(code: int, p: ConvexProgram, x: Array) -> float:
    """Return the sum of the cells' costs, with linear continuation beyond the bends."""
    total = 0.0
    for c in range(x.shape[0]):
        bend = min(x[c], p.bend[c])
        total += weighted_divergence(code, p.v[c], p.mu[c], bend)
        if x[c] > bend:
            total += p.v[c] * p.rate[c] * (x[c] - bend)
    return total


@kernel
def feasible(p: ConvexProgram, x: Array, normal: Array) -> bool:
    """Return whether all conditions are met, up to the rounding of their terms."""
    tangent(p, x, normal)
    for j in range(p.rows.shape[0]):
        size = abs(p.rhs[j])
        for c in range(x.shape[0]):
            size += abs(p.rows[j, c]) * (abs(x[c]) + abs(p.mu[c]))
        if gap(p, x, normal, j) < -FEASIBLE * size:
            return False
    size = p.limit
    for c in range(p.quad.shape[0]):
        for d in range(p.quad.shape[0]):
            size += abs(x[c] * p.quad[c, d] * x[d])
    return p.limit == math.inf or gap(p, x, normal, p.rows.shape[0]) >= -FEASIBLE * size


FREE = 1e-14  # of the largest weight: a cell with less is treated as free in the bound
UNBOUNDED = 1e6  # times the mean: an exponential cell with a wider range is treated as unbounded above
NORMAL, PULL, SHIFT, TOUCH, SPARE = range(5)  # rows of the scratch


@kernel
def dual_bound(
    code: int, p: ConvexProgram, span: float, x: Array, y: Array, proof: Array, spare: Array, h: Array
) -> float:
    """Return the Lagrangian's bound from these multipliers, corrected where it is infinite.

    The quadratic's tangent may be taken at any point. Where cells are free a second point is tried, shifted
    in their coordinates so that their tilt is 0.
    """
    touch = spare[TOUCH]
    copy(x, touch)
    copy(y, proof)
    best = _bound_at(code, p, span, touch, proof, spare, h)
    if p.limit < math.inf and y[p.rows.shape[0]] > 0.0 and _free(p) > 0:
        copy(y, proof)
        _touch_elsewhere(p, touch, proof, spare[SHIFT], h)
        best = max(best, _bound_at(code, p, span, touch, proof, spare, h))
    return best


@kernel
def _bound_at(
    code: int, p: ConvexProgram, span: float, touch: Array, y: Array, spare: Array, h: Array
) -> float:
    """Return the bound with the tangent at this point."""
    normal, pull = spare[NORMAL], spare[PULL]
    fill(normal, 0.0)
    tangent(p, touch, normal)
    _tilts(p, normal, y, pull)
    for _ in range(3):  # one correction, and two more against rounding
        if _correct_free(code, p, touch, y, spare, h):
            _tilts(p, normal, y, pull)
    _correct_poles(code, p, y, pull)
    total, size = 0.0, 0.0
    for j in range(conditions(p)):
        part = y[j] * _short(p, touch, j)
        total += part
        size += abs(part)
    beyond = total
    for c in range(touch.shape[0]):
        s = pull[c]
        faint = abs(s) * max(span, abs(touch[c] - p.mu[c])) <= 1e-14 * size
        if _is_unbounded(code, p, c, s) and (faint or abs(s) <= _noise(p, touch, y, c)):
            continue  # 0 up to rounding
        v = p.v[c] if p.v[c] > FREE else 0.0
        there = tilted_minimiser(code, v, p.mu[c], s, p.lo[c], p.hi[c])
        if math.isinf(there):
            return -math.inf
        total += tilted_cost(code, v, p.mu[c], s, there)
        beyond -= s * ((p.hi[c] if s > 0.0 else p.lo[c]) - p.mu[c])
    # Farkas: if no point between the bounds meets the sum of the conditions, none meets all of them
    return math.inf if beyond > 1e-9 * size else total


@kernel
def _free(p: ConvexProgram) -> int:
    """Return how many of the quadratic's cells are free."""
    many = 0
    for c in range(p.quad.shape[0]):
        many += 1 if p.v[c] <= FREE else 0
    return many


@kernel
def _touch_elsewhere(p: ConvexProgram, touch: Array, y: Array, shift: Array, h: Array) -> None:
    """Move the free coordinates of the tangent point: 2 kappa (quad touch)_F = (rows' y)_F."""
    n, last = touch.shape[0], p.rows.shape[0]
    for c in range(n):
        shift[c] = 0.0
        loose = c < p.quad.shape[0] and p.v[c] <= FREE
        if loose:
            for j in range(last):
                shift[c] += y[j] * p.rows[j, c] / (2.0 * y[last])
            for d in range(p.quad.shape[0]):
                shift[c] -= p.quad[c, d] * touch[d]
        for d in range(c + 1):
            h[c, d] = p.quad[c, d] if loose and p.v[d] <= FREE else 0.0
    factor(h)
    solve(h, shift)
    for c in range(n):
        touch[c] += shift[c]


@kernel
def _short(p: ConvexProgram, x: Array, j: int) -> float:
    """Return rhs - row.mu for a linear condition; for the tangent at x, without cancellation."""
    if j < p.rows.shape[0]:
        total = p.rhs[j]
        for c in range(x.shape[0]):
            total -= p.rows[j, c] * p.mu[c]
        return total
    total = -p.limit
    for c in range(p.quad.shape[0]):
        for d in range(p.quad.shape[0]):
            total += p.quad[c, d] * (p.mu[c] * p.mu[d] - (x[c] - p.mu[c]) * (x[d] - p.mu[d]))
    return total


@kernel
def _tilts(p: ConvexProgram, normal: Array, y: Array, pull: Array) -> None:
    """Write s = rows' y."""
    for c in range(pull.shape[0]):
        pull[c] = 0.0
        for j in range(conditions(p)):
            pull[c] += y[j] * entry(p, normal, j, c)


@kernel
def _correct_free(code: int, p: ConvexProgram, touch: Array, y: Array, spare: Array, h: Array) -> bool:
    """Set the tilt of unbounded cells to 0 by changing y; return whether there were any.

    y <- y - Y^2 F (F' Y^2 F)^-1 F' y for the columns F of the free cells: each multiplier changes in
    proportion to its own size, and small ones reach 0 first.
    """
    normal, pull, shift = spare[NORMAL], spare[PULL], spare[SHIFT]
    n, many = pull.shape[0], 0
    for c in range(n):
        loose = _is_unbounded(code, p, c, pull[c]) and abs(pull[c]) > _noise(p, touch, y, c)
        shift[c] = pull[c] if loose else 0.0
        many += 1 if loose else 0
        for d in range(c + 1):
            h[c, d] = 0.0
            if loose and shift[d] != 0.0:
                for j in range(conditions(p)):
                    h[c, d] += y[j] * y[j] * entry(p, normal, j, c) * entry(p, normal, j, d)
    if many == 0:
        return False
    factor(h)
    solve(h, shift)
    for j in range(conditions(p)):
        give = 0.0
        for c in range(n):
            give += entry(p, normal, j, c) * shift[c]
        y[j] = max(y[j] - y[j] * y[j] * give, 0.0)
    return True


@kernel
def _is_unbounded(code: int, p: ConvexProgram, c: int, s: float) -> bool:
    """Return whether a tilt of this sign moves the cell without limit, or practically so."""
    width = p.hi[c] - p.mu[c] if s > 0.0 else p.mu[c] - p.lo[c]
    if p.v[c] <= FREE:
        return width == math.inf
    return code == unit_families.EXPONENTIAL and s > 0.0 and width > UNBOUNDED * p.mu[c]


@kernel
def _noise(p: ConvexProgram, x: Array, y: Array, c: int) -> float:
    """Return the rounding error of the tilt of cell c."""
    total = 0.0
    for j in range(p.rows.shape[0]):
        total += y[j] * abs(p.rows[j, c])
    if p.limit < math.inf and c < p.quad.shape[0]:
        for d in range(p.quad.shape[0]):
            total += 2.0 * y[p.rows.shape[0]] * abs(p.quad[c, d] * x[d])
    return 1e-13 * total


@kernel
def _correct_poles(code: int, p: ConvexProgram, y: Array, pull: Array) -> None:
    """Scale all multipliers down until no tilt of a Poisson cell exceeds its weight."""
    part = 1.0
    for c in range(pull.shape[0]):
        if code == unit_families.POISSON and p.hi[c] == math.inf and pull[c] >= p.v[c] > FREE:
            keep = 1.0 - (1e-14 if p.mu[c] == 0.0 else 1e-10)
            part = min(part, keep * p.v[c] / pull[c])
    if part < 1.0:
        for j in range(conditions(p)):
            y[j] *= part
        for c in range(pull.shape[0]):
            pull[c] *= part
