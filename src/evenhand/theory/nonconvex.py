"""Meetings where going far may be cheap: branch and bound over the rival's bounds, for the exponential.

d(mu, lam) grows only like ln(lam) beyond lam = 2 mu, so lifting one group of the rival very far can cost less
than lifting several a little, and the pull's answer jumps over the means in between. Cutting that cell's
range in two at the meeting point, and each part again while its lower bound promises less than the best
meeting so far, brings both bounds together; where the looks run out first, they stay honestly apart.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.theory.beat import meet
from evenhand.theory.tilted_means import Duel

Array = NDArray[np.float64]

PARTS = 96  # that may wait at a time; each cut adds one
LOOKS = 2000  # at most; tens are usual
ENOUGH = 1e-10  # relative distance of the bounds that closes a part


@kernel
def meet_far(duel: Duel, lam_i: Array, lam_k: Array, work: Array) -> tuple[float, float]:
    """The cheapest meeting where the rival's divergence is not convex: its value and a lower bound."""
    groups = duel.q.size
    now_i, now_k = work[:groups], work[groups : 2 * groups]
    scratch, waiting = work[2 * groups : 4 * groups], work[4 * groups :]
    # a part that waits: the bound it inherits, its lower ends, its upper ends
    size = 1 + 2 * groups
    _within_need(duel, waiting[1 : 1 + groups], waiting[1 + groups : size])
    waiting[0] = -math.inf
    value, lower, parts, looks = math.inf, math.inf, 1, 0
    while parts > 0:
        parts -= 1
        part = waiting[parts * size : (parts + 1) * size]
        low, high = part[1 : 1 + groups], part[1 + groups :]
        if part[0] >= value * (1.0 - ENOUGH) or looks == LOOKS or parts + 2 > PARTS:
            lower = min(lower, part[0])
            continue
        looks += 1
        cost, bound, jump = meet(_within(duel, low, high), now_i, now_k, scratch)
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
def _within(duel: Duel, low: Array, high: Array) -> Duel:
    """The same duel with other bounds."""
    code, q, i, k, v, mu, _, _, gamma, floor, line, slope, eps = duel
    return Duel(code, q, i, k, v, mu, low, high, gamma, floor, line, slope, eps)


@kernel
def _within_need(duel: Duel, low: Array, high: Array) -> None:
    """The rival's bounds, cut to where a group alone would close the gap: no group needs to go beyond."""
    gap = duel.eps
    for g in range(duel.q.size):
        low[g] = max(duel.low[g], min(duel.mu[g, duel.k], duel.high[g]))
        gap += duel.q[g] * (duel.mu[g, duel.i] - low[g])
    for g in range(duel.q.size):
        need = low[g] + max(gap, 0.0) / duel.q[g] if duel.q[g] > 0.0 else low[g]
        high[g] = min(duel.high[g], need)


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
