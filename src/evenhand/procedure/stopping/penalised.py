"""Evidence from Gaussian outcomes of known sd that the leader is ahead of a rival by their penalised scores.

The bets are those of `gaussian`: in whitened coordinates x, turned so that x > 0 leads towards the null, the
cells of a policy have ln M(x) = 1/2 sum kappa x^2 + psi(b.x) - D. A cell's score phi is the lower of two
lines, of slope q and q (1 + penalty), that cross at its floor; the null is sum phi(rival) >= sum phi(leader).
By a tangent to psi at z for each policy, with p = psi'(z), and duality, for any eta >= 0 and any z

    ln E >= sum over both of psi(z) - p z - D
            + sum over the leader's cells of the least of  1/2 kappa x^2 + p b x + eta phi(x)
            + sum over the rival's cells of the least of   1/2 kappa x^2 + p b x - eta phi(x).

Both leasts are known: the leader's is the lower of its two lines', the rival's lies on a line or stays at the
floor. The right side is concave in eta and both p. Given eta, each z is where z = b.x; eta is where the two
scores meet. Both are found by Newton's method between bounds; every value on the way is a lower bound.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand._kernel import kernel
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State
from evenhand.procedure.stopping.gaussian import N0, N1, mills, psi
from evenhand.procedure.stopping.logs import NOTHING

Array = NDArray[np.float64]

STRIDE = 3.0  # eta grows by this factor at most
TOGETHER = 10  # rounds of Newton's method for eta and both z: four are usual
ROUNDS = 60  # for eta, and for each z, where that fails
CLOSE = 1e-6  # what another round would add to the evidence
LOOKS = 64  # choices of lines that are settled one by one; beyond, the bound is less close
PLAIN, STEEP, EITHER = 0.0, 1.0, 2.0  # the lines that a cell of the leader may be on


class Side(NamedTuple):
    """One policy's cells. Towards the null the leader's scores fall (turn -1), the rival's rise (turn 1)."""

    turn: float
    mean: Array
    sd: Array
    kappa: Array
    b: Array
    line: Array  # PLAIN, STEEP or EITHER
    slope: Array  # of the line it was placed on last, 0 where it was held at the floor, -1 before
    penalty: float  # D


class Tangent(NamedTuple):
    """To the bound as a function of eta."""

    at: float
    value: float
    slope: float


class Stand(NamedTuple):
    """Where a policy's cells go for given eta and p."""

    least: float  # the sum of the leasts
    score: float  # sum phi(x)
    along: float  # b.x
    alpha: float  # how fast the score changes with eta,
    beta: float  # b.x with -p,
    gamma: float  # and each with the other
    z: float
    p: float
    jump: int  # a cell that was on another line before, or -1


@kernel(apart=True)
def ahead(spec: Spec, state: State, i: int, k: int, plenty: float, work: Array) -> float:
    """ln e-value against {k scores at least what i does}, penalties included. A lower bound.

    More than `plenty` is never needed.
    """
    groups = spec.shares.size
    for g in range(groups):
        if spec.shares[g] > 0.0 and (state.n[g, i] == 0.0 or state.n[g, k] == 0.0):
            return NOTHING
    leader = _side(spec, state, i, -1.0, work[: 6 * groups])
    rival = _side(spec, state, k, 1.0, work[6 * groups : 12 * groups])
    waiting, size = work[12 * groups :], 3 + groups
    waiting[0], waiting[1], waiting[2] = _start(spec, leader, rival)
    waiting[3:size] = EITHER
    least, choices, looks = plenty, 1, 0
    while choices > 0:
        choices -= 1
        choice = waiting[choices * size : (choices + 1) * size]
        for g in range(groups):
            leader.line[g] = choice[3 + g]
        value, jump = _peak(spec, leader, rival, choice[:3], least, looks == LOOKS)
        if jump < 0:
            least = min(least, value)
            continue
        looks += 1
        other = waiting[(choices + 1) * size : (choices + 2) * size]
        for g in range(size):
            other[g] = choice[g]
        choice[3 + jump], other[3 + jump] = PLAIN, STEEP
        choices += 2
    return least


@kernel
def _start(spec: Spec, leader: Side, rival: Side) -> tuple[float, float, float]:
    """eta and both z as if every cell stayed on the line of its mean, and psi were z^2 / 2."""
    score_i, alpha_i, beta_i, gamma_i = _unmoved(spec, leader)
    score_k, alpha_k, beta_k, gamma_k = _unmoved(spec, rival)
    c_i, c_k = gamma_i / (1.0 + beta_i), gamma_k / (1.0 + beta_k)
    eta = max(score_i - score_k, 0.0) / (alpha_i - gamma_i * c_i + alpha_k - gamma_k * c_k)
    return eta, eta * c_i, eta * c_k


