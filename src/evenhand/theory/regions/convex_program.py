"""The general convex inner problem, for regions without a special form.

    least sum v d(mu, x)  subject to  rows x >= rhs,  x' quad x <= limit,  lo <= x <= hi

The conditions are numbered, the quadratic last; its gradient depends on the point and is passed as `normal`.
Beyond `bend` a cell's cost is continued linearly with slope `rate`: `convex_envelope` makes the exponential
convex in this way. For the other families lo and hi are the boundary of the domain.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.theory.tilted_means import paid

Array = NDArray[np.float64]

FEASIBLE = 1e-13  # relative rounding error of a condition


class Programme(NamedTuple):
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
def conditions(p: Programme) -> int:
    """Return the number of conditions, the quadratic included."""
    return p.rows.shape[0] + (1 if p.limit < math.inf else 0)


@kernel
def entry(p: Programme, normal: Array, j: int, c: int) -> float:
    """Return entry c of condition j's gradient."""
    return p.rows[j, c] if j < p.rows.shape[0] else normal[c]


@kernel
def tangent(p: Programme, x: Array, normal: Array) -> None:
    """Write the gradient -2 quad x of limit - x' quad x."""
    for c in range(p.quad.shape[0]):
        normal[c] = 0.0
        for d in range(p.quad.shape[0]):
            normal[c] -= 2.0 * p.quad[c, d] * x[d]


@kernel
def gap(p: Programme, x: Array, normal: Array, j: int) -> float:
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
def program_cost(code: int, p: Programme, x: Array) -> float:
    """Return the sum of the cells' costs, with linear continuation beyond the bends."""
    total = 0.0
    for c in range(x.shape[0]):
        bend = min(x[c], p.bend[c])
        total += paid(code, p.v[c], p.mu[c], bend)
        if x[c] > bend:
            total += p.v[c] * p.rate[c] * (x[c] - bend)
    return total


@kernel
def feasible(p: Programme, x: Array, normal: Array) -> bool:
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
