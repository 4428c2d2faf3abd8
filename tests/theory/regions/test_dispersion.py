from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.model import region as regions
from evenhand.model.region import Region
from evenhand.model.unit_families import BERNOULLI, EXPONENTIAL, GAUSSIAN
from evenhand.theory.regions import dispersion
from tests.oracles import Cells, beaten, inside, outside, slsqp_value
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


def quadratic(q: Array, weighted: bool = False) -> Array:
    """(I - 1 q')' (I - 1 q'), or with diag(q) in between."""
    centre = np.eye(q.size) - np.outer(np.ones(q.size), q)
    form = centre.T @ (np.diag(q) if weighted else np.eye(q.size)) @ centre
    return np.asarray((form + form.T) / 2)


def a_region(q: Array, limit: float, weighted: bool = False) -> Region:
    return regions.region(regions.DISPERSION, q.size, 2, quad=quadratic(q, weighted), limit=limit)


def a_limit_near(rng: np.random.Generator, q: Array, m: Array) -> float:
    """A third to three times what the means disperse."""
    return float(m @ quadratic(q) @ m * rng.uniform(0.3, 3.0) + 1e-3)


def solve(verb: str, code: int, r: Region, v: Array, mu: Array) -> tuple[float, float, Array]:
    lam, work = np.empty(len(mu)), np.empty(dispersion.work_size(len(mu)))
    value, lower = getattr(dispersion, verb)(code, r, 1, v, mu, lam, work)[:2]
    return value, lower, lam


def beat(code: int, r: Region, q: Array, v: Array, mu: Array) -> tuple[float, float]:
    """Policy 1 beats policy 0."""
    lam_i, lam_k = np.empty(q.size), np.empty(q.size)
    work = np.empty(dispersion.work_size(q.size))
    value, lower = dispersion.beat(code, r, q, 0.0, 0, 1, v, mu, lam_i, lam_k, work)
    assert lam_k @ r.quad @ lam_k <= r.limit * (1 + 1e-9)
    assert q @ lam_k >= q @ lam_i - 1e-11 * (1 + abs(q @ lam_i))
    return value, lower


def test_two_gaussian_groups_leave_and_enter_along_their_difference() -> None:
    # with q = (1/2, 1/2) the dispersion is (m_1 - m_2)^2 / 2, so a limit of 1/2 is a distance of 1
    q = np.array([0.5, 0.5])
    r, v = a_region(q, 0.5), np.array([[1.0, 1.0], [1.0, 3.0]])
    ease = 1 / 1.0 + 1 / 3.0
    value, lower, lam = solve("leave", GAUSSIAN, r, v, np.array([[0.0, 0.0], [0.0, 0.4]]))
    assert value == pytest.approx(0.6**2 / 2 / ease)
    assert certified(value, lower)
    assert lam[1] - lam[0] == pytest.approx(1.0)
    value, lower, lam = solve("enter", GAUSSIAN, r, v, np.array([[0.0, 0.0], [0.0, 1.4]]))
    assert value == pytest.approx(0.4**2 / 2 / ease)
    assert certified(value, lower)
    assert lam[1] - lam[0] == pytest.approx(1.0)


def test_the_hard_case_leaves_along_the_top_eigenvector() -> None:
    # equal means have no part in any direction of the ellipsoid: every way out starts from its centre
    q = np.full(3, 1 / 3)
    r, v = a_region(q, 0.8), np.ones((3, 2))
    value, lower, lam = solve("leave", GAUSSIAN, r, v, np.full((3, 2), 0.7))
    assert value == pytest.approx(0.8 / 2)  # the quadratic is a projection: its top eigenvalue is 1
    assert certified(value, lower)
    assert lam @ r.quad @ lam == pytest.approx(0.8)


@few
@given(seed=seeds(), code=st.sampled_from(CONVEX), groups=st.integers(2, 4), odd=st.booleans())
def test_entering_and_beating_agree_with_a_conic_solver(seed: int, code: int, groups: int, odd: bool) -> None:
    rng = np.random.default_rng(seed)
    mu, v = means(rng, code, (groups, 2), edges=odd), weights(rng, (groups, 2), free=odd)
    v[0, 1] = 1.0  # the solver needs one cell with weight
    q = shares(rng, groups, zeros=odd)
    r = a_region(q, a_limit_near(rng, q, mu[:, 1]), weighted=bool(rng.integers(2)))
    value, lower, lam = solve("enter", code, r, v, mu)
    assert certified(value, lower)
    assert lam @ r.quad @ lam <= r.limit * (1 + 1e-9)
    assert value == pytest.approx(
        conic(Cells(code, v[:, 1], mu[:, 1]), inside(r, 1, groups)), rel=1e-5, abs=1e-7
    )
    value, lower = beat(code, r, q, v, mu)
    assert certified(value, lower)
    cells = Cells(code, np.r_[v[:, 0], v[:, 1]], np.r_[mu[:, 0], mu[:, 1]])
    assert value == pytest.approx(conic(cells, beaten(r, q, 0, 1)), rel=1e-5, abs=1e-7)


