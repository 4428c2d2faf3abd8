"""Boxes: floors and caps, solved exactly for every family and certified."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.model import region as regions
from evenhand.model.region import Region
from evenhand.model.unit_families import BERNOULLI, EXPONENTIAL, GAUSSIAN, POISSON
from evenhand.theory import inner
from tests.oracles import Cells, beaten, daqp_value, divergence, inside, slsqp_value
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


def box(lo: Array | float = -math.inf, hi: Array | float = math.inf, groups: int = 2) -> Region:
    """The same bounds for two policies."""
    low, high = (np.broadcast_to(np.reshape(x, (-1, 1)), (groups, 2)).astype(float) for x in (lo, hi))
    return regions.region(regions.BOX, groups, 2, lo=low.copy(), hi=high.copy())


def a_box(rng: np.random.Generator, code: int, groups: int) -> Region:
    """Floors everywhere, caps above them in half of the cases."""
    lo = means(rng, code, (groups, 2))
    hi = np.full((groups, 2), math.inf)
    if rng.random() < 0.5:
        hi = lo + rng.uniform(0.01, 1.0, lo.shape) * (0.99 - lo if code == BERNOULLI else 1.0)
    return regions.region(regions.BOX, groups, 2, lo=lo, hi=hi)


def beat(code: int, r: Region, q: Array, v: Array, mu: Array) -> tuple[float, float, Array, Array]:
    """Policy 1 beats policy 0: the bounds and the alternative, checked to be one and to cost the value."""
    lam_i, lam_k = np.empty(q.size), np.empty(q.size)
    work = np.full(inner.work_size(q.size, 0), np.nan)
    value, lower = inner.beat(code, r, q, 0.0, 0, 1, v, mu, lam_i, lam_k, lam_k, work)
    if value < math.inf:
        assert q @ lam_k >= q @ lam_i - 1e-12 * (1 + abs(q @ lam_i))
        assert np.all(lam_k >= r.lo[:, 1])
        assert np.all(lam_k <= r.hi[:, 1])
        paid = v > 0
        lam = np.c_[lam_i, lam_k]
        assert value == pytest.approx(v[paid] @ divergence(code, mu[paid], lam[paid]), rel=1e-9, abs=1e-14)
    return value, lower, lam_i, lam_k


def stacked(code: int, v: Array, mu: Array) -> Cells:
    return Cells(code, v.T.ravel(), mu.T.ravel())


def test_entering_lifts_every_group_below_its_floor() -> None:
    r = box([0.5, 0.5, 0.5], [math.inf, math.inf, 0.7], groups=3)
    mu, v, lam = np.array([[0.0, 0.2], [0.0, 0.6], [0.0, 0.9]]), np.full((3, 2), 4.0), np.empty(3)
    value, lower = inner.enter(GAUSSIAN, r, 1, v, mu, lam, lam, np.empty(inner.work_size(3, 0)))
    assert value == lower == pytest.approx(4.0 * (0.3**2 + 0.2**2) / 2)
    np.testing.assert_allclose(lam, [0.5, 0.6, 0.7])


def test_leaving_breaks_the_cheapest_bound_and_names_it() -> None:
    r = box([0.5, 0.2], [math.inf, 0.65])
    mu, v, lam = np.array([[0.0, 0.9], [0.0, 0.6]]), np.array([[1.0, 1.0], [1.0, 10.0]]), np.empty(2)
    work = np.empty(inner.work_size(2, 0))
    value, lower, which = inner.leave(GAUSSIAN, r, 1, v, mu, lam, lam, work)
    # 0.08 through the floor of group 0, 0.8 through that of group 1, 0.0125 through its cap
    assert value == lower == pytest.approx(10.0 * 0.05**2 / 2)
    assert which == 2 + 1
    np.testing.assert_allclose(lam, [0.9, 0.65])
    v[1, 1] = 100.0
    assert inner.leave(GAUSSIAN, r, 1, v, mu, lam, lam, work)[2] == 0


def test_a_policy_on_the_wrong_side_already_leaves_and_enters_for_nothing() -> None:
    r, v, lam, work = box(0.5), np.ones((2, 2)), np.empty(2), np.empty(inner.work_size(2, 0))
    mu = np.array([[0.4, 0.6], [0.9, 0.6]])
    assert inner.leave(GAUSSIAN, r, 0, v, mu, lam, lam, work) == (0.0, 0.0, 0)
    assert inner.enter(GAUSSIAN, r, 1, v, mu, lam, lam, work) == (0.0, 0.0)


def test_a_bound_on_the_edge_of_the_domain_cannot_be_crossed() -> None:
    mu, v, lam = np.full((2, 2), 0.4), np.ones((2, 2)), np.empty(2)
    work = np.empty(inner.work_size(2, 0))
    assert inner.leave(BERNOULLI, box(0.0, 1.0), 0, v, mu, lam, lam, work) == (math.inf, math.inf, -1)
    assert inner.leave(POISSON, box(0.0), 0, v, mu, lam, lam, work) == (math.inf, math.inf, -1)
    assert inner.leave(GAUSSIAN, box(), 0, v, mu, lam, lam, work) == (math.inf, math.inf, -1)


def test_without_bounds_the_gaussian_gap_closes_in_proportion_to_shares_and_against_weights() -> None:
    q, v, mu = np.array([0.25, 0.75]), np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 0.0], [1.0, 0.5]])
    value, lower, lam_i, lam_k = beat(GAUSSIAN, box(), q, v, mu)
    gap = 0.25 * 1.0 + 0.75 * 0.5
    spread = 0.25**2 * (1 + 1 / 2) + 0.75**2 * (1 / 3 + 1 / 4)  # sum of q^2 / v over both policies
    assert value == pytest.approx(gap**2 / (2 * spread), rel=1e-14)
    assert certified(value, lower, 1e-14)
    np.testing.assert_allclose(lam_i, mu[:, 0] - gap / spread * q / v[:, 0])
    np.testing.assert_allclose(lam_k, mu[:, 1] + gap / spread * q / v[:, 1])


def test_a_rival_ahead_already_only_pays_its_way_in() -> None:
    q, v, mu = np.array([0.5, 0.5]), np.ones((2, 2)), np.array([[0.5, 0.2], [0.5, 2.0]])
    value, lower, _, lam_k = beat(GAUSSIAN, box(0.3), q, v, mu)
    assert value == lower == pytest.approx(0.1**2 / 2)
    np.testing.assert_allclose(lam_k, [0.3, 2.0])


def test_a_box_without_room_has_no_alternative() -> None:
    q, v, mu = np.array([0.5, 0.5]), np.ones((2, 2)), np.array([[0.5, 0.2], [0.5, 0.3]])
    assert beat(GAUSSIAN, box(0.7, 0.6), q, v, mu)[:2] == (math.inf, math.inf)
    assert beat(BERNOULLI, box(1.2), q, v, mu)[:2] == (math.inf, math.inf)


@few
@given(seed=seeds())
def test_the_gaussian_agrees_with_a_quadratic_programme(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = int(rng.integers(1, 9))
    r, q = a_box(rng, GAUSSIAN, groups), shares(rng, groups, zeros=bool(rng.random() < 0.3))
    v, mu = weights(rng, (groups, 2)), means(rng, GAUSSIAN, (groups, 2))
    value, lower, _, _ = beat(GAUSSIAN, r, q, v, mu)
    assert certified(value, lower, 1e-12)
    assert value == pytest.approx(
        daqp_value(stacked(GAUSSIAN, v, mu), beaten(r, q, 0, 1)), rel=1e-7, abs=1e-9
    )


@pytest.mark.parametrize("code", CONVEX)
@few
@given(seed=seeds())
def test_convex_families_agree_with_a_conic_programme(code: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = int(rng.integers(1, 5))
    r, q = a_box(rng, code, groups), shares(rng, groups, zeros=bool(rng.random() < 0.3))
    v, mu = weights(rng, (groups, 2), free=True), means(rng, code, (groups, 2), edges=True)
    value, lower, _, _ = beat(code, r, q, v, mu)
    assert certified(value, lower)
    expected = conic(stacked(code, v, mu), beaten(r, q, 0, 1)) if v.any() else 0.0
    assert value == pytest.approx(expected, rel=1e-6, abs=1e-7 * v.max())


@fewer
@given(seed=seeds())
def test_the_exponential_is_certified_and_no_local_search_does_better(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = int(rng.integers(1, 4))
    r, q = a_box(rng, EXPONENTIAL, groups), shares(rng, groups)
    v, mu = weights(rng, (groups, 2)), means(rng, EXPONENTIAL, (groups, 2)) * [5.0, 0.2]
    value, lower, _, _ = beat(EXPONENTIAL, r, q, v, mu)
    assert certified(value, lower)
    found = slsqp_value(stacked(EXPONENTIAL, v, mu), beaten(r, q, 0, 1), starts=4, seed=seed)
    assert value <= found * (1 + 1e-7)


@pytest.mark.parametrize("code", CODES)
@few
@given(seed=seeds())
def test_entering_and_leaving_agree_with_the_nearest_point_of_each_condition(code: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    r, v, mu = a_box(rng, code, 3), weights(rng, (3, 2), free=True), means(rng, code, (3, 2), edges=True)
    lam, work = np.empty(3), np.empty(inner.work_size(3, 0))
    value, _ = inner.enter(code, r, 1, v, mu, lam, lam, work)
    rows, rhs, *_ = inside(r, 1, 3)[0]
    assert np.all(rows @ lam >= rhs)
    # one cell at a time: the nearest point inside is the mean or the bound it misses
    nearest = np.clip(mu[:, 1], r.lo[:, 1], r.hi[:, 1])
    paid = v[:, 1] > 0
    assert value == pytest.approx(
        v[paid, 1] @ divergence(code, mu[paid, 1], nearest[paid]), rel=1e-9, abs=1e-14
    )
    value, _, which = inner.leave(code, r, 1, v, mu, lam, lam, work)
    ways = []
    for bound, missed in ((r.lo[:, 1], mu[:, 1] <= r.lo[:, 1]), (r.hi[:, 1], mu[:, 1] >= r.hi[:, 1])):
        with np.errstate(divide="ignore", invalid="ignore"):
            cost = np.where(missed | ~paid, 0.0, v[:, 1] * divergence(code, mu[:, 1], bound))
        ways.append(np.where(np.isfinite(bound), cost, math.inf))
    assert value == pytest.approx(np.min(ways), rel=1e-9, abs=1e-14)
    assert np.concatenate(ways)[which] == pytest.approx(value, rel=1e-9, abs=1e-14)


@pytest.mark.parametrize("code", CODES)
@few
@given(seed=seeds(), factor=st.sampled_from([1e-9, 1.0 / 3.0, 1e9]))
def test_costs_are_proportional_to_the_weights(code: int, seed: int, factor: float) -> None:
    rng = np.random.default_rng(seed)
    r, q = a_box(rng, code, 3), shares(rng, 3)
    v, mu = weights(rng, (3, 2), free=True), means(rng, code, (3, 2), edges=True)
    once, scaled = beat(code, r, q, v, mu)[:2], beat(code, r, q, factor * v, mu)[:2]
    np.testing.assert_allclose(scaled, np.multiply(factor, once), rtol=1e-10, atol=1e-14 * factor)


def test_a_poisson_mean_of_zero_rises_at_its_own_price_only() -> None:
    # minimise 4 (ln(1/x) - 1 + x) + y over y >= x: the slope 4 (1 - 1/x) + 1 vanishes at x = 4/5
    q, v, mu = np.ones(1), np.array([[4.0, 1.0]]), np.array([[1.0, 0.0]])
    value, lower, lam_i, lam_k = beat(POISSON, box(groups=1), q, v, mu)
    assert value == pytest.approx(4.0 * (math.log(1.25) - 0.2) + 0.8, rel=1e-12)
    assert certified(value, lower, 1e-12)
    np.testing.assert_allclose([lam_i[0], lam_k[0]], 0.8, rtol=1e-12)


def test_of_two_poisson_means_of_zero_the_cheaper_one_takes_the_whole_rise_up_to_its_cap() -> None:
    q, mu = np.array([0.5, 0.5]), np.array([[1.0, 0.0], [1.0, 0.0]])
    v = np.array([[1e6, 1.0], [1e6, 2.0]])  # policy 0 hardly moves, so the rival must reach 1
    _, _, _, free_to_rise = beat(POISSON, box(), q, v, mu)
    np.testing.assert_allclose(free_to_rise, [2.0, 0.0], atol=1e-5)
    value, lower, _, capped = beat(POISSON, box(-math.inf, [1.5, math.inf]), q, v, mu)
    np.testing.assert_allclose(capped, [1.5, 0.5], atol=1e-5)
    assert certified(value, lower, 1e-11)


def test_a_gaussian_cell_without_weight_closes_the_gap_for_nothing_and_no_farther_than_needed() -> None:
    q, mu = np.array([0.5, 0.5]), np.array([[1.0, 0.2], [1.0, 0.0]])
    v = np.array([[1.0, 1.0], [1.0, 0.0]])
    value, lower, lam_i, lam_k = beat(GAUSSIAN, box(0.3), q, v, mu)
    assert value == lower == pytest.approx(0.1**2 / 2)  # the way in, in group 0
    np.testing.assert_allclose(lam_i, 1.0)
    np.testing.assert_allclose(lam_k, [0.3, 1.7])


def test_a_bernoulli_cell_without_weight_goes_to_the_edge_before_others_pay() -> None:
    q, mu = np.array([0.2, 0.8]), np.array([[0.9, 0.5], [0.9, 0.3]])
    v = np.array([[1.0, 0.0], [1.0, 1.0]])
    value, lower, _, lam_k = beat(BERNOULLI, box(), q, v, mu)
    assert lam_k[0] == 1.0
    assert 0 < lower <= value
    v[0, 1] = 1e-9  # next to free costs next to the same
    assert beat(BERNOULLI, box(), q, v, mu)[0] == pytest.approx(value, rel=1e-6)


def test_a_group_without_share_only_minds_its_floor() -> None:
    q, v, mu = np.array([0.0, 1.0]), np.ones((2, 2)), np.array([[5.0, 0.0], [1.0, 0.0]])
    value, _, lam_i, lam_k = beat(GAUSSIAN, box([0.4, -math.inf]), q, v, mu)
    assert value == pytest.approx(0.4**2 / 2 + 1.0**2 / 4)
    np.testing.assert_allclose(lam_i, [5.0, 0.5])
    np.testing.assert_allclose(lam_k, [0.4, 0.5])


def test_one_group_of_the_exponential_going_far_may_cost_less_than_all_going_a_little() -> None:
    # lifting both from 1 to 9 costs 2 (1/9 - 1 + ln 9), one of them to 17 only 1/17 - 1 + ln 17, or a little
    # less where the other follows by a little
    q, mu, v = np.array([0.5, 0.5]), np.array([[9.0, 1.0], [9.0, 1.0]]), np.array([[1e6, 1.0], [1e6, 1.0]])
    value, lower, _, lam_k = beat(EXPONENTIAL, box(), q, v, mu)
    assert value == pytest.approx(1 / 17 - 1 + math.log(17), rel=2e-3)
    assert certified(value, lower)
    np.testing.assert_allclose(sorted(lam_k), [1.0, 17.0], rtol=0.1)


def test_the_papers_scaling_instance_has_its_certified_time() -> None:
    """1 / min f at the best allocation known, against 54.139 from cutting planes (and the paper's 57.32)."""
    means_by_policy = [[0.8, 0.6, 0.7], [0.5, 0.6, 0.4], [-0.6, 1.2, 1.1], [-1.5, 0.8, 0.9], [0.4, 0.2, 0.1]]
    rows = [[0.1546] * 3, [0.1533] * 3, [0.0257, 0, 0], [0.0041, 0, 0], [0.0156] * 3]
    mu, v = np.ascontiguousarray(np.array(means_by_policy).T), np.ascontiguousarray(np.array(rows).T)
    v /= v.sum() * 0.5**2  # sd 0.5: a sample is worth 4
    q, r = np.full(3, 1 / 3), regions.region(regions.BOX, 3, 5, lo=np.zeros((3, 5)))
    lam, work = (np.empty(3), np.empty(3)), np.empty(inner.work_size(3, 0))
    pieces = [inner.beat(GAUSSIAN, r, q, 0.0, 0, k, v, mu, *lam, lam[0], work)[1] for k in range(1, 5)]
    pieces.append(inner.leave(GAUSSIAN, r, 0, v, mu, lam[0], lam[0], work)[1])
    assert 54.1386 <= 1 / min(pieces) <= 54.1386 * 1.005
