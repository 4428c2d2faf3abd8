"""All rivals of a relative requirement at once must say what one at a time says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given

from evenhand.model import region as regions
from evenhand.model.region import Region
from evenhand.model.unit_families import BERNOULLI, GAUSSIAN, POISSON
from evenhand.theory import inner
from evenhand.theory.beat_bulk import BLOCK, beat_all, beat_some
from evenhand.theory.relative_bulk import beat_block, is_plain
from tests.theory.regions.instances import CONVEX, Array, few, means, seeds, shares, weights

each_family = pytest.mark.parametrize("code", CONVEX)


def an_instance(
    rng: np.random.Generator, code: int, edges: bool = False
) -> tuple[Region, int, Array, Array, Array]:
    """Relative floors by margin or ratio, half of the time absolute ones too; perhaps the control leads."""
    groups, policies = int(rng.integers(1, 6)), int(rng.integers(3, 2 * BLOCK))
    control = int(rng.integers(policies))
    ratio, margin = np.ones(groups), rng.uniform(-0.1, 0.3, groups)
    if rng.random() < 0.5:
        ratio, margin = rng.uniform(0.7, 1.2, groups), np.zeros(groups)
    lo = np.full((groups, policies), -math.inf)
    if rng.random() < 0.5:
        lo = 0.8 * means(rng, code, lo.shape)
    r = regions.region(
        regions.RELATIVE, groups, policies, control=control, lo=lo, floor_ratio=ratio, floor_margin=margin
    )
    i = control if rng.random() < 0.4 else int(rng.integers(policies))
    q = shares(rng, groups, zeros=bool(rng.random() < 0.3))
    return r, i, q, weights(rng, lo.shape), means(rng, code, lo.shape, edges=edges)


def both_ways(code: int, r: Region, q: Array, eps: float, i: int, v: Array, mu: Array) -> tuple[Array, Array]:
    """The bounds all at once, and one by one."""
    groups, policies = mu.shape
    lam, work = np.empty((3, groups)), np.full(inner.work_size(groups, 0), np.nan)
    together = np.empty(policies)
    beat_all(code, r, q, eps, i, v, mu, together, *lam, work)
    alone = [
        math.inf if k == i else inner.beat(code, r, q, eps, i, k, v, mu, *lam, work)[1]
        for k in range(policies)
    ]
    return together, np.array(alone)


@each_family
@few
@given(seed=seeds())
def test_the_bounds_agree_rival_by_rival(code: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    r, i, q, v, mu = an_instance(rng, code, edges=bool(rng.random() < 0.2))
    together, alone = both_ways(code, r, q, float(rng.choice([0.0, 0.05])), i, v, mu)
    np.testing.assert_allclose(together, alone, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize(("seed", "edges"), [(749, False), (2108, False), (2235, True), (2250, True)])
def test_a_first_guess_that_has_the_wrong_sign_does_not_loosen_the_bound(seed: int, edges: bool) -> None:
    r, i, q, v, mu = an_instance(np.random.default_rng(seed), BERNOULLI, edges=edges)
    together, alone = both_ways(BERNOULLI, r, q, 0.0, i, v, mu)
    np.testing.assert_allclose(together, alone, rtol=1e-9, atol=1e-13)


@each_family
@few
@given(seed=seeds())
def test_a_bound_never_exceeds_the_cost_of_an_alternative(code: int, seed: int) -> None:
    """The value of the block is a lower bound by itself, whichever searches had converged."""
    rng = np.random.default_rng(seed)
    r, i, q, v, mu = an_instance(rng, code)
    groups, policies = mu.shape
    lam, work = np.empty((3, groups)), np.full(inner.work_size(groups, 0), np.nan)
    lower = np.empty(policies)
    assert is_plain(r, q, v, i)
    for start in range(0, policies, BLOCK):
        beat_block(code, r, q, 0.0, i, start, min(start + BLOCK, policies), v, mu, lower, work)
    assert np.isnan(lower[r.control])  # it has no relative bound, and is left to the search for one
    for k in np.flatnonzero(np.isfinite(lower)):
        if k != i:
            value, _ = inner.beat(code, r, q, 0.0, i, k, v, mu, *lam, work)
            assert lower[k] <= value * (1 + 1e-9) + 1e-13


@each_family
def test_nearly_all_rivals_settle_in_the_block(code: int) -> None:
    left, seen = 0, 0
    for seed in range(30):
        r, i, q, v, mu = an_instance(np.random.default_rng(seed), code)
        groups, policies = mu.shape
        lower, work = np.empty(policies), np.empty(inner.work_size(groups, 0))
        for start in range(0, policies, BLOCK):
            beat_block(code, r, q, 0.0, i, start, min(start + BLOCK, policies), v, mu, lower, work)
        left += int(np.isnan(np.delete(lower, [i, r.control])).sum())
        seen += policies
    assert left <= 0.03 * seen


@each_family
def test_a_rivals_bound_does_not_depend_on_who_is_in_its_block(code: int) -> None:
    for seed in range(20):
        r, i, q, v, mu = an_instance(np.random.default_rng(seed), code, edges=seed % 3 == 0)
        together, _ = both_ways(code, r, q, 0.01, i, v, mu)
        groups, policies = mu.shape
        lam, work = np.empty((3, groups)), np.full(inner.work_size(groups, 0), np.nan)
        alone = np.full(policies, math.inf)
        for k in range(policies):
            if k != i:
                beat_some(code, r, q, 0.01, i, k, k + 1, v, mu, alone, *lam, work)
        np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("code", [GAUSSIAN, BERNOULLI, POISSON])
@few
@example(seed=2049)  # a pair next to the edge of the domain
@given(seed=seeds())
def test_caps_and_cells_without_weight_go_one_by_one(code: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    r, i, q, v, mu = an_instance(rng, code)
    groups, policies = mu.shape
    hi = np.full((groups, policies), math.inf)
    hi[0, 1] = max(float(r.lo[0, 1]), float(mu[0, 1])) + 0.02
    v[groups - 1, int(rng.integers(policies))] = 0.0
    for changed in (r._replace(hi=hi), r._replace(cap_margin=np.full(groups, 0.7))):
        together, alone = both_ways(code, changed, q, 0.0, i, v, mu)
        np.testing.assert_allclose(together, alone, rtol=1e-9, atol=1e-13)
