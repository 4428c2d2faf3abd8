"""Pairs of cells, of a policy and of the control in one group, under relative bounds.

    minimise  a d(mu_k, y) - s y + b d(mu_0, z) + h z
    over      low <= y <= high,  r z - m <= y <= r' z + m',  z in the domain

with the weights a, b > 0 and the tilts s = eta q, h = eta q where the control is the policy to beat, else 0.
Without the relative bounds y = y_free, clipped up(mu_k, s / a), and z = z_free = down(mu_0, h / b). Where
these violate the floor, y = r z - m is tied to z, and z is the root of

    H(z) = r a d'(mu_k, r z - m) + b d'(mu_0, z) + h - r s            increasing

between the z at which the floor is y_free and z_free; likewise with the cap. Gaussian: H is linear; Poisson:
a quadratic equation; Bernoulli: Newton's steps inside the bracket. A floor and a cap of different ratios may
cross at z*; beyond it no y is allowed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.unit_families import GAUSSIAN, POISSON, curvature, edge_high, edge_low, slope
from evenhand.theory.regions.single_cell import tilted_cost, tilted_minimiser
from evenhand.theory.tilted_means import JUST_BELOW_ONE, lifted, lowered, response

Array = NDArray[np.float64]

TURNS = 80  # Newton's steps for z: six are usual
SETTLED = 4e-16  # relative step at which they end
ROUNDING = 1e-12  # relative error of multipliers that cancel


class PairProblem(NamedTuple):
    """Rival k against policy i with the control's cells. Arrays are (L,); weights are positive."""

    code: int
    q: Array
    eps: float
    against_control: bool  # policy i is the control
    v_i: Array
    v_k: Array
    v_0: Array
    mu_i: Array
    mu_k: Array
    mu_0: Array
    low: Array  # absolute bounds of y, inside the domain
    high: Array
    q_0: Array  # the control's factor of eta: q where it is policy i, else 0
    floor_ratio: Array
    floor_margin: Array
    cap_ratio: Array
    cap_margin: Array


@kernel
def is_nonempty(c: PairProblem) -> bool:
    """Return whether every group has an allowed pair of means."""
    for g in range(c.low.size):
        first, last = _ends(c, g)
        if first > last or c.low[g] > c.high[g]:
            return False
    return True


@kernel
def solve_pair(
    c: PairProblem, g: int, eta: float, guess: float
) -> tuple[float, float, float, float, float, float]:
    """Return y and z at eta, their slopes, and the multipliers of the relative floor and cap."""
    a, b, mu_k, mu_0 = c.v_k[g], c.v_0[g], c.mu_k[g], c.mu_0[g]
    s, h = eta * c.q[g], eta * c.q_0[g]
    y, z = lifted(c.code, mu_k, s / a, c.low[g], c.high[g]), lowered(c.code, mu_0, h / b)
    floor_ratio, floor_margin, cap_ratio, cap_margin = (
        c.floor_ratio[g], c.floor_margin[g], c.cap_ratio[g], c.cap_margin[g],
    )  # fmt: skip
    if floor_ratio * z - floor_margin <= y <= cap_ratio * z + cap_margin:
        held = y <= c.low[g] or y >= c.high[g]
        rise = 0.0 if held else c.q[g] / a * response(c.code, y, s / a)
        return y, z, rise, -c.q_0[g] / b * response(c.code, z, -h / b), 0.0, 0.0
    first, last = _ends(c, g)
    # the z below which the cap is active, and above which the floor is active
    capped, floored = (y - cap_margin) / cap_ratio, (y + floor_margin) / floor_ratio
    if capped > floored:  # the bounds cross before y is allowed
        by_floor = floor_ratio < cap_ratio
    else:
        by_floor = y < floor_ratio * z - floor_margin
        if by_floor:
            first, last = max(first, floored), min(last, max(z, first))
        else:
            first, last = max(first, min(z, last)), min(last, capped)
    ratio, offset = (floor_ratio, -floor_margin) if by_floor else (cap_ratio, cap_margin)
    last = max(first, last)
    # s and h combined, because they may be far larger than their difference
    pull = eta * (c.q_0[g] - ratio * c.q[g])
    z = _tied(c.code, a, b, mu_k, mu_0, pull, ratio, offset, first, last, guess)
    y = min(max(ratio * z + offset, c.low[g]), c.high[g])
    rise, drift = 0.0, 0.0
    if first < z < last:
        stiff = ratio * ratio * a * curvature(c.code, mu_k, y) + b * curvature(c.code, mu_0, z)
        drift = (ratio * c.q[g] - c.q_0[g]) / stiff
        rise = ratio * drift
    floor, cap = _multipliers(c, g, by_floor, s, h, y, z)
    return y, z, rise, drift, floor, cap


