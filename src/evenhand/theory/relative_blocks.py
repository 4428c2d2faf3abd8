"""Blocks of cells at a multiplier eta: policy i's, and pairs of rival and control.

The formulas of `regions.pairs` for floors alone, with selects instead of branches. Each cell's part of the
surplus q.(y - x) - eps and of its slope in eta is added to the scratch, which also holds the means.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.region import Region
from evenhand.model.unit_families import GAUSSIAN, POISSON
from evenhand.theory.bernoulli_bulk import BLOCK

Array = NDArray[np.float64]

STEPS = 2  # Newton's steps for a Bernoulli pair in each iteration
# offsets of the blocks in the scratch; then a block per group each for the means x of policy i, y and z
ETA, BELOW, ABOVE, SURPLUS, SLOPE, TOLERANCE, REMAINS, DONE, CELLS = range(0, 9 * BLOCK, BLOCK)
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
        for k in range(size):
            s = work[ETA + k] * pace
            root = math.sqrt((1.0 - s) * (1.0 - s) + 4.0 * s * (1.0 - mu))
            lam = 2.0 * mu / ((1.0 + s) + root)
            cells[X + k] = lam
            work[SURPLUS + k] -= q * lam
            work[SLOPE + k] += q * pace * lam * (1.0 - lam) / root


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
