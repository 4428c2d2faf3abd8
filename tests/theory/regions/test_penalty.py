"""Penalties: exact for convex families however many groups there are, honest for the exponential."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given

from evenhand.model import region as regions
from evenhand.model.region import Region
from evenhand.model.unit_families import EXPONENTIAL, GAUSSIAN, POISSON
from evenhand.theory import inner
from evenhand.theory.regions import penalty as regions_penalty
from tests.oracles import Cells, beaten, daqp_value, divergence, scip_value, slsqp_value
from tests.theory.regions.instances import (
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


def penalty(floor: Array, gamma: Array) -> Region:
    """The same floors for two policies."""
    lo = np.repeat(np.reshape(floor, (-1, 1)), 2, axis=1).astype(float)
    return regions.region(regions.PENALTY, len(lo), 2, lo=lo, gamma=np.asarray(gamma, dtype=float))


def a_penalty(rng: np.random.Generator, code: int, groups: int) -> Region:
    return penalty(means(rng, code, groups), rng.choice([0.0, 0.5, 1.0, 5.0, 50.0], size=groups))


def leader_first(r: Region, q: Array, mu: Array) -> Array:
    """The two policies, the one with the better score first."""
    ahead = inner.score(r, q, 0, mu) >= inner.score(r, q, 1, mu)
    return mu if ahead else np.ascontiguousarray(mu[:, ::-1])


def beat(code: int, r: Region, q: Array, v: Array, mu: Array) -> tuple[float, float, Array, Array]:
    """Policy 1 beats policy 0: the bounds and the alternative, checked to be one and to cost the value."""
    lam = np.empty((q.size, 2))
    lam_i, lam_k = np.empty(q.size), np.empty(q.size)
    work = np.full(inner.work_size(q.size, 0), np.nan)
    value, lower = inner.beat(code, r, q, 0.0, 0, 1, v, mu, lam_i, lam_k, lam_k, work)
    lam[:, 0], lam[:, 1] = lam_i, lam_k
    scores = [inner.score(r, q, k, lam) for k in range(2)]
    assert scores[1] >= scores[0] - 1e-12 * (1 + abs(scores[0])) * (1 + r.gamma.max())
    paid = v > 0
    assert value == pytest.approx(v[paid] @ divergence(code, mu[paid], lam[paid]), rel=1e-9, abs=1e-14)
    return value, lower, lam_i, lam_k


def stacked(code: int, v: Array, mu: Array) -> Cells:
    return Cells(code, v.T.ravel(), mu.T.ravel())


def test_no_policy_is_excluded_and_none_can_leave() -> None:
    r, mu, v, lam = penalty([0.5], [2.0]), np.array([[0.1, 0.9]]), np.ones((1, 2)), np.empty(1)
    work = np.empty(inner.work_size(1, 0))
    assert inner.enter(GAUSSIAN, r, 0, v, mu, lam, lam, work) == (0.0, 0.0)
    assert inner.leave(GAUSSIAN, r, 0, v, mu, lam, lam, work) == (math.inf, math.inf, -1)


def test_without_a_price_it_is_the_plain_comparison() -> None:
    rng = np.random.default_rng(3)
    q, v, mu = shares(rng, 4), weights(rng, (4, 2)), means(rng, GAUSSIAN, (4, 2))
    r = penalty(np.zeros(4), np.zeros(4))
    mu = leader_first(r, q, mu)
    plain = regions.region(regions.BOX, 4, 2)
    work = np.empty(inner.work_size(4, 0))
    expected, _ = inner.beat(
        GAUSSIAN, plain, q, 0.0, 0, 1, v, mu, np.empty(4), np.empty(4), np.empty(4), work
    )
    assert beat(GAUSSIAN, r, q, v, mu)[0] == pytest.approx(expected, rel=1e-12)


def test_the_best_policy_falls_through_its_floor_where_that_is_cheaper() -> None:
    # one group, phi(x) = x + 3 min(x, 0): from 0.1 policy 0 must fall to the rival's score
    q, r, v = np.ones(1), penalty([0.0], [3.0]), np.array([[1.0, 1e9]])
    near, _, lam, _ = beat(GAUSSIAN, r, q, v, np.array([[0.1, 0.05]]))
    assert lam[0] == pytest.approx(0.05)  # still above the floor
    assert near == pytest.approx(0.05**2 / 2, rel=1e-6)
    far, _, lam, _ = beat(GAUSSIAN, r, q, v, np.array([[0.1, -0.2]]))
    assert lam[0] == pytest.approx(-0.2)  # below it both pay the same price
    assert far == pytest.approx(0.3**2 / 2, rel=1e-6)


def test_a_rival_already_ahead_costs_nothing() -> None:
    r, q, v = penalty([0.5, 0.5], [1.0, 1.0]), np.array([0.5, 0.5]), np.ones((2, 2))
    assert beat(GAUSSIAN, r, q, v, np.array([[0.1, 0.6], [0.7, 0.6]]))[:2] == (0.0, 0.0)


@few
@given(seed=seeds())
def test_the_gaussian_agrees_with_trying_every_choice_of_lines(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = int(rng.integers(1, 6))
    r, q = a_penalty(rng, GAUSSIAN, groups), shares(rng, groups, zeros=bool(rng.random() < 0.3))
    v, mu = weights(rng, (groups, 2)), leader_first(r, q, means(rng, GAUSSIAN, (groups, 2)))
    value, lower, _, _ = beat(GAUSSIAN, r, q, v, mu)
    assert certified(value, lower, 1e-11)
    expected = daqp_value(stacked(GAUSSIAN, v, mu), beaten(r, q, 0, 1))
    assert value == pytest.approx(expected, rel=1e-7, abs=1e-9)


@few
@given(seed=seeds())
def test_a_search_that_ends_early_says_that_the_rival_costs_more_and_never_otherwise(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = int(rng.integers(1, 6))
    r, q, v = a_penalty(rng, GAUSSIAN, groups), shares(rng, groups), weights(rng, (groups, 2))
    mu = leader_first(r, q, means(rng, GAUSSIAN, (groups, 2)))
    value, lower, _, _ = beat(GAUSSIAN, r, q, v, mu)
    for part in (0.2, 0.99, 1.0 + 1e-9, 1.01, 3.0):
        lam_i, lam_k = np.empty(groups), np.empty(groups)
        work = np.full(inner.work_size(groups, 0), np.nan)
        _, short = regions_penalty.beat(GAUSSIAN, r, q, 0.0, 0, 1, v, mu, part * value, lam_i, lam_k, work)
        if part > 1.0:
            assert short == lower
        else:
            assert part * value <= short <= lower * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_the_gaussian_agrees_with_the_papers_mixed_integer_programme(seed: int) -> None:
    rng = np.random.default_rng(seed)
    r, q = a_penalty(rng, GAUSSIAN, 3), shares(rng, 3)
    v, mu = rng.uniform(0.3, 1.0, (3, 2)), leader_first(r, q, means(rng, GAUSSIAN, (3, 2)))
    value, _, _, _ = beat(GAUSSIAN, r, q, v, mu)
    assert value == pytest.approx(scip_value(stacked(GAUSSIAN, v, mu), r, q, 0, 1), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("code", CONVEX)
@fewer
@given(seed=seeds())
def test_convex_families_agree_with_conic_programmes_over_every_choice(code: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = int(rng.integers(1, 4))
    r, q = a_penalty(rng, code, groups), shares(rng, groups)
    v = weights(rng, (groups, 2), free=bool(rng.random() < 0.3))
    mu = leader_first(r, q, means(rng, code, (groups, 2), edges=True))
    value, lower, _, _ = beat(code, r, q, v, mu)
    assert certified(value, lower)
    expected = conic(stacked(code, v, mu), beaten(r, q, 0, 1)) if v.any() else 0.0
    assert value == pytest.approx(expected, rel=1e-5, abs=1e-6 * v.max())


@pytest.mark.parametrize("code", CONVEX)
@pytest.mark.parametrize("groups", [20, 50])
def test_many_groups_are_solved_to_the_last_digit(code: int, groups: int) -> None:
    rng = np.random.default_rng(groups)
    for _ in range(20):
        r = penalty(means(rng, code, groups), rng.uniform(0.0, 5.0, groups))
        q, v = shares(rng, groups), weights(rng, (groups, 2))
        mu = leader_first(r, q, means(rng, code, (groups, 2), edges=True))
        value, lower, _, _ = beat(code, r, q, v, mu)
        assert certified(value, lower)


@fewer
@given(seed=seeds())
def test_the_exponential_is_bounded_from_both_sides(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = int(rng.integers(1, 3))
    r, q, v = a_penalty(rng, EXPONENTIAL, groups), shares(rng, groups), weights(rng, (groups, 2))
    mu = leader_first(r, q, means(rng, EXPONENTIAL, (groups, 2)))
    value, lower, _, _ = beat(EXPONENTIAL, r, q, v, mu)
    found = slsqp_value(stacked(EXPONENTIAL, v, mu), beaten(r, q, 0, 1), starts=3, seed=seed)
    assert 0 < lower <= min(value, found) * (1 + 1e-9)
    if certified(value, lower):
        assert value <= found * (1 + 1e-6)


def test_a_poisson_mean_of_zero_rises_to_its_floor_at_the_penalised_price() -> None:
    # below both floors scores rise alike: the rival costs 1 per unit, and a move of policy 0 costs far more
    q, r, mu = np.ones(1), penalty([1.0], [2.0]), np.array([[0.8, 0.0]])
    value, lower, _, lam_k = beat(POISSON, r, q, np.array([[1e9, 1.0]]), mu)
    assert value == pytest.approx(0.8, rel=1e-6)
    assert lam_k[0] == pytest.approx(0.8, rel=1e-6)
    assert certified(value, lower)


def test_a_cell_without_weight_closes_the_gap_for_nothing() -> None:
    q, r = np.array([0.5, 0.5]), penalty([0.5, 0.5], [4.0, 4.0])
    mu = np.array([[0.9, 0.3], [0.8, 0.1]])
    for row, column in np.ndindex(2, 2):
        v = np.ones((2, 2))
        v[row, column] = 0.0
        value, lower, lam_i, lam_k = beat(GAUSSIAN, r, q, v, mu)
        assert (value, lower) == (0.0, 0.0)
        assert np.isfinite(lam_i).all()
        assert np.isfinite(lam_k).all()


def test_a_high_price_approaches_the_hard_floor_where_the_rival_meets_it() -> None:
    q, v = np.array([0.5, 0.5]), np.ones((2, 2))
    mu = np.array([[0.9, 0.6], [0.9, -0.1]])
    hard = regions.region(regions.BOX, 2, 2, lo=np.zeros((2, 2)))
    work = np.empty(inner.work_size(2, 0))
    expected, _ = inner.beat(GAUSSIAN, hard, q, 0.0, 0, 1, v, mu, np.empty(2), np.empty(2), np.empty(2), work)
    value, _, _, _ = beat(GAUSSIAN, penalty([0.0, 0.0], [1e7, 1e7]), q, v, mu)
    falls = 0.9**2 / 2  # the other way to lose: policy 0 falls to a floor, where the penalty is large
    assert value == pytest.approx(min(expected, falls), rel=1e-3)
