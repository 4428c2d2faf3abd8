"""The search of `regions.relative` for a block of rivals at a time, with floors only.

With the policies innermost and selects instead of branches, the compiler vectorises over rivals. Newton's
steps stay inside the bracket of the root. For a tied pair (k, 0) z has a closed form for the Gaussian
(linear) and the Poisson (quadratic); for the Bernoulli each iteration takes some Newton steps from the last
z. Rivals that have not converged, the control itself, means of 0 other than a Bernoulli's, cells of weight 0
and caps are left to the search for a single rival. Bernoulli means of 0 or 1 are moved inside by PULLED for
the search; the bound is computed with the means themselves, at the multipliers found, and used if little is
lost by that.

Blocks of cells at a multiplier eta: policy i's, and pairs of rival and control.

The formulas of `regions.pairs` for floors alone, with selects instead of branches. Each cell's part of the
surplus q.(y - x) - eps and of its slope in eta is added to the scratch, which also holds the means.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import Static, kernel
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
PULLED = 1e-12  # how far Bernoulli means on the boundary are moved inside, to divide by their variance
APART = 1e-13  # a pair whose means are farther apart than their bound is not tied, so its multiplier is 0
LOST = 1e-10  # share of a bound that it may lose by that; else it is left to the search for a single rival


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
        first_guess(r, q, v, mu, start, size, work)
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
        work[REMAINS + k] = 0.0  # from here on what is lost by means on the boundary
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
        tight = lower[k] < math.inf and work[REMAINS + k] <= LOST * abs(lower[k]) + NOISE
        lower[k] = max(lower[k], 0.0) if tight else math.nan


@kernel
def _is_inside(code: int, mean: float) -> bool:
    """Return whether the formulas hold: they divide by the variance of one outcome."""
    return code in (GAUSSIAN, BERNOULLI) or mean > 0.0


@kernel(inlined=True)
def _pulled(mean: float) -> float:
    """Return a Bernoulli mean strictly inside the domain."""
    return min(max(mean, PULLED), 1.0 - PULLED)


@kernel
def _best_y(
    q: float, q_0: float, r: Region, g: int, v: Array, mu: Array, start: int, size: int,
    cells: Array, lower: Array, work: Array,
) -> None:  # fmt: skip
    """Make the bound valid for any z: take kappa from z, and the optimal y and z at that kappa.

    Where z has converged, and the means are inside the domain, they are the same, and nothing changes.
    """
    b, mean, ratio, margin = v[g, r.control], mu[g, r.control], r.floor_ratio[g], r.floor_margin[g]
    m_0 = _pulled(mean)
    weight, m, lo = v[g, start : start + size], mu[g, start : start + size], r.lo[g, start : start + size]
    for k in range(size):
        y, z = cells[Y + k], cells[Z + k]
        slope = (z - m_0) / (z * (1.0 - z)) if z != m_0 else 0.0
        kappa = max(-(b * slope + work[ETA + k] * q_0) / ratio, 0.0)
        kappa = 0.0 if y - (ratio * z - margin) > APART else kappa
        pull = work[ETA + k] * q + kappa
        s = pull / weight[k]
        root = math.sqrt((1.0 - s) * (1.0 - s) + 4.0 * s * m[k])
        over = 2.0 * m[k] if s < 1.0 else (s - 1.0) + root
        under = (1.0 - s) + root if s < 1.0 else 2.0 * s
        best = max(over / under, lo[k])
        cells[Y + k] = best
        lower[k] -= pull * (best - y) + kappa * (y - (ratio * z - margin))
        work[KAPPA + k] = kappa
        if m_0 != mean or m[k] != _pulled(m[k]):
            loss = weight[k] * (divergence(BERNOULLI, m[k], y) - divergence(BERNOULLI, m[k], best))
            work[REMAINS + k] += loss + pull * (best - y)
    if m_0 == mean:
        return
    for k in range(size):
        z = cells[Z + k]
        slope = (z - m_0) / (z * (1.0 - z)) if z != m_0 else 0.0
        push = max(-b * slope, work[ETA + k] * q_0)  # ratio kappa + eta q_0
        push = work[ETA + k] * q_0 if work[KAPPA + k] == 0.0 else push
        s = push / b
        root = math.sqrt((1.0 - s) * (1.0 - s) + 4.0 * s * (1.0 - mean))
        best = 2.0 * mean / ((1.0 + s) + root)
        cells[Z + k] = best
        lower[k] += push * (best - z)
        loss = b * (divergence(BERNOULLI, mean, z) - divergence(BERNOULLI, mean, best))
        work[REMAINS + k] += loss - push * (best - z)


# offsets of the blocks in the scratch; then a block per group each for the means x of policy i, y and z
REMAINS, DONE, KAPPA, CELLS = range(6 * BLOCK, 10 * BLOCK, BLOCK)  # after the blocks of `bernoulli_bulk`
X, Y, Z, PACE, ROWS = 0, BLOCK, 2 * BLOCK, 3 * BLOCK, 4 * BLOCK


def work_size(groups: int) -> int:
    """Return the scratch size that `beat_block` needs."""
    return CELLS + groups * ROWS


@kernel
def first_guess(r: Region, q: Array, v: Array, mu: Array, start: int, size: int, work: Array) -> None:
    """Write a first z for Bernoulli pairs, that of Gaussians with the same variances; and q / v."""
    for g in range(mu.shape[0]):
        m_0, ratio, margin = _pulled(mu[g, r.control]), r.floor_ratio[g], r.floor_margin[g]
        b = v[g, r.control] / (m_0 * (1.0 - m_0))
        m, weight, cells = mu[g, start : start + size], v[g, start : start + size], work[CELLS + g * ROWS :]
        for k in range(size):
            inside = _pulled(m[k])
            a = weight[k] / (inside * (1.0 - inside))
            cells[Z + k] = (b * m_0 + ratio * a * (inside + margin)) / (b + ratio * ratio * a)
            cells[PACE + k] = q[g] / weight[k]


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
    elif i == r.control:
        _bernoulli(share, other, a, b, m, m_0, lo, ratio, margin, size, cells, work, True)
    else:
        _bernoulli(share, other, a, b, m, m_0, lo, ratio, margin, size, cells, work, False)


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
    size: int, cells: Array, work: Array, own: Static[bool],
) -> None:  # fmt: skip
    """Take one Newton step of every pair; `own`: policy i is the control.

    Each division serves several quotients, and every choice is between two numbers that are known: with
    nested choices the compiler would not vectorise the loop.
    """
    per_ratio, net, pace_0, m_0 = 1.0 / ratio, ratio * q - q_0, q_0 / b, _pulled(m_0)
    for k in range(size):
        eta, pace, mean = work[ETA + k], cells[PACE + k], _pulled(m[k])
        s = eta * pace
        root = math.sqrt((1.0 - s) * (1.0 - s) + 4.0 * s * mean)
        over = 2.0 * mean if s < 1.0 else (s - 1.0) + root
        under = (1.0 - s) + root if s < 1.0 else 2.0 * s
        inverse = 1.0 / (under * root)
        free = over * root * inverse
        held = free <= lo[k]
        y_free = lo[k] if held else free
        rise_free = 0.0 if held else pace * free * (1.0 - free) * under * inverse
        z_free, drift_free = m_0, 0.0
        if own:
            h = eta * pace_0
            root_0 = math.sqrt((1.0 - h) * (1.0 - h) + 4.0 * h * (1.0 - m_0))
            z_free = 2.0 * m_0 / ((1.0 + h) + root_0)
            drift_free = -pace_0 * z_free * (1.0 - z_free) / root_0
        tied = y_free < ratio * z_free - margin
        first, last = max((y_free + margin) * per_ratio, 0.0), min(z_free, (1.0 + margin) * per_ratio)
        z, middle = cells[Z + k], 0.5 * (first + last)
        z = middle if (z < first) | (z >= last) else z
        y = ratio * z - margin
        inner, outer = y * (1.0 - y), z * (1.0 - z)
        both = 1.0 / (inner * outer)
        w, w_0 = outer * both, inner * both  # 1 / (y (1 - y)) and 1 / (z (1 - z))
        force = ratio * a[k] * (y - mean) * w + b * (z - m_0) * w_0 - eta * net
        stiff = ratio * ratio * a[k] * ((1.0 - mean) * y * y + mean * (1.0 - y) * (1.0 - y)) * w * w
        stiff += b * ((1.0 - m_0) * z * z + m_0 * (1.0 - z) * (1.0 - z)) * w_0 * w_0
        soft = 1.0 / stiff
        step, corner = force * soft, (z == first) & (force >= 0.0)
        left, right = first if force > 0.0 else z, z if force > 0.0 else last
        half, onward = 0.5 * (left + right), z - step
        # y may be at its floor at the first z; between other ends the midpoint is safe
        lowest = first if left == first else half
        onward = lowest if onward < left else onward
        onward = half if onward > right else onward
        z = z if work[DONE + k] > 0.0 else onward
        y = max(ratio * z - margin, lo[k])
        drift = 0.0 if corner else net * soft
        moved = 0.0 if corner else abs(step)
        rise = ratio * drift if tied else rise_free
        drift = drift if tied else drift_free
        moved = moved if tied else 0.0
        y, z = y if tied else y_free, z if tied else z_free
        cells[Y + k], cells[Z + k] = y, z
        work[REMAINS + k] = max(work[REMAINS + k], moved)
        work[SURPLUS + k] += q * y - q_0 * z
        work[SLOPE + k] += q * rise - q_0 * drift
