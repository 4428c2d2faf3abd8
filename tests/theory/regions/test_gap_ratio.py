from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.model import region as regions
from evenhand.model.region import Region
from evenhand.model.unit_families import BERNOULLI, GAUSSIAN, POISSON
from evenhand.theory.regions import gap_ratio
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


def a_gap(groups: int, at_most: float) -> Region:
    return regions.region(regions.SPREAD, groups, 2, rho=1.0, slack=at_most)


def a_gap_or_ratio(rng: np.random.Generator, groups: int) -> Region:
    if rng.random() < 0.5:
        return a_gap(groups, float(rng.uniform(0.05, 0.6)))
    # a shifted ratio has a slack of either sign
    rho, slack = float(rng.uniform(0.3, 0.95)), float(rng.choice([0.0, 0.1, -0.02]))
    return regions.region(regions.SPREAD, groups, 2, rho=rho, slack=slack)


def enter(code: int, r: Region, v: Array, mu: Array) -> tuple[float, float, Array]:
    lam = np.empty(len(mu))
    value, lower = gap_ratio.enter(code, r, 1, v, mu, lam, np.empty(gap_ratio.work_size(len(mu))))
    assert lam.min() >= r.rho * lam.max() - r.slack - 1e-12
    return value, lower, lam


def beat(code: int, r: Region, q: Array, v: Array, mu: Array) -> tuple[float, float, Array, Array]:
    """Policy 1 beats policy 0."""
    lam_i, lam_k = np.empty(q.size), np.empty(q.size)
    value, lower = gap_ratio.beat(
        code, r, q, 0.0, 0, 1, v, mu, lam_i, lam_k, np.empty(gap_ratio.work_size(q.size))
    )
    assert lam_k.min() >= r.rho * lam_k.max() - r.slack - 1e-12
    assert q @ lam_k >= q @ lam_i - 1e-12
    return value, lower, lam_i, lam_k


def test_a_gaussian_gap_closes_from_both_ends_against_the_weights() -> None:
    # 0 and 1 must come within 0.4: 0.6 is shared as 1/v, so the heavier cell moves 0.2 and the lighter 0.4
    v, mu = np.array([[1.0, 2.0], [1.0, 1.0]]), np.array([[0.0, 0.0], [0.0, 1.0]])
    value, lower, lam = enter(GAUSSIAN, a_gap(2, 0.4), v, mu)
    np.testing.assert_allclose(lam, [0.2, 0.6], rtol=1e-12)
    assert value == pytest.approx(0.6**2 / 2 / (1 / 2.0 + 1 / 1.0))
    assert certified(value, lower)


def test_a_gaussian_pair_leaves_by_the_squared_distance_to_its_half_space() -> None:
    v, mu = np.array([[1.0, 2.0], [1.0, 1.0]]), np.array([[0.0, 0.1], [0.0, 0.3]])
    lam = np.empty(2)
    value, lower, which = gap_ratio.leave(
        GAUSSIAN, a_gap(2, 0.5), 1, v, mu, lam, np.empty(gap_ratio.work_size(2))
    )
    assert value == pytest.approx(0.3**2 / 2 / (1 / 2.0 + 1 / 1.0))
    assert certified(value, lower)
    assert which == 0 * 2 + 1  # group 0 falls behind group 1
    assert lam[1] - lam[0] == pytest.approx(0.5)


@few
@given(seed=seeds(), code=st.sampled_from(CONVEX), groups=st.integers(2, 5), odd=st.booleans())
def test_entering_agrees_with_a_conic_solver(seed: int, code: int, groups: int, odd: bool) -> None:
    rng = np.random.default_rng(seed)
    mu, v = means(rng, code, (groups, 2), edges=odd), weights(rng, (groups, 2), free=odd)
    v[0, 1] = 1.0  # the solver needs one cell with weight
    r = a_gap_or_ratio(rng, groups)
    value, lower, _ = enter(code, r, v, mu)
    assert certified(value, lower)
    assert value == pytest.approx(
        conic(Cells(code, v[:, 1], mu[:, 1]), inside(r, 1, groups)), rel=1e-5, abs=1e-7
    )


