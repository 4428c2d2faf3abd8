"""Floors and caps relative to a control policy 0, within a box: up to three policies move.

A policy k other than the control lies inside when, in every group, low <= y <= high and

    r z - m <= y <= r' z + m'            y = lam_k, z = lam_0, the means of policy k and of the control.

With the multiplier eta >= 0 of q.lam_k >= q.lam_i + eps the Lagrangian separates by group into policy i's
cell, moved down, and the pair of cells (k, 0), solved in `pairs`. The surplus q.(y - x) - eps does not
decrease in eta, and the optimum is at its root. Where i is the control itself, x = z. The control has no
bound relative to itself: as k it lies in a box.

*Certificate*: for any eta, kappa, kappa' >= 0 the Lagrangian's minimum is a lower bound,

    eta eps + sum over groups of  min_x [v_i d + eta q x] + min over low <= y <= high of [v_k d - (eta q +
    kappa - kappa') y] + min_z [v_0 d + (h + r kappa - r' kappa') z] - kappa m - kappa' m',

with h = eta q where i is the control (and no x then), else 0.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.region import Region
from evenhand.model.unit_families import edge_high, edge_low
from evenhand.theory.regions import box
from evenhand.theory.regions.halfspace import reach
from evenhand.theory.regions.halfspace import work_size as reach_size
from evenhand.theory.regions.pairs import PairProblem, dual_of_cell, dual_of_pair, is_nonempty, solve_pair
from evenhand.theory.regions.single_cell import copy, fill
from evenhand.theory.tilted_means import STRONGEST, lowered, next_trial_point, response, weighted_divergence

Array = NDArray[np.float64]

TURNS = 200  # iterations of the search for eta: ten are usual
CLOSE = 1e-13  # allowed difference of the overall means, relative to that at eta = 0
NOISE = 4e-16  # relative rounding error of an overall mean
POLE = 1e-12  # relative distance to a pole at which bounds are finite
FAINT = 1e-13  # weight, relative to the smallest, given to a cell of weight 0
ROWS = 20  # arrays of one number per group that `beat` uses


def work_size(groups: int) -> int:
    """Return the scratch size that the three kernels need."""
    return ROWS * groups + 12 + reach_size(2)


@kernel
def enter(
    code: int, r: Region, k: int, v: Array, mu: Array, lam_k: Array, lam_0: Array, work: Array
) -> tuple[float, float]:
    """Return the least cost for policy k to enter its bounds; the control may move too."""
    _rest(r, mu, lam_0)
    if k == r.control:
        return box.enter(code, r, k, v, mu, lam_k, work)
    n = lam_k.size
    part = work[: ROWS * n].reshape((ROWS, n))
    fill(part[0], 0.0)
    c = _comparison(code, r, part[0], 0.0, k, k, v, mu, part)
    if not is_nonempty(c):
        return math.inf, math.inf
    copy(c.mu_0, lam_0)
    _place(c, 0.0, part[10], lam_k, lam_0, part[13], part[14])
    value = _cost(c, r, k, k, v, part[10], lam_k, lam_0)
    lower = _dual(c, r, k, k, v, 0.0, part[13], part[14])
    return value, min(max(lower, 0.0), value)


@kernel
def leave(
    code: int, r: Region, k: int, v: Array, mu: Array, lam_k: Array, lam_0: Array, work: Array
) -> tuple[float, float, int]:
    """Return the least cost for policy k to cross one bound, numbered as in `leave_by`."""
    n = lam_k.size
    best, lower, which = math.inf, math.inf, -1
    for bound in range(2 * n if k == r.control else 4 * n):
        value, low = leave_by(code, r, k, bound, v, mu, lam_k, lam_0, work)
        lower = min(lower, low)
        if value < best:
            best, which = value, bound
    if which >= 0:
        leave_by(code, r, k, which, v, mu, lam_k, lam_0, work)
    else:
        for g in range(n):
            lam_k[g] = mu[g, k]
        _rest(r, mu, lam_0)
    return best, min(lower, best), which


@kernel
def leave_by(
    code: int, r: Region, k: int, which: int, v: Array, mu: Array, lam_k: Array, lam_0: Array, work: Array
) -> tuple[float, float]:
    """Return the cost for policy k to cross one bound of a relative region or of a box.

    In group g: its floor (numbered g), its cap (L + g), its relative floor (2 L + g) and cap (3 L + g).
    """
    n = lam_k.size
    g, side = which % n, which // n
    for other in range(n):
        lam_k[other] = mu[other, k]
    _rest(r, mu, lam_0)
    if side < 2:
        bound = r.lo[g, k] if side == 0 else r.hi[g, k]
        if not edge_low(code) < bound < edge_high(code):
            return math.inf, math.inf  # a bound on the boundary of the domain cannot be crossed
        lam_k[g] = min(mu[g, k], bound) if side == 0 else max(mu[g, k], bound)
        cost = weighted_divergence(code, v[g, k], mu[g, k], lam_k[g])
        return cost, cost
    margin = r.floor_margin[g] if side == 2 else r.cap_margin[g]
    if k == r.control or margin == math.inf:
        return math.inf, math.inf
    value, lower = cross_bound(code, r, k, side, g, False, v, mu, work)
    lam_k[g], lam_0[g] = work[10], work[11]
    return value, lower


@kernel
def cross_bound(
    code: int, r: Region, k: int, side: int, g: int, inwards: bool, v: Array, mu: Array, work: Array
) -> tuple[float, float]:
    """Return the cost for policy k and the control to cross a finite relative bound in group g.

    Its floor (side 2) or cap (3), outwards or inwards; both means are left in work[10:12].
    """
    ratio = r.floor_ratio[g] if side == 2 else r.cap_ratio[g]
    margin = r.floor_margin[g] if side == 2 else r.cap_margin[g]
    # floors: ratio z - y >= margin; caps: y - ratio z >= margin
    part, sign = work[:12].reshape((6, 2)), 1.0 if (side == 3) != inwards else -1.0
    part[0, 0], part[0, 1], part[1, 0], part[1, 1] = v[g, k], v[g, r.control], mu[g, k], mu[g, r.control]
    part[2, 0], part[2, 1] = sign, -sign * ratio
    fill(part[3], edge_low(code))
    fill(part[4], edge_high(code))
    needed = -margin if inwards else margin
    return reach(code, part[0], part[1], part[2], needed, part[3], part[4], part[5], work[12:])


@kernel
def beat(
    code: int, r: Region, q: Array, eps: float, i: int, k: int, v: Array, mu: Array,
    lam_i: Array, lam_k: Array, lam_0: Array, work: Array,
) -> tuple[float, float]:  # fmt: skip
    """Return the least cost for rival k, inside its bounds, to reach q.lam_i + eps."""
    _rest(r, mu, lam_0)
    if k == r.control:
        return box.beat(code, r, q, eps, i, k, v, mu, lam_i, lam_k, work)
    n = q.size
    part = work[: ROWS * n].reshape((ROWS, n))
    c = _comparison(code, r, q, eps, i, k, v, mu, part)
    if not is_nonempty(c):
        return math.inf, math.inf
    x, y, z = part[10], part[11], part[12]
    floors, caps = part[13], part[14]
    copy(c.mu_0, z)
    surplus, slope = _place(c, 0.0, x, y, z, floors, caps)
    value, lower = _cost(c, r, i, k, v, x, y, z), _dual(c, r, i, k, v, 0.0, floors, caps)
    if surplus < 0.0:
        below, above, surplus = _search(c, surplus, slope, x, y, z, floors, caps)
        if below == math.inf:
            return math.inf, math.inf  # even an infinite multiplier is not enough
        bound = _dual(c, r, i, k, v, below, floors, caps)
        if bound == -math.inf:  # just below a pole: at a slightly smaller eta there is a bound
            bound = _dual(c, r, i, k, v, below * (1.0 - POLE), floors, caps)
        lower = max(lower, bound)
        if above > below:
            _between(c, surplus, above, part)
        value = _cost(c, r, i, k, v, x, y, z)
    copy(y, lam_k)
    copy(x, lam_i)
    if i != r.control:
        copy(z, lam_0)
    return value, min(max(lower, 0.0), value)


@kernel
def _rest(r: Region, mu: Array, lam_0: Array) -> None:
    """Write the control's own means, where there is a control."""
    if r.control >= 0:
        for g in range(lam_0.size):
            lam_0[g] = mu[g, r.control]


