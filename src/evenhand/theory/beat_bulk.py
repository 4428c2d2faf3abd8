"""`inner.beat` for every rival of one policy, in blocks that the compiler vectorises.

For Gaussian boxes without caps q.lam_k(eta) is the largest of its linear pieces, one for each set of groups
above the floor. Newton's method, started at the eta at which all groups are above the floor, descends to the
root, and each step but the last puts at least one group back on its floor: L steps suffice. With the policies
innermost the compiler vectorises the loop. Bernoulli boxes without caps are vectorised in `bernoulli_bulk`,
relative floors in `relative_bulk`; everything else is solved by `inner.beat`, one rival at a time.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.region import BOX, RELATIVE, Region
from evenhand.model.unit_families import BERNOULLI, EXPONENTIAL, GAUSSIAN
from evenhand.theory import inner
from evenhand.theory.bernoulli_bulk import BLOCK, bernoulli_bounds
from evenhand.theory.relative_bulk import beat_block, is_plain

Array = NDArray[np.float64]

FEW = 8  # up to this number of groups L steps over L groups are faster than the exact search


@kernel
def beat_all(
    code: int, r: Region, q: Array, eps: float, i: int, v: Array, mu: Array,
    lower: Array, lam_i: Array, lam_k: Array, lam_0: Array, work: Array,
) -> None:  # fmt: skip
    """eq:f_mu_opt for every rival: write certified lower bounds to (K,) `lower`.

    That of policy i is infinite. The nearest means are not kept; lam_i, lam_k and lam_0 are scratch.
    `inner.beat` gives those of one rival.
    """
    policies = mu.shape[1]
    for start in range(0, policies, BLOCK):
        stop = min(start + BLOCK, policies)
        beat_some(code, r, q, eps, i, start, stop, v, mu, lower, lam_i, lam_k, lam_0, work)
    lower[i] = math.inf


@kernel
def beat_some(
    code: int, r: Region, q: Array, eps: float, i: int, start: int, stop: int, v: Array, mu: Array,
    lower: Array, lam_i: Array, lam_k: Array, lam_0: Array, work: Array,
) -> None:  # fmt: skip
    """Do what `beat_all` does for the rivals from start to stop, at most one block.

    The bound of a rival does not depend, to the last bit, on the other rivals in its block: bounds that are
    stored and bounds that are computed again must be equal.
    """
    level, slope = own_line(q, eps, i, v, mu)
    vectorised = r.kind == BOX and slope < math.inf
    if vectorised and code == GAUSSIAN and q.size <= FEW:
        _lift_block(r.lo, q, v, mu, level, slope, start, stop, lower, work)
    elif vectorised and code == BERNOULLI:
        bernoulli_bounds(r.lo, q, eps, i, v, mu, start, stop, lower, work)
    elif r.kind == RELATIVE and code != EXPONENTIAL and is_plain(r, q, v, i):
        vectorised = True
        beat_block(code, r, q, eps, i, start, stop, v, mu, lower, work)
    else:
        vectorised = False
    if vectorised and _are_done(r.hi, v, lower, start, stop):
        return
    for k in range(start, stop):
        if k != i and not (vectorised and _are_done(r.hi, v, lower, k, k + 1)):
            _, lower[k] = inner.beat(code, r, q, eps, i, k, v, mu, lam_i, lam_k, lam_0, work)


@kernel
def beat_one(
    code: int, r: Region, q: Array, eps: float, i: int, k: int, level: float, slope: float, v: Array,
    mu: Array, lower: Array, lam_i: Array, lam_k: Array, lam_0: Array, work: Array,
) -> None:  # fmt: skip
    """Do what `beat_some` does for rival k alone; level and slope are those of `own_line`."""
    if r.kind == BOX and slope < math.inf and code == GAUSSIAN and q.size <= FEW:
        lower[k] = _lift_one(r.lo, q, v, mu, level, slope, k, work)
        if not _are_done(r.hi, v, lower, k, k + 1):
            _, lower[k] = inner.beat(code, r, q, eps, i, k, v, mu, lam_i, lam_k, lam_0, work)
    else:
        beat_some(code, r, q, eps, i, k, k + 1, v, mu, lower, lam_i, lam_k, lam_0, work)


@kernel
def own_line(q: Array, eps: float, i: int, v: Array, mu: Array) -> tuple[float, float]:
    """Return level and slope of q.lam_i(eta) + eps; the slope is infinite if a cell is free."""
    level, slope = eps, 0.0
    for g in range(q.size):
        if q[g] > 0.0:
            level += q[g] * mu[g, i]
            slope += q[g] * q[g] / v[g, i]
    return level, slope


@kernel
def _are_done(hi: Array, v: Array, lower: Array, start: int, stop: int) -> bool:
    """Return whether these policies have positive weights, no caps, and a bound each."""
    special, found = 0, lower[start:stop]
    for k in range(found.size):
        special += not found[k] >= 0.0
    for g in range(v.shape[0]):
        weight, cap = v[g, start:stop], hi[g, start:stop]
        for k in range(weight.size):
            special += (weight[k] <= 0.0) | (cap[k] < math.inf)
    return special == 0


@kernel
def _lift_block(
    lo: Array, q: Array, v: Array, mu: Array, level: float, slope: float, start: int, stop: int,
    lower: Array, work: Array,
) -> None:  # fmt: skip
    """Write the bounds of the rivals from start to stop: Newton's method, then the dual bound."""
    size = stop - start
    lower, paces = lower[start:stop], work[3 * BLOCK :]
    for g in range(q.size):
        pace, weight = paces[g * BLOCK : g * BLOCK + size], v[g, start:stop]
        for k in range(size):
            pace[k] = q[g] / weight[k]
    for k in range(size):
        work[k] = math.inf
    for _ in range(q.size + 1):
        _line(lo, q, mu, level, slope, start, size, paces, work)
        moved = 0
        for k in range(size):
            eta = max(work[BLOCK + k] / work[2 * BLOCK + k], 0.0)
            moved += eta != work[k]
            work[k] = eta
        if moved == 0:
            break
    for k in range(size):
        # Psi = cost - eta surplus, and surplus = steep eta - gap: rounding, or eta = 0 for a rival ahead
        surplus = work[2 * BLOCK + k] * work[k] - work[BLOCK + k]
        lower[k] = 0.5 * work[k] * work[k] * slope - work[k] * max(surplus, 0.0)
    for g in range(q.size):
        pace, weight = paces[g * BLOCK : g * BLOCK + size], v[g, start:stop]
        m, floor = mu[g, start:stop], lo[g, start:stop]
        for k in range(size):
            move = max(work[k] * pace[k], floor[k] - m[k])
            lower[k] += 0.5 * weight[k] * move * move


