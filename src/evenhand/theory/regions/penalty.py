"""Penalties: a shortfall from a floor costs gamma per unit, and every policy is feasible.

A policy scores q.phi(m) with phi(m) = m + gamma min(m - floor, 0), the lower of two lines. For the rival to
reach a score is a convex condition. For the best policy to fall to one is not; but it does exactly if it does
so on some choice of one line per group. So the alternative is a union of convex sets over such choices,
searched by branch and bound on the one-dimensional dual: at a multiplier eta every group takes the cheaper
line, which bounds all choices from below; if nothing jumps at the root of the surplus, that choice is
optimal; else the two choices on either side of the jump are tried, and the search branches on that group's
line. The bounds of the exponential may differ: its divergence is not convex, and the search branches only on
lines.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.region import Region
from evenhand.model.unit_families import EXPONENTIAL, GAUSSIAN, edge_high, edge_low
from evenhand.theory.beat import can_beat, cost, gaussian_root, place, search, split_at_jump
from evenhand.theory.tilted_means import EITHER, PLAIN, STEEP, RivalComparison

Array = NDArray[np.float64]

MAX_NODES = 20000  # the largest number of nodes; one or two are usual, whatever the number of groups
SETTLED = 1e-12  # relative distance of the bounds at which a choice is not split again


@kernel
def enter(
    code: int, r: Region, k: int, v: Array, mu: Array, lam_k: Array, work: Array
) -> tuple[float, float]:
    """Return cost 0: every policy is inside."""
    for g in range(lam_k.size):
        lam_k[g] = mu[g, k]
    return 0.0, 0.0


@kernel
def leave(
    code: int, r: Region, k: int, v: Array, mu: Array, lam_k: Array, work: Array
) -> tuple[float, float, int]:
    """lemma: counter_set_calculation_ext2: return infinite costs: no policy can be outside."""
    for g in range(lam_k.size):
        lam_k[g] = mu[g, k]
    return math.inf, math.inf, -1


@kernel
def beat(
    code: int, r: Region, q: Array, eps: float, i: int, k: int, v: Array, mu: Array,
    enough: float, lam_i: Array, lam_k: Array, work: Array,
) -> tuple[float, float]:  # fmt: skip
    """eq:f_mu_opt_ext2, eq:gamma_miqp: least cost for rival k to reach i's penalised score.

    And to exceed it by eps, the indifference. The search may end once the lower bound is at least `enough`:
    lam_i and lam_k are then undefined, and the value is infinite or the best found so far.
    """
    n = q.size
    low, high, floor = work[:n], work[n : 2 * n], work[2 * n : 3 * n]
    line, slope, rest = work[3 * n : 4 * n], work[4 * n : 5 * n], work[5 * n :]
    gap, free = eps, False
    for g in range(n):
        lam_i[g], lam_k[g] = mu[g, i], mu[g, k]
        floor[g], line[g] = r.lo[g, k], EITHER
        short = min(lam_i[g] - floor[g], 0.0) - min(lam_k[g] - floor[g], 0.0)
        gap += q[g] * (lam_i[g] - lam_k[g] + r.gamma[g] * short)
        free = free or (q[g] > 0.0 and (v[g, i] == 0.0 or v[g, k] == 0.0))
    if gap <= 0.0:
        return 0.0, 0.0
    for g in range(n):
        # the score increases by at least q, so no group of the rival needs to move farther than this
        need = mu[g, k] + gap / q[g] if q[g] > 0.0 else mu[g, k]
        low[g], high[g] = edge_low(code), need if code == EXPONENTIAL else edge_high(code)
    comparison = RivalComparison(code, q, i, k, v, mu, low, high, r.gamma, floor, line, slope, eps)
    if not can_beat(comparison):
        return math.inf, math.inf
    if free:
        below, above, surplus = search(comparison, True, lam_i, lam_k)
        if below < math.inf:
            split_at_jump(comparison, True, surplus, above, lam_i, lam_k, rest)
            return 0.0, 0.0
    return _choose_lines(comparison, enough, lam_i, lam_k, rest)


@kernel
def _choose_lines(
    comparison: RivalComparison, enough: float, lam_i: Array, lam_k: Array, work: Array
) -> tuple[float, float]:
    """Return the least cost over all choices of lines, and a lower bound, by branch and bound."""
    n = comparison.q.size
    now_i, now_k, scratch = work[:n], work[n : 2 * n], work[2 * n : 4 * n]
    sides, unused, waiting = work[4 * n : 6 * n], work[6 * n : 8 * n], work[8 * n :]
    # a waiting choice: the bound of its parent, and a line per group
    size = 1 + n
    waiting[0] = -math.inf
    for g in range(n):
        waiting[1 + g] = EITHER
    value, lower, choices, solved = math.inf, math.inf, 1, 0
    while choices > 0:
        choices -= 1
        choice = waiting[choices * size : (choices + 1) * size]
        if choice[0] >= min(value * (1.0 - SETTLED), enough) or solved == MAX_NODES:
            lower = min(lower, choice[0])
            continue
        solved += 1
        found, bound, jump = _settle(
            _on(comparison, choice[1:]), min(value, enough), now_i, now_k, sides, scratch
        )
        value = _keep(found, value, now_i, now_k, lam_i, lam_k)
        choice[0] = max(choice[0], bound)
        if jump >= 0:
            for side in range(2):
                tried = _on(comparison, sides[side * n : (side + 1) * n])
                found, _, _ = _settle(tried, min(value, enough), now_i, now_k, unused, scratch)
                value = _keep(found, value, now_i, now_k, lam_i, lam_k)
        if jump < 0 or choice[0] >= min(value * (1.0 - SETTLED), enough):
            lower = min(lower, choice[0])
        else:
            _fork(waiting, choices, size, jump)
            choices += 2
    return value, min(lower, value)


@kernel
def _settle(
    comparison: RivalComparison, enough: float, lam_i: Array, lam_k: Array, sides: Array, work: Array
) -> tuple[float, float, int]:
    """Return the least cost on the allowed lines, a bound, and the group that jumps or -1.

    After a jump the value is far from the bound; `sides` holds the choices just below and above the jump.
    Where a Gaussian's bound is at least `enough` the value is not computed.
    """
    n = comparison.q.size
    if comparison.code == GAUSSIAN:
        below, above, lower = gaussian_root(comparison)
        if lower >= enough:
            return math.inf, lower, -1
        surplus, _ = place(comparison, False, below, lam_i, lam_k)
    else:
        below, above, surplus = search(comparison, False, lam_i, lam_k)
        lower = cost(comparison, lam_i, lam_k) - below * surplus
    jump = -1
    if above > below:
        _lines(comparison, sides[:n])
        split_at_jump(comparison, False, surplus, above, lam_i, lam_k, work)
        _lines(comparison, sides[n:])
        widest = 0.0
        for g in range(n):
            drop = (
                comparison.q[g]
                * comparison.gamma[g]
                * abs(comparison.mu[g, comparison.i] - comparison.floor[g])
            )
            if sides[g] != sides[n + g] and drop > widest:
                widest, jump = drop, g
    value = cost(comparison, lam_i, lam_k)
    return value, max(min(lower, value), 0.0), jump


@kernel
def _on(comparison: RivalComparison, line: Array) -> RivalComparison:
    """Return the same comparison with policy i on these lines."""
    code, q, i, k, v, mu, low, high, gamma, floor, _, slope, eps = comparison
    return RivalComparison(code, q, i, k, v, mu, low, high, gamma, floor, line, slope, eps)


@kernel
def _lines(comparison: RivalComparison, line: Array) -> None:
    """Write the lines on which policy i was placed last."""
    for g in range(comparison.q.size):
        line[g] = STEEP if comparison.gamma[g] > 0.0 and comparison.slope[g] > 1.0 else PLAIN


@kernel
def _keep(found: float, value: float, now_i: Array, now_k: Array, lam_i: Array, lam_k: Array) -> float:
    """Keep the cheaper of two solutions and its means; return its cost."""
    if found >= value:
        return value
    for g in range(lam_i.size):
        lam_i[g], lam_k[g] = now_i[g], now_k[g]
    return found


@kernel
def _fork(waiting: Array, choice: int, size: int, group: int) -> None:
    """Replace a choice by two, with one group's line fixed either way."""
    here, after = choice * size, (choice + 1) * size
    for n in range(size):
        waiting[after + n] = waiting[here + n]
    waiting[here + 1 + group], waiting[after + 1 + group] = PLAIN, STEEP