@kernel
def _ends(c: PairProblem, g: int) -> tuple[float, float]:
    """Return the smallest and largest z for which some y is allowed."""
    first, last = edge_low(c.code), edge_high(c.code)
    if c.cap_margin[g] < math.inf:
        first = max(first, (c.low[g] - c.cap_margin[g]) / c.cap_ratio[g])
    if c.floor_margin[g] < math.inf:
        last = min(last, (c.high[g] + c.floor_margin[g]) / c.floor_ratio[g])
    room = c.floor_margin[g] + c.cap_margin[g]
    if room < math.inf:
        # r z - m <= r' z + m'
        turn = c.floor_ratio[g] - c.cap_ratio[g]
        if turn > 0.0:
            last = min(last, room / turn)
        elif turn < 0.0:
            first = max(first, room / turn)
        elif room < 0.0:
            return math.inf, -math.inf
    return first, last


@kernel
def _tied(
    code: int, a: float, b: float, mu_k: float, mu_0: float, pull: float, ratio: float, offset: float,
    first: float, last: float, guess: float,
) -> float:  # fmt: skip
    """Return the root z of H between first and last, or the nearer end if it has none.

    With y = ratio z + offset, H(z) = ratio a d'(mu_k, y) + b d'(mu_0, z) + pull with pull = h - ratio s.
    """
    if code == GAUSSIAN:
        z = (b * mu_0 - pull + ratio * a * (mu_k - offset)) / (b + ratio * ratio * a)
        return min(max(z, first), last)
    if code == POISSON:
        return _poisson(a, b, mu_k, mu_0, pull, ratio, offset, first, last)
    if _stationarity(code, a, b, mu_k, mu_0, pull, ratio, offset, first) >= 0.0:
        return first
    if _stationarity(code, a, b, mu_k, mu_0, pull, ratio, offset, last) <= 0.0:
        return last
    left, right = first, last
    z = guess if left < guess < right else 0.5 * (left + right)
    for _ in range(TURNS):
        if not left < z < right:
            break
        y = ratio * z + offset
        force = _stationarity(code, a, b, mu_k, mu_0, pull, ratio, offset, z)
        if force > 0.0:
            right = z
        else:
            left = z
        stiff = ratio * ratio * a * curvature(code, mu_k, y) + b * curvature(code, mu_0, z)
        newton = z - force / stiff
        onward = newton if left < newton < right else 0.5 * (left + right)
        if abs(onward - z) <= SETTLED * abs(z):
            return onward
        z = onward
    return z


@kernel
def _stationarity(
    code: int,
    a: float,
    b: float,
    mu_k: float,
    mu_0: float,
    pull: float,
    ratio: float,
    offset: float,
    z: float,
) -> float:
    """Return H(z)."""
    return ratio * a * slope(code, mu_k, ratio * z + offset) + b * slope(code, mu_0, z) + pull


@kernel
def _poisson(
    a: float, b: float, mu_k: float, mu_0: float, pull: float, ratio: float, offset: float,
    first: float, last: float,
) -> float:  # fmt: skip
    """Return the root of H: the larger of y z H(z) = A ratio z^2 + B z - b mu_0 offset."""
    lead = ratio * a + b + pull
    if lead <= 0.0:
        return last
    middle = lead * offset - ratio * a * mu_k - ratio * b * mu_0
    root = math.sqrt(max(middle * middle + 4.0 * lead * ratio * b * mu_0 * offset, 0.0))
    # the form of the root without cancellation
    larger = root - middle if middle <= 0.0 else 4.0 * lead * ratio * b * mu_0 * offset / (root + middle)
    return min(max(larger / (2.0 * lead * ratio), first), last)