@kernel
def _lift_one(
    lo: Array, q: Array, v: Array, mu: Array, level: float, slope: float, k: int, work: Array
) -> float:  # fmt: skip
    """Return the bound of `_lift_block` for one rival, by the same operations in the same order."""
    for g in range(q.size):
        work[g] = q[g] / v[g, k]
    eta, gap, steep = math.inf, level, slope
    for _ in range(q.size + 1):
        gap, steep = level, slope
        for g in range(q.size):
            if q[g] == 0.0:
                continue
            lifted = mu[g, k] + eta * work[g] > lo[g, k]
            gap -= q[g] * (mu[g, k] if lifted else lo[g, k])
            steep += q[g] * work[g] if lifted else 0.0
        last, eta = eta, max(gap / steep, 0.0)
        if eta == last:
            break
    surplus = steep * eta - gap
    lower = 0.5 * eta * eta * slope - eta * max(surplus, 0.0)
    for g in range(q.size):
        move = max(eta * work[g], lo[g, k] - mu[g, k])
        lower += 0.5 * v[g, k] * move * move
    return lower


@kernel
def _line(
    lo: Array, q: Array, mu: Array, level: float, slope: float, start: int, size: int,
    paces: Array, work: Array,
) -> None:  # fmt: skip
    """Write the linear piece at eta: q.lam_i + eps - q.lam_k = gap - steep eta.

    `work` holds eta, gap and steep, a block each; passed as separate slices they would keep the compiler from
    vectorising the loop.
    """
    for k in range(size):
        work[BLOCK + k], work[2 * BLOCK + k] = level, slope
    for g in range(q.size):
        if q[g] == 0.0:
            continue
        share = q[g]
        pace, m, floor = paces[g * BLOCK :], mu[g, start : start + size], lo[g, start : start + size]
        for k in range(size):
            lifted = m[k] + work[k] * pace[k] > floor[k]
            work[BLOCK + k] -= share * (m[k] if lifted else floor[k])
            work[2 * BLOCK + k] += share * pace[k] if lifted else 0.0
