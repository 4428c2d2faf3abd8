"""The search of `regions.relative` for a block of rivals at a time, with floors only.

With the policies innermost and selects instead of branches, the compiler vectorises over rivals. Newton's
steps stay inside the bracket of the root. For a tied pair (k, 0) z has a closed form for the Gaussian
(linear) and the Poisson (quadratic); for the Bernoulli each iteration takes some Newton steps from the last
z. Rivals that have not converged, the control itself, means on the boundary of the domain, cells of weight 0
and caps are left to the search for a single rival.

Blocks of cells at a multiplier eta: policy i's, and pairs of rival and control.

The formulas of `regions.pairs` for floors alone, with selects instead of branches. Each cell's part of the
surplus q.(y - x) - eps and of its slope in eta is added to the scratch, which also holds the means.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.region import Region
from evenhand.model.unit_families import BERNOULLI, GAUSSIAN, POISSON, divergence
from evenhand.theory.bernoulli_bulk import (
    ABOVE,
    BELOW,
    BLOCK,
    ETA,
    SLOPE,
    SURPLUS,
    TOLERANCE,
    lower_cell,
    next_eta,
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
        below, above, onward = next_eta(eta, surplus, work[SLOPE + k], work[BELOW + k], work[ABOVE + k])
        # the bracket may have closed at 0 by a surplus whose sign was wrong, before z had converged
        ahead = above == 0.0 and surplus >= 0.0
        settled = work[DONE + k] > 0.0 or (
            (abs(surplus) <= work[TOLERANCE + k] or ahead) and work[REMAINS + k] <= SETTLED
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
            if not (_is_inside(code, m_0) and _is_inside(code, mu[g, start + k])):
                lower[k] = math.nan
    for k in range(size):
        # rounding may give a value below 0, where 0 is a bound; infinite values are left to the single search
        lower[k] = max(lower[k], 0.0) if lower[k] < math.inf else math.nan


@kernel
def _is_inside(code: int, mean: float) -> bool:
    """Return whether the formulas hold: they divide by the variance of one outcome."""
    if code == BERNOULLI:
        return 0.0 < mean < 1.0
    return code == GAUSSIAN or mean > 0.0


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


STEPS = 2  # Newton's steps for a Bernoulli pair in each iteration
# offsets of the blocks in the scratch; then a block per group each for the means x of policy i, y and z
REMAINS, DONE, CELLS = range(6 * BLOCK, 9 * BLOCK, BLOCK)  # after the blocks of `bernoulli_bulk`
X, Y, Z, ROWS = 0, BLOCK, 2 * BLOCK, 3 * BLOCK


@kernel
def first_guess(r: Region, v: Array, mu: Array, start: int, size: int, work: Array) -> None:
    """Write a first z for Bernoulli pairs: that of Gaussians with the same variances."""
    for g in range(mu.shape[0]):
        m_0, ratio, margin = mu[g, r.control], r.floor_ratio[g], r.floor_margin[g]
        b = v[g, r.control] / (m_0 * (1.0 - m_0))
        m, weight, cells = mu[g, start : start + size], v[g, start : start + size], work[CELLS + g * ROWS :]
        for k in range(size):
            a = weight[k] / (m[k] * (1.0 - m[k]))
            cells[Z + k] = (b * m_0 + ratio * a * (m[k] + margin)) / (b + ratio * ratio * a)


@kernel
def place_policy_i(code: int, q: float, v: float, mu: float, size: int, cells: Array, work: Array) -> None:
    """Lower policy i's cell, once for every rival; add its part of surplus and slope."""
    pace = q / v
    if code == GAUSSIAN:
        for k in range(size):
            cells[X + k] = mu - work[ETA + k] * pace
            work[SURPLUS + k] -= q * cells[X + k]
            work[SLOPE + k] += q * pace
    elif code == POISSON:
        for k in range(size):
            lam = mu / (1.0 + work[ETA + k] * pace)
            cells[X + k] = lam
            work[SURPLUS + k] -= q * lam
            work[SLOPE + k] += q * pace * lam / (1.0 + work[ETA + k] * pace)
    else:
        lower_cell(q, pace, mu, size, cells[X:], work)


@kernel
def place_pairs(
    code: int, r: Region, q: Array, g: int, i: int, v: Array, mu: Array, start: int, size: int, work: Array
) -> None:
    """Solve the pairs of every rival and the control in one group."""
    stop = start + size
    share, other = q[g], q[g] if i == r.control else 0.0
    b, m_0, ratio, margin = v[g, r.control], mu[g, r.control], r.floor_ratio[g], r.floor_margin[g]
    cells = work[CELLS + g * ROWS :]
    a, m, lo = v[g, start:stop], mu[g, start:stop], r.lo[g, start:stop]
    if code == GAUSSIAN:
        _gaussian(share, other, a, b, m, m_0, lo, ratio, margin, size, cells, work)
    elif code == POISSON:
        _poisson(share, other, a, b, m, m_0, lo, ratio, margin, size, cells, work)
    else:
        _bernoulli(share, other, a, b, m, m_0, lo, ratio, margin, size, cells, work)


