"""Where a rival inside bounds meets the best policy: the one-dimensional dual of `eq:f_mu_opt`, certified.

With multiplier eta >= 0 for q.lam_k >= q.lam_i, and low <= lam_k <= high cell by cell:

    lam_i(eta) = down(mu_i, eta q / v_i)                   pulled down, in proportion to q and against v
    lam_k(eta) = clip(up(mu_k, eta q / v_k), low, high)    pulled up, inside its bounds
    surplus(eta) = q.lam_k(eta) - q.lam_i(eta)             increasing; the optimum is at its root
    Psi(eta) = sum v d(mu, lam(eta)) - eta surplus(eta)    a lower bound everywhere, the optimum at the root

Cells without weight are free: they go to the end of their range before any other cell moves (`only_free`).
For the Gaussian the surplus is piecewise linear and Newton's steps end exactly. It jumps where a cell has a
whole segment of minimisers (a Poisson mean of 0 at eta = v / q) or two far apart (the exponential): there the
search closes in from both sides.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand._kernel import kernel
from evenhand.theory.pulls import lifted, lowered, next_trial, paid, response, strength

Array = NDArray[np.float64]

TURNS = 200  # of the search: ten are usual, closing in on a jump takes some sixty
CLOSE = 1e-13  # what may remain of the gap: its effect on the value is of second order
NOISE = 4e-16  # relative rounding error of an overall mean


class Duel(NamedTuple):
    """Rival k, inside its bounds, against policy i."""

    code: int
    q: Array  # (L,)
    i: int
    k: int
    v: Array  # (L, K)
    mu: Array  # (L, K)
    low: Array  # (L,) bounds of the rival's means, inside the domain
    high: Array  # (L,)


@kernel
def meet(duel: Duel, lam_i: Array, lam_k: Array, work: Array) -> tuple[float, float, int]:
    """The cheapest meeting: its value, a lower bound, and the rival's cell that jumps there, or -1."""
    q, mu = duel.q, duel.mu
    entry, gap, free = 0.0, 0.0, False
    for g in range(q.size):
        lam_i[g] = mu[g, duel.i]
        lam_k[g] = min(max(mu[g, duel.k], duel.low[g]), duel.high[g])
        entry += paid(duel.code, duel.v[g, duel.k], mu[g, duel.k], lam_k[g])
        gap += q[g] * (lam_i[g] - lam_k[g])
        free = free or duel.v[g, duel.i] == 0.0 or duel.v[g, duel.k] == 0.0
    if gap <= 0.0:
        return entry, entry, -1
    only_free = free and place(duel, True, math.inf, lam_i, lam_k)[0] >= 0.0
    below, above = _search(duel, only_free, lam_i, lam_k)
    surplus, _ = place(duel, only_free, below, lam_i, lam_k)
    lower = entry if only_free else cost(duel, lam_i, lam_k) - below * surplus
    jump = _between(duel, only_free, above, lam_i, lam_k, work) if above > below else -1
    value = cost(duel, lam_i, lam_k)
    return value, min(lower, value), jump


@kernel
def place(duel: Duel, only_free: bool, eta: float, lam_i: Array, lam_k: Array) -> tuple[float, float]:
    """Move both policies to their answer to the pull eta; the surplus there, and its slope in eta.

    With `only_free` cells without weight feel the pull as if theirs were 1, and all others stay.
    """
    code, q, mu = duel.code, duel.q, duel.mu
    surplus, slope = 0.0, 0.0
    for g in range(q.size):
        weight = _weight(duel.v[g, duel.i], only_free)
        s = strength(eta, q[g], weight)
        lam_i[g] = lowered(code, mu[g, duel.i], s)
        if q[g] > 0.0 and s < math.inf:
            slope += q[g] * q[g] / weight * response(code, lam_i[g], -s)
        weight = _weight(duel.v[g, duel.k], only_free)
        s = strength(eta, q[g], weight)
        lam_k[g] = lifted(code, mu[g, duel.k], s, duel.low[g], duel.high[g])
        if q[g] > 0.0 and duel.low[g] < lam_k[g] < duel.high[g]:
            slope += q[g] * q[g] / weight * response(code, lam_k[g], s)
        if q[g] > 0.0:
            surplus += q[g] * (lam_k[g] - lam_i[g])
    return surplus, slope


@kernel
def cost(duel: Duel, lam_i: Array, lam_k: Array) -> float:
    """sum v d(mu, lam) over the cells of both policies."""
    total = 0.0
    for g in range(lam_i.size):
        total += paid(duel.code, duel.v[g, duel.i], duel.mu[g, duel.i], lam_i[g])
        total += paid(duel.code, duel.v[g, duel.k], duel.mu[g, duel.k], lam_k[g])
    return total


@kernel
def _search(duel: Duel, only_free: bool, lam_i: Array, lam_k: Array) -> tuple[float, float]:
    """The pulls on either side of the root, equal where the surplus vanishes without a jump."""
    surplus, slope = place(duel, only_free, 0.0, lam_i, lam_k)
    size, share, weight = 0.0, 0.0, 0.0
    for g in range(duel.q.size):
        size += duel.q[g] * (abs(duel.mu[g, duel.i]) + abs(duel.mu[g, duel.k]))
        share = max(share, duel.q[g])
        weight = max(weight, duel.v[g, duel.i], duel.v[g, duel.k])
    tolerance = NOISE * size - CLOSE * surplus
    # where no cell answers a faint pull, a strength of about 1 is the scale on which edges give way
    eta = -surplus / slope if slope > 0.0 else max(weight, 1e-300) / share
    below, above = 0.0, math.inf
    for turn in range(TURNS):
        surplus, slope = place(duel, only_free, eta, lam_i, lam_k)
        if abs(surplus) <= tolerance:
            return eta, eta
        if surplus < 0.0:
            below = eta
        else:
            above = eta
        eta = next_trial(below, above, eta, surplus, slope, turn)
        if not below < eta < above:
            break
    return below, above


@kernel
def _weight(v: float, only_free: bool) -> float:
    if not only_free:
        return v
    return 1.0 if v == 0.0 else math.inf


@kernel
def _between(duel: Duel, only_free: bool, above: float, lam_i: Array, lam_k: Array, work: Array) -> int:
    """Go on from just below the root to where the overall means meet; the rival's cell that goes farthest."""
    q, groups = duel.q, duel.q.size
    far_i, far_k = work[:groups], work[groups : 2 * groups]
    place(duel, only_free, above, far_i, far_k)
    gap, reach = 0.0, 0.0
    for g in range(groups):
        gap += q[g] * (lam_i[g] - lam_k[g])
        reach += q[g] * ((far_k[g] - lam_k[g]) + (lam_i[g] - far_i[g])) if q[g] > 0.0 else 0.0
    if reach == math.inf:  # only the cells at a pole move, each by the same
        reach = 0.0
        for g in range(groups):
            at_pole = far_k[g] == math.inf and q[g] > 0.0
            far_i[g], far_k[g] = lam_i[g], lam_k[g] + (1.0 if at_pole else 0.0)
            reach += q[g] if at_pole else 0.0
    part = max(gap, 0.0) / reach if reach > 0.0 else 0.0
    farthest, jump = 0.0, -1
    for g in range(groups):
        if q[g] * (far_k[g] - lam_k[g]) > farthest:
            farthest, jump = q[g] * (far_k[g] - lam_k[g]), g
        lam_i[g] += part * (far_i[g] - lam_i[g])
        lam_k[g] += part * (far_k[g] - lam_k[g])
    return jump
