"""Evidence from Gaussian outcomes of known sd that penalised scores of two policies differ.

In whitened coordinates x, with signs such that x > 0 points towards the null, the cells of a policy have ln
M(x) = 1/2 sum kappa x^2 + psi(b.x) - D (see `gaussian`). A cell's score phi is the lower of two lines, of
slope q and q (1 + penalty), that cross at its floor. For a multiplier eta and a tangent to psi at z of slope
p, each cell is placed where 1/2 kappa x^2 + p b x + eta phi(x) is least (the leader, whose score falls), or
the same with - eta phi(x) (the rival, whose score rises). The null is sum phi(rival) >= sum
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
from evenhand.procedure.evidence.gaussian import N0, N1, mills, psi
from evenhand.procedure.log_space import NOT_COMPUTED, NOTHING
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State

Array = NDArray[np.float64]

STRIDE = 3.0  # largest factor by which eta grows in one step
JOINT_ROUNDS = 10  # rounds of Newton's method for eta and both z: four are usual
ROUNDS = 60  # for eta, and for each z, where that fails
CLOSE = 1e-6  # convergence: what another round would add to the evidence
MAX_LINE_CHOICES = 64  # choices of lines that are maximised separately; with more, the bound is less tight
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
    leader = cells_of(spec, state, i, -1.0, work[: 6 * groups])
    rival = cells_of(spec, state, k, 1.0, work[6 * groups : 12 * groups])
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
        value, jump = _peak(spec, leader, rival, choice[:3], least, looks == MAX_LINE_CHOICES)
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
def _bound_at(spec: Spec, leader: PolicyCells, rival: PolicyCells, at: Array) -> float:
    """Return the bound at eta and both z, over all lines at once."""
    found = bound(leader, positions_of(spec, leader, at[0], at[1]))
    return found + bound(rival, positions_of(spec, rival, at[0], at[2])) + at[0] * spec.indifference


@kernel
def _start(spec: Spec, leader: PolicyCells, rival: PolicyCells) -> tuple[float, float, float]:
    """Return eta and both z for cells fixed on the lines of their means and psi = z^2 / 2."""
    score_i, alpha_i, beta_i, gamma_i = at_the_means(spec, leader)
    score_k, alpha_k, beta_k, gamma_k = at_the_means(spec, rival)
    c_i, c_k = gamma_i / (1.0 + beta_i), gamma_k / (1.0 + beta_k)
    eta = max(score_i - score_k + spec.indifference, 0.0) / (
        alpha_i - gamma_i * c_i + alpha_k - gamma_k * c_k
    )
    return eta, eta * c_i, eta * c_k


@kernel
def _peak(
    spec: Spec, leader: PolicyCells, rival: PolicyCells, start: Array, enough: float, at_once: bool
) -> tuple[float, int]:
    """Return the highest bound on the allowed lines, and a cell that alternates, or -1.

    Newton's method for eta and both z together, from `start`, which is updated. Ends early at `enough`. A
    cell that alternates between its lines is better maximised on each line separately, unless all lines are
    wanted at once.
    """
    eta, z_i, z_k = start
    leader.slope[:], rival.slope[:] = -1.0, -1.0  # the positions of an earlier search do not apply
    one, two = positions_of(spec, leader, eta, z_i), positions_of(spec, rival, eta, z_k)
    best = NOTHING
    for _ in range(JOINT_ROUNDS):
        best = max(best, bound(leader, one) + bound(rival, two) + eta * spec.indifference)
        gap = one.score - two.score + spec.indifference + gap_change(one) + gap_change(two)
        step = max(gap / (rate(one) + rate(two)), -eta)
        gain = (
            gap * step
            + (one.along - z_i) * newton_step_of_z(one, 0.0)
            + (two.along - z_k) * newton_step_of_z(two, 0.0)
        )
        if gain < CLOSE or best > enough:
            return best, -1
        far = step > STRIDE * eta > 0.0  # cells of the rival that are fixed at the floor will soon leave it
        step = STRIDE * eta if far else step
        turned = 0.5 if two.jump >= 0 else 1.0  # cells of the rival reached or left the floor: overshot
        z_i, z_k, eta = (
            z_i + newton_step_of_z(one, step),
            z_k + turned * newton_step_of_z(two, step),
            eta + step,
        )
        start[0], start[1], start[2] = eta, z_i, z_k
        one, two = positions_of(spec, leader, eta, z_i), positions_of(spec, rival, eta, z_k)
        if one.jump >= 0 and not at_once and not far:
            return best, one.jump
    return max(best, _one_by_one(spec, leader, rival, eta)), -1


@kernel
def _one_by_one(spec: Spec, leader: PolicyCells, rival: PolicyCells, eta: float) -> float:
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
def _settled(spec: Spec, side: PolicyCells, eta: float, z: float) -> Positions:
    """Return the stationary point at this eta with z = b.x: the best tangent."""
    low, high, above, below = -math.inf, math.inf, math.inf, math.inf
    now = positions_of(spec, side, eta, z)
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
        now = positions_of(spec, side, eta, z)
    return now


PLAIN, STEEP, EITHER = 0.0, 1.0, 2.0  # the lines on which a cell of the leader may be


class PolicyCells(NamedTuple):
    """The cells of one policy.

    Towards the null the leader's scores fall (turn -1), the rival's rise (turn 1).
    """

    turn: float
    mean: Array
    sd: Array
    kappa: Array
    b: Array
    line: Array  # PLAIN, STEEP or EITHER
    slope: Array  # of the line of the last placement, 0 where it was fixed at the floor, -1 before
    penalty: float  # D


class Positions(NamedTuple):
    """The positions of a policy's cells for given eta and p, summarised."""

    least: float  # the sum of the minima
    score: float  # sum phi(x)
    along: float  # b.x
    alpha: float  # derivative of the score in eta,
    beta: float  # of b.x in -p,
    gamma: float  # and the cross derivative
    z: float
    p: float
    jump: int  # a cell that changed its line, or -1


