"""Indifference: in every kind of region a rival must exceed the policy's score by eps to beat it."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.model import region as regions
from evenhand.model.families import Bernoulli, Gaussian
from evenhand.model.problem import Problem
from evenhand.model.region import Region
from evenhand.model.requirements import Convex
from evenhand.model.unit_families import BERNOULLI, EXPONENTIAL, GAUSSIAN, POISSON
from evenhand.theory import inner
from evenhand.theory.beat_bulk import BLOCK, beat_all
from evenhand.theory.regions.custom import Custom
from tests.oracles import Cells, beaten, divergence, slsqp_value
from tests.theory.regions.instances import (
    CODES,
    CONVEX,
    Array,
    certified,
    conic,
    few,
    fewer,
    means,
    seeds,
    shares,
    weights,
)

Maker = Callable[[Array], Region]  # from floors (3, 2)
CENTRE = np.eye(3) - np.full((3, 3), 1 / 3)

KINDS: dict[str, Maker] = {
    "box": lambda lo: regions.region(regions.BOX, 3, 2, lo=lo),
    "box with caps": lambda lo: regions.region(regions.BOX, 3, 2, lo=lo, hi=lo + 0.04),
    "gap": lambda lo: regions.region(regions.SPREAD, 3, 2, rho=1.0, slack=0.3),
    "ratio": lambda lo: regions.region(regions.SPREAD, 3, 2, rho=0.8, slack=0.0),
    "quota": lambda lo: regions.region(regions.QUOTA, 3, 2, lo=lo, need=2),
    "dispersion": lambda lo: regions.region(regions.DISPERSION, 3, 2, quad=CENTRE, limit=0.1),
    "polyhedron": lambda lo: regions.region(
        regions.CONVEX, 3, 2, rows=np.array([[1.0, 1.0, 0.0]]), rhs=lo[:1] + lo[1:2]
    ),
    "penalty": lambda lo: regions.region(regions.PENALTY, 3, 2, lo=lo, gamma=np.array([0.0, 1.0, 3.0])),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def drawn(kind: str, code: int, rng: np.random.Generator, edges: bool) -> tuple[Region, Array, Array, Array]:
    r = KINDS[kind](np.repeat(means(rng, code, (3, 1)), 2, axis=1))
    mu = means(rng, code, (3, 2), edges=edges)
    if kind == "ratio" and code == GAUSSIAN:
        mu = np.abs(mu) + 0.1
    q = shares(rng, 3, zeros=bool(rng.random() < 0.3))
    return r, q, weights(rng, (3, 2), free=edges and bool(rng.random() < 0.5)), mu


def beat(code: int, r: Region, q: Array, eps: float, v: Array, mu: Array) -> tuple[float, float]:
    """Policy 1 beats policy 0 by eps; what it finds is checked to be a way."""
    lam_i, lam_k = np.empty(3), np.empty(3)
    work = np.full(inner.work_size(3, len(r.rows)), np.nan)
    value, lower = inner.beat(code, r, q, eps, 0, 1, v, mu, lam_i, lam_k, lam_k, work)
    if value < math.inf:
        lam = np.c_[lam_i, lam_k]
        ahead = inner.score(r, q, 1, lam) - inner.score(r, q, 0, lam)
        assert ahead >= eps - 1e-9 * (1 + np.abs(lam).max()) * (1 + r.gamma.max())
        assert regions.margin(r, 1, lam) >= -1e-9
        moved = (v > 0) & (lam != mu)
        assert value == pytest.approx(v[moved] @ divergence(code, mu[moved], lam[moved]), rel=1e-8, abs=1e-13)
    return value, lower


@each_kind
@pytest.mark.parametrize("code", CONVEX)
@fewer
@given(seed=seeds(), eps=st.sampled_from([0.02, 0.2, 0.6]), edges=st.booleans())
def test_beating_by_a_margin_agrees_with_a_conic_programme(
    kind: str, code: int, seed: int, eps: float, edges: bool
) -> None:
    rng = np.random.default_rng(seed)
    r, q, v, mu = drawn(kind, code, rng, edges)
    value, lower = beat(code, r, q, eps, v, mu)
    cells = Cells(code, v.T.ravel(), mu.T.ravel())
    exact = conic(cells, beaten(r, q, 0, 1, eps)) if v.any() else 0.0
    assert certified(value, lower, 1e-8)
    if math.isfinite(exact) or not math.isfinite(value):
        assert value == pytest.approx(exact, rel=1e-5, abs=1e-7)


@each_kind
@fewer
@given(seed=seeds(), eps=st.sampled_from([0.05, 0.5]))
def test_the_exponential_costs_no_more_than_what_a_general_solver_finds(
    kind: str, seed: int, eps: float
) -> None:
    rng = np.random.default_rng(seed)
    r, q, v, mu = drawn(kind, EXPONENTIAL, rng, False)
    value, lower = beat(EXPONENTIAL, r, q, eps, v, mu)
    found = slsqp_value(Cells(EXPONENTIAL, v.T.ravel(), mu.T.ravel()), beaten(r, q, 0, 1, eps), starts=5)
    assert lower <= value
    assert lower <= found * (1 + 1e-6) + 1e-9
    # under a penalty the search branches on lines only, and its bounds may differ
    if kind != "penalty" or certified(value, lower, 1e-8):
        assert value <= found * (1 + 1e-5) + 1e-8


@each_kind
@pytest.mark.parametrize("code", CODES)
@fewer
@given(seed=seeds())
def test_a_larger_indifference_never_makes_beating_cheaper(kind: str, code: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    r, q, v, mu = drawn(kind, code, rng, False)
    bounds = [beat(code, r, q, eps, v, mu) for eps in (0.0, 0.1, 0.3)]
    for (_, lower), (value, _) in pairwise(bounds):
        assert lower <= value * (1 + 1e-9) + 1e-13


@each_kind
def test_an_indifference_as_wide_as_the_domain_leaves_no_alternative(kind: str) -> None:
    rng = np.random.default_rng(1)
    r, q, v, mu = drawn(kind, BERNOULLI, rng, False)
    assert beat(BERNOULLI, r, q, 1.0, v, mu) == (math.inf, math.inf)


def test_the_gaussian_gap_is_wider_by_the_indifference() -> None:
    # without bounds: (q.mu_i - q.mu_k + eps)^2 / (2 sum q^2 / v)
    q, v, mu = np.array([0.25, 0.75]), np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 0.0], [1.0, 0.5]])
    r = regions.region(regions.BOX, 2, 2)
    lam, work = np.empty((3, 2)), np.empty(inner.work_size(2, 0))
    value, lower = inner.beat(GAUSSIAN, r, q, 0.3, 0, 1, v, mu, *lam, work)
    gap = 0.25 * 1.0 + 0.75 * 0.5 + 0.3
    spread = 0.25**2 * (1 + 1 / 2) + 0.75**2 * (1 / 3 + 1 / 4)
    assert value == pytest.approx(gap**2 / (2 * spread), rel=1e-13)
    assert certified(value, lower, 1e-13)


def test_a_rival_that_is_ahead_by_less_still_pays() -> None:
    q, v, mu = np.array([1.0]), np.ones((1, 2)), np.array([[0.5, 0.6]])
    r = regions.region(regions.BOX, 1, 2)
    lam, work = np.empty((3, 1)), np.empty(inner.work_size(1, 0))
    assert inner.beat(GAUSSIAN, r, q, 0.1 - 1e-9, 0, 1, v, mu, *lam, work) == (0.0, 0.0)
    # 0.3 apart is asked for, 0.1 there: each moves by 0.1
    assert inner.beat(GAUSSIAN, r, q, 0.3, 0, 1, v, mu, *lam, work)[0] == pytest.approx(2 * 0.1**2 / 2)


@pytest.mark.parametrize("code", [GAUSSIAN, BERNOULLI, POISSON])
@few
@given(seed=seeds(), eps=st.sampled_from([0.01, 0.1, 1.5]))
def test_all_rivals_at_once_agree_with_one_at_a_time(code: int, seed: int, eps: float) -> None:
    rng = np.random.default_rng(seed)
    groups, policies = int(rng.integers(1, 6)), int(rng.integers(2, 2 * BLOCK))
    lo = means(rng, code, (groups, policies))
    lo[rng.random(lo.shape) < 0.3] = -math.inf
    r = regions.region(regions.BOX, groups, policies, lo=lo)
    q, v, mu = shares(rng, groups), weights(rng, (groups, policies)), means(rng, code, (groups, policies))
    lam, work, together = (
        np.empty((3, groups)),
        np.full(inner.work_size(groups, 0), np.nan),
        np.empty(policies),
    )
    beat_all(code, r, q, eps, 0, v, mu, together, *lam, work)
    alone = [inner.beat(code, r, q, eps, 0, k, v, mu, *lam, work)[1] for k in range(1, policies)]
    np.testing.assert_allclose(together[1:], alone, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("family", [Gaussian(1.0), Bernoulli()])
def test_a_set_of_the_users_own_is_beaten_by_a_margin_like_the_same_floors(
    family: Gaussian | Bernoulli,
) -> None:
    own = Convex(build=lambda m: [m >= 0.3], contains=lambda m: bool((m >= 0.3).all()))
    problem = Problem(["a", "b"], {"x": 0.6, "y": 0.4}, family, own)
    mu, v = np.array([[0.7, 0.2], [0.6, 0.5]]), np.array([[2.0, 1.0], [1.0, 3.0]])
    lam, work = np.empty((3, 2)), np.empty(inner.work_size(2, 0))
    floors = regions.region(regions.BOX, 2, 2, lo=np.full((2, 2), 0.3))
    exact, _ = inner.beat(family.code, floors, problem.shares, 0.15, 0, 1, v, mu, *lam, work)
    value, lower = Custom(problem).beat(0.15, 0, 1, v, mu, lam[0], lam[1])
    assert value == pytest.approx(exact, rel=1e-5)
    assert lower <= exact * (1 + 1e-9)
    assert lower >= exact * (1 - 1e-4)
    assert problem.shares @ lam[1] >= problem.shares @ lam[0] + 0.15 - 1e-8


def test_a_set_of_the_users_own_that_ends_below_the_margin_leaves_no_alternative() -> None:
    own = Convex(build=lambda m: [m <= 0.4], contains=lambda m: bool((m <= 0.4).all()))
    problem = Problem(["a", "b"], {"x": 0.6, "y": 0.4}, Bernoulli(), own)
    mu, v, lam = np.array([[0.3, 0.2], [0.3, 0.2]]), np.ones((2, 2)), np.empty((2, 2))
    assert Custom(problem).beat(0.5, 0, 1, v, mu, *lam) == (math.inf, math.inf)
