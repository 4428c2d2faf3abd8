"""Polyhedra and intersections: rows m >= rhs, at most one quadratic and one quota.

Entering and beating are convex programs (`intersection_enter`). Leaving is leaving any one of the parts: a
row is a half-space, the quadratic and the quota have their own kernels.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.region import Region
from evenhand.theory.regions import dispersion, halfspace, intersection_enter, quota
from evenhand.theory.regions.single_cell import copy

Array = NDArray[np.float64]


def work_size(groups: int, rows: int) -> int:
    """Return the scratch size that the three kernels need."""
    part = max(
        4 * groups + halfspace.work_size(groups), dispersion.work_size(groups), quota.work_size(groups)
    )
    return 2 * groups + max(intersection_enter.work_size(groups, rows), part)


@kernel
def enter(
    code: int, r: Region, k: int, v: Array, mu: Array, lam_k: Array, work: Array
) -> tuple[float, float]:
    """eq:f_star_k_0_ext1: return the cost of the nearest point that meets all conditions."""
    return intersection_enter.approach(code, r, lam_k, 0.0, k, k, v, mu, lam_k, work)


@kernel
def leave(
    code: int, r: Region, k: int, v: Array, mu: Array, lam_k: Array, work: Array
) -> tuple[float, float, int]:
    """eq:f_infeas_ext1: least cost to violate row j, the quadratic (m) or quota (m + 1 + g)."""
    n, m = lam_k.shape[0], r.rows.shape[0]
    trial, a, rest = work[:n], work[n : 2 * n], work[2 * n :]
    best, lower, which = math.inf, math.inf, -1
    for row in range(m):
        for g in range(n):
            a[g] = -r.rows[row, g]
        value, bound = halfspace.cross(code, a, -r.rhs[row, k], k, v, mu, trial, rest)
        lower = min(lower, bound)
        if value < best:
            best, which = value, row
            copy(trial, lam_k)
    if r.limit < math.inf:
        value, bound, _ = dispersion.leave(code, r, k, v, mu, trial, rest)
        lower = min(lower, bound)
        if value < best:
            best, which = value, m
            copy(trial, lam_k)
    if r.need > 0:
        value, bound, group = quota.leave(code, r, k, v, mu, trial, rest)
        lower = min(lower, bound)
        if value < best:
            best, which = value, m + 1 + group
            copy(trial, lam_k)
    return best, min(lower, best), which


@kernel
def beat(
    code: int, r: Region, q: Array, eps: float, i: int, k: int, v: Array, mu: Array,
    lam_i: Array, lam_k: Array, work: Array,
) -> tuple[float, float]:  # fmt: skip
    """eq:f_mu_opt_ext1: return the least cost for rival k, inside, to reach q.lam_i + eps."""
    n = q.shape[0]
    x = work[: 2 * n]
    value, lower = intersection_enter.approach(code, r, q, eps, i, k, v, mu, x, work[2 * n :])
    copy(x[:n], lam_k)
    copy(x[n:], lam_i)
    return value, lower