@kernel
def cells_of(spec: Spec, state: State, k: int, turn: float, table: Array) -> PolicyCells:
    """Return a policy's cells in the coordinates of the mixture."""
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
    return PolicyCells(
        turn, mean, sd, kappa, b, line, slope, 0.5 * (logs + math.log(growth * (1.0 + total / N0)))
    )


@kernel
def at_the_means(spec: Spec, side: PolicyCells) -> tuple[float, float, float, float]:
    """Return score, alpha, beta and gamma with all cells on the lines of their means."""
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
def positions_of(spec: Spec, side: PolicyCells, eta: float, z: float) -> Positions:
    """Place every cell at its minimum and return the summary."""
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
    return Positions(least, score, along, alpha, beta, gamma, z, p, jump)


@kernel
def _place(spec: Spec, side: PolicyCells, g: int, eta: float, p: float) -> tuple[float, float, float]:
    """Return the minimiser of a cell, the slope of its line (0 at the floor), and its score."""
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
        # the smaller of the two minima: on its own line each is eta score(0) - kappa x^2 / 2
        lower = eta * (steep - plain) * floor - 0.5 * side.kappa[g] * (x_steep * x_steep - x_plain * x_plain)
        on_plain = lower >= 0.0
    else:
        on_plain = side.line[g] == PLAIN
    x, slope = (x_plain, plain) if on_plain else (x_steep, steep)
    return x, slope, at_floor + side.turn * slope * (x - floor)


@kernel
def bound(side: PolicyCells, positions: Positions) -> float:
    """Return this policy's part of the lower bound."""
    return psi(positions.z) - positions.p * positions.z - side.penalty + positions.least


@kernel
def curvature(positions: Positions) -> float:
    """Return psi''(z)."""
    return 1.0 - (positions.p - positions.z) * positions.p


@kernel
def rate(positions: Positions) -> float:
    """Return the derivative in eta of the gap between the scores, with z adjusted."""
    c = curvature(positions)
    return positions.alpha - positions.gamma * positions.gamma * c / (1.0 + positions.beta * c)


@kernel
def gap_change(positions: Positions) -> float:
    """Return the change of the gap between the scores while z moves to b.x."""
    c = curvature(positions)
    return positions.gamma * c * (positions.along - positions.z) / (1.0 + positions.beta * c)


@kernel
def newton_step_of_z(positions: Positions, step: float) -> float:
    """Return Newton's step for z, given the step of eta."""
    return (positions.along - positions.z + positions.gamma * step) / (
        1.0 + positions.beta * curvature(positions)
    )
