"""Regions: a requirement as the kernels see it, in unit scale, one named tuple for all kinds so that kernels
compile once.

A policy meets its requirement when its vector of group means lies in the region. Bounds differ by policy
where the user gave a K x L table; everything else is shared. Arrays that reach kernels are laid out (L, K):
groups first, policies innermost.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand._kernel import kernel

Array = NDArray[np.float64]

BOX = 0  # lo <= m <= hi, cell by cell: none, floors, caps
SPREAD = 1  # m_l >= rho m_l' - slack for every pair: gap (rho = 1), ratio
QUOTA = 2  # at least `need` groups reach lo
DISPERSION = 3  # m' quad m <= limit
CONVEX = 4  # rows m >= rhs, and m' quad m <= limit, and the quota: an intersection of any of these
PENALTY = 5  # everyone is feasible; falling short of `lo` costs gamma per unit of shortfall
CUSTOM = 6  # a convex set only Python knows; kernels refuse it

# a mean counts as meeting its bound when it does so up to this rounding error, in unit scale
ROUNDING = 1e-12


class Region(NamedTuple):
    """One requirement for all policies, in unit scale."""

    kind: int
    lo: Array  # (L, K) floors, -inf where there is none
    hi: Array  # (L, K) caps, +inf where there is none
    rho: float
    slack: float
    need: int
    quad: Array  # (L, L)
    limit: float  # +inf where there is no quadratic
    rows: Array  # (m, L)
    rhs: Array  # (m, K)
    gamma: Array  # (L,)


def region(kind: int, groups: int, policies: int, **parts: object) -> Region:
    """A region of this kind with everything else absent."""
    blank: dict[str, object] = {
        "lo": np.full((groups, policies), -math.inf),
        "hi": np.full((groups, policies), math.inf),
        "rho": 0.0,
        "slack": math.inf,
        "need": 0,
        "quad": np.zeros((groups, groups)),
        "limit": math.inf,
        "rows": np.zeros((0, groups)),
        "rhs": np.zeros((0, policies)),
        "gamma": np.zeros(groups),
    }
    blank.update(parts)
    return Region(kind, **blank)  # type: ignore[arg-type]


@kernel
def margin(r: Region, k: int, mean: Array) -> float:
    """def:feasible: how far policy k's means lie inside the region; negative outside.

    In the units of its tightest condition. `mean` is (L, K). A penalty keeps nobody out.
    """
    groups = mean.shape[0]
    worst = math.inf
    if r.kind == QUOTA or (r.kind == CONVEX and r.need > 0):
        worst = _quota_margin(r, k, mean)
    elif r.kind == BOX:
        for g in range(groups):
            worst = min(worst, mean[g, k] - r.lo[g, k], r.hi[g, k] - mean[g, k])
    elif r.kind == SPREAD:
        least, most = math.inf, -math.inf
        for g in range(groups):
            least, most = min(least, mean[g, k]), max(most, mean[g, k])
        worst = least - r.rho * most + r.slack
    if r.kind == DISPERSION or (r.kind == CONVEX and r.limit < math.inf):
        worst = min(worst, r.limit - quadratic(r, k, mean))
    for row in range(r.rows.shape[0]):
        total = -r.rhs[row, k]
        for g in range(groups):
            total += r.rows[row, g] * mean[g, k]
        worst = min(worst, total)
    return worst


@kernel
def quadratic(r: Region, k: int, mean: Array) -> float:
    """m' quad m for policy k: the dispersion of its group means. eq:variance_constraint."""
    groups = mean.shape[0]
    total = 0.0
    for g in range(groups):
        for h in range(groups):
            total += mean[g, k] * r.quad[g, h] * mean[h, k]
    return total


@kernel
def inside(r: Region, k: int, mean: Array) -> bool:
    """Does policy k meet its requirement at these means (L, K)?"""
    return margin(r, k, mean) >= -ROUNDING


@kernel
def _quota_margin(r: Region, k: int, mean: Array) -> float:
    """The need-th largest surplus over the floors: positive when enough groups reach theirs."""
    groups = mean.shape[0]
    for g in range(groups):
        surplus = mean[g, k] - r.lo[g, k]
        above = 0
        ties = 0
        for h in range(groups):
            other = mean[h, k] - r.lo[h, k]
            if other > surplus:
                above += 1
            elif other == surplus:
                ties += 1
        if above < r.need <= above + ties:
            return surplus
    return -math.inf
