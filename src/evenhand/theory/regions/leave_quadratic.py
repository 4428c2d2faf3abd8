"""Leaving m' quad m <= limit for any family: the least cost over tangent half-spaces.

With quad = B' B, a vector lies outside when some unit vector u has u' B m >= sqrt(limit). All u within an
angle alpha of a centre c satisfy c' B m >= sqrt(limit) cos(alpha) there, so one half-space (`halfspace`)
bounds the whole cone from below, and the centre's own half-space gives a candidate. Cones over the cells of a
cube's faces are split until both agree: two directions for two groups, a few hundred cones for three or four.
With many groups the search ends early; then a Gaussian lies below the divergence wherever it costs no more
than the best candidate, and leaving it (`trust_region`) is the bound.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model import unit_families
from evenhand.model.region import Region
from evenhand.theory.regions.branch_and_bound import ENTRY, backtrack, branch, waiting
from evenhand.theory.regions.halfspace import reach
from evenhand.theory.regions.halfspace import work_size as reach_size
from evenhand.theory.regions.linear_algebra import jacobi
from evenhand.theory.regions.single_cell import copy, farthest_within, fill, take_policy
from evenhand.theory.regions.trust_region import FLAT, escape, form
from evenhand.theory.regions.trust_region import work_size as trust_size

Array = NDArray[np.float64]

NODES = 2000  # largest number of cones
DEPTH = 120
SIDES = 7  # dimensions of the cube beyond which cones are not searched
CLOSE = 3e-10  # relative distance of bound and cost at which a cone is split no further
STEPS = 100  # of the local descent over directions


def work_size(groups: int) -> int:
    """Return the scratch size that `leave` needs."""
    return 2 * groups * groups + 12 * groups + ENTRY * DEPTH + max(reach_size(groups), trust_size(groups))


@kernel
def leave(
    code: int, r: Region, k: int, v: Array, mu: Array, lam_k: Array, work: Array
) -> tuple[float, float, int]:
    """eq:f_infeas_ext1: least cost over the half-spaces tangent to the dispersion's ellipsoid."""
    n = lam_k.shape[0]
    cell = work[: 12 * n].reshape((12, n))
    b, vectors = (
        work[12 * n : (12 + n) * n].reshape((n, n)),
        work[(12 + n) * n : (12 + 2 * n) * n].reshape((n, n)),
    )
    stack = work[(12 + 2 * n) * n : (12 + 2 * n) * n + ENTRY * DEPTH].reshape((DEPTH, ENTRY))
    rest = work[(12 + 2 * n) * n + ENTRY * DEPTH :]
    v_k, mu_k = cell[0], cell[1]
    take_policy(k, v, mu, v_k, mu_k)
    fill(cell[2], unit_families.edge_low(code))
    fill(cell[3], unit_families.edge_high(code))
    copy(mu_k, lam_k)
    if form(r.quad, mu_k) >= r.limit:
        return 0.0, 0.0, 0
    sides = _factor(r.quad, b, vectors)
    if sides == 0:
        return math.inf, math.inf, -1
    best = _descend(code, r, cell, b, sides, lam_k, rest)
    lower = -math.inf
    if sides <= SIDES:
        best, lower = _cones(code, r, cell, b, sides, best, lam_k, stack, rest)
    if lower < best * (1.0 - CLOSE):
        lower = max(lower, _gaussian(code, r, cell, best, rest))
    return best, min(max(lower, 0.0), best), 0 if best < math.inf else -1


@kernel
def _factor(quad: Array, b: Array, vectors: Array) -> int:
    """Write rows of B with B' B = quad, one per eigenvalue above rounding; return how many."""
    n = quad.shape[0]
    for g in range(n):
        copy(quad[g], b[g])
    jacobi(b, vectors)
    top = 0.0
    for e in range(n):
        top = max(top, b[e, e])
    sides = 0
    for e in range(n):
        size = b[e, e]
        if size > FLAT * top:
            for g in range(n):
                b[sides, g] = math.sqrt(size) * vectors[g, e]
            sides += 1
    return sides


@kernel
def _descend(code: int, r: Region, cell: Array, b: Array, sides: int, x: Array, work: Array) -> float:
    """Iterate directions, each that of the last point found, while the cost decreases."""
    n = x.shape[0]
    w, u, trial = cell[4], cell[8], cell[5]
    for g in range(n):
        w[g] = cell[0, g] / _typical_variance(code, cell[1, g])
    escape(r.quad, r.limit, w, cell[1], trial, work)
    best = math.inf
    for _ in range(STEPS):
        for e in range(sides):
            u[e] = 0.0
            for g in range(n):
                u[e] += b[e, g] * trial[g]
        value, _ = _cross(code, r, cell, b, sides, 1.0, trial, work)
        if not value < best * (1.0 - 1e-14):
            break
        best = value
        copy(trial, x)
    return best


