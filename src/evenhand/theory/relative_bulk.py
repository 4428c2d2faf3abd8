"""The search of `regions.relative` for a block of rivals at a time, with floors only.

With the policies innermost and selects instead of branches, the compiler vectorises over rivals. Newton's
steps stay inside the bracket of the root. For a tied pair (k, 0) z has a closed form for the Gaussian
(linear) and the Poisson (quadratic); for the Bernoulli each iteration takes some Newton steps from the last
z. Rivals that have not converged, the control itself, means on the boundary of the domain, cells of weight 0
and caps are left to the search for a single rival.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.region import Region
from evenhand.model.unit_families import BERNOULLI, divergence
from evenhand.theory.relative_blocks import (
    ABOVE,
    BELOW,
    CELLS,
    DONE,
    ETA,
    REMAINS,
    ROWS,
    SLOPE,
    SURPLUS,
    TOLERANCE,
    X,
    Y,
    Z,
    first_guess,
    place_pairs,
    place_policy_i,
)

Array = NDArray[np.float64]

TURNS = 16  # iterations; six are usual
CLOSE = 1e-12  # allowed difference of the overall means
NOISE = 8e-16  # relative rounding error of the difference of two overall means
SETTLED = 1e-9  # allowed error of z: its square enters the bound


@kernel
def is_plain(r: Region, q: Array, v: Array, i: int) -> bool:
    """Return whether there are no caps, and policy i and the control have positive weights."""
    for g in range(q.size):
        if r.cap_margin[g] < math.inf or r.floor_margin[g] == math.inf:
            return False
        if not (v[g, i] > 0.0 and v[g, r.control] > 0.0):
            return False
    return True


@kernel
def beat_block(
    code: int, r: Region, q: Array, eps: float, i: int, start: int, stop: int, v: Array, mu: Array,
    lower: Array, work: Array,
) -> None:  # fmt: skip
    """Write certified lower bounds of the rivals from start to stop; NaN if not converged."""
    size, groups = stop - start, q.size
    for k in range(size):
        work[ETA + k], work[BELOW + k], work[ABOVE + k], work[DONE + k] = 0.0, 0.0, math.inf, 0.0
    if code == BERNOULLI:
        first_guess(r, v, mu, start, size, work)
    for turn in range(TURNS):
        for k in range(size):
            work[SURPLUS + k], work[SLOPE + k], work[REMAINS + k] = 0.0 - eps, 0.0, 0.0
        for g in range(groups):
            if i != r.control:
                place_policy_i(code, q[g], v[g, i], mu[g, i], size, work[CELLS + g * ROWS :], work)
            place_pairs(code, r, q, g, i, v, mu, start, size, work)
        if turn == 0:
            for k in range(size):
                work[TOLERANCE + k] = NOISE + CLOSE * abs(work[SURPLUS + k])
        if _step(size, work) == 0:
            break
    _bounds(code, r, q, i, v, mu, start, size, lower[start:stop], work)


@kernel
def _step(size: int, work: Array) -> int:
    """Narrow every bracket, take a Newton or interior step; return how many have not converged."""
    moving = 0
    for k in range(size):
        eta, surplus = work[ETA + k], work[SURPLUS + k]
        below = eta if surplus < 0.0 else work[BELOW + k]
        above = eta if surplus >= 0.0 else work[ABOVE + k]
        newton = eta - surplus / work[SLOPE + k]
        done = work[DONE + k] > 0.0
        inside = 8.0 * eta + 1.0 if above == math.inf else 0.5 * (below + above)
        onward = newton if below < newton < above else inside
        settled = done or (
            (abs(surplus) <= work[TOLERANCE + k] or above == 0.0) and work[REMAINS + k] <= SETTLED
        )
        work[BELOW + k], work[ABOVE + k] = below, above
        work[ETA + k] = eta if settled else onward
        work[DONE + k] = 1.0 if settled else 0.0
        moving += not settled
    return moving


@kernel
def _bounds(
    code: int,
    r: Region,
    q: Array,
    i: int,
    v: Array,
    mu: Array,
    start: int,
    size: int,
    lower: Array,
    work: Array,
) -> None:
    """Write the Lagrangian's minimum at the last eta: cost - eta surplus, best y for each z."""
    for k in range(size):
        settled = work[DONE + k] > 0.0 and start + k != r.control
        lower[k] = -work[ETA + k] * work[SURPLUS + k] if settled else math.nan
    for g in range(q.size):
        cells, b, m_0 = work[CELLS + g * ROWS :], v[g, r.control], mu[g, r.control]
        if code == BERNOULLI:
            _best_y(q[g], q[g] if i == r.control else 0.0, r, g, v, mu, start, size, cells, lower, work)
        for k in range(size):
            lower[k] += v[g, start + k] * divergence(code, mu[g, start + k], cells[Y + k])
            if cells[Z + k] != m_0:
                lower[k] += b * divergence(code, m_0, cells[Z + k])
            if i != r.control:
                lower[k] += v[g, i] * divergence(code, mu[g, i], cells[X + k])
    for k in range(size):
        # rounding may give a value below 0, where 0 is a bound; infinite values are left to the single search
        lower[k] = max(lower[k], 0.0) if lower[k] < math.inf else math.nan


@kernel
def _best_y(
    q: float, q_0: float, r: Region, g: int, v: Array, mu: Array, start: int, size: int,
    cells: Array, lower: Array, work: Array,
) -> None:  # fmt: skip
    """Make the bound valid for any z: take kappa from z, and the optimal y at that kappa.

    Where z has converged it is the same y, and nothing changes.
    """
    b, m_0, ratio, margin = v[g, r.control], mu[g, r.control], r.floor_ratio[g], r.floor_margin[g]
    weight, m, lo = v[g, start : start + size], mu[g, start : start + size], r.lo[g, start : start + size]
    for k in range(size):
        y, z = cells[Y + k], cells[Z + k]
        slope = (z - m_0) / (z * (1.0 - z)) if z != m_0 else 0.0
        kappa = max(-(b * slope + work[ETA + k] * q_0) / ratio, 0.0)
        pull = work[ETA + k] * q + kappa
        s = pull / weight[k]
        root = math.sqrt((1.0 - s) * (1.0 - s) + 4.0 * s * m[k])
        over = 2.0 * m[k] if s < 1.0 else (s - 1.0) + root
        under = (1.0 - s) + root if s < 1.0 else 2.0 * s
        best = max(over / under, lo[k])
        cells[Y + k] = best
        lower[k] -= pull * (best - y) + kappa * (y - (ratio * z - margin))
