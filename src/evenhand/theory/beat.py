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

The exact root of a Gaussian surplus, which is linear in eta between its breakpoints.

A rival's cell stays at its floor until eta is large enough to raise it, and then rises until it reaches its
cap; with a penalty it rises at the steep rate, stays at its floor, and rises again. Policy i's cell falls,
and with a penalty jumps once to its steep line. The search visits the breakpoints in increasing order until
the line between two of them has its root there, or the surplus jumps across 0. The derivative of the dual Psi
is minus the surplus, so its value is accumulated along the way.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.unit_families import GAUSSIAN
from evenhand.theory.tilted_means import (
    EITHER,
    PLAIN,
    RivalComparison,
    lifted,
    lifted_with_penalty,
    lowered,
    lowered_with_penalty,
    next_trial_point,
    response,
    strength,
    switching_tilt,
    weighted_divergence,
)

Array = NDArray[np.float64]

TURNS = 200  # iterations of the search: ten are usual, bracketing a jump takes about sixty
CLOSE = 1e-13  # allowed difference of the overall means
NOISE = 4e-16  # relative rounding error of an overall mean


@kernel
def least_cost_to_beat(
    comparison: RivalComparison, lam_i: Array, lam_k: Array, work: Array
) -> tuple[float, float, int]:
    """Return the least cost without penalties, a lower bound, and the cell that jumps or -1."""
    q, mu = comparison.q, comparison.mu
    gap, free = comparison.eps, False
    if not can_beat(comparison):
        return math.inf, math.inf, -1
    for g in range(q.size):
        lam_i[g] = mu[g, comparison.i]
        lam_k[g] = min(max(mu[g, comparison.k], comparison.low[g]), comparison.high[g])
        gap += q[g] * (lam_i[g] - lam_k[g])
        free = free or comparison.v[g, comparison.i] == 0.0 or comparison.v[g, comparison.k] == 0.0
    entry = cost(comparison, lam_i, lam_k) if free or gap <= 0.0 else 0.0
    if gap <= 0.0:
        return entry, entry, -1
    only_free, below, above, surplus = free, math.inf, math.inf, 0.0
    if free:
        below, above, surplus = search(comparison, True, lam_i, lam_k)
    if below == math.inf:
        only_free = False
        below, above, surplus = root(comparison, lam_i, lam_k)
    value, jump = cost(comparison, lam_i, lam_k), -1
    lower = entry if only_free else value - below * surplus
    if above > below:
        jump = split_at_jump(comparison, only_free, surplus, above, lam_i, lam_k, work)
        value = cost(comparison, lam_i, lam_k)
    return value, max(min(lower, value), 0.0), jump


@kernel
def can_beat(comparison: RivalComparison) -> bool:
    """Return whether the rival at its upper bounds exceeds the lowest score of policy i by eps."""
    if comparison.eps == 0.0 or comparison.code == GAUSSIAN:
        return True
    most = 0.0
    for g in range(comparison.q.size):
        if comparison.q[g] > 0.0:
            # all other families have 0 as their lower edge; a penalty lowers policy i's score further
            most += comparison.q[g] * (
                comparison.high[g]
                + comparison.gamma[g] * (comparison.floor[g] if comparison.gamma[g] > 0.0 else 0.0)
            )
    return most > comparison.eps


@kernel
def root(comparison: RivalComparison, lam_i: Array, lam_k: Array) -> tuple[float, float, float]:
    """Return the multipliers around the root of the surplus, and the surplus at the lower one.

    Both policies are placed at the lower multiplier.
    """
    if comparison.code != GAUSSIAN:
        return search(comparison, False, lam_i, lam_k)
    below, above, _ = gaussian_root(comparison)
    surplus, _ = place(comparison, False, below, lam_i, lam_k)
    return below, above, surplus