@few
@given(seed=seeds(), code=st.sampled_from(CODES), groups=st.integers(2, 4))
def test_leaving_is_certified_up_to_four_groups(seed: int, code: int, groups: int) -> None:
    rng = np.random.default_rng(seed)
    mu, v, q = means(rng, code, (groups, 2)), weights(rng, (groups, 2)), shares(rng, groups)
    r = a_region(q, a_limit_near(rng, q, mu[:, 1]))
    value, lower, lam = solve("leave", code, r, v, mu)
    assert certified(value, lower)
    if math.isfinite(value):
        assert lam @ r.quad @ lam >= r.limit * (1 - 1e-9)
    found = slsqp_value(Cells(code, v[:, 1], mu[:, 1]), outside(r, 1, groups), starts=6)
    assert value <= found * (1 + 1e-6) + 1e-9
    assert lower <= found * (1 + 1e-6) + 1e-9


@fewer
@given(seed=seeds(), code=st.sampled_from(CODES[1:]), groups=st.integers(6, 9))
def test_leaving_many_groups_is_bounded_from_both_sides(seed: int, code: int, groups: int) -> None:
    rng = np.random.default_rng(seed)
    mu, v, q = means(rng, code, (groups, 2)), weights(rng, (groups, 2)), shares(rng, groups)
    r = a_region(q, 1.5 * float(mu[:, 1] @ quadratic(q) @ mu[:, 1]))
    value, lower, _ = solve("leave", code, r, v, mu)
    assert 0.0 < lower <= value
    found = slsqp_value(Cells(code, v[:, 1], mu[:, 1]), outside(r, 1, groups), starts=3)
    assert lower <= found * (1 + 1e-9)


@fewer
@given(seed=seeds(), groups=st.integers(2, 4))
def test_no_local_search_beats_the_exponential(seed: int, groups: int) -> None:
    rng = np.random.default_rng(seed)
    mu, v, q = means(rng, EXPONENTIAL, (groups, 2)), weights(rng, (groups, 2)), shares(rng, groups)
    r = a_region(q, a_limit_near(rng, q, mu[:, 1]))
    value, lower = beat(EXPONENTIAL, r, q, v, mu)
    cells = Cells(EXPONENTIAL, np.r_[v[:, 0], v[:, 1]], np.r_[mu[:, 0], mu[:, 1]])
    found = slsqp_value(cells, beaten(r, q, 0, 1))
    assert lower <= value <= found * (1 + 1e-6) + 1e-9
    assert lower <= found * (1 + 1e-6) + 1e-9


@few
@given(seed=seeds(), scale=st.sampled_from([1e-12, 1e9]), code=st.sampled_from(CONVEX))
def test_scaling_the_weights_scales_the_costs(seed: int, scale: float, code: int) -> None:
    rng = np.random.default_rng(seed)
    mu, v, q = means(rng, code, (3, 2), edges=True), weights(rng, (3, 2), free=True), shares(rng, 3)
    r = a_region(q, a_limit_near(rng, q, mu[:, 1]))
    for verb in ("enter", "leave"):
        value, scaled = solve(verb, code, r, v, mu)[0], solve(verb, code, r, v * scale, mu)[0]
        assert scaled == pytest.approx(value * scale, rel=1e-8, abs=1e-14 * scale)
    assert beat(code, r, q, v * scale, mu)[0] == pytest.approx(
        beat(code, r, q, v, mu)[0] * scale, rel=1e-8, abs=1e-14 * scale
    )


def test_one_free_gaussian_group_leaves_for_nothing() -> None:
    q = np.array([0.2, 0.3, 0.5])
    r, v = a_region(q, 2.0), np.array([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    value, lower, lam = solve("leave", GAUSSIAN, r, v, np.array([[0.0, 0.1], [0.0, 0.2], [0.0, 0.3]]))
    assert value == lower == 0.0
    assert lam @ r.quad @ lam == pytest.approx(2.0)


def test_a_dispersion_no_means_can_have_cannot_be_exceeded() -> None:
    r = a_region(np.array([0.5, 0.5]), 0.6)  # at most 1/2 in [0, 1]
    value, lower, _ = solve("leave", BERNOULLI, r, np.ones((2, 2)), np.full((2, 2), 0.5))
    assert value == lower == math.inf
