"""Evidence from Gaussian outcomes of known sd that penalised scores of two policies differ.

The mixtures are those of `gaussian`, in the notation of `penalty_lines`; the null is sum phi(rival) >= sum
phi(leader) + eps, eps the indifference. By a tangent to psi at z for each policy, with p = psi'(z), and
duality, for any eta >= 0 and any z

    ln E >= eta eps + sum over both of psi(z) - p z - D
            + sum over the leader's cells of the least of  1/2 kappa x^2 + p b x + eta phi(x)
            + sum over the rival's cells of the least of   1/2 kappa x^2 + p b x - eta phi(x).

A minimum over a cell of the leader is the smaller of those on two lines. Where the search alternates between
them, each choice of lines is maximised separately, and the smallest result is the bound. On given lines the
right side is concave in eta and both p. Given eta, each z solves z = b.x; at the best eta the two scores are
equal. Every intermediate value is a lower bound.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.procedure.evidence.penalty_lines import (
    EITHER,
    PLAIN,
    STEEP,
    Side,
    Stand,
    bound,
    curvature,
    drag,
    rate,
    side_of,
    slide,
    stand_of,
    unmoved,
)
from evenhand.procedure.log_space import NOT_COMPUTED, NOTHING
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State

Array = NDArray[np.float64]

STRIDE = 3.0  # largest factor by which eta grows in one step
TOGETHER = 10  # rounds of Newton's method for eta and both z: four are usual
ROUNDS = 60  # for eta, and for each z, where that fails
CLOSE = 1e-6  # convergence: what another round would add to the evidence
LOOKS = 64  # choices of lines that are maximised separately; with more, the bound is less tight
FEW = 6  # groups for which all choices of lines are tried
CLEAR = 1e-2  # more than two bounds of the same evidence from different starts can differ


class Tangent(NamedTuple):
    """A tangent to the bound as a function of eta."""

    at: float
    value: float
    slope: float


@kernel
def ahead(spec: Spec, state: State, i: int, k: int, plenty: float, last: Array, work: Array) -> float:
    """Return a lower bound on the ln e-value against {k scores at least i's score + indifference}.

    Scores include penalties. Above `plenty` the bound need not be tight. `last` holds where the search ended
    (eta and both z): if the bound there is clearly above `plenty`, no search is needed. It is not used as a
    start, so that the evidence does not depend on earlier calls.
    """
    groups = spec.shares.size
    for g in range(groups):
        if spec.shares[g] > 0.0 and (state.n[g, i] == 0.0 or state.n[g, k] == 0.0):
            return NOTHING
    leader = side_of(spec, state, i, -1.0, work[: 6 * groups])
    rival = side_of(spec, state, k, 1.0, work[6 * groups : 12 * groups])
    if groups <= FEW and last[0] > 0.0:
        known = _bound_at(spec, leader, rival, last)
        if known > plenty + CLEAR:
            return known
    waiting, size = work[12 * groups :], 3 + groups
    waiting[0], waiting[1], waiting[2] = _start(spec, leader, rival)
    if math.isnan(waiting[0]):
        return NOT_COMPUTED
    waiting[3:size] = EITHER
    least, weakest, choices, looks = plenty + CLEAR, math.inf, 1, 0
    while choices > 0:
        choices -= 1
        choice = waiting[choices * size : (choices + 1) * size]
        for g in range(groups):
            leader.line[g] = choice[3 + g]
        value, jump = _peak(spec, leader, rival, choice[:3], least, looks == LOOKS)
        if jump < 0:
            if value < weakest:
                weakest, last[0], last[1], last[2] = value, choice[0], choice[1], choice[2]
            least = min(least, value)
            continue
        looks += 1
        other = waiting[(choices + 1) * size : (choices + 2) * size]
        for g in range(size):
            other[g] = choice[g]
        choice[3 + jump], other[3 + jump] = PLAIN, STEEP
        choices += 2
    return weakest


@kernel
def _bound_at(spec: Spec, leader: Side, rival: Side, at: Array) -> float:
    """Return the bound at eta and both z, over all lines at once."""
    found = bound(leader, stand_of(spec, leader, at[0], at[1]))
    return found + bound(rival, stand_of(spec, rival, at[0], at[2])) + at[0] * spec.indifference


@kernel
def _start(spec: Spec, leader: Side, rival: Side) -> tuple[float, float, float]:
    """Return eta and both z for cells fixed on the lines of their means and psi = z^2 / 2."""
    score_i, alpha_i, beta_i, gamma_i = unmoved(spec, leader)
    score_k, alpha_k, beta_k, gamma_k = unmoved(spec, rival)
    c_i, c_k = gamma_i / (1.0 + beta_i), gamma_k / (1.0 + beta_k)
    eta = max(score_i - score_k + spec.indifference, 0.0) / (
        alpha_i - gamma_i * c_i + alpha_k - gamma_k * c_k
    )
    return eta, eta * c_i, eta * c_k


@kernel
def _peak(
    spec: Spec, leader: Side, rival: Side, start: Array, enough: float, at_once: bool
) -> tuple[float, int]:
    """Return the highest bound on the allowed lines, and a cell that alternates, or -1.

    Newton's method for eta and both z together, from `start`, which is updated. Ends early at `enough`. A
    cell that alternates between its lines is better maximised on each line separately, unless all lines are
    wanted at once.
    """
    eta, z_i, z_k = start
    leader.slope[:], rival.slope[:] = -1.0, -1.0  # the positions of an earlier search do not apply
    one, two = stand_of(spec, leader, eta, z_i), stand_of(spec, rival, eta, z_k)
    best = NOTHING
    for _ in range(TOGETHER):
        best = max(best, bound(leader, one) + bound(rival, two) + eta * spec.indifference)
        gap = one.score - two.score + spec.indifference + drag(one) + drag(two)
        step = max(gap / (rate(one) + rate(two)), -eta)
        gain = gap * step + (one.along - z_i) * slide(one, 0.0) + (two.along - z_k) * slide(two, 0.0)
        if gain < CLOSE or best > enough:
            return best, -1
        far = step > STRIDE * eta > 0.0  # cells of the rival that are fixed at the floor will soon leave it
        step = STRIDE * eta if far else step
        turned = 0.5 if two.jump >= 0 else 1.0  # cells of the rival reached or left the floor: overshot
        z_i, z_k, eta = z_i + slide(one, step), z_k + turned * slide(two, step), eta + step
        start[0], start[1], start[2] = eta, z_i, z_k
        one, two = stand_of(spec, leader, eta, z_i), stand_of(spec, rival, eta, z_k)
        if one.jump >= 0 and not at_once and not far:
            return best, one.jump
    return max(best, _one_by_one(spec, leader, rival, eta)), -1


@kernel
def _one_by_one(spec: Spec, leader: Side, rival: Side, eta: float) -> float:
    """Return the maximum where lines alternate: z for each eta, eta by intersecting tangents."""
    best, z_i, z_k = NOTHING, 0.0, 0.0
    low, high = Tangent(0.0, math.inf, 0.0), Tangent(math.inf, math.inf, 0.0)
    for _ in range(ROUNDS):
        one, two = _settled(spec, leader, eta, z_i), _settled(spec, rival, eta, z_k)
        z_i, z_k = one.z, two.z
        value = bound(leader, one) + bound(rival, two) + eta * spec.indifference
        now = Tangent(eta, value, one.score - two.score + spec.indifference)
        best = max(best, now.value)
        low, high = (now, high) if now.slope > 0.0 else (low, now)
        step = now.slope / (rate(one) + rate(two))
        crossing, most = _crossing(low, high)
        if abs(now.slope * step) < CLOSE or most - best < CLOSE:
            break
        eta += step
        if not low.at < eta < high.at:
            eta = crossing
    return best


@kernel
def _crossing(low: Tangent, high: Tangent) -> tuple[float, float]:
    """Return where two tangents of a concave function cross, and the value there.

    The value is an upper bound on the maximum.
    """
    if low.value == math.inf or high.value == math.inf:  # only one is known
        return (2.0 * low.at if high.at == math.inf else 0.5 * high.at), math.inf
    across = high.at - low.at
    at = (high.value - low.value - high.slope * across) / (low.slope - high.slope)
    return low.at + at, low.value + low.slope * at


@kernel
def _settled(spec: Spec, side: Side, eta: float, z: float) -> Stand:
    """Return the stationary point at this eta with z = b.x: the best tangent."""
    low, high, above, below = -math.inf, math.inf, math.inf, math.inf
    now = stand_of(spec, side, eta, z)
    for _ in range(ROUNDS):
        short = now.along - z
        if short > 0.0:
            low, above = z, short
        else:
            high, below = z, -short
        step = short / (1.0 + now.beta * curvature(now))
        if abs(short * step) < CLOSE or min(above, below) * (high - low) < CLOSE:
            break
        z += step
        if not low < z < high:
            z = 0.5 * (low + high)
        now = stand_of(spec, side, eta, z)
    return now
