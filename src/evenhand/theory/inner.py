"""The nearest alternative for any kind of region (enter, leave, beat), and the ranking.

    enter   the least cost for a policy to enter its region
    leave   the least cost for a policy to leave its region, and the condition that it violates
    beat    the least cost for a rival, inside its region, to reach or exceed the best policy's score + eps

Each returns the cost of the means that it writes to `lam` (an upper bound on the infimum) and a lower bound;
the two agree up to rounding wherever the problem is solved exactly. `lam_0` holds the control's means in the
alternative, where the region has a control that is neither i nor k (else the control's own means); other
regions do not write it. All is in unit scale, arrays are (L, K), `v` holds the effective weights w / phi. For
an empty alternative both bounds are infinite. A set that is defined only in Python has no kernel: its value
is NaN, its lower bound minus infinity.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.region import (
    BOX,
    CONVEX,
    DISPERSION,
    PENALTY,
    QUOTA,
    RELATIVE,
    SPREAD,
    Region,
    distance,
    inside,
)
from evenhand.model.unit_families import edge_high, edge_low
from evenhand.theory import relative_bulk
from evenhand.theory.regions import box, dispersion, gap_ratio, intersection, penalty, quota, relative

Array = NDArray[np.float64]


def work_size(groups: int, rows: int) -> int:
    """Return the scratch size, in numbers, for these counts of groups and linear conditions."""
    plain = 256 + 512 * groups + 16 * groups * groups + 16 * rows * (groups + 2) + 4 * rows * rows
    sizes = (
        quota.work_size(groups),
        gap_ratio.work_size(groups),
        dispersion.work_size(groups),
        intersection.work_size(groups, rows),
        relative.work_size(groups),
        relative_bulk.work_size(groups),
    )
    return max(plain, *sizes)


@kernel
def enter(
    code: int, r: Region, k: int, v: Array, mu: Array, lam_k: Array, lam_0: Array, work: Array
) -> tuple[float, float]:
    """eq:f_star_k_0_ext1: return the least cost for policy k to enter its region, and a bound."""
    if r.kind == BOX:
        return box.enter(code, r, k, v, mu, lam_k, work)
    if r.kind == QUOTA:
        return quota.enter(code, r, k, v, mu, lam_k, work)
    if r.kind == PENALTY:
        return penalty.enter(code, r, k, v, mu, lam_k, work)
    if r.kind == SPREAD:
        return gap_ratio.enter(code, r, k, v, mu, lam_k, work)
    if r.kind == DISPERSION:
        return dispersion.enter(code, r, k, v, mu, lam_k, work)
    if r.kind == CONVEX:
        return intersection.enter(code, r, k, v, mu, lam_k, work)
    if r.kind == RELATIVE:
        return relative.enter(code, r, k, v, mu, lam_k, lam_0, work)
    return math.nan, -math.inf


@kernel
def leave(
    code: int, r: Region, k: int, v: Array, mu: Array, lam_k: Array, lam_0: Array, work: Array
) -> tuple[float, float, int]:
    """eq:f_infeas_ext1: return policy k's least cost to leave, a bound, and the condition."""
    if r.kind == BOX:
        return box.leave(code, r, k, v, mu, lam_k, work)
    if r.kind == QUOTA:
        return quota.leave(code, r, k, v, mu, lam_k, work)
    if r.kind == PENALTY:
        return penalty.leave(code, r, k, v, mu, lam_k, work)
    if r.kind == SPREAD:
        return gap_ratio.leave(code, r, k, v, mu, lam_k, work)
    if r.kind == DISPERSION:
        return dispersion.leave(code, r, k, v, mu, lam_k, work)
    if r.kind == CONVEX:
        return intersection.leave(code, r, k, v, mu, lam_k, work)
    if r.kind == RELATIVE:
        return relative.leave(code, r, k, v, mu, lam_k, lam_0, work)
    return math.nan, -math.inf, -1


@kernel
def beat(
    code: int, r: Region, q: Array, eps: float, i: int, k: int, v: Array, mu: Array,
    lam_i: Array, lam_k: Array, lam_0: Array, work: Array,
) -> tuple[float, float]:  # fmt: skip
    """eq:f_mu_opt_ext1: return rival k's least cost to reach i's score + eps, and a bound."""
    if eps > 0.0 and eps >= edge_high(code) - edge_low(code):
        return math.inf, math.inf  # no policy in the domain can be ahead by an infinite eps
    if r.kind == BOX:
        return box.beat(code, r, q, eps, i, k, v, mu, lam_i, lam_k, work)
    if r.kind == QUOTA:
        return quota.beat(code, r, q, eps, i, k, v, mu, lam_i, lam_k, work)
    if r.kind == PENALTY:
        return penalty.beat(code, r, q, eps, i, k, v, mu, math.inf, lam_i, lam_k, work)
    if r.kind == SPREAD:
        return gap_ratio.beat(code, r, q, eps, i, k, v, mu, lam_i, lam_k, work)
    if r.kind == DISPERSION:
        return dispersion.beat(code, r, q, eps, i, k, v, mu, lam_i, lam_k, work)
    if r.kind == CONVEX:
        return intersection.beat(code, r, q, eps, i, k, v, mu, lam_i, lam_k, work)
    if r.kind == RELATIVE:
        return relative.beat(code, r, q, eps, i, k, v, mu, lam_i, lam_k, lam_0, work)
    return math.nan, -math.inf


@kernel
def score(r: Region, q: Array, k: int, mu: Array) -> float:
    """eq:linear_relaxed: return the score of policy k, its overall mean less any penalties."""
    total = 0.0
    for g in range(q.size):
        total += q[g] * mu[g, k]
        if r.kind == PENALTY:
            total += q[g] * r.gamma[g] * min(mu[g, k] - r.lo[g, k], 0.0)
    return total


@kernel
def is_acceptable(r: Region, kept: Region, q: Array, eps: float, i: int, top: int, mu: Array) -> bool:
    """Return whether policy i is within `kept` and at most eps behind `top`, the best inside r (-1: none).

    Differences that rounding can make do not count.
    """
    if not inside(kept, i, mu):
        return False
    if top < 0 or i == top:
        return True
    size, blur = eps, 0.0
    for g in range(q.size):
        weight = q[g] * (1.0 + r.gamma[g])
        size += weight * (abs(mu[g, i]) + abs(mu[g, top]))
        blur += weight * (r.resolution[g, i] + r.resolution[g, top])
        if r.kind == PENALTY:
            size += q[g] * r.gamma[g] * (abs(r.lo[g, i]) + abs(r.lo[g, top]))
    return distance(score(r, q, i, mu) - score(r, q, top, mu) + eps, size, blur) >= 0.0


@kernel
def is_classified(r: Region, mean: Array, mu: Array) -> bool:
    """Return whether every policy is on the same side of its requirement at both means."""
    apart = 0
    for k in range(mu.shape[1]):
        apart += inside(r, k, mean) != inside(r, k, mu)
    return apart == 0


@kernel
def best(r: Region, q: Array, mu: Array) -> int:
    """def:goal, eq:relaxed_goal: return the best policy inside its region; -1 for none."""
    found, top = -1, -math.inf
    for k in range(mu.shape[1]):
        if inside(r, k, mu):
            scored = score(r, q, k, mu)
            if scored > top:
                found, top = k, scored
    return found