@kernel
def _comparison(
    code: int, r: Region, q: Array, eps: float, i: int, k: int, v: Array, mu: Array, part: Array
) -> PairProblem:
    """Return the cells of i, k and the control, those of weight 0 with a small weight."""
    n, least = q.size, math.inf
    for g in range(n):
        for policy in (i, k, r.control):
            least = min(least, v[g, policy] if v[g, policy] > 0.0 else math.inf)
    least = least if least < math.inf else 1.0
    for g in range(n):
        for row, policy in ((0, i), (1, k), (2, r.control)):
            part[1 + row, g] = v[g, policy] if v[g, policy] > 0.0 else FAINT * least
            part[4 + row, g] = mu[g, policy]
        part[7, g] = max(r.lo[g, k], edge_low(code))
        part[8, g] = min(r.hi[g, k], edge_high(code))
        # the control's factor of eta: it is lowered like policy i if it is policy i
        part[9, g] = q[g] if i == r.control else 0.0
    return PairProblem(
        code, q, eps, i == r.control, part[1], part[2], part[3], part[4], part[5], part[6], part[7], part[8],
        part[9], r.floor_ratio, r.floor_margin, r.cap_ratio, r.cap_margin,
    )  # fmt: skip


@kernel
def _place(
    c: PairProblem, eta: float, x: Array, y: Array, z: Array, floors: Array, caps: Array
) -> tuple[float, float]:
    """Move all cells to their optimum at eta; return surplus q.(y - x) - eps, and its slope.

    `z` holds a first guess. The multipliers of the relative bounds are written to `floors` and `caps`.
    """
    surplus, slope = 0.0 - c.eps, 0.0
    for g in range(c.q.size):
        q = c.q[g]
        y[g], z[g], rise, drift, floors[g], caps[g] = solve_pair(c, g, eta, z[g])
        if c.against_control:
            x[g] = z[g]
            if q > 0.0:
                surplus += q * (y[g] - z[g])
                slope += q * (rise - drift)
            continue
        s = eta * q / c.v_i[g]
        x[g] = lowered(c.code, c.mu_i[g], s)
        if q > 0.0:
            surplus += q * (y[g] - x[g])
            slope += q * (rise + q / c.v_i[g] * response(c.code, x[g], -s))
    return surplus, slope


