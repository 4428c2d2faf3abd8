"""Quotas: at least `need` of the groups reach their floors.

Entering raises the cheapest groups that miss their floor, leaving lowers the cheapest that reach it. Beating
the best policy also chooses which groups are held to their floor. At a multiplier eta, holding group g costs
an extra D_g(eta) >= 0; the least Lagrangian over all choices takes the `need` smallest, so

    Psi(eta) = sum over cells of the least v d - tilt, plus the need smallest D_g(eta)

is concave in eta and bounds the optimum from below. Where the choices on both sides of its maximum agree,
they are optimal; else the search branches on a group in which they differ: held, or released.
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
from evenhand.theory.regions.single_cell import (
    copy,
    fill,
    first_multiplier,
    narrow_bracket,
    tilted_cost,
    tilted_minimiser,
)
from evenhand.theory.tilted_means import weighted_divergence

Array = NDArray[np.float64]

TURNS = 100  # iterations of the search for eta
NODES = 4000  # nodes of the search over choices: a few are usual
CLOSE = 1e-12  # relative distance of bound and cost below which a choice is not split


def work_size(groups: int) -> int:
    """Return the scratch size that `beat` needs."""
    return (23 + ENTRY) * groups + reach_size(2 * groups)


@kernel
def enter(
    code: int, r: Region, k: int, v: Array, mu: Array, lam_k: Array, work: Array
) -> tuple[float, float]:
    """eq:f_star_k_0_ext1: raise as many groups as are missing to their floors, cheapest first."""
    groups = lam_k.shape[0]
    price = work[:groups]
    missing = r.need
    for g in range(groups):
        lam_k[g] = mu[g, k]
        short = mu[g, k] < r.lo[g, k]
        price[g] = weighted_divergence(code, v[g, k], mu[g, k], r.lo[g, k]) if short else math.inf
        missing -= 0 if short else 1
    total, _ = _cheapest(price, missing, r, k, lam_k)
    return total, total


@kernel
def leave(
    code: int, r: Region, k: int, v: Array, mu: Array, lam_k: Array, work: Array
) -> tuple[float, float, int]:
    """eq:f_infeas_ext1: lower one group more than are spare to its floor, cheapest first.

    The condition returned is the costliest of the groups that fall.
    """
    groups = lam_k.shape[0]
    price = work[:groups]
    spare = 1 - r.need
    for g in range(groups):
        lam_k[g] = mu[g, k]
        met = mu[g, k] >= r.lo[g, k]
        # a floor on the boundary of the domain cannot be missed
        can_fall = met and r.lo[g, k] > unit_families.edge_low(code)
        price[g] = weighted_divergence(code, v[g, k], mu[g, k], r.lo[g, k]) if can_fall else math.inf
        spare += 1 if met else 0
    total, last = _cheapest(price, spare, r, k, lam_k)
    return total, total, last


@kernel
def _cheapest(price: Array, many: int, r: Region, k: int, lam_k: Array) -> tuple[float, int]:
    """Move `many` groups to their floors, cheapest first; return the total price and the last."""
    total, last = 0.0, -1
    for _ in range(many):
        last = 0
        for g in range(price.shape[0]):
            if price[g] < price[last]:
                last = g
        total += price[last]
        if total == math.inf:
            return total, -1
        lam_k[last] = r.lo[last, k]
        price[last] = math.inf
    return total, last


@kernel
def beat(
    code: int, r: Region, q: Array, eps: float, i: int, k: int, v: Array, mu: Array,
    lam_i: Array, lam_k: Array, work: Array,
) -> tuple[float, float]:  # fmt: skip
    """eq:f_mu_opt_ext1: return the least cost for rival k, inside, to reach q.lam_i + eps."""
    n = q.shape[0]
    cells = work[: 12 * n].reshape((6, 2 * n))
    # left, right; choices below the multiplier, above it, and the current one
    flags = work[12 * n : 17 * n].reshape((5, n))
    both = work[17 * n : 21 * n].reshape((2, 2 * n))
    stack, rest = work[21 * n : 21 * n + ENTRY * n].reshape((n, ENTRY)), work[21 * n + ENTRY * n :]
    left, right, trial, found = flags[0], flags[1], both[0], both[1]
    _write_cells(code, r, q, eps, i, k, v, mu, cells)
    fill(left, 0.0)  # a group is open in [0, 1], held in [0, 1/2], released in [1/2, 1]
    fill(right, 1.0)
    best, lower, depth = math.inf, math.inf, 0
    for node in range(NODES):
        bound, differ, free = _bound(code, r, eps, k, cells, flags, trial)
        if bound < best:
            value, low = _hold(code, r, eps, k, cells, flags[2], trial, rest)
            if value < best:
                best = value
                copy(trial, found)
            if not free:
                bound = low  # no choice is left
            elif differ >= 0:
                value, _ = _hold(code, r, eps, k, cells, flags[3], trial, rest)
                if value < best:
                    best = value
                    copy(trial, found)
        if free and bound < best * (1.0 - CLOSE) and node < NODES - 1:
            depth = branch(
                stack, depth, differ if differ >= 0 else _open(left, right), 0.5, bound, left, right
            )
            continue
        lower = min(lower, bound)
        depth = backtrack(stack, depth, left, right)
        if depth == 0:
            break
    copy(found[:n], lam_k)
    copy(found[n:], lam_i)
    return best, min(lower, best, waiting(stack, depth))


@kernel
def _write_cells(
    code: int, r: Region, q: Array, eps: float, i: int, k: int, v: Array, mu: Array, cells: Array
) -> None:
    """Write the cells of k, then i: weight, mean, share in the gap, ends, farthest needed.

    No cell needs to move farther than closes alone the gap that is left when no group is held to its floor.
    """
    n = q.shape[0]
    gap = eps
    for g in range(n):
        gap += q[g] * (mu[g, i] - mu[g, k])
    gap = max(gap, 0.0)
    low, high = unit_families.edge_low(code), unit_families.edge_high(code)
    for g in range(n):
        alone = gap / q[g] if q[g] > 0.0 else 0.0
        far_k = min(max(mu[g, k] + alone, r.lo[g, k]), high)
        far_i = max(mu[g, i] - alone, low)
        for row in range(6):
            cells[row, g] = (v[g, k], mu[g, k], q[g], low, high, far_k)[row]
            cells[row, n + g] = (v[g, i], mu[g, i], -q[g], low, high, far_i)[row]


@kernel
def _bound(
    code: int, r: Region, eps: float, k: int, cells: Array, flags: Array, x: Array
) -> tuple[float, int, bool]:
    """Return the largest Psi, a group whose choice differs or -1, and if any choice is left.

    The choices below and above the maximiser of Psi go to flags[2] and flags[3].
    """
    n = flags.shape[1]
    psi, g_lo, free = _lagrangian(code, r, eps, k, cells, 0.0, flags, x)
    copy(flags[4], flags[2])
    if g_lo >= 0.0 or psi == math.inf:
        return psi, -1, free
    lo, hi = 0.0, first_multiplier(code, cells[0], cells[1], cells[2], -g_lo)
    bound, g_hi, _ = _lagrangian(code, r, eps, k, cells, hi, flags, x)
    psi = max(psi, bound)
    while g_hi < 0.0 and hi < 1e300:
        lo, g_lo, hi = hi, g_hi, 8.0 * hi
        copy(flags[4], flags[2])
        bound, g_hi, _ = _lagrangian(code, r, eps, k, cells, hi, flags, x)
        psi = max(psi, bound)
    copy(flags[4], flags[3])
    one, g_one, two, g_two, t = hi, g_hi, lo, g_lo, 0.5
    for _ in range(TURNS):
        eta = one + t * (two - one)
        bound, g, _ = _lagrangian(code, r, eps, k, cells, eta, flags, x)
        psi = max(psi, bound)
        copy(flags[4], flags[2] if g < 0.0 else flags[3])
        one, g_one, two, g_two, t = narrow_bracket(one, g_one, two, g_two, eta, g)
        if g == 0.0 or abs(two - one) <= 4e-16 * abs(one):
            break
    for h in range(n):
        if flags[2, h] != flags[3, h]:
            return psi, h, free
    return psi, -1, free


@kernel
def _lagrangian(
    code: int, r: Region, eps: float, k: int, cells: Array, eta: float, flags: Array, x: Array
) -> tuple[float, float, bool]:
    """Return Psi(eta), q.lam_k - q.lam_i - eps, and whether any choice is left, in flags[4]."""
    n = flags.shape[1]
    left, right, extra, pick = flags[0], flags[1], x[:n], flags[4]
    psi, surplus, need, spare = eta * eps, 0.0 - eps, r.need, -r.need
    for g in range(n):
        pick[g], extra[g] = 0.0, math.inf
        spare += 1 if left[g] == 0.0 else 0
        if right[g] < 1.0:
            pick[g], need = 1.0, need - 1
        elif left[g] == 0.0:
            loose, held = (
                _settled(code, r, k, cells, eta, g, False),
                _settled(code, r, k, cells, eta, g, True),
            )
            extra[g] = _lagrangian_part(code, cells, eta, g, held) - _lagrangian_part(
                code, cells, eta, g, loose
            )
    free = spare > 0 and need > 0
    if spare < 0:
        return math.inf, 0.0, False
    for _ in range(need):
        least = -1
        for g in range(n):
            if pick[g] == 0.0 and left[g] == 0.0 and (least < 0 or extra[g] < extra[least]):
                least = g
        pick[least] = 1.0
    for j in range(2 * n):
        there = _settled(code, r, k, cells, eta, j, j < n and pick[j % n] == 1.0)
        psi += _lagrangian_part(code, cells, eta, j, there)
        surplus += cells[2, j] * there
        psi -= eta * cells[2, j] * cells[1, j]
    return psi, surplus, free


@kernel
def _settled(code: int, r: Region, k: int, cells: Array, eta: float, j: int, held: bool) -> float:
    """Return cell j's mean at eta, held to its floor or not; at its end if of weight 0."""
    mean, far = cells[1, j], cells[5, j]
    if cells[0, j] <= 0.0:
        return far
    if cells[2, j] < 0.0:
        return tilted_minimiser(code, cells[0, j], mean, eta * cells[2, j], far, mean)
    floor = max(mean, r.lo[j, k]) if held else mean
    return tilted_minimiser(code, cells[0, j], mean, eta * cells[2, j], floor, max(far, mean))


@kernel
def _lagrangian_part(code: int, cells: Array, eta: float, j: int, x: float) -> float:
    return tilted_cost(code, cells[0, j], cells[1, j], eta * cells[2, j], x)


@kernel
def _hold(
    code: int, r: Region, eps: float, k: int, cells: Array, pick: Array, x: Array, work: Array
) -> tuple[float, float]:
    """Return the optimum with exactly these groups held to their floors."""
    n = pick.shape[0]
    lo, rest = work[: 2 * n], work[2 * n :]
    copy(cells[3], lo)
    for g in range(n):
        if pick[g] == 1.0:
            lo[g] = max(lo[g], r.lo[g, k])
            if lo[g] > cells[4, g]:
                return math.inf, math.inf
    return reach(code, cells[0], cells[1], cells[2], eps, lo, cells[4], x, rest)


@kernel
def _open(left: Array, right: Array) -> int:
    """Return a group whose choice is open."""
    for g in range(left.shape[0]):
        if left[g] == 0.0 and right[g] == 1.0:
            return g
    return -1
