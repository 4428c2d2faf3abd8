"""Leaving m' quad m <= limit for the Gaussian: a trust-region problem, solved globally.

    least 1/2 (x - m)' W (x - m)  subject to  x' quad x >= limit,  W = diag(w)

In the eigenvectors U of W^-1/2 quad W^-1/2, with eigenvalues a and y = U' W^1/2 m, the solution stretches
every coordinate to y / (1 - nu a), where nu <= 1 / max a is the root of

    sum a y^2 / (1 - nu a)^2 = limit                                  (increasing in nu)

and the dual value nu / 2 (limit - sum a y^2 / (1 - nu a)) bounds the cost from below at any such nu
(S-lemma). In the hard case y has no component in the top eigenvector and no nu is large enough: nu = 1 /
max a, and the remainder is added along that vector. The search is over tau = 1 - nu max a, which keeps its
digits near there.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.theory.regions.linear_algebra import jacobi
from evenhand.theory.regions.single_cell import copy, narrow_bracket

Array = NDArray[np.float64]

TURNS = 200  # iterations of the search for the root: ten are usual
FLAT = 1e-14  # of the largest: smaller eigenvalues, or components of a cell, count as 0


def work_size(groups: int) -> int:
    """Return the scratch size that `escape` needs."""
    return 2 * groups * groups + 4 * groups


@kernel
def escape(quad: Array, limit: float, w: Array, m: Array, x: Array, work: Array) -> tuple[float, float]:
    """Return the cost of the nearest x with x' quad x >= limit, and a lower bound on it."""
    n = x.shape[0]
    copy(m, x)
    now, top = form(quad, m), 0.0
    for g in range(n):
        top = max(top, quad[g, g])
    if now >= limit:
        return 0.0, 0.0
    if top <= 0.0:
        return math.inf, math.inf
    for g in range(n):
        if w[g] <= 0.0 and quad[g, g] > FLAT * top:
            x[g] += _alone(quad, limit - now, m, g)
            return 0.0, 0.0
    a, u = work[: n * n].reshape((n, n)), work[n * n : 2 * n * n].reshape((n, n))
    part = work[2 * n * n : 2 * n * n + 4 * n].reshape((4, n))
    root, y, stretch, ratio = part[0], part[1], part[2], part[3]
    for g in range(n):
        root[g] = math.sqrt(w[g]) if w[g] > 0.0 else 1.0
    for g in range(n):
        for h in range(n):
            a[g, h] = quad[g, h] / (root[g] * root[h])
    jacobi(a, u)
    for e in range(n):
        ratio[e] = max(a[e, e], 0.0)
        y[e] = 0.0
        for g in range(n):
            y[e] += u[g, e] * root[g] * m[g]
    value, lower = _stretch(limit, y, ratio, stretch)
    for g in range(n):
        for e in range(n):
            x[g] += u[g, e] * stretch[e] / root[g]
    return value, min(max(lower, 0.0), value)


@kernel
def form(quad: Array, x: Array) -> float:
    """Return x' quad x."""
    total = 0.0
    for g in range(x.shape[0]):
        for h in range(x.shape[0]):
            total += x[g] * quad[g, h] * x[h]
    return total


@kernel
def _alone(quad: Array, short: float, m: Array, g: int) -> float:
    """Return the shorter move of cell g alone that adds `short` to the quadratic."""
    half = 0.0
    for h in range(m.shape[0]):
        half += quad[g, h] * m[h]
    # quad_gg t^2 + 2 half t = short
    spread = abs(half) + math.sqrt(half * half + quad[g, g] * short)
    return short / spread if half >= 0.0 else -short / spread


@kernel
def _stretch(limit: float, y: Array, ratio: Array, stretch: Array) -> tuple[float, float]:
    """Write each coordinate's move; return cost and dual value. Eigenvalues become ratios."""
    n = y.shape[0]
    first = 0
    for e in range(n):
        if ratio[e] > ratio[first]:
            first = e
    top = ratio[first]
    for e in range(n):
        ratio[e] /= top
    tau = math.sqrt(top / limit) * abs(y[first])
    if tau > 0.0 or _secular(top, y, ratio, 0.0, first) >= limit:
        tau = _root(limit, top, y, ratio, tau, first)
    rest = limit - _secular(top, y, ratio, tau, -1 if tau > 0.0 else first)
    value, pulled = 0.0, 0.0
    for e in range(n):
        stretch[e] = 0.0
        if tau > 0.0 or e != first:
            slack = (1.0 - ratio[e]) + tau * ratio[e]
            stretch[e] = y[e] * (1.0 - tau) * ratio[e] / slack if y[e] != 0.0 else 0.0
            pulled += top * ratio[e] * y[e] * y[e] / slack if y[e] != 0.0 else 0.0
        else:
            stretch[e] = math.sqrt(max(rest, 0.0) / top)  # the hard case; either sign is optimal
        value += 0.5 * stretch[e] * stretch[e]
    return value, 0.5 * (1.0 - tau) / top * (limit - pulled)


@kernel
def _secular(top: float, y: Array, ratio: Array, tau: float, without: int) -> float:
    """Return sum a y^2 / (1 - nu a)^2, with one coordinate left out if `without` >= 0."""
    total = 0.0
    for e in range(y.shape[0]):
        if e != without and y[e] != 0.0:
            total += top * ratio[e] * (y[e] / ((1.0 - ratio[e]) + tau * ratio[e])) ** 2
    return total


@kernel
def _root(limit: float, top: float, y: Array, ratio: Array, least: float, first: int) -> float:
    """Return the tau at which the secular sum is the limit; `least` and 1 bracket it."""
    # the inverse square root of the sum is nearly linear in tau
    without = -1 if least > 0.0 else first
    one, two, t = 1.0, least, 0.5
    f_one = math.sqrt(limit / max(_secular(top, y, ratio, one, without), 1e-300)) - 1.0
    f_two = math.sqrt(limit / _secular(top, y, ratio, two, without)) - 1.0
    for _ in range(TURNS):
        if f_two == 0.0 or abs(two - one) <= 4e-16 * one:
            break
        tau = one + t * (two - one)
        f = math.sqrt(limit / _secular(top, y, ratio, tau, without)) - 1.0
        one, f_one, two, f_two, t = narrow_bracket(one, f_one, two, f_two, tau, f)
        if f == 0.0:
            break
    # the smaller one stretches more: it is outside
    return min(one, two) if f_one != 0.0 else one
