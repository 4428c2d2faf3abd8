"""The exact root of a Gaussian surplus, which is linear in eta between its breakpoints.

A rival's cell stays at its floor until eta is large enough to raise it, and then rises until it reaches its
cap; with a penalty it rises at the steep rate, stays at its floor, and rises again. Policy i's cell falls,
and with a penalty jumps once to its steep line. The search visits the breakpoints in increasing order until
the line between two of them has its root there, or the surplus jumps across 0. The derivative of the dual Psi
is minus the surplus, so its value is accumulated along the way.
"""

from __future__ import annotations

import math

from evenhand.compile import kernel
from evenhand.theory.tilted_means import EITHER, PLAIN, Duel, switch

BESIDE = 4e-16  # relative distance to either side of a jump


@kernel
def walk(duel: Duel) -> tuple[float, float, float]:
    """eq:gaussian_internal_opt: return the multipliers on either side of the surplus's root.

    They are equal where the surplus does not jump. Also returns Psi there less its value at 0 (the cost of
    entering the bounds): a lower bound on the cost of beating policy i.
    """
    eta, psi = 0.0, 0.0
    for _ in range(3 * duel.q.size + 1):
        level, slope, upcoming = 0.0 - duel.eps, 0.0, math.inf
        for g in range(duel.q.size):
            q, gamma = duel.q[g], duel.gamma[g]
            if q == 0.0:
                continue
            mu, pace = duel.mu[g, duel.i], q / duel.v[g, duel.i]
            if gamma == 0.0:
                score, growth, change = mu, pace, math.inf
            else:
                score, growth, change = _falling(eta, mu, pace, gamma, duel.floor[g], duel.line[g])
            level, slope, upcoming = level - q * score, slope + q * growth, min(upcoming, change)
            mu, pace = duel.mu[g, duel.k], q / duel.v[g, duel.k]
            if gamma == 0.0:
                score, growth, change = _held(eta, mu, pace, duel.low[g], duel.high[g])
            else:
                score, growth, change = _rising(eta, mu, pace, gamma, duel.floor[g])
            level, slope, upcoming = level + q * score, slope + q * growth, min(upcoming, change)
        root = -level / slope
        if root < eta:
            return eta * (1.0 - BESIDE), eta * (1.0 + BESIDE), psi
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
    jump = switch(mu, gamma, floor) / pace if line == EITHER else math.inf
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
def _held(eta: float, mu: float, pace: float, low: float, high: float) -> tuple[float, float, float]:
    """Return score, growth and end of a rival's bounded cell: score + growth eta up to end."""
    departs, arrives = (low - mu) / pace, (high - mu) / pace
    if eta < departs:
        return low, 0.0, departs
    if eta < arrives:
        return mu, pace, arrives
    return high, 0.0, math.inf
