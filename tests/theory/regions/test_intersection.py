from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.model import region as regions
from evenhand.model.region import Region
from evenhand.model.unit_families import BERNOULLI, EXPONENTIAL, GAUSSIAN
from evenhand.theory.regions import gap_ratio, intersection
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


def an_intersection(rng: np.random.Generator, code: int, q: Array, quad: bool, quota: bool) -> Region:
    """Rows, perhaps a quadratic and a quota, with a common point inside."""
    groups, many = q.size, int(rng.integers(1, 5))
    point = means(rng, code, groups)
    rows = rng.normal(size=(many, groups))
    parts: dict[str, object] = {}
    if quad:
        centre = np.eye(groups) - np.outer(np.ones(groups), q)
        form = centre.T @ centre
        parts.update(quad=(form + form.T) / 2, limit=float(point @ form @ point * 1.1 + 0.01))
    if quota and groups > 1:
        floors = np.repeat((point - 0.02)[:, None], 2, axis=1)
        parts.update(need=int(rng.integers(1, groups)), lo=np.maximum(floors, 0.01) if code else floors)
    rhs = np.repeat((rows @ point - rng.uniform(0.02, 1.0, many))[:, None], 2, axis=1)
    return regions.region(regions.CONVEX, groups, 2, rows=rows, rhs=rhs, **parts)


def solve(verb: str, code: int, r: Region, v: Array, mu: Array) -> tuple[float, float, Array]:
    lam, work = np.empty(len(mu)), np.empty(intersection.work_size(len(mu), len(r.rows)))
    value, lower = getattr(intersection, verb)(code, r, 1, v, mu, lam, work)[:2]
    if math.isfinite(value):
        margin = regions.margin(r, 1, np.c_[lam, lam])
        assert margin <= 1e-9 if verb == "leave" else margin >= -1e-9
    return value, lower, lam


def beat(code: int, r: Region, q: Array, v: Array, mu: Array) -> tuple[float, float]:
    """Policy 1 beats policy 0."""
    lam_i, lam_k = np.empty(q.size), np.empty(q.size)
    work = np.empty(intersection.work_size(q.size, len(r.rows)))
    value, lower = intersection.beat(code, r, q, 0.0, 0, 1, v, mu, lam_i, lam_k, work)
    assert regions.margin(r, 1, np.c_[lam_k, lam_k]) >= -1e-9
    assert q @ lam_k >= q @ lam_i - 1e-11 * (1 + abs(q @ lam_i))
    return value, lower


def test_a_single_row_is_entered_along_its_normal() -> None:
    r = regions.region(regions.CONVEX, 2, 2, rows=np.array([[1.0, 2.0]]), rhs=np.full((1, 2), 3.0))
    value, lower, lam = solve("enter", GAUSSIAN, r, np.ones((2, 2)), np.zeros((2, 2)))
    np.testing.assert_allclose(lam, [0.6, 1.2], rtol=1e-9)
    assert value == pytest.approx(9.0 / 10.0)
    assert certified(value, lower)


@few
@given(
    seed=seeds(), code=st.sampled_from(CONVEX), groups=st.integers(1, 4), quad=st.booleans(),
    quota=st.booleans(), odd=st.booleans(),
)  # fmt: skip
def test_entering_and_beating_agree_with_a_conic_solver(
    seed: int, code: int, groups: int, quad: bool, quota: bool, odd: bool
) -> None:
    rng = np.random.default_rng(seed)
    mu, v = means(rng, code, (groups, 2), edges=odd), weights(rng, (groups, 2), free=odd)
    v[0, 1] = 1.0  # the solver needs one cell with weight
    q = shares(rng, groups, zeros=odd)
    r = an_intersection(rng, code, q, quad, quota)
    value, lower, _ = solve("enter", code, r, v, mu)
    assert certified(value, lower)
    assert value == pytest.approx(
        conic(Cells(code, v[:, 1], mu[:, 1]), inside(r, 1, groups)), rel=1e-5, abs=1e-6
    )
    value, lower = beat(code, r, q, v, mu)
    assert certified(value, lower)
    cells = Cells(code, np.r_[v[:, 0], v[:, 1]], np.r_[mu[:, 0], mu[:, 1]])
    assert value == pytest.approx(conic(cells, beaten(r, q, 0, 1)), rel=1e-5, abs=1e-6)


