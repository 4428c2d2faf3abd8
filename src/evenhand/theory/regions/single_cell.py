"""Single cells: the minimiser of v d(mu, x) - s (x - mu), its value; and root brackets.

Every certified bound of this package is a Lagrangian bound, and every Lagrangian here separates into cells:
the least of v d(mu, x) - s (x - mu) over an interval, by `tilted_minimiser` and `tilted_cost`.
Distances are taken from mu, so that nothing cancels when the alternative is near.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model import unit_families
from evenhand.theory.tilted_means import STRONGEST, weighted_divergence

Array = NDArray[np.float64]


@kernel
def tilted_minimiser(code: int, v: float, mu: float, s: float, lo: float, hi: float) -> float:
    """Return the x in [lo, hi] with the least v d(mu, x) - s x; the end for a cell of weight 0."""
    rest = min(max(mu, lo), hi)
    if s == 0.0:
        return rest
    if v <= 0.0 or abs(s) > STRONGEST * v:
        return hi if s > 0.0 else lo
    x = min(max(unit_families.move(code, mu, s / v), lo), hi)
    if code != unit_families.EXPONENTIAL or s <= 0.0 or hi <= 2.0 * mu:
        return x
    # beyond 2 mu the divergence is concave: compare the far end with the stationary point
    return hi if hi == math.inf or tilted_cost(code, v, mu, s, hi) < tilted_cost(code, v, mu, s, x) else x


@kernel
def tilted_cost(code: int, v: float, mu: float, s: float, x: float) -> float:
    """Return v d(mu, x) - s (x - mu)."""
    return weighted_divergence(code, v, mu, x) - (s * (x - mu) if s != 0.0 else 0.0)


@kernel
def cost(code: int, v: Array, mu: Array, x: Array) -> float:
    """Return sum of v d(mu, x), the cost of an alternative. The objective of eq:internal_opt."""
    total = 0.0
    for c in range(x.shape[0]):
        total += weighted_divergence(code, v[c], mu[c], x[c])
    return total


@kernel
def copy(source: Array, target: Array) -> None:
    for c in range(target.shape[0]):
        target[c] = source[c]


@kernel
def fill(target: Array, value: float) -> None:
    for c in range(target.shape[0]):
        target[c] = value


@kernel
def take_policy(k: int, v: Array, mu: Array, v_k: Array, mu_k: Array) -> None:
    """Copy policy k's columns of weights and means."""
    for g in range(v.shape[0]):
        v_k[g], mu_k[g] = v[g, k], mu[g, k]


@kernel
def first_multiplier(code: int, v: Array, x: Array, a: Array, gap: float) -> float:
    """Return a first guess at the eta that closes a gap: exact for the Gaussian without bounds."""
    ease, stiff = 0.0, 0.0
    for c in range(a.shape[0]):
        if v[c] > 0.0 and a[c] != 0.0:
            ease += a[c] * a[c] * unit_families.variance(code, x[c]) / v[c]
            stiff = max(stiff, v[c] / abs(a[c]))
    # where no cell moves at a small eta, boundary means start to move at s = eta a / v of about 1
    if ease > 0.0:
        return gap / ease
    return stiff if stiff > 0.0 else 1.0


@kernel
def farthest_within(code: int, mu: float, budget: float, upward: bool) -> float:
    """Return the farthest x above or below mu with d(mu, x) <= budget, rounded outwards."""
    edge = unit_families.edge_high(code) if upward else unit_families.edge_low(code)
    near = mu
    far = edge
    if math.isinf(edge):
        step = max(abs(mu), 1.0) * (1.0 if upward else -1.0)
        far = mu + step
        while unit_families.divergence(code, mu, far) <= budget:
            near, step = far, 2.0 * step
            far = mu + step
            if abs(step) > STRONGEST:
                return edge
    elif mu == edge or unit_families.divergence(code, mu, edge) <= budget:
        return edge
    for _ in range(200):
        middle = near + 0.5 * (far - near)
        if middle in (near, far):
            break
        if unit_families.divergence(code, mu, middle) <= budget:
            near = middle
        else:
            far = middle
    return far


@kernel
def narrow_bracket(
    one: float, f_one: float, two: float, f_two: float, x: float, f: float
) -> tuple[float, float, float, float, float]:
    """Return the bracket of a root with x added, newest end first, and the next relative step."""
    if (f < 0.0) == (f_one < 0.0):
        return x, f, two, f_two, _next_fraction(x, f, two, f_two, one, f_one)
    return x, f, one, f_one, _next_fraction(x, f, one, f_one, two, f_two)


@kernel
def _next_fraction(a: float, fa: float, b: float, fb: float, c: float, fc: float) -> float:
    """Return the next step, as a fraction of the bracket from a to b, by Chandrupatla's method.

    Inverse quadratic interpolation through three points if they suggest a monotone curve, else bisection.
    """
    xi = (a - b) / (c - b)
    phi = (fa - fb) / (fc - fb)
    t = 0.5
    if phi * phi < xi and (1.0 - phi) * (1.0 - phi) < 1.0 - xi:
        t = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
    # never so near an end that the bracket does not change
    least = 2e-16 * max(abs(a), abs(b)) / abs(b - a)
    return min(max(t, least), 1.0 - least)
