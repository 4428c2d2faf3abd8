"""Gap and ratio: m_g >= rho m_h - slack for every two groups (a gap has rho = 1).

With t the largest mean, a vector lies inside when all its entries lie in [rho t - slack, t]. So

    leaving    one ordered pair (g, h) moves to the half-space m_g <= rho m_h - slack
    entering   every cell is clipped to [rho t - slack, t]; the cost is convex in t
    beating    at a multiplier eta every cell of the rival is optimal inside [rho t - slack, t], at the t that
               minimises a convex function; eta is the root of q.lam_k - q.lam_i - eps, as in a half-space

A convex function of t lies above its tangents at both ends of a bracket of its minimum, so the bound is
certified however the search ends. The exponential's cost is not convex: there t becomes one more cell, of
weight 0, of a convex program (`convex_envelope`).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model import unit_families
from evenhand.model.region import Region
from evenhand.theory.regions.convex_envelope import nearest
from evenhand.theory.regions.convex_envelope import work_size as envelope_size
from evenhand.theory.regions.convex_program import ConvexProgram
from evenhand.theory.regions.halfspace import reach
from evenhand.theory.regions.halfspace import work_size as reach_size
from evenhand.theory.regions.single_cell import (
    copy,
    cost,
    fill,
    first_multiplier,
    narrow_bracket,
    take_policy,
    tilted_cost,
    tilted_minimiser,
)

Array = NDArray[np.float64]

TURNS = 200  # iterations of each search: ten are usual
FAINT = 1e-18  # of the first guess at eta: moves the cells of weight 0 and no others


def work_size(groups: int) -> int:
    """Return the scratch size that the three kernels need."""
    cells, rows = 2 * groups + 1, 2 * groups + 1
    programme = (7 + rows) * cells + rows + envelope_size(cells, rows)
    return max(16 * groups, 12 + reach_size(2), programme)


@kernel
def enter(
    code: int, r: Region, k: int, v: Array, mu: Array, lam_k: Array, work: Array
) -> tuple[float, float]:
    """eq:f_star_k_0_ext1: clip every cell to [rho t - slack, t] at the best t; return the cost."""
    n = lam_k.shape[0]
    if code == unit_families.EXPONENTIAL:
        return _programme(code, r, lam_k, 0.0, k, k, v, mu, work[: n + 1], lam_k, lam_k, work[n + 1 :])
    part = work[: 3 * n].reshape((3, n))
    v_k, mu_k, nowhere = part[0], part[1], part[2]
    take_policy(k, v, mu, v_k, mu_k)
    fill(nowhere, 0.0)
    low, most = _lowest(r, mu_k), _most(mu_k)
    if low > unit_families.edge_high(code):
        return math.inf, math.inf
    lower = _top(code, r, v_k, mu_k, nowhere, 0.0, low, max(low, most), lam_k)
    value = cost(code, v_k, mu_k, lam_k)
    return value, min(max(lower, 0.0), value)


@kernel
def leave(
    code: int, r: Region, k: int, v: Array, mu: Array, lam_k: Array, work: Array
) -> tuple[float, float, int]:
    """eq:f_infeas_ext1: least cost of an ordered pair to m_g <= rho m_h - slack, named g L + h."""
    n = lam_k.shape[0]
    part, rest = work[:12].reshape((6, 2)), work[12:]
    v_2, mu_2, a, lo, hi, x = part[0], part[1], part[2], part[3], part[4], part[5]
    fill(lo, unit_families.edge_low(code))
    fill(hi, unit_families.edge_high(code))
    best, lower, which = math.inf, math.inf, -1
    for g in range(n):
        for h in range(n):
            if g == h and n > 1:
                continue  # a group is compared with itself only if there is no other
            v_2[0], v_2[1], mu_2[0], mu_2[1] = v[g, k], v[h, k], mu[g, k], mu[h, k]
            a[0], a[1] = (-1.0, r.rho) if g != h else (r.rho - 1.0, 0.0)
            value, bound = reach(code, v_2, mu_2, a, r.slack, lo, hi, x, rest)
            lower = min(lower, bound)
            if value < best:
                best, which = value, g * n + h
                for other in range(n):
                    lam_k[other] = mu[other, k]
                lam_k[h], lam_k[g] = x[1], x[0]
    return best, min(lower, best), which


@kernel
def beat(
    code: int, r: Region, q: Array, eps: float, i: int, k: int, v: Array, mu: Array,
    lam_i: Array, lam_k: Array, work: Array,
) -> tuple[float, float]:  # fmt: skip
    """eq:f_mu_opt_ext1: return the least cost for rival k, inside, to reach q.lam_i + eps."""
    n = q.shape[0]
    if code == unit_families.EXPONENTIAL:
        x = work[: 2 * n + 1]
        return _programme(code, r, q, eps, i, k, v, mu, x, lam_i, lam_k, work[2 * n + 1 :])
    part = work[: 14 * n].reshape((7, 2 * n))  # weight, mean, share in the gap, far end; now, below, above
    now, below, above = part[4], part[5], part[6]
    take_policy(k, v, mu, part[0, :n], part[1, :n])
    take_policy(i, v, mu, part[0, n:], part[1, n:])
    low, high = _highest(code, r, q, eps, part)
    if low > unit_families.edge_high(code):
        return math.inf, math.inf
    gap, lower = _pull(code, r, eps, part, 0.0, low, high)
    copy(now, below)
    copy(now, above)
    mix = 0.0
    if gap < 0.0:
        mix, bound = _meet(code, r, eps, part, -gap, low, high)
        lower = max(lower, bound)
    for g in range(n):
        lam_k[g] = now[g] = below[g] + mix * (above[g] - below[g])
        lam_i[g] = now[n + g] = below[n + g] + mix * (above[n + g] - below[n + g])
    value = cost(code, part[0], part[1], now)
    return value, min(max(lower, 0.0), value)


@kernel
def _highest(code: int, r: Region, q: Array, eps: float, part: Array) -> tuple[float, float]:
    """Return the range of t to search; write the shares in the gap, and no far ends yet.

    At t = (q.mu_i + eps + slack) / rho all of [rho t - slack, t] is enough to beat policy i at its own means.
    """
    n = q.shape[0]
    target = eps
    for g in range(n):
        part[2, g], part[2, n + g] = q[g], -q[g]
        part[3, g], part[3, n + g] = part[1, g], part[1, n + g]
        target += q[g] * part[1, n + g]
    low = _lowest(r, part[1, :n])
    high = max((target + r.slack) / r.rho, _most(part[1, :n]), low)
    return low, min(high, unit_families.edge_high(code))


@kernel
def _lowest(r: Region, mu: Array) -> float:
    """Return the least t to try: at least the least mean, and with rho t - slack at most t."""
    least = mu[0]
    for g in range(mu.shape[0]):
        least = min(least, mu[g])
    return max(least, -r.slack / (1.0 - r.rho)) if r.rho < 1.0 else least


@kernel
def _most(mu: Array) -> float:
    most = mu[0]
    for g in range(mu.shape[0]):
        most = max(most, mu[g])
    return most


@kernel
def _meet(
    code: int, r: Region, eps: float, part: Array, gap: float, low: float, high: float
) -> tuple[float, float]:
    """Bracket the eta of equal scores; return how to mix both sides, and the best bound."""
    n = part.shape[1] // 2
    x, below, above = part[4], part[5], part[6]
    for g in range(n):
        # no cell of policy i needs to fall farther than closes the gap alone
        alone = gap / part[2, g] if part[2, g] > 0.0 else 0.0
        part[3, n + g] = max(part[1, n + g] - alone, unit_families.edge_low(code))
    hi = first_multiplier(code, part[0], part[1], part[2], gap)
    lo, g_lo = 0.0, -gap
    g_hi, lower = _pull(code, r, eps, part, FAINT * hi, low, high)
    copy(x, above)
    if g_hi >= 0.0:  # the cells of weight 0 close the gap
        return -g_lo / (g_hi - g_lo), lower
    g_hi, bound = _pull(code, r, eps, part, hi, low, high)
    while g_hi < 0.0 and hi < 1e300:
        copy(x, below)
        lo, g_lo, hi = hi, g_hi, 8.0 * hi
        g_hi, bound = _pull(code, r, eps, part, hi, low, high)
    copy(x, above)
    lower = max(lower, bound)
    one, g_one, two, g_two, t = hi, g_hi, lo, g_lo, 0.5
    for _ in range(TURNS):
        if g_one == 0.0 or abs(two - one) <= 4e-16 * abs(one):
            break
        eta = one + t * (two - one)
        surplus, bound = _pull(code, r, eps, part, eta, low, high)
        lower = max(lower, bound)
        copy(x, below if surplus < 0.0 else above)
        one, g_one, two, g_two, t = narrow_bracket(one, g_one, two, g_two, eta, surplus)
    g_lo, g_hi = min(g_one, g_two), max(g_one, g_two)
    return -g_lo / (g_hi - g_lo), lower


@kernel
def _pull(
    code: int, r: Region, eps: float, part: Array, eta: float, low: float, high: float
) -> tuple[float, float]:
    """Place both policies at eta; return q.lam_k - q.lam_i - eps, and the Lagrangian's bound."""
    n = part.shape[1] // 2
    x = part[4]
    psi = _top(code, r, part[0, :n], part[1, :n], part[2, :n], eta, low, high, x[:n])
    psi += eta * eps
    surplus = 0.0 - eps
    for c in range(2 * n):
        s = eta * part[2, c]
        if c >= n:
            x[c] = tilted_minimiser(code, part[0, c], part[1, c], s, part[3, c], part[1, c])
            psi += tilted_cost(code, part[0, c], part[1, c], s, x[c])
        surplus += part[2, c] * x[c]
        psi -= s * part[1, c]
    return surplus, psi


