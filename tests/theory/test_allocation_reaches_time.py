"""The allocation that a plan returns reaches the time that the plan promises.

At that allocation the nearest alternative costs 1/time_high at least and 1/time_low at most. Checked by the
project's own inner solvers, and by a general solver that does not use them: it solves every alternative
of the alternative from several starting points.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from evenhand.errors import Undecidable
from evenhand.model.families import Bernoulli, Exponential, Family, Gamma, Gaussian, Poisson
from evenhand.model.problem import MODES, Problem
from evenhand.model.requirements import (
    All,
    Caps,
    Constraint,
    Dispersion,
    Floors,
    Gap,
    NoConstraint,
    Penalty,
    Polyhedron,
    Quota,
    Ratio,
)
from evenhand.theory.alternatives import alternatives_to
from evenhand.theory.plan import Plan, plan
from tests import oracles

Array = NDArray[np.float64]

# family, and the range its means are drawn from
FAMILIES: dict[str, tuple[Family, float, float]] = {
    "gaussian": (Gaussian(0.7), 0.0, 2.0),
    "bernoulli": (Bernoulli(), 0.1, 0.9),
    "poisson": (Poisson(), 0.2, 3.0),
    "exponential": (Exponential(), 0.1, 4.8),
    "gamma": (Gamma(2.5), 0.1, 4.8),
}


def requirement(kind: str, low: float, high: float, groups: int, rng: np.random.Generator) -> Constraint:
    """A requirement of this kind that some of the means meet and some do not."""
    width = high - low
    floor = low + 0.3 * width
    made: dict[str, Constraint] = {
        "none": NoConstraint(),
        "floors": Floors(floor),
        "caps": Caps(low + 0.8 * width),
        "gap": Gap(0.4 * width),
        "ratio": Ratio(0.5),
        "quota": Quota(floor, groups=max(groups - 1, 1)),
        "dispersion": Dispersion(0.1 * width**2),
        "polyhedron": Polyhedron([[1.0] * groups], [groups * floor]),
        "all": All((Floors(low + 0.2 * width), Dispersion(0.15 * width**2))),
        "penalty": Penalty(rng.uniform(low, low + 0.5 * width, groups), rng.uniform(0.2, 6.0, groups)),
    }
    return made[kind]


def drawn(family: str, kind: str, seed: int) -> tuple[Problem, Array]:
    """A random problem of two or three policies and groups, and its means."""
    rng = np.random.default_rng(seed)
    outcomes, low, high = FAMILIES[family]
    policies, groups = int(rng.integers(2, 4)), int(rng.integers(2, 4))
    means = rng.uniform(low, high, (policies, groups))
    shares = rng.dirichlet(np.full(groups, 2.0))
    problem = Problem(
        [f"p{k}" for k in range(policies)],
        {f"g{g}": float(share) for g, share in enumerate(shares)},
        outcomes,
        requirement(kind, low, high, groups, rng),
        mode=MODES[seed % len(MODES)],
        normalise=True,
    )
    return problem, means


def certified(problem: Problem, means: Array, w: Array) -> float:
    """What the project's own inner solvers certify at an allocation."""
    return alternatives_to(problem, means, problem.answer(means)).solve_at(w).lower


def independent(problem: Problem, means: Array, w: Array) -> float:
    """The nearest alternative at an allocation by SLSQP, piece by piece, from several starts."""
    code, shares, phi, region = problem.standard
    mu, v, answer = problem.unit_means(means), w.T / phi, problem.answer(means)
    groups, policies = mu.shape
    nearest = math.inf
    for k in range(policies):
        cells = oracles.Cells(code, v[:, k], mu[:, k])
        if answer is None:
            pieces = oracles.inside(region, k, groups)
        elif k == answer:
            pieces = [] if problem.constraint.kind == "penalty" else oracles.outside(region, k, groups)
        else:
            cells = oracles.Cells(code, np.r_[v[:, answer], v[:, k]], np.r_[mu[:, answer], mu[:, k]])
            pieces = oracles.beaten(region, shares, answer, k)
        nearest = min(nearest, oracles.slsqp_value(cells, pieces, starts=6))
    return nearest


def planned(problem: Problem, means: Array, **options: Any) -> Plan:
    try:
        return plan(problem, means, **options)
    except Undecidable:
        pytest.skip("the drawn means lie on a boundary")


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("family", ["exponential", "gamma"])
def test_a_penalty_without_convexity_is_certified_where_it_is_planned(family: str, seed: int) -> None:
    problem, means = drawn(family, "penalty", seed)
    found = planned(problem, means, gap=1e-5)
    assert certified(problem, means, found.allocation) * found.time_high >= 1 - 1e-9


# of these, 0, 7, 31 and 43 were 8% to 31% worse than promised
@pytest.mark.parametrize("seed", [0, 1, 2, 7, 31, 43])
@pytest.mark.filterwarnings("ignore:Values in x were outside bounds:RuntimeWarning")
def test_an_independent_solver_finds_no_alternative_nearer_than_promised(seed: int) -> None:
    problem, means = drawn("exponential", "penalty", seed)
    found = planned(problem, means, gap=1e-5)
    assert independent(problem, means, found.allocation) * found.time_high >= 1 - 1e-5


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "kind", ["none", "floors", "caps", "gap", "ratio", "quota", "dispersion", "polyhedron", "all", "penalty"]
)
@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "poisson"])
@pytest.mark.filterwarnings("ignore:Values in x were outside bounds:RuntimeWarning")
def test_every_family_and_requirement_reaches_its_time(family: str, kind: str, seed: int) -> None:
    problem, means = drawn(family, kind, seed)
    found = planned(problem, means, gap=1e-5)
    assert certified(problem, means, found.allocation) * found.time_high >= 1 - 1e-9
    # a solver that missed the nearest alternative would find more than any allocation can reach
    reached = independent(problem, means, found.allocation)
    assert (1 - 1e-5) / found.time_high <= reached <= (1 + 1e-5) / found.time_low


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["none", "floors", "caps", "quota", "dispersion"])
@pytest.mark.filterwarnings("ignore:Values in x were outside bounds:RuntimeWarning")
def test_requirements_without_convexity_reach_their_time(kind: str, seed: int) -> None:
    problem, means = drawn("exponential", kind, seed)
    found = planned(problem, means, gap=1e-4)
    assert certified(problem, means, found.allocation) * found.time_high >= 1 - 1e-9
    assert independent(problem, means, found.allocation) * found.time_high >= 1 - 1e-5


@pytest.mark.parametrize("seed", [1, 5, 12, 18, 21])
def test_where_no_policy_is_feasible_every_policys_own_game_reaches_the_time(seed: int) -> None:
    # the bounds of a game may stay apart by their tolerance, and not all by the same
    rng = np.random.default_rng(seed)
    means = rng.uniform(0.5, 3.0, (3, 2)) * [1.0, 4.0]
    problem = Problem(["a", "b", "c"], {"x": 0.5, "y": 0.5}, Exponential(), Dispersion(0.05))
    assert problem.answer(means) is None
    found = plan(problem, means, gap=1e-4)
    w = np.maximum(found.allocation, 1e-14)
    assert certified(problem, means, w) * found.time_high >= 1 - 1e-11
