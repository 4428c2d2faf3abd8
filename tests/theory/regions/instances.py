"""Random instances of the inner problems, with free cells and means on the edge where asked for."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from evenhand.model.unit_families import BERNOULLI, EXPONENTIAL, GAUSSIAN, POISSON
from tests.oracles import Cells, Part, conic_value

Array = NDArray[np.float64]

CODES = (GAUSSIAN, BERNOULLI, POISSON, EXPONENTIAL)
CONVEX = (GAUSSIAN, BERNOULLI, POISSON)
few = settings(max_examples=25, deadline=None, derandomize=True)
fewer = settings(max_examples=12, deadline=None, derandomize=True)


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


def shares(rng: np.random.Generator, groups: int, zeros: bool = False) -> Array:
    """Shares that sum to 1, one of them 0 where that is asked for."""
    q = rng.dirichlet(np.ones(groups))
    if zeros and groups > 1:
        q[rng.integers(groups)] = 0.0
    return np.asarray(q / q.sum())


def conic(cells: Cells, pieces: list[Part]) -> float:
    """`conic_value`; Clarabel may say that it missed its own tolerance of 1e-12, which is far below ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return conic_value(cells, pieces)


def certified(value: float, lower: float, relative: float = 1e-9) -> bool:
    """Does the lower bound meet the value?"""
    return lower <= value <= lower * (1 + relative) + 1e-14