@kernel
def _top(
    code: int, r: Region, v: Array, mu: Array, q: Array, eta: float, low: float, high: float, x: Array
) -> float:
    """Place the cells in [rho t - slack, t] at the best t; return a bound on their Lagrangian."""
    lo, hi = low, high
    f_lo, d_lo = _within(code, r, v, mu, q, eta, lo, x)
    if d_lo >= 0.0 or hi <= lo:
        return f_lo
    f_hi, d_hi = _within(code, r, v, mu, q, eta, hi, x)
    if d_hi <= 0.0:
        return f_hi
    one, d_one, two, d_two, t = hi, d_hi, lo, d_lo, 0.5
    for _ in range(TURNS):
        if d_one == 0.0 or abs(two - one) <= 4e-16 * max(abs(one), abs(two)):
            break
        trial = one + t * (two - one)
        f, d = _within(code, r, v, mu, q, eta, trial, x)
        if d < 0.0:
            f_lo = f
        else:
            f_hi = f
        one, d_one, two, d_two, t = narrow_bracket(one, d_one, two, d_two, trial, d)
    if d_one == 0.0:
        return f_hi
    lo, hi, d_lo, d_hi = min(one, two), max(one, two), min(d_one, d_two), max(d_one, d_two)
    if f_lo < f_hi:
        _within(code, r, v, mu, q, eta, lo, x)
    else:
        _within(code, r, v, mu, q, eta, hi, x)
    return max(f_lo + d_lo * (hi - lo), f_hi - d_hi * (hi - lo))