@kernel
def _gaussian(
    q: float, q_0: float, a: Array, b: float, m: Array, m_0: float, lo: Array, ratio: float, margin: float,
    size: int, cells: Array, work: Array,
) -> None:  # fmt: skip
    for k in range(size):
        eta = work[ETA + k]
        free, z_free = m[k] + eta * (q / a[k]), m_0 - eta * (q_0 / b)
        held = free <= lo[k]
        y_free = lo[k] if held else free
        tied = y_free < ratio * z_free - margin
        stiff = b + ratio * ratio * a[k]
        z = (b * m_0 + ratio * a[k] * (m[k] + margin) + eta * (ratio * q - q_0)) / stiff
        corner = ratio * z - margin <= lo[k]
        z = (lo[k] + margin) / ratio if corner else z
        y = lo[k] if corner else ratio * z - margin
        drift = 0.0 if corner else (ratio * q - q_0) / stiff
        y, z = (y if tied else y_free), (z if tied else z_free)
        rise = ratio * drift if tied else (0.0 if held else q / a[k])
        drift = drift if tied else -q_0 / b
        cells[Y + k], cells[Z + k] = y, z
        work[SURPLUS + k] += q * y - q_0 * z
        work[SLOPE + k] += q * rise - q_0 * drift


@kernel
def _poisson(
    q: float, q_0: float, a: Array, b: float, m: Array, m_0: float, lo: Array, ratio: float, margin: float,
    size: int, cells: Array, work: Array,
) -> None:  # fmt: skip
    for k in range(size):
        eta = work[ETA + k]
        s, h = eta * q / a[k], eta * q_0 / b
        free, z_free = (m[k] / (1.0 - s) if s < 1.0 else math.inf), m_0 / (1.0 + h)
        held = free <= lo[k]
        y_free = lo[k] if held else free
        tied = y_free < ratio * z_free - margin
        lead = ratio * a[k] + b + eta * (q_0 - ratio * q)
        middle = -lead * margin - ratio * a[k] * m[k] - ratio * b * m_0
        product = lead * ratio * b * m_0 * margin
        root = math.sqrt(max(middle * middle - 4.0 * product, 0.0))
        larger = root - middle if middle <= 0.0 else -4.0 * product / (root + middle)
        first = (y_free + margin) / ratio
        z = min(max(larger / (2.0 * lead * ratio), first), z_free) if lead > 0.0 else z_free
        y = max(ratio * z - margin, lo[k])
        stiff = ratio * ratio * a[k] * m[k] / (y * y) + b * m_0 / (z * z)
        drift = (ratio * q - q_0) / stiff if first < z < z_free else 0.0
        y, z = (y if tied else y_free), (z if tied else z_free)
        # not tied: V / (1 - s V') with V the mean itself
        rise = ratio * drift if tied else (0.0 if held else q / a[k] * y / (1.0 - s))
        drift = drift if tied else -q_0 / b * z / (1.0 + h)
        cells[Y + k], cells[Z + k] = y, z
        work[SURPLUS + k] += q * y - q_0 * z
        work[SLOPE + k] += q * rise - q_0 * drift


@kernel
def _bernoulli(
    q: float, q_0: float, a: Array, b: float, m: Array, m_0: float, lo: Array, ratio: float, margin: float,
    size: int, cells: Array, work: Array,
) -> None:  # fmt: skip
    for k in range(size):
        eta = work[ETA + k]
        s, h = eta * q / a[k], eta * q_0 / b
        root = math.sqrt((1.0 - s) * (1.0 - s) + 4.0 * s * m[k])
        over = 2.0 * m[k] if s < 1.0 else (s - 1.0) + root
        under = (1.0 - s) + root if s < 1.0 else 2.0 * s
        free = over / under
        held = free <= lo[k]
        y_free = lo[k] if held else free
        root_0 = math.sqrt((1.0 - h) * (1.0 - h) + 4.0 * h * (1.0 - m_0))
        z_free = 2.0 * m_0 / ((1.0 + h) + root_0)
        tied = y_free < ratio * z_free - margin
        first, last, pull = (
            (y_free + margin) / ratio,
            min(z_free, (1.0 + margin) / ratio),
            eta * (q_0 - ratio * q),
        )
        left, right, z, step, stiff, corner = first, last, cells[Z + k], 0.0, 1.0, False
        done = work[DONE + k] > 0.0
        z = z if first <= z < last else 0.5 * (first + last)
        for _ in range(STEPS):
            y = ratio * z - margin
            up, down, up_0, down_0 = 1.0 / (1.0 - y), 1.0 / y, 1.0 / (1.0 - z), 1.0 / z
            force = ratio * a[k] * ((1.0 - m[k]) * up - m[k] * down)
            force += b * ((1.0 - m_0) * up_0 - m_0 * down_0) + pull
            stiff = ratio * ratio * a[k] * ((1.0 - m[k]) * up * up + m[k] * down * down)
            stiff += b * ((1.0 - m_0) * up_0 * up_0 + m_0 * down_0 * down_0)
            left, right = (left if force > 0.0 else z), (z if force > 0.0 else right)
            step = force / stiff
            corner = z == first and force >= 0.0
            onward = z - step
            # y may be at its floor at the first z; between other ends the midpoint is safe
            onward = (first if left == first else 0.5 * (left + right)) if onward < left else onward
            onward = 0.5 * (left + right) if onward > right else onward
            z = z if done else onward
        y = max(ratio * z - margin, lo[k])
        drift = 0.0 if corner else (ratio * q - q_0) / stiff
        y, z = (y if tied else y_free), (z if tied else z_free)
        rise = ratio * drift if tied else (0.0 if held else q / a[k] * y * (1.0 - y) / root)
        drift = drift if tied else -q_0 / b * z * (1.0 - z) / root_0
        cells[Y + k], cells[Z + k] = y, z
        work[REMAINS + k] = max(work[REMAINS + k], abs(step) if tied and not corner else 0.0)
        work[SURPLUS + k] += q * y - q_0 * z
        work[SLOPE + k] += q * rise - q_0 * drift
