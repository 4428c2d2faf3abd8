"""Half-spaces: the least cost for some cells, each in its own interval, to reach a.x >= c.

With a multiplier eta >= 0 every cell moves to where the derivative of v d(mu, x) is eta a, so

    g(eta) = a.x(eta) - c                       increasing; the optimum is at its root
    Psi(eta) = sum v d(mu, x(eta)) - eta g(eta)   a lower bound at every eta, the optimum's value at the root

No cell needs to move farther than closes the gap alone: these ends make every interval finite, and cells of
weight 0 move there first. Where g jumps over 0 (a Poisson mean of 0, a cell of weight 0) the two sides are
mixed; the mixture is optimal because the costs are convex. The exponential's is not beyond 2 mu: there the
interval of the cell that jumps is split until bound and cost agree.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model import unit_families
from evenhand.theory.regions.branch_and_bound import ENTRY, backtrack, branch, waiting
from evenhand.theory.regions.single_cell import (
    copy,
    cost,
    fill,
    first_multiplier,
    narrow_bracket,
    take_policy,
    tilted_minimiser,
)
from evenhand.theory.tilted_means import weighted_divergence

Array = NDArray[np.float64]

TURNS = 200  # iterations of the search for the root: ten are usual
NODES = 2000  # parts of the exponential's search: one is usual
CLOSE = 1e-11  # relative distance of bound and cost below which an interval is not split
DEPTH = 60


def work_size(cells: int) -> int:
    """Return the scratch size that `reach` needs for this number of cells."""
    return 7 * cells + ENTRY * DEPTH


@kernel
def cross(
    code: int, a: Array, c: float, k: int, v: Array, mu: Array, lam_k: Array, work: Array
) -> tuple[float, float]:
    """Return policy k's least cost to reach a.lam >= c, and a lower bound. For <= negate both."""
    n = lam_k.shape[0]
    part = work[: 4 * n].reshape((4, n))
    v_k, mu_k, lo, hi = part[0], part[1], part[2], part[3]
    take_policy(k, v, mu, v_k, mu_k)
    fill(lo, unit_families.edge_low(code))
    fill(hi, unit_families.edge_high(code))
    return reach(code, v_k, mu_k, a, c, lo, hi, lam_k, work[4 * n :])


@kernel
def reach(
    code: int, v: Array, mu: Array, a: Array, c: float, lo: Array, hi: Array, x: Array, work: Array
) -> tuple[float, float]:
    """Return the least sum v d(mu, x) over a.x >= c, lo <= x <= hi, in the domain, and a bound."""
    if code == unit_families.EXPONENTIAL:
        return _split(code, v, mu, a, c, lo, hi, x, work)
    value, lower, _ = _mix(code, v, mu, a, c, lo, hi, x, work)
    return value, lower


@kernel
def _mix(
    code: int, v: Array, mu: Array, a: Array, c: float, lo: Array, hi: Array, x: Array, work: Array
) -> tuple[float, float, int]:
    """Return the cost of mixing both sides of the root, the best bound, the least convex cell."""
    n = x.shape[0]
    near, far, below, above = work[:n], work[n : 2 * n], work[2 * n : 3 * n], work[3 * n : 4 * n]
    gap = _ends(mu, a, c, lo, hi, near, far)
    if gap <= 0.0:
        copy(near, x)
        value = cost(code, v, mu, x)
        return value, value, -1
    g_below = _pull(code, v, mu, a, 0.0, near, far, below) - gap
    g_above = _pull(code, v, mu, a, math.inf, near, far, above) - gap
    if g_above < -1e-12 * gap:
        return math.inf, math.inf, -1
    eta_below, eta_above = 0.0, 0.0
    if g_below < 0.0:
        eta_below, eta_above = _root(code, v, mu, a, gap, near, far, x)
        g_below = _pull(code, v, mu, a, eta_below, near, far, below) - gap
        g_above = _pull(code, v, mu, a, eta_above, near, far, above) - gap
    else:  # the cells of weight 0 close the gap among themselves
        copy(below, above)
        copy(near, below)
        g_below, g_above = -gap, g_below
    part = 0.0 if g_above <= g_below else min(max(-g_below / (g_above - g_below), 0.0), 1.0)
    lower = cost(code, v, mu, below) - eta_below * g_below
    other = cost(code, v, mu, above) - eta_above * g_above
    if lower < other < math.inf:
        lower = other
    value, excess, worst = 0.0, 0.0, -1
    for j in range(n):
        x[j] = below[j] + part * (above[j] - below[j])
        here = weighted_divergence(code, v[j], mu[j], x[j])
        value += here
        over = (
            here
            - (1.0 - part) * weighted_divergence(code, v[j], mu[j], below[j])
            - part * weighted_divergence(code, v[j], mu[j], above[j])
        )
        if over > excess:
            excess, worst = over, j
    return value, min(lower, value), worst


