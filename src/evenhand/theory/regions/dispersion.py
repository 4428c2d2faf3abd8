"""Dispersion: m' quad m <= limit, the squared distances of group means to their average.

For the Gaussian all three problems have one or two multipliers. With W = diag(v):

    leaving    a trust-region problem (`trust_region`)
    entering   (W + kappa quad) lam = W mu, and kappa makes lam' quad lam = limit
    beating    (W + kappa quad) lam_k = W mu_k + eta q with eta in closed form; the dispersion falls in kappa

The dual value at these multipliers is the certificate. Other families: entering and beating are convex
programs (`intersection_enter`), leaving is searched over directions (`leave_quadratic`).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model import unit_families
from evenhand.model.region import Region, centre_of
from evenhand.theory.regions import intersection_enter, leave_quadratic, trust_region
from evenhand.theory.regions.linear_algebra import factor, solve
from evenhand.theory.regions.single_cell import copy, cost, fill, narrow_bracket, take_policy
from evenhand.theory.regions.trust_region import form

Array = NDArray[np.float64]

TURNS = 200  # iterations of the search for kappa: ten are usual
FAINT = 1e-14  # of the typical kappa: moves the cells of weight 0 and hardly any other


def work_size(groups: int) -> int:
    """Return the scratch size that the three kernels need."""
    gaussian = max(groups * groups + 8 * groups, 3 * groups + trust_region.work_size(groups))
    return max(
        gaussian, leave_quadratic.work_size(groups), 2 * groups + intersection_enter.work_size(groups, 0)
    )


@kernel
def enter(
    code: int, r: Region, k: int, v: Array, mu: Array, lam_k: Array, work: Array
) -> tuple[float, float]:
    """eq:f_star_k_0_ext1: reduce the dispersion of the group means to the limit at least cost."""
    if code != unit_families.GAUSSIAN:
        return intersection_enter.approach(code, r, lam_k, 0.0, k, k, v, mu, lam_k, work)
    n = lam_k.shape[0]
    part, h = work[: 8 * n].reshape((8, n)), work[8 * n : (8 + n) * n].reshape((n, n))
    take_policy(k, v, mu, part[0], part[1])
    fill(part[2], 0.0)
    centre = _centre(part[1])
    if form(r.quad, part[1]) <= r.limit:
        _put_back(part[1], centre, lam_k)
        return 0.0, 0.0
    lower, _ = _solve_for_kappa(r, -math.inf, math.inf, part, h)
    value = cost(code, part[0], part[1], part[6])
    _put_back(part[6], centre, lam_k)
    return value, min(max(lower, 0.0), value)


@kernel
def leave(
    code: int, r: Region, k: int, v: Array, mu: Array, lam_k: Array, work: Array
) -> tuple[float, float, int]:
    """eq:f_infeas_ext1, eq:variance_opt2: raise the dispersion to the limit at least cost."""
    if code != unit_families.GAUSSIAN:
        return leave_quadratic.leave(code, r, k, v, mu, lam_k, work)
    n = lam_k.shape[0]
    v_k, mu_k, rest = work[:n], work[n : 2 * n], work[2 * n :]
    take_policy(k, v, mu, v_k, mu_k)
    centre = _centre(mu_k)
    value, lower = trust_region.escape(r.quad, r.limit, v_k, mu_k, lam_k, rest)
    _put_back(lam_k, centre, lam_k)
    return value, lower, 0 if value < math.inf else -1


@kernel
def beat(
    code: int, r: Region, q: Array, eps: float, i: int, k: int, v: Array, mu: Array,
    lam_i: Array, lam_k: Array, work: Array,
) -> tuple[float, float]:  # fmt: skip
    """eq:f_mu_opt_ext1, eq:variance_opt1: least cost for rival k, inside, to beat policy i."""
    n = q.shape[0]
    if code != unit_families.GAUSSIAN:
        value, lower = intersection_enter.approach(code, r, q, eps, i, k, v, mu, work[: 2 * n], work[2 * n :])
        copy(work[:n], lam_k)
        copy(work[n : 2 * n], lam_i)
        return value, lower
    part, h = work[: 8 * n].reshape((8, n)), work[8 * n : (8 + n) * n].reshape((n, n))
    take_policy(k, v, mu, part[0], part[1])
    copy(q, part[2])
    centre = _centre(part[1])
    target, ease, free = eps, 0.0, 0.0
    for g in range(n):
        target += q[g] * (mu[g, i] - centre)
        if q[g] > 0.0:
            ease += q[g] * q[g] / v[g, i]  # infinite where policy i moves at no cost
            free += q[g] if v[g, i] <= 0.0 else 0.0
    lower, eta = _solve_for_kappa(r, target, ease, part, h)
    value, gap = cost(code, part[0], part[1], part[6]), target
    for g in range(n):
        gap -= q[g] * part[6, g]
    _put_back(part[6], centre, lam_k)
    for g in range(n):
        lam_i[g] = mu[g, i]
        if v[g, i] > 0.0:
            lam_i[g] -= eta * q[g] / v[g, i]
            value += 0.5 * v[g, i] * (lam_i[g] - mu[g, i]) ** 2
        elif q[g] > 0.0:
            lam_i[g] -= max(gap, 0.0) / free
    return value, min(max(lower, 0.0), value)


@kernel
def _centre(means: Array) -> float:
    """Shift means that are far from 0, whose squares would lose digits; return the shift."""
    centre = centre_of(means)
    for g in range(means.shape[0]):
        means[g] -= centre
    return centre


@kernel
def _put_back(means: Array, centre: float, to: Array) -> None:
    for g in range(to.shape[0]):
        to[g] = means[g] + centre


@kernel
def _solve_for_kappa(r: Region, target: float, ease: float, part: Array, h: Array) -> tuple[float, float]:
    """Find the kappa at which the dispersion is the limit; return the dual value and eta.

    The means are written to part[6]. part holds weights, means and shares. Scores are equal where q.lam_k =
    target - eta ease.
    """
    n = h.shape[0]
    heavy, steep, light = 0.0, 0.0, math.inf
    for g in range(n):
        heavy, light, steep = max(heavy, part[0, g]), min(light, part[0, g]), max(steep, r.quad[g, g])
    if heavy <= 0.0 or steep <= 0.0:
        return _degenerate(target, ease, part, steep)
    natural = heavy / steep
    low = FAINT * natural if light <= 0.0 else 0.0
    excess, eta, dual = _at(r, target, ease, low, part, h)
    if excess <= 0.0:
        return dual, eta
    e_low, high = excess, max(natural, low)
    e_high, eta, dual = _at(r, target, ease, high, part, h)
    while e_high > 0.0 and high < 1e300:
        low, e_low, high = high, e_high, 8.0 * high
        e_high, eta, dual = _at(r, target, ease, high, part, h)
    one, e_one, two, e_two, t = high, e_high, low, e_low, 0.5
    for _ in range(TURNS):
        if e_one == 0.0 or abs(two - one) <= 4e-16 * max(one, two):
            break
        kappa = one + t * (two - one)
        excess, eta, dual = _at(r, target, ease, kappa, part, h)
        one, e_one, two, e_two, t = narrow_bracket(one, e_one, two, e_two, kappa, excess)
    if e_one > 0.0:  # stay on the feasible side
        _, eta, dual = _at(r, target, ease, two, part, h)
    return dual, eta


@kernel
def _at(
    r: Region, target: float, ease: float, kappa: float, part: Array, h: Array
) -> tuple[float, float, float]:
    """Solve (W + kappa quad) (lam - mu) = eta q - kappa quad mu; return excess, eta and dual.

    The excess of dispersion is given as 1 - sqrt(limit / lam' quad lam), which is nearly linear in kappa.
    """
    n = h.shape[0]
    w, m, q, steep, still, moved, x = part[0], part[1], part[2], part[3], part[4], part[5], part[6]
    for g in range(n):
        steep[g] = 0.0
        for c in range(n):
            steep[g] += r.quad[g, c] * m[c]
            h[g, c] = kappa * r.quad[g, c] + (w[g] if g == c else 0.0)
        still[g], moved[g] = -kappa * steep[g], q[g]
    factor(h)
    solve(h, still)
    solve(h, moved)
    behind, give, now = target, ease, 0.0
    for g in range(n):
        behind -= q[g] * (m[g] + still[g])
        give += q[g] * moved[g]
        now += m[g] * steep[g]
    eta = max(behind, 0.0) / give if give > 0.0 else 0.0
    dual = 0.5 * kappa * (now - r.limit) - (0.5 * eta * eta * ease if eta > 0.0 else 0.0)
    dual += eta * target if eta > 0.0 else 0.0
    for g in range(n):
        move = still[g] + eta * moved[g]
        dual -= 0.5 * (eta * q[g] - kappa * steep[g]) * move + eta * q[g] * m[g]
        x[g] = m[g] + move
    spread = form(r.quad, x)
    return (1.0 - math.sqrt(r.limit / spread) if spread > 0.0 else -1.0), eta, dual


@kernel
def _degenerate(target: float, ease: float, part: Array, steep: float) -> tuple[float, float]:
    """Solve without weights (all means at one high enough point) or without dispersion."""
    n = part.shape[1]
    average, behind, give = 0.0, target, ease
    for g in range(n):
        average += part[1, g] / n
        behind -= part[2, g] * part[1, g]
        give += part[2, g] ** 2 / part[0, g] if part[2, g] > 0.0 else 0.0
    behind = max(behind, 0.0)
    eta = behind / give if give > 0.0 else 0.0
    for g in range(n):
        part[6, g] = part[1, g]
        if steep > 0.0:
            part[6, g] = max(average, target)
        elif part[0, g] > 0.0:
            part[6, g] += eta * part[2, g] / part[0, g]
        elif part[2, g] > 0.0:
            part[6, g] += behind / part[2, g]
    return (eta * behind - 0.5 * eta * eta * give if eta > 0.0 else 0.0), eta
