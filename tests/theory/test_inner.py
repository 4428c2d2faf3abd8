"""The inner problem as a whole: dispatch, ranking, and what the outer problem relies on."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given

from evenhand.model import region as regions
from evenhand.model.region import Region
from evenhand.model.unit_families import GAUSSIAN
from evenhand.theory import inner
from tests.oracles import divergence
from tests.theory.regions.instances import CODES, Array, few, means, seeds, shares, weights

Maker = Callable[[Array], Region]  # from floors (L, K)

KINDS: dict[str, Maker] = {
    "box": lambda lo: regions.region(regions.BOX, 3, 4, lo=lo),
    "gap": lambda lo: regions.region(regions.SPREAD, 3, 4, rho=1.0, slack=0.3),
    "quota": lambda lo: regions.region(regions.QUOTA, 3, 4, lo=lo, need=2),
    "dispersion": lambda lo: regions.region(
        regions.DISPERSION, 3, 4, quad=np.eye(3) - np.full((3, 3), 1 / 3), limit=0.1
    ),
    "rows": lambda lo: regions.region(regions.CONVEX, 3, 4, rows=np.array([[1.0, 1.0, 0.0]]), rhs=lo[:1]),
    "penalty": lambda lo: regions.region(regions.PENALTY, 3, 4, lo=lo, gamma=np.array([0.0, 1.0, 3.0])),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def a_region(kind: str, rng: np.random.Generator, code: int) -> Region:
    floor = means(rng, code, (3, 1))
    return KINDS[kind](np.repeat(floor, 4, axis=1))


def beat(
    code: int, r: Region, q: Array, i: int, k: int, v: Array, mu: Array
) -> tuple[float, float, Array, Array]:
    lam_i, lam_k = np.empty(q.size), np.empty(q.size)
    work = np.full(inner.work_size(q.size, r.rows.shape[0]), np.nan)
    return *inner.beat(code, r, q, 0.0, i, k, v, mu, lam_i, lam_k, lam_k, work), lam_i, lam_k


@each_kind
@pytest.mark.parametrize("code", CODES)
@few
@given(seed=seeds())
def test_an_alternative_bounds_the_cost_at_every_other_allocation(kind: str, code: int, seed: int) -> None:
    """f(v') <= sum v' d(mu, lam) for the lam found at v: the supergradient inequality behind every cut."""
    rng = np.random.default_rng(seed)
    r, q, mu = a_region(kind, rng, code), shares(rng, 3), means(rng, code, (3, 4))
    i = max(inner.best(r, q, mu), 0)
    k = (i + 1) % 4
    here, there = weights(rng, (3, 4)), weights(rng, (3, 4))
    value, _, lam_i, lam_k = beat(code, r, q, i, k, here, mu)
    c_i, c_k = divergence(code, mu[:, i], lam_i), divergence(code, mu[:, k], lam_k)
    assert value == pytest.approx(here[:, i] @ c_i + here[:, k] @ c_k, rel=1e-9, abs=1e-14)
    _, lower, _, _ = beat(code, r, q, i, k, there, mu)
    assert lower <= (there[:, i] @ c_i + there[:, k] @ c_k) * (1 + 1e-9) + 1e-14


@each_kind
@few
@given(seed=seeds())
def test_results_depend_on_nothing_but_the_arguments(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    r, q, mu, v = (
        a_region(kind, rng, GAUSSIAN),
        shares(rng, 3),
        means(rng, GAUSSIAN, (3, 4)),
        weights(rng, (3, 4)),
    )
    work = np.full(inner.work_size(3, 0), np.nan)
    lam_i, lam_k = np.empty(3), np.empty(3)
    first = inner.beat(GAUSSIAN, r, q, 0.0, 0, 1, v, mu, lam_i, lam_k, lam_k, work)
    inner.beat(GAUSSIAN, r, q, 0.0, 2, 3, v, mu, lam_i, lam_k, lam_k, work)
    assert inner.beat(GAUSSIAN, r, q, 0.0, 0, 1, v, mu, lam_i, lam_k, lam_k, work) == first


def test_the_score_is_the_overall_mean_less_penalties() -> None:
    q, mu = np.array([0.25, 0.75]), np.array([[1.0, 0.0], [2.0, 3.0]])
    assert inner.score(regions.region(regions.BOX, 2, 2), q, 0, mu) == pytest.approx(1.75)
    soft = regions.region(regions.PENALTY, 2, 2, lo=np.full((2, 2), 0.5), gamma=np.array([4.0, 4.0]))
    assert inner.score(soft, q, 0, mu) == pytest.approx(1.75)
    assert inner.score(soft, q, 1, mu) == pytest.approx(2.25 - 0.25 * 4.0 * 0.5)


def test_the_best_policy_is_feasible_and_first_among_equals() -> None:
    q = np.array([0.5, 0.5])
    mu = np.array([[0.1, 0.6, 0.7, 0.6], [2.0, 0.8, 0.7, 0.8]])  # policy 0 fails its floor in group 0
    floors = regions.region(regions.BOX, 2, 4, lo=np.full((2, 4), 0.5))
    assert inner.best(floors, q, mu) == 1
    assert inner.best(regions.region(regions.BOX, 2, 4), q, mu) == 0
    assert inner.best(regions.region(regions.BOX, 2, 4, lo=np.full((2, 4), 5.0)), q, mu) == -1
    gentle, harsh = (
        regions.region(regions.PENALTY, 2, 4, lo=np.full((2, 4), 0.5), gamma=np.full(2, gamma))
        for gamma in (0.1, 10.0)
    )
    assert inner.best(gentle, q, mu) == 0
    assert inner.best(harsh, q, mu) == 1


def test_a_region_defined_in_python_has_no_value_here() -> None:
    r, q = regions.region(regions.CUSTOM, 2, 2), np.array([0.5, 0.5])
    mu, v, lam = np.array([[1.0, 0.0], [1.0, 0.0]]), np.ones((2, 2)), np.empty(2)
    work = np.empty(inner.work_size(2, 0))
    value, lower = inner.enter(GAUSSIAN, r, 0, v, mu, lam, lam, work)
    assert math.isnan(value)
    assert lower == -math.inf
    assert inner.leave(GAUSSIAN, r, 0, v, mu, lam, lam, work)[1:] == (-math.inf, -1)
    assert beat(GAUSSIAN, r, q, 0, 1, v, mu)[1] == -math.inf