@kernel
def place(
    comparison: RivalComparison, only_free: bool, eta: float, lam_i: Array, lam_k: Array
) -> tuple[float, float]:
    """Move both policies to their means at eta; return the surplus and its slope in eta.

    With `only_free` cells of weight 0 move as if their weight were 1, and all others stay.
    """
    code, i, k = comparison.code, comparison.i, comparison.k
    surplus, slope = 0.0 - comparison.eps, 0.0
    for g in range(comparison.q.size):
        q, mu, low, high, gamma = (
            comparison.q[g],
            comparison.mu[g, k],
            comparison.low[g],
            comparison.high[g],
            comparison.gamma[g],
        )
        weight_i, weight_k = _weight(comparison.v[g, i], only_free), _weight(comparison.v[g, k], only_free)
        s_i, s_k = strength(eta, q, weight_i), strength(eta, q, weight_k)
        if gamma == 0.0:
            lam_i[g], lam_k[g] = lowered(code, comparison.mu[g, i], s_i), lifted(code, mu, s_k, low, high)
            score_i, score_k, steep_i, steep_k = lam_i[g], lam_k[g], 1.0, 1.0
            held = lam_k[g] <= low or lam_k[g] >= high
        else:
            floor = comparison.floor[g]
            lam_i[g], steep_i = lowered_with_penalty(
                code, comparison.mu[g, i], s_i, gamma, floor, comparison.line[g]
            )
            lam_k[g] = lifted_with_penalty(code, mu, s_k, gamma, floor, low, high)
            score_i = steep_i * lam_i[g] - (steep_i - 1.0) * floor
            score_k = lam_k[g] + gamma * min(lam_k[g] - floor, 0.0)
            steep_k = 1.0 + gamma if lam_k[g] < floor else 1.0
            held = lam_k[g] <= low or lam_k[g] >= high or lam_k[g] == floor
            comparison.slope[g] = steep_i
        if q == 0.0:
            continue
        surplus += q * (score_k - score_i)
        if s_i < math.inf:
            slope += q * q / weight_i * steep_i * steep_i * response(code, lam_i[g], -s_i * steep_i)
        if s_k < math.inf and not held:
            slope += q * q / weight_k * steep_k * steep_k * response(code, lam_k[g], s_k * steep_k)
    return surplus, slope


@kernel
def search(
    comparison: RivalComparison, only_free: bool, lam_i: Array, lam_k: Array
) -> tuple[float, float, float]:
    """eq:bernoulli_opt_subproblem: bracket the root of the surplus by Newton's method.

    Returns the multipliers on either side of the root, which are equal where the surplus does not jump, and
    the surplus at the lower one, where both policies are placed. For every family but the Gaussian. With
    `only_free` the cells of weight 0 may not suffice: the multipliers are then infinite.
    """
    size, share, weight = 0.0, 0.0, 0.0
    for g in range(comparison.q.size):
        size += (
            comparison.q[g]
            * (1.0 + comparison.gamma[g])
            * (abs(comparison.mu[g, comparison.i]) + abs(comparison.mu[g, comparison.k]))
        )
        share = max(share, comparison.q[g])
        weight = max(weight, comparison.v[g, comparison.i], comparison.v[g, comparison.k])
    # where no cell moves at a small eta, boundary means start to move at s = eta q / v of about 1
    typical = 1.0 if only_free else weight / share
    below, above, tolerance, last = 0.0, math.inf, -1.0, False
    eta = math.inf if only_free else 0.0  # first check the end that may settle the search
    for turn in range(TURNS):
        surplus, slope = place(comparison, only_free, eta, lam_i, lam_k)
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
        eta = next_trial_point(below, above, eta, surplus, slope, turn, typical)
        if not below < eta < above or turn == TURNS - 2:
            eta, last = below, True
    return eta, above if last else eta, surplus


@kernel
def split_at_jump(
    comparison: RivalComparison,
    only_free: bool,
    surplus: float,
    above: float,
    lam_i: Array,
    lam_k: Array,
    work: Array,
) -> int:
    """Move from just below the root to equal scores; return the rival's cell that moves most."""
    groups = comparison.q.size
    far_i, far_k = work[:groups], work[groups : 2 * groups]
    reach = place(comparison, only_free, above, far_i, far_k)[0] - surplus
    if reach == math.inf:  # only the cells at a pole move, each by the same amount
        reach = 0.0
        for g in range(groups):
            at_pole = far_k[g] == math.inf and comparison.q[g] > 0.0
            far_i[g], far_k[g] = lam_i[g], lam_k[g] + (1.0 if at_pole else 0.0)
            reach += comparison.q[g] if at_pole else 0.0
    # the rival's score is concave in its means, so it rises at least in proportion
    part = max(-surplus, 0.0) / reach if reach > 0.0 else 0.0
    farthest, jump = 0.0, -1
    for g in range(groups):
        if comparison.q[g] * (far_k[g] - lam_k[g]) > farthest:
            farthest, jump = comparison.q[g] * (far_k[g] - lam_k[g]), g
        # policy i's score, which must fall, is concave too: below its floor the mean moves to the end
        falls = comparison.gamma[g] > 0.0 and far_i[g] < comparison.floor[g] < lam_i[g]
        lam_i[g] += (1.0 if falls else part) * (far_i[g] - lam_i[g])
        lam_k[g] += part * (far_k[g] - lam_k[g])
    return jump