@kernel
def _unmoved(spec: Spec, side: Side) -> tuple[float, float, float, float]:
    """Score, alpha, beta and gamma of a policy whose cells are all on the lines of their means."""
    score, alpha, beta, gamma = 0.0, 0.0, 0.0, 0.0
    for g in range(spec.shares.size):
        if spec.shares[g] > 0.0:
            above = side.mean[g] - spec.region.lo[g, 0]
            steep = spec.region.gamma[g] if above < 0.0 else 0.0
            slope = spec.shares[g] * side.sd[g] * (1.0 + steep)
            score += spec.shares[g] * (side.mean[g] + steep * above)
            alpha += slope * slope / side.kappa[g]
            beta += side.b[g] * side.b[g] / side.kappa[g]
            gamma += side.b[g] * slope / side.kappa[g]
    return score, alpha, beta, gamma


@kernel
def _peak(
    spec: Spec, leader: Side, rival: Side, start: Array, enough: float, at_once: bool
) -> tuple[float, int]:
    """The bound's highest value on the lines allowed, or `enough`; and a cell whose line jumps, or -1.

    Newton's method for eta and both z together, from `start`, where it also ends. A cell that goes to and
    fro between its lines is better settled either way, unless all is wanted at once.
    """
    eta, z_i, z_k = start
    one, two = _stand(spec, leader, eta, z_i), _stand(spec, rival, eta, z_k)
    best = NOTHING
    for _ in range(TOGETHER):
        best = max(best, _bound(leader, one) + _bound(rival, two))
        gap = one.score - two.score + _drag(one) + _drag(two)
        step = max(gap / (_rate(one) + _rate(two)), -eta)
        gain = gap * step + (one.along - z_i) * _slide(one, 0.0) + (two.along - z_k) * _slide(two, 0.0)
        if gain < CLOSE or best > enough:
            return best, -1
        far = step > STRIDE * eta > 0.0  # the cells of the rival that stay at the floor will not for long
        step = STRIDE * eta if far else step
        turned = 0.5 if two.jump >= 0 else 1.0  # cells of the rival came to the floor or left it: overshot
        z_i, z_k, eta = z_i + _slide(one, step), z_k + turned * _slide(two, step), eta + step
        start[0], start[1], start[2] = eta, z_i, z_k
        one, two = _stand(spec, leader, eta, z_i), _stand(spec, rival, eta, z_k)
        if one.jump >= 0 and not at_once and not far:
            return best, one.jump
    return max(best, _one_by_one(spec, leader, rival, eta)), -1


@kernel
def _drag(stand: Stand) -> float:
    """How the gap between the scores moves while z goes to b.x."""
    c = _curvature(stand)
    return stand.gamma * c * (stand.along - stand.z) / (1.0 + stand.beta * c)


@kernel
def _slide(stand: Stand, step: float) -> float:
    """Newton's step for z, where eta makes this one."""
    return (stand.along - stand.z + stand.gamma * step) / (1.0 + stand.beta * _curvature(stand))


@kernel
def _one_by_one(spec: Spec, leader: Side, rival: Side, eta: float) -> float:
    """The peak where lines jump to and fro: z for each eta, eta between tangents."""
    best, z_i, z_k = NOTHING, 0.0, 0.0
    low, high = Tangent(0.0, math.inf, 0.0), Tangent(math.inf, math.inf, 0.0)
    for _ in range(ROUNDS):
        one, two = _settled(spec, leader, eta, z_i), _settled(spec, rival, eta, z_k)
        z_i, z_k = one.z, two.z
        now = Tangent(eta, _bound(leader, one) + _bound(rival, two), one.score - two.score)
        best = max(best, now.value)
        low, high = (now, high) if now.slope > 0.0 else (low, now)
        step = now.slope / (_rate(one) + _rate(two))
        crossing, most = _crossing(low, high)
        if abs(now.slope * step) < CLOSE or most - best < CLOSE:
            break
        eta += step
        if not low.at < eta < high.at:
            eta = crossing
    return best


@kernel
def _crossing(low: Tangent, high: Tangent) -> tuple[float, float]:
    """Where two tangents to a concave function cross, on either side of its peak; it is nowhere higher."""
    if low.value == math.inf or high.value == math.inf:  # only one is known
        return (2.0 * low.at if high.at == math.inf else 0.5 * high.at), math.inf
    across = high.at - low.at
    at = (high.value - low.value - high.slope * across) / (low.slope - high.slope)
    return low.at + at, low.value + low.slope * at


