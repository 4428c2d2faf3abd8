"""Boxes: every group's mean between its own floor and cap (`none`, `floors`, `caps`).

Entering is a sum and leaving a minimum over single cells; beating the best policy has a one-dimensional dual
within the bounds (`least_cost_to_beat`).

The exponential's divergence is not convex: d(mu, lam) grows only like ln(lam) beyond lam = 2 mu, so raising
one group of the rival by a lot can cost less than raising several by a little, and lam_k(eta) jumps over the
means in between. The range of that cell is split at the solution found, and each part again while its lower
bound is below the best cost so far, until both bounds agree. If MAX_PARTS_SOLVED runs out first, the bounds
stay valid but apart.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.region import Region
from evenhand.model.unit_families import EXPONENTIAL, edge_high, edge_low
from evenhand.theory.beat import least_cost_to_beat
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


MAX_PARTS_WAITING = 96  # the largest number of waiting parts; each split adds one
MAX_PARTS_SOLVED = 2000  # the largest number of parts solved; tens are usual
ENOUGH = 1e-10  # relative distance of the bounds at which a part is not split again


@kernel
def least_cost_nonconvex(
    comparison: RivalComparison, lam_i: Array, lam_k: Array, work: Array
) -> tuple[float, float]:
    """Return the least cost where the rival's divergence is not convex, and a lower bound."""
    groups = comparison.q.size
    now_i, now_k = work[:groups], work[groups : 2 * groups]
    scratch, waiting = work[2 * groups : 4 * groups], work[4 * groups :]
    # a waiting part: the bound of its parent, its lower ends, its upper ends
    size = 1 + 2 * groups
    _within_need(comparison, waiting[1 : 1 + groups], waiting[1 + groups : size])
    waiting[0] = -math.inf
    value, lower, parts, solved = math.inf, math.inf, 1, 0
    while parts > 0:
        parts -= 1
        part = waiting[parts * size : (parts + 1) * size]
        low, high = part[1 : 1 + groups], part[1 + groups :]
        if part[0] >= value * (1.0 - ENOUGH) or solved == MAX_PARTS_SOLVED or parts + 2 > MAX_PARTS_WAITING:
            lower = min(lower, part[0])
            continue
        solved += 1
        cost, bound, jump = least_cost_to_beat(_within(comparison, low, high), now_i, now_k, scratch)
        if cost < value:
            value = cost
            for g in range(groups):
                lam_i[g], lam_k[g] = now_i[g], now_k[g]
        part[0] = max(part[0], bound)
        if jump < 0 or part[0] >= value * (1.0 - ENOUGH):
            lower = min(lower, part[0])
        else:
            _cut(waiting, parts, size, jump, now_k[jump])
            parts += 2
    return value, min(lower, value)


@kernel
def _within(comparison: RivalComparison, low: Array, high: Array) -> RivalComparison:
    """Return the same comparison with other bounds."""
    code, q, i, k, v, mu, _, _, gamma, floor, line, slope, eps = comparison
    return RivalComparison(code, q, i, k, v, mu, low, high, gamma, floor, line, slope, eps)


@kernel
def _within_need(comparison: RivalComparison, low: Array, high: Array) -> None:
    """Reduce the rival's bounds to where one group alone closes the gap."""
    gap = comparison.eps
    for g in range(comparison.q.size):
        low[g] = max(comparison.low[g], min(comparison.mu[g, comparison.k], comparison.high[g]))
        gap += comparison.q[g] * (comparison.mu[g, comparison.i] - low[g])
    for g in range(comparison.q.size):
        need = low[g] + max(gap, 0.0) / comparison.q[g] if comparison.q[g] > 0.0 else low[g]
        high[g] = min(comparison.high[g], need)


@kernel
def _cut(waiting: Array, part: int, size: int, cell: int, at: float) -> None:
    """Replace a part by its two halves, above and below a point of one cell's range."""
    groups = size // 2
    here, after = part * size, (part + 1) * size
    for n in range(size):
        waiting[after + n] = waiting[here + n]
    low, high = waiting[here + 1 + cell], waiting[here + 1 + groups + cell]
    # away from the ends, so that both halves are smaller
    at = min(max(at, low + 0.1 * (high - low)), high - 0.1 * (high - low))
    waiting[here + 1 + groups + cell] = at
    waiting[after + 1 + cell] = at
