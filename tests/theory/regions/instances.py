"""Random instances of the inner problems, and slow solvers that share no code with ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import kl_div

from evenhand.model.units import BERNOULLI, EXPONENTIAL, GAUSSIAN, POISSON

Array = NDArray[np.float64]

CODES = (GAUSSIAN, BERNOULLI, POISSON, EXPONENTIAL)
CONVEX = (GAUSSIAN, BERNOULLI, POISSON)
few = settings(max_examples=25, deadline=None, derandomize=True)
fewer = settings(max_examples=12, deadline=None, derandomize=True)
EDGES = {
    GAUSSIAN: (None, None),
    BERNOULLI: (1e-12, 1 - 1e-12),
    POISSON: (1e-12, None),
    EXPONENTIAL: (1e-9, None),
}


def seeds() -> st.SearchStrategy[int]:
    return st.integers(0, 10**6)


def means(rng: np.random.Generator, code: int, shape: Any, edges: bool = False) -> Array:
    """Means inside the domain, some of them on its edge where that is asked for."""
    mu = {
        GAUSSIAN: rng.normal(size=shape),
        BERNOULLI: rng.uniform(0.05, 0.95, shape),
        POISSON: rng.uniform(0.2, 4.0, shape),
        EXPONENTIAL: rng.uniform(0.3, 3.0, shape),
    }[code]
    if edges and code == BERNOULLI:
        mu = np.where(rng.random(shape) < 0.2, np.round(mu), mu)
    if edges and code == POISSON:
        mu = np.where(rng.random(shape) < 0.2, 0.0, mu)
    return np.asarray(mu)


def weights(rng: np.random.Generator, shape: Any, free: bool = False) -> Array:
    """Weights over two orders of magnitude, some of them 0 where that is asked for."""
    v = 10 ** rng.uniform(-1.0, 1.0, shape)
    return np.asarray(np.where(rng.random(shape) < 0.2, 0.0, v) if free else v)


def divergence(code: int, mu: Array, lam: Array) -> Array:
    """Written from the definition."""
    if code == GAUSSIAN:
        return np.asarray((mu - lam) ** 2 / 2)
    if code == BERNOULLI:
        return np.asarray(kl_div(mu, lam) + kl_div(1 - mu, 1 - lam))
    if code == POISSON:
        return np.asarray(kl_div(mu, lam))
    return np.asarray(mu / lam - 1 - np.log(mu / lam))


def total(code: int, v: Array, mu: Array, lam: Array) -> float:
    """sum v d(mu, lam); cells without weight cost nothing."""
    used = np.broadcast_to(v, np.shape(mu)) > 0
    return float(np.sum(np.where(used, v, 0)[used] * divergence(code, mu[used], lam[used])))


def local_minima(
    code: int, v: Array, mu: Array, conditions: Sequence[Callable[[Array], Any]], starts: Sequence[Array]
) -> float:
    """The least sum v d(mu, x) with conditions(x) >= 0 that SLSQP finds from several starts."""
    low, high = EDGES[code]
    best = np.inf
    for start in starts:
        x0 = np.clip(start, low, high)
        scale = max(total(code, v, mu, x0), 1e-3)
        found = minimize(
            lambda x, s=scale: total(code, v, mu, np.clip(x, low, high)) / s,
            x0,
            constraints=[{"type": "ineq", "fun": condition} for condition in conditions],
            bounds=[(low, high)] * mu.size,
            method="SLSQP",
            options={"ftol": 1e-13, "maxiter": 400},
        )
        if all(np.all(np.asarray(condition(found.x)) >= -1e-8) for condition in conditions):
            best = min(best, total(code, v, mu, found.x))
    return best


def certified(value: float, lower: float, relative: float = 1e-9) -> bool:
    """Does the lower bound meet the value?"""
    return lower <= value <= lower * (1 + relative) + 1e-14
