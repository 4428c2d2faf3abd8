"""Enter, or beat from inside, an intersection of rows, one quadratic and one quota.

Without a quota this is one convex program (`convex_envelope`). A quota adds the choice of the groups that
reach their floors: the search begins with no group fixed, and where too few reach their floors it branches on
the group that misses its floor by least: held to it, or released.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model import unit_families
from evenhand.model.region import Region, centre_of
from evenhand.theory.regions.branch_and_bound import ENTRY, backtrack, branch, waiting
from evenhand.theory.regions.convex_envelope import nearest
from evenhand.theory.regions.convex_envelope import work_size as envelope_size
from evenhand.theory.regions.convex_program import ConvexProgram
from evenhand.theory.regions.single_cell import copy, fill, take_policy
from evenhand.theory.tilted_means import weighted_divergence

Array = NDArray[np.float64]

NODES = 3000  # nodes of the search over groups: a few are usual
CLOSE = 1e-11  # relative distance of bound and cost below which a choice is not split


def work_size(groups: int, rows: int) -> int:
    """Return the scratch size that `approach` needs."""
    cells, most = 2 * groups, rows + groups + 1
    return (12 + ENTRY) * groups + 6 * cells + most * (cells + 1) + envelope_size(cells, most)


@kernel
def approach(
    code: int, r: Region, q: Array, eps: float, i: int, k: int, v: Array, mu: Array, x: Array, work: Array
) -> tuple[float, float]:
    """Return policy k's least cost to enter; if x also has lam_i, to reach q.lam_i + eps."""
    n = r.quad.shape[0]
    flags = work[: 2 * n].reshape((2, n))  # a group is open in [0, 1], held in [0, 1/2], released in [1/2, 1]
    left, right, trial = flags[0], flags[1], work[2 * n : 2 * n + x.shape[0]]
    stack, rest = work[4 * n : (4 + ENTRY) * n].reshape((n, ENTRY)), work[(4 + ENTRY) * n :]
    fill(left, 0.0)
    fill(right, 1.0)
    best, lower, depth = math.inf, math.inf, 0
    for node in range(NODES):
        value, bound = _held(code, r, q, eps, i, k, v, mu, right, best, trial, rest)
        if depth > 0:
            bound = max(bound, stack[depth - 1, 4])
        missing, group = _missing(code, r, k, v, left, right, trial)
        if _given_up(left) > n - r.need:
            bound = math.inf
        elif value < best and missing <= 0:
            best = value
            copy(trial, x)
        if (
            value < math.inf
            and missing > 0
            and group >= 0
            and bound < best * (1.0 - CLOSE)
            and node < NODES - 1
        ):
            depth = branch(stack, depth, group, 0.5, bound, left, right)
            continue
        lower = min(lower, bound)
        depth = backtrack(stack, depth, left, right)
        if depth == 0:
            break
    return best, min(lower, best, waiting(stack, depth))


@kernel
def _held(
    code: int, r: Region, q: Array, eps: float, i: int, k: int, v: Array, mu: Array, right: Array,
    cutoff: float, x: Array, work: Array,
) -> tuple[float, float]:  # fmt: skip
    """Solve the program with the groups of right = 1/2 held to their floors."""
    groups, n, m = r.quad.shape[0], x.shape[0], r.rows.shape[0]
    many = m + (1 if n > groups else 0)
    for g in range(groups):
        many += 1 if right[g] < 1.0 and r.need > 0 else 0
    cell = work[: 6 * n].reshape((6, n))
    rows, rest = work[6 * n : (6 + many) * n].reshape((many, n)), work[(6 + many) * n :]
    rhs, rest = rest[:many], rest[many:]
    take_policy(k, v, mu, cell[0, :groups], cell[1, :groups])
    if n > groups:
        take_policy(i, v, mu, cell[0, groups:], cell[1, groups:])
    fill(cell[2], unit_families.edge_low(code))
    fill(cell[3], unit_families.edge_high(code))
    for row in range(many):
        fill(rows[row], 0.0)
        rhs[row] = r.rhs[row, k] if row < m else 0.0
        for g in range(groups if row < m else 0):
            rows[row, g] = r.rows[row, g]
    if n > groups:
        rhs[many - 1] = eps
    row = m
    for g in range(groups):
        if right[g] < 1.0 and r.need > 0:
            rows[row, g], rhs[row] = 1.0, r.lo[g, k]
            row += 1
        if n > groups:
            rows[many - 1, g], rows[many - 1, groups + g] = q[g], -q[g]
    p = ConvexProgram(cell[0], cell[1], cell[2], cell[3], cell[4], cell[5], rows, rhs, r.quad, r.limit)
    centre = centre_of(cell[1]) if code == unit_families.GAUSSIAN and r.limit < math.inf else 0.0
    if centre == 0.0:
        return nearest(code, p, cutoff, x, rest)
    _shift(p, centre)
    found = nearest(code, p, cutoff, x, rest)
    for c in range(n):
        x[c] += centre
    return found


@kernel
def _shift(p: ConvexProgram, centre: float) -> None:
    """Subtract a number from all means of a Gaussian program, to keep digits in their squares."""
    for c in range(p.mu.shape[0]):
        p.mu[c] -= centre
        for row in range(p.rows.shape[0]):
            p.rhs[row] -= centre * p.rows[row, c]


@kernel
def _missing(code: int, r: Region, k: int, v: Array, left: Array, right: Array, x: Array) -> tuple[int, int]:
    """Return how many groups the quota lacks at x, and the unreleased one nearest its floor."""
    missing, group, least = r.need, -1, math.inf
    for g in range(r.quad.shape[0]):
        if right[g] < 1.0 or x[g] >= r.lo[g, k]:
            missing -= 1
        elif left[g] == 0.0 and weighted_divergence(code, 1.0, x[g], r.lo[g, k]) * v[g, k] < least:
            group, least = g, weighted_divergence(code, 1.0, x[g], r.lo[g, k]) * v[g, k]
    return missing, group


@kernel
def _given_up(left: Array) -> int:
    many = 0
    for g in range(left.shape[0]):
        many += 1 if left[g] > 0.0 else 0
    return many
