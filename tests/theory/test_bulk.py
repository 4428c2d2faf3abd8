"""All rivals at once must say what one at a time says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given

from evenhand.model import region as regions
from evenhand.model.region import Region
from evenhand.model.unit_families import BERNOULLI, GAUSSIAN, POISSON
from evenhand.theory import inner
from evenhand.theory.beat_bulk import BLOCK, FEW, beat_all, beat_some
from tests.theory.regions.instances import Array, few, means, seeds, shares, weights


def both_ways(code: int, r: Region, q: Array, i: int, v: Array, mu: Array) -> tuple[Array, Array]:
    """The bounds all at once, and one by one."""
    groups, policies = mu.shape
    lam_i, lam_k = np.empty(groups), np.empty(groups)
    work = np.full(inner.work_size(groups, 0), np.nan)
    together = np.empty(policies)
    beat_all(code, r, q, 0.0, i, v, mu, together, lam_i, lam_k, lam_k, work)
    alone = [
        math.inf if k == i else inner.beat(code, r, q, 0.0, i, k, v, mu, lam_i, lam_k, lam_k, work)[1]
        for k in range(policies)
    ]
    return together, np.array(alone)


@few
@given(seed=seeds())
def test_gaussian_floors_agree_rival_by_rival(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups, policies = int(rng.integers(1, FEW + 2)), int(rng.integers(2, 3 * BLOCK))
    lo = means(rng, GAUSSIAN, (groups, policies))
    lo[rng.random(lo.shape) < 0.2] = -math.inf
    r = regions.region(regions.BOX, groups, policies, lo=lo)
    q = shares(rng, groups, zeros=bool(rng.random() < 0.3))
    v, mu = weights(rng, (groups, policies)), means(rng, GAUSSIAN, (groups, policies))
    together, alone = both_ways(GAUSSIAN, r, q, int(np.argmax(q @ mu)), v, mu)
    np.testing.assert_allclose(together, alone, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("policies", [2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK])
def test_blocks_may_end_anywhere(policies: int) -> None:
    rng = np.random.default_rng(policies)
    r = regions.region(regions.BOX, 3, policies, lo=np.zeros((3, policies)))
    q, v, mu = shares(rng, 3), weights(rng, (3, policies)), means(rng, GAUSSIAN, (3, policies))
    for i in (0, policies - 1):
        together, alone = both_ways(GAUSSIAN, r, q, i, v, mu)
        assert together[i] == math.inf
        np.testing.assert_allclose(together, alone, rtol=1e-12, atol=1e-15)


@few
@given(seed=seeds())
def test_caps_cells_without_weight_and_other_kinds_go_one_by_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    policies = BLOCK + 5
    lo, v, mu = means(rng, GAUSSIAN, (3, 1)), weights(rng, (3, policies)), means(rng, GAUSSIAN, (3, policies))
    lo = np.repeat(lo, policies, axis=1)
    hi = np.full((3, policies), math.inf)
    hi[1, 3] = lo[1, 3] + 0.5
    v[2, rng.integers(policies)] = 0.0
    gamma = np.array([0.0, 1.0, 5.0])
    q = shares(rng, 3)
    for r in (
        regions.region(regions.BOX, 3, policies, lo=lo, hi=hi),
        regions.region(regions.PENALTY, 3, policies, lo=lo, gamma=gamma),
    ):
        together, alone = both_ways(GAUSSIAN, r, q, 0, v, mu)
        np.testing.assert_allclose(together, alone, rtol=1e-12, atol=1e-15)


@few
@given(seed=seeds())
def test_bernoulli_floors_agree_rival_by_rival(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups, policies = int(rng.integers(1, 7)), int(rng.integers(2, 3 * BLOCK))
    lo = rng.uniform(0.01, 0.99, (groups, policies))
    lo[rng.random(lo.shape) < 0.2] = -math.inf
    r = regions.region(regions.BOX, groups, policies, lo=lo)
    q = shares(rng, groups, zeros=bool(rng.random() < 0.3))
    v = weights(rng, (groups, policies))
    mu = means(rng, BERNOULLI, (groups, policies), edges=bool(rng.random() < 0.3))
    together, alone = both_ways(BERNOULLI, r, q, int(np.argmax(q @ mu)), v, mu)
    np.testing.assert_allclose(together, alone, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("code", [GAUSSIAN, BERNOULLI])
def test_a_rivals_bound_does_not_depend_on_who_is_in_its_block(code: int) -> None:
    rng = np.random.default_rng(4)
    policies = 2 * BLOCK + 7
    r = regions.region(regions.BOX, 3, policies, lo=np.full((3, policies), 0.3))
    q, v, mu = shares(rng, 3), weights(rng, (3, policies)), means(rng, code, (3, policies))
    v[1, 5], mu[2, 8] = 0.0, 0.0  # one cell without weight, one mean at the Bernoulli's edge
    i = int(np.argmax(q @ mu))
    together, _ = both_ways(code, r, q, i, v, mu)
    lam, work, alone = np.empty((2, 3)), np.empty(inner.work_size(3, 0)), np.full(policies, math.inf)
    for k in range(policies):
        if k != i:
            beat_some(code, r, q, 0.0, i, k, k + 1, v, mu, alone, lam[0], lam[1], lam[1], work)
    np.testing.assert_array_equal(together, alone)


def test_other_families_go_one_by_one() -> None:
    rng = np.random.default_rng(0)
    r = regions.region(regions.BOX, 2, 70, lo=np.full((2, 70), 0.4))
    q, v, mu = shares(rng, 2), weights(rng, (2, 70)), means(rng, POISSON, (2, 70), edges=True)
    together, alone = both_ways(POISSON, r, q, 3, v, mu)
    np.testing.assert_array_equal(together, alone)


def test_a_leader_without_weight_somewhere_falls_for_nothing() -> None:
    rng = np.random.default_rng(1)
    r = regions.region(regions.BOX, 2, 70, lo=np.zeros((2, 70)))
    q, v, mu = shares(rng, 2), weights(rng, (2, 70)), means(rng, GAUSSIAN, (2, 70))
    v[0, 3] = 0.0
    together, alone = both_ways(GAUSSIAN, r, q, 3, v, mu)
    np.testing.assert_array_equal(together, alone)
