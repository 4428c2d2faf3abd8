"""The nearest alternative, piece by piece, whatever the kind of region: three verbs and a ranking.

    enter   the cheapest way for a policy into its region
    leave   the cheapest way for a policy out of its region, and through which condition
    beat    the cheapest way for a rival, inside its region, to reach or pass the best policy's score + eps

Each answers with the cost of the alternative it writes to `lam` (an upper bound on the infimum) and a lower
bound; the two agree up to rounding wherever the problem is solved exactly. `lam_0` holds the alternative's
means of the control, where the region has one that is neither i nor k (else the control's own means); other
regions do not touch it. All is in unit scale, arrays are (L, K), `v` the effective weights w / phi. Where a
piece is empty both bounds are infinite. A region that only Python knows has no kernel: its value is not a
number, its lower bound minus infinity.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.region import BOX, CONVEX, DISPERSION, PENALTY, QUOTA, RELATIVE, SPREAD, Region, inside
from evenhand.model.unit_families import edge_high, edge_low
from evenhand.theory.regions import box, dispersion, gap_ratio, intersection, penalty, quota, relative

Array = NDArray[np.float64]


def work_size(groups: int, rows: int) -> int:
    """How many numbers of scratch the kernels need for so many groups and linear conditions."""
    plain = 256 + 512 * groups + 16 * groups * groups + 16 * rows * (groups + 2) + 4 * rows * rows
    sizes = (
        quota.work_size(groups),
        gap_ratio.work_size(groups),
        dispersion.work_size(groups),
        intersection.work_size(groups, rows),
        relative.work_size(groups),
    )
    return max(plain, *sizes)


@kernel
def enter(
    code: int, r: Region, k: int, v: Array, mu: Array, lam_k: Array, lam_0: Array, work: Array
) -> tuple[float, float]:
    """eq:f_star_k_0_ext1: the cheapest way for policy k into its region."""
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
    """eq:f_infeas_ext1: the cheapest way for policy k out of its region, and which condition it breaks."""
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
    """eq:f_mu_opt_ext1: the cheapest way for rival k, inside its region, to reach policy i's score + eps."""
    if eps > 0.0 and eps >= edge_high(code) - edge_low(code):
        return math.inf, math.inf  # no rival in the domain is so far ahead
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
    """eq:linear_relaxed: what policy k is ranked by, its overall mean less penalties where they are soft."""
    total = 0.0
    for g in range(q.size):
        total += q[g] * mu[g, k]
        if r.kind == PENALTY:
            total += q[g] * r.gamma[g] * min(mu[g, k] - r.lo[g, k], 0.0)
    return total


@kernel
def best(r: Region, q: Array, mu: Array) -> int:
    """def:goal, eq:relaxed_goal: the best policy inside its region, the first on ties; -1 for none."""
    found, top = -1, -math.inf
    for k in range(mu.shape[1]):
        if inside(r, k, mu):
            scored = score(r, q, k, mu)
            if scored > top:
                found, top = k, scored
    return found