@kernel
def _side(spec: Spec, state: State, k: int, turn: float, table: Array) -> Side:
    """A policy's cells as they are bet on."""
    size = spec.shares.size
    mean, sd, kappa = table[:size], table[size : 2 * size], table[2 * size : 3 * size]
    b, line, slope = table[3 * size : 4 * size], table[4 * size : 5 * size], table[5 * size :]
    line[:], slope[:] = EITHER, -1.0
    used, total, logs, growth = 0, 0.0, 0.0, 1.0
    for g in range(size):
        used += spec.shares[g] > 0.0
    square = 1.0 / max(used, 1)  # u^2
    for g in range(size):
        n = state.n[g, k]
        mean[g], b[g] = 0.0, 0.0
        sd[g], kappa[g] = math.sqrt(spec.phi[g, k]), n * n / (n + N1)
        if spec.shares[g] > 0.0:
            mean[g] = state.s[g, k] / n
            b[g] = N1 * n / (n + N1)  # rho
            total += square * b[g]
            growth *= 1.0 + n / N1
            if growth > 1e200:
                logs, growth = logs + math.log(growth), 1.0
    for g in range(size):
        b[g] *= math.sqrt(square / (N0 + total))
    return Side(turn, mean, sd, kappa, b, line, slope, 0.5 * (logs + math.log(growth * (1.0 + total / N0))))


@kernel
def _settled(spec: Spec, side: Side, eta: float, z: float) -> Stand:
    """The stand at this eta with z = b.x: the best tangent."""
    low, high, above, below = -math.inf, math.inf, math.inf, math.inf
    now = _stand(spec, side, eta, z)
    for _ in range(ROUNDS):
        short = now.along - z
        if short > 0.0:
            low, above = z, short
        else:
            high, below = z, -short
        step = short / (1.0 + now.beta * _curvature(now))
        if abs(short * step) < CLOSE or min(above, below) * (high - low) < CLOSE:
            break
        z += step
        if not low < z < high:
            z = 0.5 * (low + high)
        now = _stand(spec, side, eta, z)
    return now


@kernel
def _stand(spec: Spec, side: Side, eta: float, z: float) -> Stand:
    p = z + mills(z)
    least, score, along, alpha, beta, gamma, jump = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1
    for g in range(spec.shares.size):
        if spec.shares[g] == 0.0:
            continue
        x, slope, mine = _place(spec, side, g, eta, p)
        if slope != side.slope[g]:
            jump = g if side.slope[g] >= 0.0 else jump
            side.slope[g] = slope
        score += mine
        along += side.b[g] * x
        least += x * (0.5 * side.kappa[g] * x + p * side.b[g]) - side.turn * eta * mine
        if slope > 0.0:
            alpha += slope * slope / side.kappa[g]
            beta += side.b[g] * side.b[g] / side.kappa[g]
            gamma += side.b[g] * slope / side.kappa[g]
    return Stand(least, score, along, alpha, beta, gamma, z, p, jump)


@kernel
def _place(spec: Spec, side: Side, g: int, eta: float, p: float) -> tuple[float, float, float]:
    """Where a cell's least lies, the slope of its line there (0 if held at the floor), and its score."""
    plain = spec.shares[g] * side.sd[g]
    steep = plain * (1.0 + spec.region.gamma[g])
    floor = side.turn * (spec.region.lo[g, 0] - side.mean[g]) / side.sd[g]  # x at the floor
    at_floor = spec.shares[g] * spec.region.lo[g, 0]
    x_plain = (eta * plain - p * side.b[g]) / side.kappa[g]
    x_steep = (eta * steep - p * side.b[g]) / side.kappa[g]
    if side.turn > 0.0:
        on_plain = x_plain >= floor  # steep up to the floor, plain beyond
        if not on_plain and x_steep > floor:
            return floor, 0.0, at_floor
    elif side.line[g] == EITHER:
        # the lower of the two leasts: on its own line each is eta score(0) - kappa x^2 / 2
        lower = eta * (steep - plain) * floor - 0.5 * side.kappa[g] * (x_steep * x_steep - x_plain * x_plain)
        on_plain = lower >= 0.0
    else:
        on_plain = side.line[g] == PLAIN
    x, slope = (x_plain, plain) if on_plain else (x_steep, steep)
    return x, slope, at_floor + side.turn * slope * (x - floor)


@kernel
def _bound(side: Side, stand: Stand) -> float:
    return psi(stand.z) - stand.p * stand.z - side.penalty + stand.least


@kernel
def _curvature(stand: Stand) -> float:
    """psi''(z)."""
    return 1.0 - (stand.p - stand.z) * stand.p


@kernel
def _rate(stand: Stand) -> float:
    """How fast the two scores close with eta, z going along."""
    c = _curvature(stand)
    return stand.alpha - stand.gamma * stand.gamma * c / (1.0 + stand.beta * c)
