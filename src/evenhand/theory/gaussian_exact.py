"""The Gaussian's root without iteration: its surplus is linear between the pulls where a cell changes.

A rival's cell rests at its floor and departs when the pull carries it beyond, until it arrives at its cap;
with a penalty it climbs steeply, rests at its floor, and departs. Policy i's cell falls, and with a penalty
jumps to its steep line once. So walk from one such pull to the next, until the line in between has its root
there, or a jump passes 0. The dual Psi falls at the rate of the surplus, so its value adds up on the way.
"""

from __future__ import annotations

import math

from evenhand.compile import kernel
from evenhand.theory.tilted_means import EITHER, PLAIN, Duel, switch

BESIDE = 4e-16  # relative distance to either side of a jump


@kernel
def walk(duel: Duel) -> tuple[float, float, float]:
    """eq:gaussian_internal_opt: the pulls just below and above the root of a Gaussian duel's surplus.

    Equal where it does not jump. Also Psi there less its value at 0 (what entering bounds costs), which no
    meeting costs less than.
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
    """Policy i's penalised cell: it scores score - growth eta, until the pull where it jumps."""
    jump = switch(mu, gamma, floor) / pace if line == EITHER else math.inf
    if line == PLAIN or (line == EITHER and eta < jump):
        return mu, pace, jump
    steep = 1.0 + gamma
    return mu + gamma * (mu - floor), steep * steep * pace, math.inf


@kernel
def _rising(eta: float, mu: float, pace: float, gamma: float, floor: float) -> tuple[float, float, float]:
    """The rival's penalised cell: it scores score + growth eta, until it arrives at its floor or departs."""
    steep = 1.0 + gamma
    departs = (floor - mu) / pace
    if eta >= departs:
        return mu, pace, math.inf
    if eta >= departs / steep:
        return floor, 0.0, departs
    return mu + gamma * (mu - floor), steep * steep * pace, departs / steep


@kernel
def _held(eta: float, mu: float, pace: float, low: float, high: float) -> tuple[float, float, float]:
    """The rival's cell between bounds: it scores score + growth eta, until it departs or arrives."""
    departs, arrives = (low - mu) / pace, (high - mu) / pace
    if eta < departs:
        return low, 0.0, departs
    if eta < arrives:
        return mu, pace, arrives
    return high, 0.0, math.inf
