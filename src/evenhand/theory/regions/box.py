"""Boxes: every group's mean between its own floor and cap (`none`, `floors`, `caps`).

Entering is a sum and leaving a minimum over single cells; beating the best policy has a one-dimensional dual
within the bounds (`beat`, and `nonconvex` where the divergence is not convex).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.region import Region
from evenhand.model.unit_families import EXPONENTIAL, edge_high, edge_low
from evenhand.theory.beat import least_cost_to_beat
from evenhand.theory.nonconvex import least_cost_nonconvex
from evenhand.theory.tilted_means import RivalComparison, weighted_divergence

Array = NDArray[np.float64]


@kernel
def enter(
    code: int, r: Region, k: int, v: Array, mu: Array, lam_k: Array, work: Array
) -> tuple[float, float]:
    """eq:f_star_k_0: return the sum over the groups outside their bounds of v d(mu, bound)."""
    total = 0.0
    for g in range(lam_k.size):
        low, high = max(r.lo[g, k], edge_low(code)), min(r.hi[g, k], edge_high(code))
        lam_k[g] = min(max(mu[g, k], low), high)
        total += weighted_divergence(code, v[g, k], mu[g, k], lam_k[g]) if low <= high else math.inf
    return total, total


@kernel
def leave(
    code: int, r: Region, k: int, v: Array, mu: Array, lam_k: Array, work: Array
) -> tuple[float, float, int]:
    """eq:f_infeas: return the least cost to cross one floor (named g) or one cap (named L + g)."""
    groups = lam_k.size
    cheapest, which = math.inf, -1
    for g in range(groups):
        lam_k[g] = mu[g, k]
        # a bound on the boundary of the domain cannot be crossed
        if r.lo[g, k] > edge_low(code):
            cost = weighted_divergence(code, v[g, k], mu[g, k], min(mu[g, k], r.lo[g, k]))
            if cost < cheapest:
                cheapest, which = cost, g
        if r.hi[g, k] < edge_high(code):
            cost = weighted_divergence(code, v[g, k], mu[g, k], max(mu[g, k], r.hi[g, k]))
            if cost < cheapest:
                cheapest, which = cost, groups + g
    if 0 <= which < groups:
        lam_k[which] = min(mu[which, k], r.lo[which, k])
    elif which >= groups:
        lam_k[which - groups] = max(mu[which - groups, k], r.hi[which - groups, k])
    return cheapest, cheapest, which


@kernel
def beat(
    code: int, r: Region, q: Array, eps: float, i: int, k: int, v: Array, mu: Array,
    lam_i: Array, lam_k: Array, work: Array,
) -> tuple[float, float]:  # fmt: skip
    """eq:f_mu_opt: return the least cost for rival k, inside bounds, to reach q.lam_i + eps."""
    groups = q.size
    low, high = work[:groups], work[groups : 2 * groups]
    for g in range(groups):
        low[g], high[g] = max(r.lo[g, k], edge_low(code)), min(r.hi[g, k], edge_high(code))
        if low[g] > high[g]:
            return math.inf, math.inf
    # a box has no penalties: gamma is 0 throughout, and the arrays after it are not read
    comparison = RivalComparison(code, q, i, k, v, mu, low, high, r.gamma, low, low, low, eps)
    if code == EXPONENTIAL:
        return least_cost_nonconvex(comparison, lam_i, lam_k, work[2 * groups :])
    value, lower, _ = least_cost_to_beat(comparison, lam_i, lam_k, work[2 * groups :])
    return value, lower