@fewer
@given(
    seed=seeds(),
    code=st.sampled_from(CODES),
    groups=st.integers(2, 3),
    quad=st.booleans(),
    quota=st.booleans(),
)
def test_leaving_is_leaving_the_cheapest_part(
    seed: int, code: int, groups: int, quad: bool, quota: bool
) -> None:
    rng = np.random.default_rng(seed)
    mu, v, q = means(rng, code, (groups, 2)), weights(rng, (groups, 2)), shares(rng, groups)
    r = an_intersection(rng, code, q, quad, quota)
    value, lower, _ = solve("leave", code, r, v, mu)
    assert certified(value, lower)
    found = slsqp_value(Cells(code, v[:, 1], mu[:, 1]), outside(r, 1, groups))
    assert value == pytest.approx(found, rel=1e-5, abs=1e-8)


@fewer
@given(seed=seeds(), groups=st.integers(1, 4), quad=st.booleans())
def test_no_local_search_beats_the_exponential(seed: int, groups: int, quad: bool) -> None:
    rng = np.random.default_rng(seed)
    mu, v, q = means(rng, EXPONENTIAL, (groups, 2)), weights(rng, (groups, 2)), shares(rng, groups)
    r = an_intersection(rng, EXPONENTIAL, q, quad, quota=False)
    value, lower = beat(EXPONENTIAL, r, q, v, mu)
    cells = Cells(EXPONENTIAL, np.r_[v[:, 0], v[:, 1]], np.r_[mu[:, 0], mu[:, 1]])
    found = slsqp_value(cells, beaten(r, q, 0, 1))
    assert lower <= value <= found * (1 + 1e-6) + 1e-9
    assert lower <= found * (1 + 1e-6) + 1e-9


@few
@given(seed=seeds(), code=st.sampled_from(CONVEX), groups=st.integers(2, 8))
def test_a_gap_written_as_rows_costs_what_a_gap_costs(seed: int, code: int, groups: int) -> None:
    rng = np.random.default_rng(seed)
    mu, v, q = means(rng, code, (groups, 2)), weights(rng, (groups, 2)), shares(rng, groups)
    gap = regions.region(regions.SPREAD, groups, 2, rho=1.0, slack=0.3)
    pairs = [np.eye(groups)[g] - np.eye(groups)[h] for g in range(groups) for h in range(groups) if g != h]
    rows = regions.region(regions.CONVEX, groups, 2, rows=np.array(pairs), rhs=np.full((len(pairs), 2), -0.3))
    lam_i, lam_k = np.empty(groups), np.empty(groups)
    one, _ = gap_ratio.beat(
        code, gap, q, 0.0, 0, 1, v, mu, lam_i, lam_k, np.empty(gap_ratio.work_size(groups))
    )
    other, lower = beat(code, rows, q, v, mu)
    assert certified(other, lower)
    assert other == pytest.approx(one, rel=1e-9, abs=1e-13)


def test_conditions_that_no_policy_can_meet_cost_infinitely_much() -> None:
    rows, rhs = np.array([[1.0, 1.0]]), np.full((1, 2), 2.5)  # two means in [0, 1] never sum to 2.5
    r = regions.region(regions.CONVEX, 2, 2, rows=rows, rhs=rhs)
    value, lower, _ = solve("enter", BERNOULLI, r, np.ones((2, 2)), np.full((2, 2), 0.5))
    assert value == lower == math.inf


def test_leaving_names_the_row_the_quadratic_or_the_group() -> None:
    quad = np.array([[0.5, -0.5], [-0.5, 0.5]])  # half the squared difference
    mu, v, lam = np.full((2, 1), 1.0), np.ones((2, 1)), np.empty(2)
    work = np.empty(intersection.work_size(2, 1))
    rows = np.array([[1.0, 0.0]])
    for rhs, limit, floor, which in ((0.9, 9.0, 0.0, 0), (0.0, 0.001, 0.0, 1), (0.0, 9.0, 0.95, 2)):
        r = regions.region(
            regions.CONVEX, 2, 1, rows=rows, rhs=np.full((1, 1), rhs), quad=quad, limit=limit, need=1,
            lo=np.array([[floor], [-5.0]]) if which < 2 else np.array([[floor], [floor]]),
        )  # fmt: skip
        assert intersection.leave(GAUSSIAN, r, 0, v, mu, lam, work)[2] in ((which,) if which < 2 else (2, 3))