@kernel
def _within(
    code: int, r: Region, v: Array, mu: Array, q: Array, eta: float, t: float, x: Array
) -> tuple[float, float]:
    """Place the cells in [rho t - slack, t]; return sum v d - s (x - mu), its slope in t."""
    edge = unit_families.edge_low(code)
    floor = max(r.rho * t - r.slack, edge)
    total, slope = 0.0, 0.0
    for g in range(x.shape[0]):
        s = eta * q[g]
        x[g] = tilted_minimiser(code, v[g], mu[g], s, min(floor, t), t)
        total += tilted_cost(code, v[g], mu[g], s, x[g])
        if x[g] in (floor, t):
            gradient = (v[g] * unit_families.slope(code, mu[g], x[g]) if v[g] > 0.0 else 0.0) - s
            if x[g] == t and gradient < 0.0:
                slope += gradient  # the bound t is active
            elif x[g] == floor and gradient > 0.0 and floor > edge:
                slope += r.rho * gradient  # the bound rho t - slack is active
    return total, slope


@kernel
def _programme(
    code: int, r: Region, q: Array, eps: float, i: int, k: int, v: Array, mu: Array, x: Array,
    lam_i: Array, lam_k: Array, work: Array,
) -> tuple[float, float]:  # fmt: skip
    """Solve for lam_k, t and, if x is long enough, lam_i: the conditions as rows of a program."""
    n, cells = lam_k.shape[0], x.shape[0]
    many = 2 * n + (1 if cells > n + 1 else 0)
    cell = work[: 6 * cells].reshape((6, cells))
    rows, rest = work[6 * cells : (6 + many) * cells].reshape((many, cells)), work[(6 + many) * cells :]
    rhs, rest = rest[:many], rest[many:]
    fill(work[: (6 + many) * cells], 0.0)
    fill(rhs, 0.0)
    if cells > n + 1:
        rhs[2 * n] = eps
    take_policy(k, v, mu, cell[0, :n], cell[1, :n])
    cell[1, n] = _most(cell[1, :n])
    if cells > n + 1:
        take_policy(i, v, mu, cell[0, n + 1 :], cell[1, n + 1 :])
    fill(cell[2], unit_families.edge_low(code))
    fill(cell[3], unit_families.edge_high(code))
    for g in range(n):
        rows[g, g], rows[g, n] = -1.0, 1.0
        rows[n + g, g], rows[n + g, n], rhs[n + g] = 1.0, -r.rho, -r.slack
        if cells > n + 1:
            rows[2 * n, g], rows[2 * n, n + 1 + g] = q[g], -q[g]
    p = ConvexProgram(cell[0], cell[1], cell[2], cell[3], cell[4], cell[5], rows, rhs, r.quad, r.limit)
    value, lower = nearest(code, p, math.inf, x, rest)
    copy(x[:n], lam_k)
    if cells > n + 1:
        copy(x[n + 1 :], lam_i)
    return value, lower
