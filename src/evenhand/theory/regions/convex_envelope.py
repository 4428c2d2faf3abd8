"""Convex programs (`convex_program`) for every family, with envelopes for the exponential.

The exponential's cost is not convex. On an interval [lo, hi] that extends beyond 2 mu, the largest convex
function below d(mu, x) equals it up to `bend` and is then linear up to its value at hi: the tangent from that
point, or the chord where the interval begins beyond the point of tangency. The program with these costs
bounds the true one from below; where its solution lies on a linear piece, the cell's interval is split there,
and both halves are searched.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model import unit_families
from evenhand.theory.regions.branch_and_bound import ENTRY, backtrack, branch, waiting
from evenhand.theory.regions.convex_program import FREE, ConvexProgram
from evenhand.theory.regions.interior_point import minimise
from evenhand.theory.regions.interior_point import work_size as interior_size
from evenhand.theory.regions.single_cell import copy, cost, farthest_within, fill
from evenhand.theory.tilted_means import weighted_divergence

Array = NDArray[np.float64]

NODES = 300  # parts of the exponential's search: one is usual
DEPTH = 40
CLOSE = 1e-10  # relative distance of bound and cost below which an interval is not split


def work_size(cells: int, rows: int) -> int:
    """Return the scratch size that `nearest` needs."""
    return 2 * cells + ENTRY * DEPTH + interior_size(cells, rows)


@kernel
def nearest(code: int, p: ConvexProgram, cutoff: float, x: Array, work: Array) -> tuple[float, float]:
    """Return the least cost of a program, at x, and a bound; stop if it exceeds the cutoff.

    Weights are scaled in place, and bends, rates and (for the exponential) bounds are overwritten.
    """
    top = 0.0
    for c in range(x.shape[0]):
        top = max(top, p.v[c])
    if top == 0.0:
        top = 1.0
    for c in range(x.shape[0]):
        p.v[c] /= top
    copy(p.hi, p.bend)
    fill(p.rate, 0.0)
    if code == unit_families.EXPONENTIAL:
        value, lower = _split(code, p, cutoff / top, x, work)
    else:
        value, lower = minimise(code, p, 1.0, cutoff / top, x, work)
    return value * top, lower * top


@kernel
def _split(code: int, p: ConvexProgram, cutoff: float, x: Array, work: Array) -> tuple[float, float]:
    """Run branch and bound over the intervals of the cells beyond their bends."""
    n = x.shape[0]
    trial, spare = work[:n], work[n : 2 * n]
    stack = work[2 * n : 2 * n + ENTRY * DEPTH].reshape((DEPTH, ENTRY))
    rest = work[2 * n + ENTRY * DEPTH :]
    best = _first(p, x, spare, rest)
    _cost_limits(code, p, best)
    lower, depth = math.inf, 0
    for node in range(NODES):
        for c in range(n):
            p.bend[c], p.rate[c] = _bend(code, p.mu[c], p.lo[c], p.hi[c])
        value, bound = minimise(code, p, 1.0, min(best, cutoff), trial, rest)
        if depth > 0:
            bound = max(bound, stack[depth - 1, 4])  # the bound from before the split holds for both halves
        worst = -1
        if value < math.inf:
            value, worst = cost(code, p.v, p.mu, trial), _excess(code, p, trial)
            if value < best:
                best = value
                copy(trial, x)
        if worst >= 0 and bound < min(best * (1.0 - CLOSE), cutoff) and depth < DEPTH and node < NODES - 1:
            least, most = max(p.lo[worst], p.mu[worst]), p.hi[worst]
            # the family is scale-free: keep away from the ends by a factor
            keep = (most / least) ** 0.1
            cut = min(max(trial[worst], least * keep), most / keep)
            depth = branch(stack, depth, worst, cut, bound, p.lo, p.hi)
            continue
        lower = min(lower, bound)
        depth = backtrack(stack, depth, p.lo, p.hi)
        if depth == 0:
            break
    return best, min(lower, best, waiting(stack, depth))


@kernel
def _first(p: ConvexProgram, x: Array, v: Array, work: Array) -> float:
    """Write a first feasible point, found with the Poisson divergence; return its true cost."""
    top, largest = 0.0, 0.0
    for c in range(x.shape[0]):
        v[c] = p.v[c] / p.mu[c]
        top, largest = max(top, v[c]), max(largest, p.mu[c])
    for c in range(x.shape[0]):
        v[c] /= top if top > 0.0 else 1.0
    like = ConvexProgram(v, p.mu, p.lo, p.hi, p.bend, p.rate, p.rows, p.rhs, p.quad, p.limit)
    value, _ = minimise(unit_families.POISSON, like, largest, math.inf, x, work)
    return cost(unit_families.EXPONENTIAL, p.v, p.mu, x) if value < math.inf else math.inf


@kernel
def _cost_limits(code: int, p: ConvexProgram, best: float) -> None:
    """Reduce every cell's interval to where its own cost alone is at most the best known."""
    for c in range(p.mu.shape[0]):
        if p.v[c] > FREE and best < math.inf:
            p.lo[c] = max(p.lo[c], farthest_within(code, p.mu[c], best / p.v[c], False))
            p.hi[c] = min(p.hi[c], farthest_within(code, p.mu[c], best / p.v[c], True))


@kernel
def _bend(code: int, mu: float, lo: float, hi: float) -> tuple[float, float]:
    """Return where the envelope of d(mu, x) on [lo, hi] becomes linear, and its slope there."""
    if hi <= 2.0 * mu or math.isinf(hi):
        return hi, 0.0
    end = unit_families.divergence(code, mu, hi)
    if lo < 2.0 * mu:
        near, far = max(lo, mu), 2.0 * mu
        # the tangent at x passes below the end point before the point of tangency and above it after
        for _ in range(100):
            x = 0.5 * (near + far)
            if x in (near, far):
                break
            if unit_families.divergence(code, mu, x) + unit_families.slope(code, mu, x) * (hi - x) < end:
                near = x
            else:
                far = x
        if near > lo:
            return near, (end - unit_families.divergence(code, mu, near)) / (hi - near)
    return lo, (end - unit_families.divergence(code, mu, lo)) / (hi - lo)


@kernel
def _excess(code: int, p: ConvexProgram, x: Array) -> int:
    """Return the cell whose cost exceeds its envelope most, or -1."""
    most, worst = 0.0, -1
    for c in range(x.shape[0]):
        if x[c] > p.bend[c]:
            line = weighted_divergence(code, p.v[c], p.mu[c], p.bend[c]) + p.v[c] * p.rate[c] * (
                x[c] - p.bend[c]
            )
            over = weighted_divergence(code, p.v[c], p.mu[c], x[c]) - line
            if over > most:
                most, worst = over, c
    return worst
