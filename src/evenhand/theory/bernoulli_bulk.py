"""The search of `beat` for a block of Bernoulli rivals at a time, without branches.

With the policies innermost the compiler vectorises square roots and divisions. Newton's steps stay inside the
bracket of the root. The few rivals that have not converged after TURNS iterations, or have means on the
boundary of the domain, are left to the search for a single rival.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.unit_families import BERNOULLI, divergence

Array = NDArray[np.float64]

BLOCK = 64  # policies per block: their scratch fits in the first-level cache
TURNS = 12  # iterations; six are usual
CLOSE = 1e-13  # allowed difference of the overall means
NOISE = 8e-16  # rounding error of the difference of two overall means
# blocks of the scratch; after them the means of policy i and of the rivals, a block per group each
ETA, BELOW, ABOVE, SURPLUS, SLOPE, TOLERANCE, MEANS = range(0, 7 * BLOCK, BLOCK)


@kernel
def bernoulli_bounds(
    lo: Array, q: Array, eps: float, i: int, v: Array, mu: Array, start: int, stop: int,
    lower: Array, work: Array,
) -> None:  # fmt: skip
    """eq:bernoulli_opt_subproblem: certified lower bounds for the rivals from start to stop.

    NaN for the rivals that did not converge.
    """
    size, groups = stop - start, q.size
    for k in range(size):
        work[ETA + k], work[BELOW + k], work[ABOVE + k] = 0.0, 0.0, math.inf
    for turn in range(TURNS):
        _lower(q, eps, i, v, mu, size, work)
        _lift(lo, q, v, mu, start, size, work)
        if turn == 0:
            for k in range(size):
                work[TOLERANCE + k] = NOISE + CLOSE * abs(work[SURPLUS + k])
        if _step(size, work) == 0:
            break
    for k in range(size):
        settled = abs(work[SURPLUS + k]) <= work[TOLERANCE + k] or work[ETA + k] == 0.0
        # Psi = cost - eta surplus
        lower[start + k] = -work[ETA + k] * work[SURPLUS + k] if settled else math.nan
    for g in range(groups):
        own, rival = MEANS + g * BLOCK, MEANS + (groups + g) * BLOCK
        for k in range(size):
            lower[start + k] += v[g, i] * divergence(BERNOULLI, mu[g, i], work[own + k])
            moved = divergence(BERNOULLI, mu[g, start + k], work[rival + k])
            lower[start + k] += v[g, start + k] * moved
    for k in range(size):
        if not 0.0 <= lower[start + k] < math.inf:
            lower[start + k] = math.nan


@kernel
def _lower(q: Array, eps: float, i: int, v: Array, mu: Array, size: int, work: Array) -> None:
    """Lower policy i's means, once for every rival; add their part of surplus and slope."""
    for k in range(size):
        work[SURPLUS + k], work[SLOPE + k] = 0.0 - eps, 0.0
    for g in range(q.size):
        pace = q[g] / v[g, i] if q[g] > 0.0 else 0.0
        lower_cell(q[g], pace, mu[g, i], size, work[MEANS + g * BLOCK :], work)


@kernel(inlined=True)
def lower_cell(q: float, pace: float, mu: float, size: int, means: Array, work: Array) -> None:
    """Lower one cell of policy i, once for every rival; add its part of surplus and slope."""
    for k in range(size):
        s = work[ETA + k] * pace
        root = math.sqrt((1.0 - s) * (1.0 - s) + 4.0 * s * (1.0 - mu))
        lam = 2.0 * mu / ((1.0 + s) + root)
        means[k] = lam
        work[SURPLUS + k] -= q * lam
        # dlam/ds = -lam (1 - lam) / root
        work[SLOPE + k] += q * pace * lam * (1.0 - lam) / root


@kernel
def _lift(lo: Array, q: Array, v: Array, mu: Array, start: int, size: int, work: Array) -> None:
    """Raise each rival's means, no lower than its floors; add their part of surplus and slope."""
    for g in range(q.size):
        share, rival = q[g], MEANS + (q.size + g) * BLOCK
        m, weight, floor = (
            mu[g, start : start + size],
            v[g, start : start + size],
            lo[g, start : start + size],
        )
        for k in range(size):
            pace = share / weight[k]
            s = work[ETA + k] * pace
            root = math.sqrt((1.0 - s) * (1.0 - s) + 4.0 * s * m[k])
            # the two forms of `unit_families.up` are equal; each is the one without cancellation on its side
            over = 2.0 * m[k] if s < 1.0 else (s - 1.0) + root
            under = (1.0 - s) + root if s < 1.0 else 2.0 * s
            lam = over / under
            held = lam <= floor[k]
            lam = floor[k] if held else lam
            work[rival + k] = lam
            work[SURPLUS + k] += share * lam
            work[SLOPE + k] += 0.0 if held else share * pace * lam * (1.0 - lam) / root


@kernel
def _step(size: int, work: Array) -> int:
    """Narrow every bracket, take a Newton or interior step; return how many have not converged."""
    moving = 0
    for k in range(size):
        eta, surplus = work[ETA + k], work[SURPLUS + k]
        below, above, onward = next_eta(eta, surplus, work[SLOPE + k], work[BELOW + k], work[ABOVE + k])
        settled = abs(surplus) <= work[TOLERANCE + k] or above == 0.0
        work[BELOW + k], work[ABOVE + k] = below, above
        work[ETA + k] = eta if settled else onward
        moving += not settled
    return moving


@kernel(inlined=True)
def next_eta(
    eta: float, surplus: float, slope: float, least: float, most: float
) -> tuple[float, float, float]:
    """Return the narrowed bracket of the root, and Newton's step, or one inside the bracket."""
    below = eta if surplus < 0.0 else least
    above = eta if surplus >= 0.0 else most
    newton = eta - surplus / slope
    inside = 8.0 * eta + 1.0 if above == math.inf else 0.5 * (below + above)
    return below, above, newton if below < newton < above else inside
