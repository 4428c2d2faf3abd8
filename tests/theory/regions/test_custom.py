from __future__ import annotations

import math
from typing import Any

import cvxpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.errors import BadInput
from evenhand.model import region as regions
from evenhand.model.families import Bernoulli, Bounded, Exponential, Family, Gaussian, Poisson
from evenhand.model.problem import Problem
from evenhand.model.requirements import Convex, Floors
from evenhand.theory import inner
from evenhand.theory.regions.custom import Custom
from tests.theory.regions.instances import Array, means, seeds, weights

SHARES = np.array([0.3, 0.3, 0.4])
CENTRE = np.eye(3) - np.outer(np.ones(3), SHARES)
FAMILIES = (Gaussian(), Bernoulli(), Poisson(), Exponential())


def a_problem(family: Family, build: Any, contains: Any) -> Problem:
    groups = dict(zip("abc", SHARES.tolist(), strict=True))
    return Problem(["one", "two"], groups, family, Convex(build=build, contains=contains))


def a_dispersion(family: Family, limit: float) -> tuple[Problem, regions.Region]:
    """The same requirement twice: as a set of one's own, and as the one we know."""

    def build(m: Any) -> list[Any]:
        return [cvxpy.sum_squares(CENTRE @ m) <= limit]

    def contains(m: Array) -> bool:
        return float(np.sum((CENTRE @ m) ** 2)) <= limit

    quad = CENTRE.T @ CENTRE
    known = regions.region(regions.DISPERSION, 3, 2, quad=(quad + quad.T) / 2, limit=limit)
    return a_problem(family, build, contains), known


def solved_by_kernels(code: int, r: regions.Region, v: Array, mu: Array) -> tuple[float, float, float]:
    """enter, leave, beat of policy 1."""
    lam_i, lam_k, work = np.empty(3), np.empty(3), np.empty(inner.work_size(3, len(r.rows)))
    return (
        inner.enter(code, r, 1, v, mu, lam_k, lam_k, work)[0],
        inner.leave(code, r, 1, v, mu, lam_k, lam_k, work)[0],
        inner.beat(code, r, SHARES, 0.0, 0, 1, v, mu, lam_i, lam_k, lam_k, work)[0],
    )


def solved_by_cvxpy(problem: Problem, v: Array, mu: Array) -> tuple[tuple[float, float], ...]:
    """(value, lower) of enter, leave, beat of policy 1."""
    custom = Custom(problem)
    lam_i, lam_k = np.empty(3), np.empty(3)
    return (
        custom.enter(1, v, mu, lam_k),
        custom.leave(1, v, mu, lam_k)[:2],
        custom.beat(0.0, 0, 1, v, mu, lam_i, lam_k),
    )


@settings(max_examples=4, deadline=None, derandomize=True)
@given(seed=seeds(), family=st.sampled_from(FAMILIES))
def test_a_dispersion_written_by_the_user_costs_what_ours_costs(seed: int, family: Family) -> None:
    rng = np.random.default_rng(seed)
    mu, v = means(rng, family.code, (3, 2)), weights(rng, (3, 2))
    limit = float(np.sum((CENTRE @ mu[:, 1]) ** 2) * rng.choice([0.5, 2.0]))
    problem, known = a_dispersion(family, limit)
    for (value, lower), truth in zip(
        solved_by_cvxpy(problem, v, mu), solved_by_kernels(family.code, known, v, mu), strict=True
    ):
        assert value == pytest.approx(truth, rel=1e-4, abs=1e-7)
        assert lower <= truth * (1 + 1e-9) + 1e-12
        assert lower >= truth * (1 - 1e-4) - 1e-7 or truth == math.inf


def test_an_endless_half_space_with_a_free_cell_is_solved() -> None:
    problem = a_problem(Gaussian(), lambda m: [m[0] + m[1] <= 1], lambda m: bool(m[0] + m[1] <= 1))
    mu, v = np.array([[0.0, 0.2], [0.0, 0.3], [1.0, 0.0]]), np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 0.0]])
    (entered, _), (left, lower), (beaten, bound) = solved_by_cvxpy(problem, v, mu)
    assert entered == 0.0
    assert left == pytest.approx(0.5**2 / 2 / (1 / 1.0 + 1 / 2.0), rel=1e-6)
    assert lower <= left
    assert beaten == pytest.approx(0.0, abs=1e-9)  # the free third cell does it
    assert bound <= beaten


def test_the_set_is_built_in_the_users_own_units() -> None:
    # outcomes from -10 to 10; all means at least 5 is 0.75 in unit scale
    problem = a_problem(Bounded(-10, 10), lambda m: [m >= 5], lambda m: bool(np.all(m >= 5)))
    mu, v = np.array([[0.9, 0.5], [0.9, 0.8], [0.9, 0.9]]), np.ones((3, 2))
    known = regions.region(regions.BOX, 3, 2, lo=np.full((3, 2), 0.75))
    work, lam_i, lam_k = np.empty(inner.work_size(3, 0)), np.empty(3), np.empty(3)
    (entered, lower), (left, _), (beaten, bound) = solved_by_cvxpy(problem, v, mu)
    assert entered == pytest.approx(inner.enter(1, known, 1, v, mu, lam_k, lam_k, work)[0], rel=1e-5)
    assert lower == pytest.approx(entered, rel=1e-4)
    assert left == 0.0
    assert beaten == pytest.approx(
        inner.beat(1, known, SHARES, 0.0, 0, 1, v, mu, lam_i, lam_k, lam_k, work)[0], rel=1e-5
    )
    assert bound == pytest.approx(beaten, rel=1e-4)


@pytest.mark.parametrize(("groups", "share"), [(2, 1.0), (8, 1 / 8), (11, 0.0)])
def test_the_bound_on_leaving_is_close_for_few_groups_and_honest_for_many(groups: int, share: float) -> None:
    names = {f"group {g}": 1 / groups for g in range(groups)}
    ball = Convex(build=lambda m: [cvxpy.sum_squares(m) <= 4.0], contains=lambda m: bool(m @ m <= 4.0))
    problem = Problem(["one", "two"], names, Gaussian(), ball)
    # from the centre of a ball of radius 2 every way out is equally long
    value, lower, _ = Custom(problem).leave(1, np.ones((groups, 2)), np.zeros((groups, 2)), np.empty(groups))
    assert value == pytest.approx(2.0, rel=1e-6)
    # the polytope on the axes comes as near as 2 / sqrt(L) to the centre
    assert lower == pytest.approx(share * 2.0, rel=5e-3)


def test_a_set_that_fills_the_domain_cannot_be_left() -> None:
    problem = a_problem(Bernoulli(), lambda m: [m >= -1], lambda m: True)
    lam = np.empty(3)
    value, lower, which = Custom(problem).leave(1, np.ones((3, 2)), np.full((3, 2), 0.5), lam)
    assert value == math.inf
    assert lower <= value
    assert which == -1


def test_a_set_without_a_point_is_refused() -> None:
    problem = a_problem(Bernoulli(), lambda m: [m >= 2], lambda m: False)
    with pytest.raises(BadInput, match="must hold some vector of means"):
        Custom(problem).enter(1, np.ones((3, 2)), np.full((3, 2), 0.5), np.empty(3))


def test_another_requirement_is_refused() -> None:
    problem = Problem(["one", "two"], {"a": 1.0}, Gaussian(), Floors(0.0))
    with pytest.raises(BadInput, match="the requirement is 'floors'"):
        Custom(problem)
