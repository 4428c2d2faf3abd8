from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.model import region as regions
from evenhand.model.region import Region
from evenhand.model.unit_families import BERNOULLI, GAUSSIAN
from evenhand.theory.regions import quota
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


def a_quota(rng: np.random.Generator, code: int, groups: int) -> Region:
    need = int(rng.integers(1, groups))
    return regions.region(regions.QUOTA, groups, 2, lo=means(rng, code, (groups, 2)), need=need)


def beat(code: int, r: Region, q: Array, v: Array, mu: Array) -> tuple[float, float, Array, Array]:
    """Policy 1 beats policy 0."""
    lam_i, lam_k = np.empty(q.size), np.empty(q.size)
    value, lower = quota.beat(code, r, q, 0.0, 0, 1, v, mu, lam_i, lam_k, np.empty(quota.work_size(q.size)))
    assert q @ lam_k >= q @ lam_i - 1e-12 * (1 + abs(q @ lam_i))
    assert np.sum(lam_k >= r.lo[:, 1] - 1e-12) >= r.need
    return value, lower, lam_i, lam_k


def test_entering_lifts_the_cheapest_of_those_that_miss() -> None:
    r = regions.region(regions.QUOTA, 4, 1, lo=np.full((4, 1), 0.5), need=3)
    mu, v = np.array([[0.6], [0.1], [0.2], [0.4]]), np.array([[1.0], [1.0], [10.0], [1.0]])
    lam = np.empty(4)
    value, lower = quota.enter(GAUSSIAN, r, 0, v, mu, lam, np.empty(quota.work_size(4)))
    assert value == lower == pytest.approx((0.4**2 + 0.1**2) / 2)
    np.testing.assert_allclose(lam, [0.6, 0.5, 0.2, 0.5])


def test_leaving_drops_one_group_more_than_are_spare() -> None:
    r = regions.region(regions.QUOTA, 4, 1, lo=np.full((4, 1), 0.5), need=2)
    mu, v = np.array([[0.9], [0.6], [0.7], [0.1]]), np.ones((4, 1))
    lam = np.empty(4)
    value, lower, which = quota.leave(GAUSSIAN, r, 0, v, mu, lam, np.empty(quota.work_size(4)))
    assert value == lower == pytest.approx((0.1**2 + 0.2**2) / 2)
    assert which == 2
    np.testing.assert_allclose(lam, [0.9, 0.5, 0.5, 0.1])


@few
@given(seed=seeds(), code=st.sampled_from(CODES), groups=st.integers(2, 5))
def test_entering_and_leaving_cost_what_the_best_choice_of_groups_costs(
    seed: int, code: int, groups: int
) -> None:
    rng = np.random.default_rng(seed)
    r, mu, v = a_quota(rng, code, groups), means(rng, code, (groups, 2)), weights(rng, (groups, 2))
    lam, work = np.empty(groups), np.empty(quota.work_size(groups))
    cells = Cells(code, v[:, 1], mu[:, 1])
    value, _ = quota.enter(code, r, 1, v, mu, lam, work)
    assert value == pytest.approx(slsqp_value(cells, inside(r, 1, groups), starts=1), rel=1e-6, abs=1e-9)
    value, _, _ = quota.leave(code, r, 1, v, mu, lam, work)
    assert value == pytest.approx(slsqp_value(cells, outside(r, 1, groups), starts=1), rel=1e-6, abs=1e-9)


@fewer
@given(seed=seeds(), code=st.sampled_from(CODES), groups=st.integers(2, 4))
def test_beating_costs_what_the_best_choice_of_groups_costs(seed: int, code: int, groups: int) -> None:
    rng = np.random.default_rng(seed)
    r, mu, v = a_quota(rng, code, groups), means(rng, code, (groups, 2)), weights(rng, (groups, 2))
    q = shares(rng, groups)
    value, lower, _, _ = beat(code, r, q, v, mu)
    assert certified(value, lower)
    cells = Cells(code, np.r_[v[:, 0], v[:, 1]], np.r_[mu[:, 0], mu[:, 1]])
    assert value == pytest.approx(slsqp_value(cells, beaten(r, q, 0, 1)), rel=1e-6, abs=1e-9)


@fewer
@given(seed=seeds(), code=st.sampled_from(CONVEX))
def test_free_cells_edge_means_and_groups_without_share_are_right(seed: int, code: int) -> None:
    rng = np.random.default_rng(seed)
    r, mu = a_quota(rng, code, 3), means(rng, code, (3, 2), edges=True)
    v, q = weights(rng, (3, 2), free=True), shares(rng, 3, zeros=True)
    value, lower, _, _ = beat(code, r, q, v, mu)
    assert certified(value, lower)
    if v.max() > 0:
        cells = Cells(code, np.r_[v[:, 0], v[:, 1]], np.r_[mu[:, 0], mu[:, 1]])
        assert value == pytest.approx(conic(cells, beaten(r, q, 0, 1)), rel=1e-5, abs=1e-6)


@few
@given(seed=seeds(), code=st.sampled_from(CODES), groups=st.integers(8, 12))
def test_twelve_groups_are_certified(seed: int, code: int, groups: int) -> None:
    rng = np.random.default_rng(seed)
    r, mu, v = a_quota(rng, code, groups), means(rng, code, (groups, 2)), weights(rng, (groups, 2), free=True)
    value, lower, _, _ = beat(code, r, shares(rng, groups), v, mu)
    assert certified(value, lower)


def test_a_floor_that_no_policy_can_miss_cannot_be_left() -> None:
    r = regions.region(regions.QUOTA, 2, 1, lo=np.zeros((2, 1)), need=1)
    lam, mu = np.empty(2), np.full((2, 1), 0.5)
    value, lower, which = quota.leave(BERNOULLI, r, 0, np.ones((2, 1)), mu, lam, np.empty(quota.work_size(2)))
    assert value == lower == math.inf
    assert which == -1