@kernel
def _search(
    c: PairProblem, surplus: float, slope: float, x: Array, y: Array, z: Array, floors: Array, caps: Array
) -> tuple[float, float, float]:
    """Return the multipliers around the root of the surplus, and the surplus at the lower one.

    They are equal where the surplus does not jump. Begins with all cells placed at eta = 0, and the surplus
    and its slope there; ends with them placed at the lower multiplier. Both are infinite if no eta is large
    enough.
    """
    size, share, weight = 0.0, 0.0, 0.0
    for g in range(c.q.size):
        size += c.q[g] * (abs(c.mu_i[g]) + abs(c.mu_k[g]))
        share = max(share, c.q[g])
        weight = max(weight, c.v_i[g], c.v_k[g], c.v_0[g])
    tolerance = NOISE * size - CLOSE * surplus
    below, above, eta, last = 0.0, math.inf, 0.0, False
    for turn in range(TURNS):
        if last or abs(surplus) <= tolerance:
            break
        if surplus < 0.0:
            below = eta
        else:
            above = eta
        eta = next_trial_point(below, above, eta, surplus, slope, turn, weight / share)
        if eta > STRONGEST * weight:
            return math.inf, math.inf, surplus
        if not below < eta < above or turn == TURNS - 2:
            eta, last = below, True
        surplus, slope = _place(c, eta, x, y, z, floors, caps)
    return eta, above if last else eta, surplus


@kernel
def _between(c: PairProblem, surplus: float, above: float, part: Array) -> None:
    """Move the cells from just below the root towards those just above it, to surplus 0."""
    n = c.q.size
    x, y, z = part[10], part[11], part[12]
    far_x, far_y, far_z = part[15], part[16], part[17]
    copy(z, far_z)
    reach_of_all = _place(c, above, far_x, far_y, far_z, part[18], part[19])[0] - surplus
    if reach_of_all == math.inf:  # only the cells at a pole move, each by the same amount
        reach_of_all = 0.0
        for g in range(n):
            at_pole = far_y[g] == math.inf and c.q[g] > 0.0
            far_x[g], far_y[g], far_z[g] = x[g], y[g] + (1.0 if at_pole else 0.0), z[g]
            reach_of_all += c.q[g] if at_pole else 0.0
    step = max(-surplus, 0.0) / reach_of_all if reach_of_all > 0.0 else 0.0
    for g in range(n):
        x[g] += step * (far_x[g] - x[g])
        y[g] += step * (far_y[g] - y[g])
        z[g] += step * (far_z[g] - z[g])


@kernel
def _cost(c: PairProblem, r: Region, i: int, k: int, v: Array, x: Array, y: Array, z: Array) -> float:
    """Return sum v d(mu, lam) over the cells of all policies that move, at their true weights."""
    total = 0.0
    for g in range(y.size):
        total += weighted_divergence(c.code, v[g, k], c.mu_k[g], y[g]) + weighted_divergence(
            c.code, v[g, r.control], c.mu_0[g], z[g]
        )
        if i != k and not c.against_control:
            total += weighted_divergence(c.code, v[g, i], c.mu_i[g], x[g])
    return total


@kernel
def _dual(
    c: PairProblem, r: Region, i: int, k: int, v: Array, eta: float, floors: Array, caps: Array
) -> float:
    """Return the Lagrangian's minimum at these multipliers and the true weights: a lower bound."""
    total = eta * c.eps
    for g in range(c.q.size):
        total += dual_of_pair(c, g, v[g, k], v[g, r.control], eta, floors[g], caps[g])
        if i != k and not c.against_control:
            total += dual_of_cell(
                c.code, v[g, i], c.mu_i[g], -eta * c.q[g], edge_low(c.code), edge_high(c.code)
            )
    return total if total == total else -math.inf