@kernel
def _ends(mu: Array, a: Array, c: float, lo: Array, hi: Array, near: Array, far: Array) -> float:
    """Write each cell's start and the farthest point needed; return the gap c - a.start."""
    gap = c
    for j in range(a.shape[0]):
        near[j] = min(max(mu[j], lo[j]), hi[j])
        gap -= a[j] * near[j]
    for j in range(a.shape[0]):
        far[j] = near[j]
        if gap > 0.0 and a[j] != 0.0:
            far[j] = min(max(near[j] + gap / a[j], lo[j]), hi[j])
    return gap


@kernel
def _pull(code: int, v: Array, mu: Array, a: Array, eta: float, near: Array, far: Array, x: Array) -> float:
    """Place every cell at eta a, those of weight 0 at their ends; return how much it closes."""
    closed = 0.0
    for j in range(x.shape[0]):
        if eta == math.inf or v[j] <= 0.0:
            x[j] = far[j]
        else:
            x[j] = tilted_minimiser(code, v[j], mu[j], eta * a[j], min(near[j], far[j]), max(near[j], far[j]))
        if a[j] != 0.0:
            closed += a[j] * (x[j] - near[j])
    return closed


@kernel
def _root(
    code: int, v: Array, mu: Array, a: Array, gap: float, near: Array, far: Array, x: Array
) -> tuple[float, float]:
    """Return the multipliers on either side of the one that closes the gap."""
    hi = first_multiplier(code, v, near, a, gap)
    g_hi = _pull(code, v, mu, a, hi, near, far, x) - gap
    lo, g_lo = 0.0, _pull(code, v, mu, a, 0.0, near, far, x) - gap
    while g_hi < -1e-15 * gap and hi < 1e300:
        lo, g_lo, hi = hi, g_hi, 8.0 * hi  # what is closed increases with eta, so this brackets the root
        g_hi = _pull(code, v, mu, a, hi, near, far, x) - gap
    if abs(g_hi) <= 1e-15 * gap:
        return hi, hi
    one, g_one, two, g_two, t = hi, g_hi, lo, g_lo, 0.5
    for _ in range(TURNS):
        eta = one + t * (two - one)
        g = _pull(code, v, mu, a, eta, near, far, x) - gap
        one, g_one, two, g_two, t = narrow_bracket(one, g_one, two, g_two, eta, g)
        if abs(g) <= 1e-16 * gap:
            return eta, eta
        if abs(two - one) <= 4e-16 * abs(one):
            break
    return min(one, two), max(one, two)


@kernel
def _split(
    code: int, v: Array, mu: Array, a: Array, c: float, lo: Array, hi: Array, x: Array, work: Array
) -> tuple[float, float]:
    """Run branch and bound over the interval of the cell that jumps, depth first."""
    n = x.shape[0]
    left, right, trial, rest = work[:n], work[n : 2 * n], work[2 * n : 3 * n], work[3 * n : 7 * n]
    stack = work[7 * n : 7 * n + ENTRY * DEPTH].reshape((DEPTH, ENTRY))
    copy(lo, left)
    copy(hi, right)
    best, lower = math.inf, math.inf
    depth = 0
    for node in range(NODES):
        value, bound, worst = _mix(code, v, mu, a, c, left, right, trial, rest)
        if value < best:
            best = value
            copy(trial, x)
        if worst >= 0 and bound < best * (1.0 - CLOSE) and depth < DEPTH and node < NODES - 1:
            near, far = rest[worst], rest[n + worst]
            cut = min(max(trial[worst], near + 0.1 * (far - near)), near + 0.9 * (far - near))
            depth = branch(stack, depth, worst, cut, bound, left, right)
            continue
        lower = min(lower, bound)
        depth = backtrack(stack, depth, left, right)
        if depth == 0:
            return best, min(lower, best)
    return best, min(lower, best, waiting(stack, depth))
