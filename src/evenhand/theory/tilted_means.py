"""Tilted means: how cells move with the multiplier eta of the condition that k beats i.

Minimising sum v d(mu, lam) under one linear condition with weights q has the Lagrangian sum v d(mu, lam) -/+
eta q lam. It separates into cells: a cell of weight v has the tilt s = eta q / v, and its mean moves to where
the derivative of its divergence is s. `RivalComparison` holds one comparison of two policies.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.unit_families import (
    BERNOULLI,
    EXPONENTIAL,
    GAUSSIAN,
    POISSON,
    divergence,
    down,
    edge_low,
    up,
    variance,
)

Array = NDArray[np.float64]


class RivalComparison(NamedTuple):
    """Rival k, inside its bounds, against policy i. Arrays are (L,), v and mu (L, K)."""

    code: int
    q: Array
    i: int
    k: int
    v: Array
    mu: Array
    low: Array  # bounds of the rival's means, inside the domain
    high: Array
    gamma: Array  # 0 where a group has no penalty; the fields that follow are then not read
    floor: Array
    line: Array  # which line of its penalised score policy i may use: PLAIN, STEEP, EITHER
    slope: Array  # written by `place`: the slope of the line in use, 1 or 1 + gamma
    eps: float  # the indifference: by how much the rival's score must exceed policy i's


# larger tilts are replaced by this: squares inside the maps stay finite, and the difference in cost is 0
STRONGEST = 1e100
JUST_BELOW_ONE = 1.0 - 2.0**-53

# the lines of a penalised score: the one above the floor, the one below, the lower of both
PLAIN, STEEP, EITHER = 0.0, 1.0, -1.0


@kernel
def strength(eta: float, q: float, v: float) -> float:
    """Return the tilt s = eta q / v; infinite for a cell of weight 0, and 0 for a share of 0."""
    if q == 0.0 or v == math.inf:
        return 0.0
    return math.inf if v == 0.0 else eta * q / v


@kernel
def lowered(code: int, mu: float, s: float) -> float:
    """Return the mean moved down by the tilt s."""
    if s == math.inf:
        return edge_low(code)
    if code == GAUSSIAN:
        return mu - s
    return down(code, mu, min(s, STRONGEST))


@kernel
def raised(code: int, mu: float, s: float) -> float:
    """Return the mean moved up by the tilt s, before any cap; infinity beyond a pole."""
    if code == GAUSSIAN or s == math.inf:
        return mu + s
    if code == POISSON and mu == 0.0:
        # d(0, lam) = lam: every lam is a minimiser at s = 1 exactly; this is the limit from the left
        return 0.0 if s <= 1.0 else math.inf
    lam = up(code, mu, min(s, STRONGEST))
    if code == BERNOULLI and lam >= 1.0 and mu < 1.0:
        return JUST_BELOW_ONE  # rounding must not give a mean where the divergence is infinite
    return lam


@kernel
def lifted(code: int, mu: float, s: float, low: float, high: float) -> float:
    """Return the smallest minimiser of d(mu, lam) - s lam over low <= lam <= high."""
    if s == math.inf:
        return high
    near = min(max(raised(code, mu, s), low), high)
    # the exponential's divergence flattens beyond 2 mu: the other end may be the minimum
    if code == EXPONENTIAL and divergence(code, mu, high) - s * high < divergence(code, mu, near) - s * near:
        return high
    return near


@kernel
def lowered_with_penalty(
    code: int, mu: float, s: float, extra: float, floor: float, line: float
) -> tuple[float, float]:
    """Return the minimiser of d(mu, lam) + s phi(lam), and phi' there.

    phi(lam) = lam + extra min(lam - floor, 0) is the lower of two lines, so the minimum is the lower of two
    minima; `line` may fix which.
    """
    steep = 1.0 + extra
    if line == PLAIN:
        return lowered(code, mu, s), 1.0
    far = lowered(code, mu, s * steep)
    if line == STEEP or mu <= floor:
        return far, steep
    near = lowered(code, mu, s)
    if near <= floor:
        return far, steep
    if far >= floor:
        return near, 1.0
    if code == GAUSSIAN:
        steeper = s > switching_tilt(mu, extra, floor)
    else:
        by_near = divergence(code, mu, near) + s * near
        steeper = divergence(code, mu, far) + s * (far + extra * (far - floor)) < by_near
    return (far, steep) if steeper else (near, 1.0)


@kernel
def switching_tilt(mu: float, extra: float, floor: float) -> float:
    """Return the tilt beyond which a Gaussian mean above the floor moves to the steep line."""
    return 2.0 * (mu - floor) / (2.0 + extra)


@kernel
def lifted_with_penalty(
    code: int, mu: float, s: float, extra: float, floor: float, low: float, high: float
) -> float:
    """Return the minimiser of d(mu, lam) - s phi(lam) over low <= lam <= high, phi as above."""
    if mu >= floor:
        return lifted(code, mu, s, low, high)
    below = lifted(code, mu, s * (1.0 + extra), low, min(floor, high))
    if high <= floor or (below < floor and code != EXPONENTIAL):
        return below
    above = lifted(code, mu, s, floor, high)
    if code == EXPONENTIAL and s < math.inf:
        by_below = divergence(code, mu, below) - s * (below + extra * (below - floor))
        return above if divergence(code, mu, above) - s * above < by_below else below
    return above


@kernel
def response(code: int, lam: float, s: float) -> float:
    """Return dlam/ds at lam = up(mu, s), or at lam = down(mu, -s) for s < 0: V / (1 - s V')."""
    if code == GAUSSIAN:
        return 1.0
    if code == BERNOULLI:
        steepness = 1.0 - 2.0 * lam
    elif code == POISSON:
        steepness = 1.0
    else:
        steepness = 2.0 * lam
    return variance(code, lam) / (1.0 - s * steepness)


@kernel
def weighted_divergence(code: int, v: float, mu: float, lam: float) -> float:
    """Return v d(mu, lam); 0 for a cell of weight 0, even at the boundary of the domain."""
    if v == 0.0 or lam == mu:
        return 0.0
    return v * divergence(code, mu, lam)


@kernel
def next_trial_point(
    below: float, above: float, eta: float, surplus: float, slope: float, turn: int, typical: float
) -> float:
    """Return the next trial point for the root of an increasing function in [below, above].

    Newton's point if it lies inside; else, and at some iterations against slow convergence, a point in
    between.
    """
    newton = eta - surplus / slope
    creeping = turn > 8 and turn % 3 == 0
    if below < newton < above and not creeping:
        return newton
    if above == math.inf:
        return max(8.0 * eta, typical)
    if below == 0.0:
        return above / 1024.0
    if above > 4.0 * below:
        return below * math.sqrt(above / below)
    return below + 0.5 * (above - below)