@kernel
def _typical_variance(code: int, mu: float) -> float:
    """Return V(mu), at least 1e-6 except for the exponential."""
    variance = unit_families.variance(code, mu)
    return variance if code == unit_families.EXPONENTIAL else max(variance, 1e-6)


@kernel
def _cross(
    code: int, r: Region, cell: Array, b: Array, sides: int, part: float, x: Array, work: Array
) -> tuple[float, float]:
    """Return the least cost to reach u' B x >= part sqrt(limit); u need not have length 1."""
    a, u = cell[4], cell[8]
    length = 0.0
    for e in range(sides):
        length += u[e] * u[e]
    fill(a, 0.0)
    for e in range(sides):
        for g in range(x.shape[0]):
            a[g] += u[e] * b[e, g]
    return reach(code, cell[0], cell[1], a, part * math.sqrt(r.limit * length), cell[2], cell[3], x, work)


@kernel
def _cones(
    code: int, r: Region, cell: Array, b: Array, sides: int, best: float, x: Array, stack: Array, work: Array
) -> tuple[float, float]:
    """Run branch and bound over directions: the faces of the cube [-1, 1]^sides."""
    left, right, u, trial = cell[6], cell[7], cell[8], cell[5]
    lower, nodes = best, NODES
    for face in range(2 * sides):
        for e in range(sides):
            left[e], right[e] = -1.0, 1.0
        left[face // 2] = right[face // 2] = 1.0 if face % 2 == 0 else -1.0
        depth = 0
        while nodes > 0:
            nodes -= 1
            widest = _middle(left, right, u, sides)
            _, bound = _cross(code, r, cell, b, sides, _narrowness(left, right, u, sides), trial, work)
            if bound < best * (1.0 - CLOSE):
                value, _ = _cross(code, r, cell, b, sides, 1.0, trial, work)
                if value < best:
                    best = value
                    copy(trial, x)
                if right[widest] > left[widest] and bound < best * (1.0 - CLOSE) and depth < DEPTH:
                    depth = branch(stack, depth, widest, u[widest], bound, left, right)
                    continue
            lower = min(lower, bound)
            depth = backtrack(stack, depth, left, right)
            if depth == 0:
                break
        if nodes == 0:
            # the search was truncated: waiting cones have bounds, faces not yet begun have none
            lower = min(lower, waiting(stack, depth)) if face == 2 * sides - 1 else 0.0
            break
    return best, min(lower, best)


@kernel
def _middle(left: Array, right: Array, u: Array, sides: int) -> int:
    """Write the centre of the box to u; return its widest coordinate."""
    widest = 0
    for e in range(sides):
        u[e] = 0.5 * (left[e] + right[e])
        if right[e] - left[e] > right[widest] - left[widest]:
            widest = e
    return widest


@kernel
def _narrowness(left: Array, right: Array, u: Array, sides: int) -> float:
    """Return the least cosine between the centre and a corner, which holds for the whole box."""
    least, length = 1.0, 0.0
    for e in range(sides):
        length += u[e] * u[e]
    for corner in range(1 << sides):
        along, size = 0.0, 0.0
        for e in range(sides):
            at = right[e] if (corner >> e) & 1 else left[e]
            along += u[e] * at
            size += at * at
        least = min(least, along / math.sqrt(length * size))
    return least


@kernel
def _gaussian(code: int, r: Region, cell: Array, best: float, work: Array) -> float:
    """Return the cost to leave for a Gaussian, d(mu, x) >= (x - mu)^2 / (2 max V): a bound."""
    n = cell.shape[1]
    w = cell[4]
    for g in range(n):
        low, high = cell[2, g], cell[3, g]
        if cell[0, g] > 0.0 and best < math.inf:
            low = farthest_within(code, cell[1, g], best / cell[0, g], False)
            high = farthest_within(code, cell[1, g], best / cell[0, g], True)
        most = max(unit_families.variance(code, low), unit_families.variance(code, high))
        if code == unit_families.BERNOULLI and low < 0.5 < high:
            most = 0.25
        w[g] = cell[0, g] / most if most > 0.0 else 0.0
    _, lower = escape(r.quad, r.limit, w, cell[1], cell[5], work)
    return lower
