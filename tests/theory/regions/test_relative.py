"""Floors and caps relative to a control: three policies move, solved exactly and certified."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.model import region as regions
from evenhand.model.region import Region
from evenhand.model.unit_families import BERNOULLI, GAUSSIAN, POISSON
from evenhand.theory import inner
from evenhand.theory.regions import relative
from tests.oracles import Cells, Part, divergence, related, slsqp_value
from tests.theory.regions.instances import CONVEX, Array, certified, conic, few, means, seeds, shares, weights

CONTROL, I, K = 0, 1, 2  # of the three policies of a random instance
each_family = pytest.mark.parametrize("code", CONVEX)


def relative_to(groups: int, policies: int = 3, **parts: Any) -> Region:
    return regions.region(regions.RELATIVE, groups, policies, control=CONTROL, **parts)


def an_instance(rng: np.random.Generator, code: int, edges: bool) -> tuple[Region, Array, Array, Array]:
    """Relative floors, caps or both; in half of the cases absolute bounds too; zero shares and weights."""
    groups = int(rng.integers(1, 5))
    parts: dict[str, Any] = {}
    if rng.random() < 0.85:
        parts = {"floor_margin": rng.uniform(-0.2, 0.3, groups)}
        if rng.random() < 0.5:
            parts = {"floor_ratio": rng.uniform(0.6, 1.3, groups), "floor_margin": np.zeros(groups)}
    if rng.random() < 0.4 or not parts:
        room = np.maximum(rng.uniform(0.05, 0.5, groups), 0.05 - parts.get("floor_margin", 0.0))
        parts["cap_margin"] = room
        if rng.random() < 0.4:
            parts["cap_ratio"] = np.maximum(
                parts.get("floor_ratio", 1.0) + rng.uniform(-0.1, 0.4, groups), 0.1
            )
    if rng.random() < 0.5:
        parts["lo"] = means(rng, code, (groups, 3))
    if rng.random() < 0.3:
        above = parts.get("lo", means(rng, code, (groups, 3)))
        hi = above + rng.uniform(0.01, 1.0, above.shape) * (0.3 if code == BERNOULLI else 1.0)
        parts["hi"] = np.where(hi < 1.0, hi, math.inf) if code == BERNOULLI else hi
    q = shares(rng, groups, zeros=bool(rng.random() < 0.3))
    v = weights(rng, (groups, 3), free=edges and bool(rng.random() < 0.5))
    return relative_to(groups, **parts), q, v, means(rng, code, (groups, 3), edges=edges)


def beat(
    code: int, r: Region, q: Array, eps: float, i: int, k: int, v: Array, mu: Array
) -> tuple[float, float, Array]:
    """Policy k beats policy i: the bounds and the alternative, checked to be one and to cost the value."""
    groups = q.size
    lam_i, lam_k, lam_0 = (np.full(groups, np.nan) for _ in range(3))
    work = np.full(inner.work_size(groups, 0), np.nan)
    value, lower = inner.beat(code, r, q, eps, i, k, v, mu, lam_i, lam_k, lam_0, work)
    lam = mu.copy()
    if value < math.inf:
        lam[:, CONTROL], lam[:, i], lam[:, k] = lam_0, lam_i, lam_k
        assert q @ lam_k >= q @ lam_i + eps - 1e-10 * (1 + abs(q @ lam_i))
        assert regions.margin(r, k, lam) >= -1e-9
        if CONTROL in (i, k):  # its means are among the other two; lam_0 must not count them again
            np.testing.assert_array_equal(lam_0, mu[:, CONTROL])
    return value, lower, lam


def paid(code: int, v: Array, mu: Array, lam: Array) -> float:
    moved = (v > 0) & (lam != mu)
    return float(v[moved] @ divergence(code, mu[moved], lam[moved]))


def expected(code: int, r: Region, q: Array, eps: float, i: int | None, k: int, v: Array, mu: Array) -> float:
    """The same by cvxpy: policy k inside and, where there is an i, ahead of it."""
    groups = len(mu)
    policies = list(dict.fromkeys([*([] if i is None else [i]), k, CONTROL]))
    rows, rhs = related(r, k, policies)
    if i is not None:
        ahead = np.zeros(len(policies) * groups)
        for policy, sign in ((k, 1.0), (i, -1.0)):
            at = policies.index(policy) * groups
            ahead[at : at + groups] += sign * q
        rows.append(ahead)
        rhs.append(eps)
    cells = Cells(code, v[:, policies].T.ravel(), mu[:, policies].T.ravel())
    return conic(cells, [Part(np.array(rows).reshape(len(rhs), -1), np.array(rhs))]) if v.any() else 0.0


def agree(value: float, lower: float, exact: float) -> None:
    assert certified(value, lower)
    # the solver's own tolerance, where it finds a solution at all: ours is one, checked to be
    if math.isfinite(exact) or not math.isfinite(value):
        assert value == pytest.approx(exact, rel=1e-5, abs=1e-7)


@each_family
@pytest.mark.parametrize("i", [CONTROL, I], ids=["against the control", "against another"])
@few
@given(seed=seeds(), eps=st.sampled_from([0.0, 0.05, 0.3]), edges=st.booleans())
def test_beating_agrees_with_a_conic_programme(code: int, i: int, seed: int, eps: float, edges: bool) -> None:
    rng = np.random.default_rng(seed)
    r, q, v, mu = an_instance(rng, code, edges)
    value, lower, lam = beat(code, r, q, eps, i, K, v, mu)
    agree(value, lower, expected(code, r, q, eps, i, K, v, mu))
    if value < math.inf:
        assert value == pytest.approx(paid(code, v, mu, lam), rel=1e-9, abs=1e-13)


@each_family
@few
@given(seed=seeds(), edges=st.booleans())
def test_entering_agrees_with_a_conic_programme(code: int, seed: int, edges: bool) -> None:
    rng = np.random.default_rng(seed)
    r, q, v, mu = an_instance(rng, code, edges)
    lam_k, lam_0 = np.full(q.size, np.nan), np.full(q.size, np.nan)
    value, lower = inner.enter(code, r, K, v, mu, lam_k, lam_0, np.full(inner.work_size(q.size, 0), np.nan))
    agree(value, lower, expected(code, r, q, 0.0, None, K, v, mu))
    if value < math.inf:
        lam = mu.copy()
        lam[:, K], lam[:, CONTROL] = lam_k, lam_0
        assert regions.margin(r, K, lam) >= -1e-9
        assert value == pytest.approx(paid(code, v, mu, lam), rel=1e-9, abs=1e-13)


@each_family
@few
@given(seed=seeds())
def test_beating_by_the_control_has_no_relative_bound(code: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    r, q, v, mu = an_instance(rng, code, False)
    value, lower, _ = beat(code, r, q, 0.0, I, CONTROL, v, mu)
    absolute = r._replace(kind=regions.BOX)
    lam = np.empty((3, q.size))
    work = np.empty(inner.work_size(q.size, 0))
    assert (value, lower) == inner.beat(code, absolute, q, 0.0, I, CONTROL, v, mu, *lam, work)


@each_family
@few
@given(seed=seeds(), edges=st.booleans())
def test_leaving_breaks_the_cheapest_bound(code: int, seed: int, edges: bool) -> None:
    rng = np.random.default_rng(seed)
    r, q, v, mu = an_instance(rng, code, edges)
    groups = q.size
    lam_k, lam_0 = np.full(groups, np.nan), np.full(groups, np.nan)
    work = np.full(inner.work_size(groups, 0), np.nan)
    value, lower, which = inner.leave(code, r, K, v, mu, lam_k, lam_0, work)
    assert certified(value, lower)
    rows, rhs = related(r, K, [K, CONTROL])
    cells = Cells(code, np.r_[v[:, K], v[:, CONTROL]], np.r_[mu[:, K], mu[:, CONTROL]])
    pieces = [Part(-row[None], -np.array([bound])) for row, bound in zip(rows, rhs, strict=True)]
    exact = min((conic(cells, [piece]) for piece in pieces), default=math.inf) if v.any() else 0.0
    if math.isfinite(exact):
        assert value == pytest.approx(exact, rel=1e-5, abs=1e-7)
    if which >= 0:
        lam = mu.copy()
        lam[:, K], lam[:, CONTROL] = lam_k, lam_0
        # it lies on the bound it names, or was beyond already
        assert regions.margin(r, K, lam) <= 1e-9
        assert value == pytest.approx(paid(code, v, mu, lam), rel=1e-9, abs=1e-13)
        moved = np.nonzero(lam_k != mu[:, K])[0]
        assert set(moved) <= {which % groups}


def test_leaving_a_relative_floor_has_the_gaussian_closed_form() -> None:
    # (mu_i - r mu_0 + m)^2 / (2 (sd_i^2 / w_i + r^2 sd_0^2 / w_0)), in effective weights
    v, mu = np.array([[3.0, 1.0, 2.0]]), np.array([[0.5, 0.0, 0.9]])
    r = relative_to(1, floor_ratio=np.array([0.8]), floor_margin=np.array([0.1]))
    value, lower, which = inner.leave(
        GAUSSIAN, r, K, v, mu, np.empty(1), np.empty(1), np.empty(inner.work_size(1, 0))
    )
    slack = 0.9 - 0.8 * 0.5 + 0.1
    assert value == pytest.approx(slack**2 / (2 * (1 / 2.0 + 0.8**2 / 3.0)), rel=1e-12)
    assert certified(value, lower)
    assert which == 2  # the relative floor of group 0


def test_entering_moves_policy_and_control_against_their_weights() -> None:
    v, mu = np.array([[4.0, 1.0, 1.0]]), np.array([[0.5, 0.0, 0.2]])
    r = relative_to(1, floor_margin=np.array([0.1]))
    lam_k, lam_0 = np.empty(1), np.empty(1)
    value, _ = inner.enter(GAUSSIAN, r, K, v, mu, lam_k, lam_0, np.empty(inner.work_size(1, 0)))
    # a shortfall of 0.2, shared in proportion to 1 / w: 0.16 and 0.04
    assert lam_k[0] == pytest.approx(0.36)
    assert lam_0[0] == pytest.approx(0.46)
    assert value == pytest.approx(0.5 * 0.16**2 + 0.5 * 4.0 * 0.04**2)


def test_the_control_is_never_outside_its_own_relative_bound() -> None:
    r = relative_to(2, floor_margin=np.full(2, -0.5))  # everyone else must be better by half
    mu, v = np.array([[0.5, 0.4, 0.4], [0.5, 0.4, 0.4]]), np.ones((2, 3))
    lam, lam_0, work = np.empty(2), np.empty(2), np.empty(inner.work_size(2, 0))
    assert regions.inside(r, CONTROL, mu)
    assert not regions.inside(r, K, mu)
    assert inner.leave(GAUSSIAN, r, CONTROL, v, mu, lam, lam_0, work) == (math.inf, math.inf, -1)
    assert inner.enter(GAUSSIAN, r, CONTROL, v, mu, lam, lam_0, work) == (0.0, 0.0)


def test_bounds_that_leave_no_room_have_no_alternative() -> None:
    q, v, mu = np.array([1.0]), np.ones((1, 3)), np.array([[0.5, 0.6, 0.4]])
    above = relative_to(1, floor_margin=np.array([-0.5]), hi=np.full((1, 3), 0.4))
    # y >= z + 0.5 and y <= 0.4 ask for z <= -0.1
    assert beat(BERNOULLI, above, q, 0.0, I, K, v, mu)[:2] == (math.inf, math.inf)
    assert beat(GAUSSIAN, above, q, 0.0, I, K, v, mu)[0] < math.inf


def test_an_indifference_that_no_policy_can_reach_leaves_no_alternative() -> None:
    q, v, mu = np.array([1.0]), np.ones((1, 3)), np.array([[0.5, 0.6, 0.4]])
    close = relative_to(1, cap_margin=np.array([0.1]))
    # against the control itself: y <= z + 0.1 can never be y >= z + 0.2
    assert beat(GAUSSIAN, close, q, 0.2, CONTROL, K, v, mu)[:2] == (math.inf, math.inf)
    assert beat(POISSON, close, q, 0.2, CONTROL, K, v, mu)[:2] == (math.inf, math.inf)
    assert beat(BERNOULLI, relative_to(1, floor_margin=np.array([0.1])), q, 1.0, I, K, v, mu)[0] == math.inf


@each_family
@few
@given(seed=seeds())
def test_an_alternative_bounds_the_cost_at_every_other_allocation(code: int, seed: int) -> None:
    """f(v') <= sum v' d(mu, lam) for the lam found at v, over the cells of all three policies."""
    rng = np.random.default_rng(seed)
    r, q, here, mu = an_instance(rng, code, False)
    there = weights(rng, here.shape)
    value, _, lam = beat(code, r, q, 0.02, I, K, here, mu)
    if value < math.inf:
        lower = beat(code, r, q, 0.02, I, K, there, mu)[1]
        assert lower <= paid(code, there, mu, lam) * (1 + 1e-9) + 1e-13


@each_family
@few
@given(seed=seeds(), factor=st.sampled_from([1e-9, 1e-3, 1e6]))
def test_scaling_the_weights_scales_the_costs(code: int, seed: int, factor: float) -> None:
    rng = np.random.default_rng(seed)
    r, q, v, mu = an_instance(rng, code, False)
    value, lower, _ = beat(code, r, q, 0.0, I, K, v, mu)
    scaled, bound, _ = beat(code, r, q, 0.0, I, K, factor * v, mu)
    assert scaled == pytest.approx(factor * value, rel=1e-9, abs=1e-12 * factor)
    assert bound == pytest.approx(factor * lower, rel=1e-9, abs=1e-12 * factor)


def test_without_relative_bounds_it_is_a_box() -> None:
    rng = np.random.default_rng(3)
    for code in CONVEX:
        lo = means(rng, code, (3, 3))
        plain, wide = regions.region(regions.BOX, 3, 3, lo=lo), relative_to(3, lo=lo)
        q, v, mu = shares(rng, 3), weights(rng, (3, 3)), means(rng, code, (3, 3))
        lam, work = np.empty((3, 3)), np.empty(inner.work_size(3, 0))
        value, _, _ = beat(code, wide, q, 0.1, I, K, v, mu)
        assert value == pytest.approx(inner.beat(code, plain, q, 0.1, I, K, v, mu, *lam, work)[0], rel=1e-9)


@each_family
@few
@given(seed=seeds())
def test_every_bound_by_itself_costs_no_less_than_the_cheapest(code: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    r, q, v, mu = an_instance(rng, code, False)
    groups = q.size
    lam_k, lam_0, work = np.empty(groups), np.empty(groups), np.empty(inner.work_size(groups, 0))
    cheapest, _, which = inner.leave(code, r, K, v, mu, lam_k, lam_0, work)
    each = [relative.leave_by(code, r, K, n, v, mu, lam_k, lam_0, work)[0] for n in range(4 * groups)]
    assert min(each) == cheapest
    assert which == (-1 if cheapest == math.inf else int(np.argmin(each)))


def test_a_general_solver_finds_no_cheaper_way_for_means_on_the_edge() -> None:
    """Poisson means of 0, whose divergence is linear: the pull jumps, and a mixture of both sides counts."""
    q, v = np.array([0.5, 0.5]), np.array([[1.0, 2.0, 1.5], [2.0, 1.0, 0.5]])
    mu = np.array([[1.0, 2.0, 0.0], [1.5, 1.0, 0.0]])
    r = relative_to(2, floor_margin=np.array([0.2, 0.4]))
    value, lower, _ = beat(POISSON, r, q, 0.1, I, K, v, mu)
    rows, rhs = related(r, K, [I, K, CONTROL])
    ahead = np.r_[-q, q, 0.0, 0.0]
    piece = Part(np.array([*rows, ahead]), np.array([*rhs, 0.1]))
    cells = Cells(POISSON, v[:, [I, K, CONTROL]].T.ravel(), mu[:, [I, K, CONTROL]].T.ravel())
    assert certified(value, lower)
    assert value == pytest.approx(slsqp_value(cells, [piece], starts=6), rel=1e-6)
