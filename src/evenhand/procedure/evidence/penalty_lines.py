"""The cells of a policy on the two lines of their penalised scores (used by `penalty`).

In whitened coordinates x, with signs such that x > 0 points towards the null, the cells of a policy have ln
M(x) = 1/2 sum kappa x^2 + psi(b.x) - D (see `gaussian`). A cell's score phi is the lower of two lines, of
slope q and q (1 + penalty), that cross at its floor. For a multiplier eta and a tangent to psi at z of slope
p, each cell is placed where 1/2 kappa x^2 + p b x + eta phi(x) is least (the leader, whose score falls), or
the same with - eta phi(x) (the rival, whose score rises).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.procedure.evidence.gaussian import N0, N1, mills, psi
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State

Array = NDArray[np.float64]

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
