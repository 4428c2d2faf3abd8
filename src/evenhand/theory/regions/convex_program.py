"""The inner problems without a special form.

    least sum v d(mu, x)  subject to  rows x >= rhs,  x' quad x <= limit,  lo <= x <= hi

The conditions are numbered, the quadratic last; its gradient depends on where it is taken and is handed
around as `normal`. Beyond `bend` a cell's cost goes on as a straight line of slope `rate`: that is how
`envelope` makes the exponential convex. For the other families lo and hi are the edges of the domain.
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
    """The problem; its largest weight is 1, or all are 0. The quadratic acts on the first cells."""

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
    """How many conditions there are, the quadratic included."""
    return p.rows.shape[0] + (1 if p.limit < math.inf else 0)


@kernel
def entry(p: Programme, normal: Array, j: int, c: int) -> float:
    """Entry c of condition j's gradient."""
    return p.rows[j, c] if j < p.rows.shape[0] else normal[c]


@kernel
def tangent(p: Programme, x: Array, normal: Array) -> None:
    """The gradient -2 quad x of limit - x' quad x."""
    for c in range(p.quad.shape[0]):
        normal[c] = 0.0
        for d in range(p.quad.shape[0]):
            normal[c] -= 2.0 * p.quad[c, d] * x[d]


@kernel
def gap(p: Programme, x: Array, normal: Array, j: int) -> float:
    """How far condition j is met at x."""
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
    """The sum of the cells' costs, bent ones along their lines."""
    total = 0.0
    for c in range(x.shape[0]):
        bend = min(x[c], p.bend[c])
        total += paid(code, p.v[c], p.mu[c], bend)
        if x[c] > bend:
            total += p.v[c] * p.rate[c] * (x[c] - bend)
    return total


@kernel
def feasible(p: Programme, x: Array, normal: Array) -> bool:
    """Are all conditions met, up to the rounding of their own terms?"""
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