@kernel
def cost(comparison: RivalComparison, lam_i: Array, lam_k: Array) -> float:
    """Return sum v d(mu, lam) over the cells of both policies."""
    total = 0.0
    for g in range(lam_i.size):
        total += weighted_divergence(
            comparison.code, comparison.v[g, comparison.i], comparison.mu[g, comparison.i], lam_i[g]
        )
        total += weighted_divergence(
            comparison.code, comparison.v[g, comparison.k], comparison.mu[g, comparison.k], lam_k[g]
        )
    return total


@kernel
def _weight(v: float, only_free: bool) -> float:
    if not only_free:
        return v
    return 1.0 if v == 0.0 else math.inf


JUMP_WIDTH = 4e-16  # relative distance to either side of a jump


@kernel
def gaussian_root(comparison: RivalComparison) -> tuple[float, float, float]:
    """eq:gaussian_internal_opt: return the multipliers on either side of the surplus's root.

    They are equal where the surplus does not jump. Also returns Psi there less its value at 0 (the cost of
    entering the bounds): a lower bound on the cost of beating policy i.
    """
    eta, psi = 0.0, 0.0
    for _ in range(3 * comparison.q.size + 1):
        level, slope, upcoming = 0.0 - comparison.eps, 0.0, math.inf
        for g in range(comparison.q.size):
            q, gamma = comparison.q[g], comparison.gamma[g]
            if q == 0.0:
                continue
            mu, pace = comparison.mu[g, comparison.i], q / comparison.v[g, comparison.i]
            if gamma == 0.0:
                score, growth, change = mu, pace, math.inf
            else:
                score, growth, change = _falling(
                    eta, mu, pace, gamma, comparison.floor[g], comparison.line[g]
                )
            level, slope, upcoming = level - q * score, slope + q * growth, min(upcoming, change)
            mu, pace = comparison.mu[g, comparison.k], q / comparison.v[g, comparison.k]
            if gamma == 0.0:
                score, growth, change = _bounded(eta, mu, pace, comparison.low[g], comparison.high[g])
            else:
                score, growth, change = _rising(eta, mu, pace, gamma, comparison.floor[g])
            level, slope, upcoming = level + q * score, slope + q * growth, min(upcoming, change)
        root = -level / slope
        if root < eta:
            return eta * (1.0 - JUMP_WIDTH), eta * (1.0 + JUMP_WIDTH), psi
        last, eta = eta, min(root, upcoming)
        psi -= (eta - last) * (level + 0.5 * slope * (eta + last))
        if eta == root:
            break
    return eta, eta, psi


@kernel
def _falling(
    eta: float, mu: float, pace: float, gamma: float, floor: float, line: float
) -> tuple[float, float, float]:
    """Return score, growth and end of policy i's penalised cell: score - growth eta up to end."""
    jump = switching_tilt(mu, gamma, floor) / pace if line == EITHER else math.inf
    if line == PLAIN or (line == EITHER and eta < jump):
        return mu, pace, jump
    steep = 1.0 + gamma
    return mu + gamma * (mu - floor), steep * steep * pace, math.inf


@kernel
def _rising(eta: float, mu: float, pace: float, gamma: float, floor: float) -> tuple[float, float, float]:
    """Return score, growth and end of a rival's penalised cell: score + growth eta up to end."""
    steep = 1.0 + gamma
    departs = (floor - mu) / pace
    if eta >= departs:
        return mu, pace, math.inf
    if eta >= departs / steep:
        return floor, 0.0, departs
    return mu + gamma * (mu - floor), steep * steep * pace, departs / steep


@kernel
def _bounded(eta: float, mu: float, pace: float, low: float, high: float) -> tuple[float, float, float]:
    """Return score, growth and end of a rival's bounded cell: score + growth eta up to end."""
    departs, arrives = (low - mu) / pace, (high - mu) / pace
    if eta < departs:
        return low, 0.0, departs
    if eta < arrives:
        return mu, pace, arrives
    return high, 0.0, math.inf