@kernel
def _multipliers(
    c: PairProblem, g: int, by_floor: bool, s: float, h: float, y: float, z: float
) -> tuple[float, float]:
    """Return the multipliers of the relative floor and cap at the solution of a tied pair.

    From the condition on z, b d'(z) + h + r kappa - r' kappa' = 0; where z lies on the boundary of the
    domain, from that on y, a d'(y) - s - kappa + kappa' = 0.
    """
    inside = edge_low(c.code) < z < edge_high(c.code)
    on_z = c.v_0[g] * slope(c.code, c.mu_0[g], z) + h if inside else 0.0
    on_y = c.v_k[g] * slope(c.code, c.mu_k[g], y) - s
    turn = c.floor_ratio[g] - c.cap_ratio[g]
    room = c.floor_margin[g] + c.cap_margin[g]
    if room < math.inf and turn != 0.0 and abs(turn * z - room) <= 1e-12 * (abs(room) + abs(turn * z)):
        # both bounds are active: two equations for two multipliers
        cap = max(-(on_z + c.floor_ratio[g] * on_y) / turn, 0.0)
        return max(on_y + cap, 0.0), cap
    if by_floor:
        return max(-on_z / c.floor_ratio[g] if inside else on_y, 0.0), 0.0
    return 0.0, max(on_z / c.cap_ratio[g] if inside else -on_y, 0.0)


@kernel
def dual_of_pair(c: PairProblem, g: int, a: float, b: float, eta: float, floor: float, cap: float) -> float:
    """Return the pair's part of the Lagrangian's minimum at the true weights a, b >= 0."""
    s, h = eta * c.q[g], eta * c.q_0[g]
    floor, cap = _bounded(c, g, a, b, s, h, floor, cap)
    on_y, on_z = s + floor - cap, c.cap_ratio[g] * cap - c.floor_ratio[g] * floor - h
    # the tilts of a cell of weight 0 cancel exactly; the remainder is rounding
    on_y = 0.0 if a <= 0.0 and abs(on_y) <= ROUNDING * (s + floor + cap) else on_y
    on_z = 0.0 if b <= 0.0 and abs(on_z) <= ROUNDING * (c.cap_ratio[g] * cap + h) else on_z
    total = dual_of_cell(c.code, a, c.mu_k[g], on_y, c.low[g], c.high[g])
    total += dual_of_cell(c.code, b, c.mu_0[g], on_z, edge_low(c.code), edge_high(c.code))
    if floor > 0.0:
        total -= floor * c.floor_margin[g]
    if cap > 0.0:
        total -= cap * c.cap_margin[g]
    return total


@kernel
def _bounded(
    c: PairProblem, g: int, a: float, b: float, s: float, h: float, floor: float, cap: float
) -> tuple[float, float]:
    """Return the multipliers, changed as little as gives the Lagrangian a finite minimum.

    A cell of weight 0 with an unbounded side must have no tilt towards it, and a Poisson mean of 0 (whose
    cost is linear) a tilt below its weight.
    """
    ratio, other = c.floor_ratio[g], c.cap_ratio[g]
    up = b * JUST_BELOW_ONE if c.code == POISSON and c.mu_0[g] == 0.0 else 0.0
    if (b <= 0.0 or up > 0.0) and other * cap - ratio * floor - h > up and edge_high(c.code) == math.inf:
        cap = max((up + ratio * floor + h) / other, 0.0)
    if b <= 0.0 and other * cap - ratio * floor - h < 0.0 and edge_low(c.code) == -math.inf:
        floor = max((other * cap - h) / ratio, 0.0)
    up = a * JUST_BELOW_ONE if c.code == POISSON and c.mu_k[g] == 0.0 else 0.0
    if (a <= 0.0 or up > 0.0) and s + floor - cap > up and c.high[g] == math.inf:
        if cap > 0.0:
            cap = s + floor - up
        else:
            floor = max(up - s, 0.0)
    if a <= 0.0 and s + floor - cap < 0.0 and c.low[g] == -math.inf:
        cap = s + floor
    return floor, cap


@kernel
def dual_of_cell(code: int, v: float, mu: float, s: float, low: float, high: float) -> float:
    """Return the least v d(mu, x) - s x over low <= x <= high."""
    x = tilted_minimiser(code, v, mu, s, low, high)
    if math.isinf(x):
        return -math.inf
    return tilted_cost(code, v, mu, s, x) - (s * mu if s != 0.0 else 0.0)
