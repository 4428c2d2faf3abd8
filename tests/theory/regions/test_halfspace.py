from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.model.unit_families import BERNOULLI, EXPONENTIAL, GAUSSIAN, POISSON, edge_high, edge_low
from evenhand.theory.regions import halfspace
from tests.oracles import Cells, Part, divergence, slsqp_value
from tests.theory.regions.instances import CODES, Array, certified, few, means, seeds, weights


def reach(code: int, v: Array, mu: Array, a: Array, c: float) -> tuple[float, float, Array]:
    n = mu.size
    lo, hi = np.full(n, edge_low(code)), np.full(n, edge_high(code))
    x = np.empty(n)
    value, lower = halfspace.reach(code, v, mu, a, c, lo, hi, x, np.empty(halfspace.work_size(n)))
    return value, lower, x


def a_half_space(rng: np.random.Generator, code: int, n: int) -> tuple[Array, float]:
    """One that some vector of means lies on."""
    a = rng.normal(size=n)
    return a, float(a @ means(rng, code, n))


def test_gaussian_cost_is_the_squared_gap_over_twice_the_summed_variances() -> None:
    v, mu, a = np.array([2.0, 0.5]), np.array([0.3, -0.1]), np.array([1.0, -2.0])
    value, lower, x = reach(GAUSSIAN, v, mu, a, 1.5)
    gap = 1.5 - (0.3 + 0.2)
    assert value == pytest.approx(gap**2 / (2 * (1 / 2.0 + 4 / 0.5)), rel=1e-14)
    assert certified(value, lower)
    assert a @ x == pytest.approx(1.5, rel=1e-14)


@few
@given(seed=seeds(), code=st.sampled_from(CODES), n=st.integers(1, 5))
def test_no_local_search_finds_a_cheaper_way(seed: int, code: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    v, mu = weights(rng, n), means(rng, code, n)
    a, c = a_half_space(rng, code, n)
    value, lower, x = reach(code, v, mu, a, c)
    assert a @ x >= c - 1e-12 * (1 + abs(c))
    assert value == pytest.approx(v @ divergence(code, mu, x), rel=1e-10, abs=1e-13)
    assert certified(value, lower)
    found = slsqp_value(Cells(code, v, mu), [Part(a[None], np.array([c]))])
    assert found == pytest.approx(value, rel=1e-5, abs=1e-8)


@few
@given(seed=seeds(), code=st.sampled_from(CODES), n=st.integers(1, 6))
def test_free_cells_and_means_on_the_edge_keep_bound_and_cost_together(seed: int, code: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    v, mu = weights(rng, n, free=True), means(rng, code, n, edges=True)
    a, c = a_half_space(rng, code, n)
    a[rng.random(n) < 0.2] = 0.0
    value, lower, x = reach(code, v, mu, a, c)
    assert certified(value, lower)
    if math.isfinite(value):
        assert a @ x >= c - 1e-12 * (1 + abs(c))
    # a faint weight in place of none costs a faint amount more
    faint, _, _ = reach(code, np.maximum(v, 1e-20), mu, a, c)
    assert value <= faint * (1 + 1e-12)
    assert faint <= value + 1e-8 or math.isinf(faint)


@few
@given(seed=seeds(), code=st.sampled_from(CODES), scale=st.sampled_from([1e-12, 1e-3, 1e9]))
def test_scaling_the_weights_scales_the_cost(seed: int, code: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    v, mu = weights(rng, 4, free=True), means(rng, code, 4, edges=True)
    a, c = a_half_space(rng, code, 4)
    value, _, x = reach(code, v, mu, a, c)
    scaled, _, y = reach(code, v * scale, mu, a, c)
    assert scaled == pytest.approx(value * scale, rel=1e-9)
    if math.isfinite(value):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-7)


def test_a_poisson_mean_of_zero_fills_the_gap_that_others_leave() -> None:
    # d(0, lam) = lam, so beyond eta = v / q the cell with mean 0 takes everything: 0.1 * lam
    value, lower, x = reach(POISSON, np.array([0.1, 5.0]), np.array([0.0, 1.0]), np.array([1.0, 1.0]), 10.0)
    others = 1.0 / (1.0 - 0.1 / 5.0)  # up(1, eta / v) at eta = 0.1
    np.testing.assert_allclose(x, [10.0 - others, others], rtol=1e-12)
    assert certified(value, lower)


def test_a_bernoulli_mean_on_the_edge_moves_only_beyond_pull_one() -> None:
    value, lower, x = reach(BERNOULLI, np.array([1.0]), np.array([0.0]), np.array([1.0]), 0.25)
    assert x[0] == pytest.approx(0.25, rel=1e-12)
    assert value == pytest.approx(-math.log(0.75), rel=1e-12)
    assert certified(value, lower)


def test_what_the_domain_does_not_hold_costs_infinitely_much() -> None:
    value, lower, _ = reach(BERNOULLI, np.ones(2), np.array([0.5, 0.5]), np.array([1.0, 1.0]), 2.5)
    assert value == lower == math.inf


def test_the_exponential_sends_one_cell_far_beyond_twice_its_mean() -> None:
    # two equal cells must sum to 20: sharing costs 2 (ln 10 - 0.9), one alone at 19 about ln 19 - 18/19
    value, lower, x = reach(EXPONENTIAL, np.ones(2), np.ones(2), np.ones(2), 20.0)
    assert value < 2 * (math.log(10) - 0.9) - 0.5
    assert max(x) > 15
    assert certified(value, lower)


def test_a_policy_already_there_stays() -> None:
    v, mu = np.ones((3, 2)), np.array([[0.1, 0.5], [0.2, 0.5], [0.3, 0.5]])
    lam = np.empty(3)
    work = np.empty(4 * 3 + halfspace.work_size(3))
    assert halfspace.cross(BERNOULLI, np.ones(3), 1.2, 1, v, mu, lam, work) == (0.0, 0.0)
    np.testing.assert_array_equal(lam, mu[:, 1])
