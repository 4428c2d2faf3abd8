"""The one-dimensional dual of `eq:f_mu_opt`: a rival inside bounds beats the best policy.

With multiplier eta >= 0 for q.lam_k >= q.lam_i + eps, and low <= lam_k <= high
cell by cell:

    lam_i(eta) = down(mu_i, eta q / v_i)                   decreases, in proportion to q and to 1 / v
    lam_k(eta) = clip(up(mu_k, eta q / v_k), low, high)    increases, inside its bounds
    surplus(eta) = q.lam_k(eta) - q.lam_i(eta) - eps       increasing; the optimum is at its root
    Psi(eta) = sum v d(mu, lam(eta)) - eta surplus(eta)    a lower bound everywhere, the optimum at the root

Scores may be penalised: q.phi(lam) in place of q.lam, phi(lam) = lam + gamma min(lam - floor, 0). Cells of
weight 0 are free: they move to the end of their range before any other cell moves (`only_free`). For the
Gaussian the surplus is piecewise linear and its root is computed exactly (`gaussian_exact`); for the other
families by Newton's method. The surplus jumps where a cell has an interval of minimisers (a Poisson mean of 0
at eta = v / q) or two separate ones (the exponential; penalties); there the search brackets the jump.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.unit_families import GAUSSIAN
from evenhand.theory.gaussian_exact import walk
from evenhand.theory.tilted_means import (
    Duel,
    lifted,
    lifted_softly,
    lowered,
    lowered_softly,
    next_trial,
    paid,
    response,
    strength,
)

Array = NDArray[np.float64]

TURNS = 200  # iterations of the search: ten are usual, bracketing a jump takes about sixty
CLOSE = 1e-13  # allowed difference of the overall means
NOISE = 4e-16  # relative rounding error of an overall mean


@kernel
def meet(duel: Duel, lam_i: Array, lam_k: Array, work: Array) -> tuple[float, float, int]:
    """Return the least cost without penalties, a lower bound, and the cell that jumps or -1."""
    q, mu = duel.q, duel.mu
    gap, free = duel.eps, False
    if not within_reach(duel):
        return math.inf, math.inf, -1
    for g in range(q.size):
        lam_i[g] = mu[g, duel.i]
        lam_k[g] = min(max(mu[g, duel.k], duel.low[g]), duel.high[g])
        gap += q[g] * (lam_i[g] - lam_k[g])
        free = free or duel.v[g, duel.i] == 0.0 or duel.v[g, duel.k] == 0.0
    entry = cost(duel, lam_i, lam_k) if free or gap <= 0.0 else 0.0
    if gap <= 0.0:
        return entry, entry, -1
    only_free, below, above, surplus = free, math.inf, math.inf, 0.0
    if free:
        below, above, surplus = search(duel, True, lam_i, lam_k)
    if below == math.inf:
        only_free = False
        below, above, surplus = root(duel, lam_i, lam_k)
    value, jump = cost(duel, lam_i, lam_k), -1
    lower = entry if only_free else value - below * surplus
    if above > below:
        jump = between(duel, only_free, surplus, above, lam_i, lam_k, work)
        value = cost(duel, lam_i, lam_k)
    return value, max(min(lower, value), 0.0), jump


@kernel
def within_reach(duel: Duel) -> bool:
    """Return whether the rival at its upper bounds exceeds the lowest score of policy i by eps."""
    if duel.eps == 0.0 or duel.code == GAUSSIAN:
        return True
    most = 0.0
    for g in range(duel.q.size):
        if duel.q[g] > 0.0:
            # all other families have 0 as their lower edge; a penalty lowers policy i's score further
            most += duel.q[g] * (
                duel.high[g] + duel.gamma[g] * (duel.floor[g] if duel.gamma[g] > 0.0 else 0.0)
            )
    return most > duel.eps


@kernel
def root(duel: Duel, lam_i: Array, lam_k: Array) -> tuple[float, float, float]:
    """Return the multipliers around the root of the surplus, and the surplus at the lower one.

    Both policies are placed at the lower multiplier.
    """
    if duel.code != GAUSSIAN:
        return search(duel, False, lam_i, lam_k)
    below, above, _ = walk(duel)
    surplus, _ = place(duel, False, below, lam_i, lam_k)
    return below, above, surplus


@kernel
def place(duel: Duel, only_free: bool, eta: float, lam_i: Array, lam_k: Array) -> tuple[float, float]:
    """Move both policies to their means at eta; return the surplus and its slope in eta.

    With `only_free` cells of weight 0 move as if their weight were 1, and all others stay.
    """
    code, i, k = duel.code, duel.i, duel.k
    surplus, slope = 0.0 - duel.eps, 0.0
    for g in range(duel.q.size):
        q, mu, low, high, gamma = duel.q[g], duel.mu[g, k], duel.low[g], duel.high[g], duel.gamma[g]
        weight_i, weight_k = _weight(duel.v[g, i], only_free), _weight(duel.v[g, k], only_free)
        s_i, s_k = strength(eta, q, weight_i), strength(eta, q, weight_k)
        if gamma == 0.0:
            lam_i[g], lam_k[g] = lowered(code, duel.mu[g, i], s_i), lifted(code, mu, s_k, low, high)
            score_i, score_k, steep_i, steep_k = lam_i[g], lam_k[g], 1.0, 1.0
            held = lam_k[g] <= low or lam_k[g] >= high
        else:
            floor = duel.floor[g]
            lam_i[g], steep_i = lowered_softly(code, duel.mu[g, i], s_i, gamma, floor, duel.line[g])
            lam_k[g] = lifted_softly(code, mu, s_k, gamma, floor, low, high)
            score_i = steep_i * lam_i[g] - (steep_i - 1.0) * floor
            score_k = lam_k[g] + gamma * min(lam_k[g] - floor, 0.0)
            steep_k = 1.0 + gamma if lam_k[g] < floor else 1.0
            held = lam_k[g] <= low or lam_k[g] >= high or lam_k[g] == floor
            duel.slope[g] = steep_i
        if q == 0.0:
            continue
        surplus += q * (score_k - score_i)
        if s_i < math.inf:
            slope += q * q / weight_i * steep_i * steep_i * response(code, lam_i[g], -s_i * steep_i)
        if s_k < math.inf and not held:
            slope += q * q / weight_k * steep_k * steep_k * response(code, lam_k[g], s_k * steep_k)
    return surplus, slope


@kernel
def search(duel: Duel, only_free: bool, lam_i: Array, lam_k: Array) -> tuple[float, float, float]:
    """eq:bernoulli_opt_subproblem: bracket the root of the surplus by Newton's method.

    Returns the multipliers on either side of the root, which are equal where the surplus does not jump, and
    the surplus at the lower one, where both policies are placed. For every family but the Gaussian. With
    `only_free` the cells of weight 0 may not suffice: the multipliers are then infinite.
    """
    size, share, weight = 0.0, 0.0, 0.0
    for g in range(duel.q.size):
        size += duel.q[g] * (1.0 + duel.gamma[g]) * (abs(duel.mu[g, duel.i]) + abs(duel.mu[g, duel.k]))
        share = max(share, duel.q[g])
        weight = max(weight, duel.v[g, duel.i], duel.v[g, duel.k])
    # where no cell moves at a small eta, boundary means start to move at s = eta q / v of about 1
    typical = 1.0 if only_free else weight / share
    below, above, tolerance, last = 0.0, math.inf, -1.0, False
    eta = math.inf if only_free else 0.0  # first check the end that may settle the search
    for turn in range(TURNS):
        surplus, slope = place(duel, only_free, eta, lam_i, lam_k)
        if last or abs(surplus) <= tolerance:
            break
        if (eta == math.inf and surplus < 0.0) or (eta == 0.0 and surplus >= 0.0):
            break
        if surplus < 0.0:
            below = eta
        else:
            above = eta
        if eta == math.inf:
            eta = 0.0
            continue
        if eta == 0.0:
            tolerance = NOISE * size - CLOSE * surplus
        eta = next_trial(below, above, eta, surplus, slope, turn, typical)
        if not below < eta < above or turn == TURNS - 2:
            eta, last = below, True
    return eta, above if last else eta, surplus


@kernel
def between(
    duel: Duel, only_free: bool, surplus: float, above: float, lam_i: Array, lam_k: Array, work: Array
) -> int:
    """Move from just below the root to equal scores; return the rival's cell that moves most."""
    groups = duel.q.size
    far_i, far_k = work[:groups], work[groups : 2 * groups]
    reach = place(duel, only_free, above, far_i, far_k)[0] - surplus
    if reach == math.inf:  # only the cells at a pole move, each by the same amount
        reach = 0.0
        for g in range(groups):
            at_pole = far_k[g] == math.inf and duel.q[g] > 0.0
            far_i[g], far_k[g] = lam_i[g], lam_k[g] + (1.0 if at_pole else 0.0)
            reach += duel.q[g] if at_pole else 0.0
    # the rival's score is concave in its means, so it rises at least in proportion
    part = max(-surplus, 0.0) / reach if reach > 0.0 else 0.0
    farthest, jump = 0.0, -1
    for g in range(groups):
        if duel.q[g] * (far_k[g] - lam_k[g]) > farthest:
            farthest, jump = duel.q[g] * (far_k[g] - lam_k[g]), g
        # policy i's score, which must fall, is concave too: below its floor the mean moves to the end
        falls = duel.gamma[g] > 0.0 and far_i[g] < duel.floor[g] < lam_i[g]
        lam_i[g] += (1.0 if falls else part) * (far_i[g] - lam_i[g])
        lam_k[g] += part * (far_k[g] - lam_k[g])
    return jump


@kernel
def cost(duel: Duel, lam_i: Array, lam_k: Array) -> float:
    """Return sum v d(mu, lam) over the cells of both policies."""
    total = 0.0
    for g in range(lam_i.size):
        total += paid(duel.code, duel.v[g, duel.i], duel.mu[g, duel.i], lam_i[g])
        total += paid(duel.code, duel.v[g, duel.k], duel.mu[g, duel.k], lam_k[g])
    return total


@kernel
def _weight(v: float, only_free: bool) -> float:
    if not only_free:
        return v
    return 1.0 if v == 0.0 else math.inf