@few
@given(seed=seeds(), code=st.sampled_from(CONVEX), groups=st.integers(2, 4), odd=st.booleans())
def test_leaving_agrees_with_a_conic_solver(seed: int, code: int, groups: int, odd: bool) -> None:
    rng = np.random.default_rng(seed)
    mu, v = means(rng, code, (groups, 2), edges=odd), weights(rng, (groups, 2), free=odd)
    v[0, 1] = 1.0
    r = a_gap_or_ratio(rng, groups)
    lam = np.empty(groups)
    value, lower, _ = gap_ratio.leave(code, r, 1, v, mu, lam, np.empty(gap_ratio.work_size(groups)))
    assert certified(value, lower)
    found = conic(Cells(code, v[:, 1], mu[:, 1]), outside(r, 1, groups))
    assert value == pytest.approx(found, rel=1e-5, abs=1e-7)


@few
@given(seed=seeds(), code=st.sampled_from(CONVEX), groups=st.integers(2, 5), odd=st.booleans())
def test_beating_agrees_with_a_conic_solver(seed: int, code: int, groups: int, odd: bool) -> None:
    rng = np.random.default_rng(seed)
    mu, v = means(rng, code, (groups, 2), edges=odd), weights(rng, (groups, 2), free=odd)
    v[0, 1] = 1.0
    r, q = a_gap_or_ratio(rng, groups), shares(rng, groups, zeros=odd)
    value, lower, _, _ = beat(code, r, q, v, mu)
    assert certified(value, lower)
    cells = Cells(code, np.r_[v[:, 0], v[:, 1]], np.r_[mu[:, 0], mu[:, 1]])
    assert value == pytest.approx(conic(cells, beaten(r, q, 0, 1)), rel=1e-5, abs=1e-7)


@fewer
@given(seed=seeds(), groups=st.integers(2, 4))
def test_no_local_search_beats_the_exponential(seed: int, groups: int) -> None:
    rng = np.random.default_rng(seed)
    code = CODES[3]
    mu, v, q = means(rng, code, (groups, 2)), weights(rng, (groups, 2)), shares(rng, groups)
    r = a_gap_or_ratio(rng, groups)
    value, lower, _ = enter(code, r, v, mu)
    found = slsqp_value(Cells(code, v[:, 1], mu[:, 1]), inside(r, 1, groups))
    assert lower <= value <= found * (1 + 1e-6) + 1e-9
    assert found >= lower - 1e-9
    value, lower, _, _ = beat(code, r, q, v, mu)
    cells = Cells(code, np.r_[v[:, 0], v[:, 1]], np.r_[mu[:, 0], mu[:, 1]])
    found = slsqp_value(cells, beaten(r, q, 0, 1))
    assert lower <= value <= found * (1 + 1e-6) + 1e-9
    assert found >= lower - 1e-9


@few
@given(seed=seeds(), code=st.sampled_from(CONVEX), scale=st.sampled_from([1e-12, 1e9]))
def test_scaling_the_weights_scales_the_costs(seed: int, code: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    mu, v = means(rng, code, (4, 2), edges=True), weights(rng, (4, 2), free=True)
    r, q = a_gap_or_ratio(rng, 4), shares(rng, 4)
    value, _, _, _ = beat(code, r, q, v, mu)
    scaled, lower, _, _ = beat(code, r, q, v * scale, mu)
    assert scaled == pytest.approx(value * scale, rel=1e-9, abs=1e-20 * scale)
    assert lower <= scaled


def test_a_policy_already_inside_enters_for_nothing_and_one_outside_leaves_for_nothing() -> None:
    mu, v, work, lam = (
        np.array([[0.4, 0.1], [0.5, 0.9]]),
        np.ones((2, 2)),
        np.empty(gap_ratio.work_size(2)),
        np.empty(2),
    )
    r = a_gap(2, 0.3)
    assert gap_ratio.enter(BERNOULLI, r, 0, v, mu, lam, work) == (0.0, 0.0)
    assert gap_ratio.leave(BERNOULLI, r, 1, v, mu, lam, work)[:2] == (0.0, 0.0)
    np.testing.assert_array_equal(lam, mu[:, 1])


def test_a_gap_wider_than_the_domain_cannot_be_left() -> None:
    lam, mu = np.empty(2), np.full((2, 1), 0.5)
    r = regions.region(regions.SPREAD, 2, 1, rho=1.0, slack=1.5)
    value, lower, which = gap_ratio.leave(
        BERNOULLI, r, 0, np.ones((2, 1)), mu, lam, np.empty(gap_ratio.work_size(2))
    )
    assert value == lower == math.inf
    assert which == -1


def test_without_any_weight_everything_is_free() -> None:
    mu = np.array([[2.0, 1.0], [3.0, 4.0]])
    value, lower, _, _ = beat(POISSON, a_gap(2, 0.5), np.array([0.5, 0.5]), np.zeros((2, 2)), mu)
    assert value == lower == 0.0
