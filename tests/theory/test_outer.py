"""The best allocation: closed forms where they exist, certificates everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from evenhand.model.families import FAMILIES, Bernoulli, Exponential, Family, Gaussian, Poisson
from evenhand.model.problem import MODES, Problem
from evenhand.model.region import PENALTY
from evenhand.model.requirements import (
    CONSTRAINTS,
    Caps,
    Constraint,
    Dispersion,
    Floors,
    NoConstraint,
    Penalty,
    Quota,
)
from evenhand.theory.alternatives import alternatives_to
from evenhand.theory.modes import mode_of
from evenhand.theory.outer import Bracket, Solution, cutting_planes, solve
from evenhand.theory.plan import plan
from tests.oracles import Cells, beaten, outside, slsqp_value
from tests.theory.regions.instances import conic

Array = NDArray[np.float64]

CASES = Path(__file__).parents[3] / "shared" / "reference" / "plan_cases.json"

SCALING = [[0.8, 0.6, 0.7], [0.5, 0.6, 0.4], [-0.6, 1.2, 1.1], [-1.5, 0.8, 0.9], [0.4, 0.2, 0.1]]


def problem_of(
    means: Any, family: Family, constraint: Constraint, shares: Any = None, mode: str = "active", **more: Any
) -> Problem:
    policies, groups = np.shape(means)
    shares = np.full(groups, 1.0 / groups) if shares is None else shares
    names = [f"g{g}" for g in range(groups)]
    if "arrivals" in more:
        more["arrivals"] = dict(zip(names, more["arrivals"], strict=True))
    return Problem(
        [f"p{k}" for k in range(policies)],
        dict(zip(names, shares, strict=True)),
        family,
        constraint,
        mode=mode,
        normalise=True,
        **more,
    )


def solved(problem: Problem, means: Any, gap: float = 1e-6) -> Solution:
    table = np.asarray(means, dtype=float)
    return solve(alternatives_to(problem, table, problem.answer(table)), mode_of(problem), gap)


def assert_time(found: Solution, expected: float, gap: float = 1e-6) -> None:
    assert found.gap <= gap
    assert 1 / found.upper <= expected * (1 + 1e-9)
    assert 1 / found.lower >= expected * (1 - 1e-9)


# two policies, no requirement, known sd: the variance of the difference of overall means is
# sum q^2 sd^2 / w, and T* is twice its smallest value over allocations, over the squared difference
SD = np.array([[0.5, 1.0, 2.0], [0.3, 0.7, 1.1]])
SHARES = np.array([0.5, 0.3, 0.2])
ARRIVALS = np.array([0.2, 0.2, 0.6])
TWO = np.array([[0.9, 0.2, 0.4], [0.1, 0.3, 0.2]])
DIFFERENCE = float(SHARES @ (TWO[0] - TWO[1]))


def test_two_policies_are_sampled_in_proportion_to_share_times_deviation() -> None:
    found = solved(problem_of(TWO, Gaussian(SD), NoConstraint(), SHARES), TWO)
    assert_time(found, 2 * (SHARES * SD).sum() ** 2 / DIFFERENCE**2)
    assert found.w == pytest.approx(SHARES * SD / (SHARES * SD).sum(), rel=1e-2)


def test_proportional_sampling_balances_two_policies_within_each_group() -> None:
    problem = problem_of(TWO, Gaussian(SD), NoConstraint(), SHARES, "proportional", arrivals=ARRIVALS)
    variance = (SHARES**2 * SD.sum(axis=0) ** 2 / ARRIVALS).sum()
    found = solved(problem, TWO)
    assert_time(found, 2 * variance / DIFFERENCE**2)
    assert found.w.sum(axis=0) == pytest.approx(ARRIVALS)


def test_agnostic_sampling_balances_the_two_policies_whole_deviations() -> None:
    problem = problem_of(TWO, Gaussian(SD), NoConstraint(), SHARES, "agnostic", arrivals=ARRIVALS)
    deviations = np.sqrt((SHARES**2 * SD**2 / ARRIVALS).sum(axis=1))
    found = solved(problem, TWO)
    assert_time(found, 2 * deviations.sum() ** 2 / DIFFERENCE**2)
    assert found.w == pytest.approx(np.outer(deviations / deviations.sum(), ARRIVALS), rel=1e-2)


def test_costs_enter_by_their_square_root() -> None:
    costs = np.array([[1.0, 4.0, 0.25], [2.0, 1.0, 9.0]])
    problem = problem_of(TWO, Gaussian(SD), NoConstraint(), SHARES, costs=costs)
    found = solved(problem, TWO)
    assert_time(found, 2 * (SHARES * SD * np.sqrt(costs)).sum() ** 2 / DIFFERENCE**2)
    assert (found.w * costs).sum() == pytest.approx(1.0)


def test_proportional_sampling_with_costs_pays_for_arrivals() -> None:
    # equal costs of 3 everywhere: the same shares, three times the cost
    problem = problem_of(
        TWO,
        Gaussian(SD),
        NoConstraint(),
        SHARES,
        "proportional",
        arrivals=ARRIVALS,
        costs=np.full((2, 3), 3.0),
    )
    variance = (SHARES**2 * SD.sum(axis=0) ** 2 / ARRIVALS).sum()
    assert_time(solved(problem, TWO), 3 * 2 * variance / DIFFERENCE**2)


def test_no_policy_feasible_under_floors_takes_the_sum_over_policies_of_the_inverse_divergence() -> None:
    means = np.array([[0.5, 0.9, 0.6], [0.2, 0.3, 0.8], [0.6, 0.65, 0.69]])
    problem = problem_of(means, Bernoulli(), Floors(0.7))
    worst = [max(Bernoulli().divergence(m, 0.7) for m in row if m < 0.7) for row in means]
    found = solved(problem, means)
    assert_time(found, sum(1 / d for d in worst))
    assert found.w.argmax(axis=1).tolist() == [0, 0, 0]
    shares = sorted(1 / np.array(worst) / sum(1 / d for d in worst), reverse=True)
    assert [b.share for b in found.binding] == pytest.approx(shares)


def test_no_policy_feasible_under_a_quota_is_a_game_per_policy_and_not_one_cell_per_policy() -> None:
    # two of the three groups must reach 0.7; each policy misses in `violated`, so `lacking` more would do
    means = np.array([[0.5, 0.9, 0.6], [0.2, 0.3, 0.6], [0.6, 0.5, 0.69]])
    problem = problem_of(means, Bernoulli(), Quota(0.7, groups=2))
    games, printed = [], np.zeros(means.shape)
    for k, row in enumerate(means):
        d = sorted((float(Bernoulli().divergence(m, 0.7)) for m in row if m < 0.7), reverse=True)
        lacking, violated = 2 - int((row >= 0.7).sum()), len(d)
        # weights make w d equal on the a largest d, and the `lacking` cheapest of these can be lifted
        games.append(
            max(
                (lacking - violated + a) / sum(1 / x for x in d[:a])
                for a in range(violated - lacking + 1, violated + 1)
            )
        )
        printed[k, row.argmin()] = 1 / d[0]
    assert_time(solved(problem, means), sum(1 / game for game in games))
    # all of a policy's samples in its worst group: it could meet the quota in the two others
    weights = printed / printed.sum()
    assert alternatives_to(problem, means, None).solve_at(weights).value == 0.0


def test_no_policy_feasible_in_other_modes_is_no_faster() -> None:
    means = np.array([[0.5, 0.9, 0.6], [0.2, 0.3, 0.8]])
    times = [
        1 / solved(problem_of(means, Bernoulli(), Floors(0.7), mode=mode), means).lower for mode in MODES
    ]
    assert times[0] <= times[1] <= times[2]


@pytest.mark.parametrize(
    ("first", "time"), [(-0.1, 102.75), (-0.3, 58.3055), (-0.6, 54.13885), (-0.9, 53.36725), (-1.2, 53.0972)]
)
def test_the_papers_scaling_instance(first: float, time: float) -> None:
    means = np.array(SCALING)
    means[2, 0] = first
    found = solved(problem_of(means, Gaussian(0.5), Floors(0.0)), means)
    assert found.gap <= 1e-6
    assert 1 / found.lower == pytest.approx(time, rel=1e-5)


def test_free_choice_of_cells_is_never_slower_than_arrivals_nor_these_than_blind_choice() -> None:
    times = []
    for mode in MODES:
        problem = problem_of(SCALING, Gaussian(0.5), Floors(0.0), mode=mode, arrivals=(0.2, 0.5, 0.3))
        times.append(1 / solved(problem, SCALING).lower)
    assert times[0] < times[1] < times[2]


def test_the_time_does_not_depend_on_the_unit_of_outcomes() -> None:
    base = solved(problem_of(SCALING, Gaussian(0.5), Floors(0.1)), SCALING)
    means = 1e6 * np.array(SCALING)
    scaled = solved(problem_of(means, Gaussian(0.5e6), Floors(0.1e6)), means)
    assert scaled.lower == pytest.approx(base.lower, rel=2e-6)


def test_the_order_of_policies_does_not_matter() -> None:
    turned = np.array(SCALING)[[3, 0, 4, 2, 1]]
    base = solved(problem_of(SCALING, Gaussian(0.5), Floors(0.0)), SCALING)
    found = solved(problem_of(turned, Gaussian(0.5), Floors(0.0)), turned)
    assert found.lower == pytest.approx(base.lower, rel=2e-6)
    assert found.w == pytest.approx(base.w[[3, 0, 4, 2, 1]], abs=2e-3)


def test_cutting_planes_alone_find_the_same_interval() -> None:
    problem = problem_of(SCALING, Gaussian(0.5), Floors(0.0))
    found = Bracket(alternatives_to(problem, np.array(SCALING), 0), mode_of(problem))
    first = found.solve_at(found.mode.start())
    cutting_planes(found, 1e-6, first.cuts)
    assert_time(found.solution(), 54.13887438628, gap=1e-6)


def test_an_alternative_that_is_astronomically_expensive_does_not_loosen_the_bound() -> None:
    # the second rival trails by a million standard deviations: its cut is 1e12 times the first's
    means = np.array([[0.0], [-1.0], [-1e6]])
    found = solved(problem_of(means, Gaussian(1.0), NoConstraint()), means)
    assert found.gap <= 1e-6
    # as if there were two policies: T* = 2 (1 + 1)^2 / 1
    assert 1 / found.lower == pytest.approx(8.0, rel=1e-5)


def test_a_thousand_policies_are_planned_with_a_certificate() -> None:
    means = np.random.default_rng(1).uniform(0.1, 0.95, (1000, 5))
    found = solved(problem_of(means, Bernoulli(), Floors(0.3)), means, gap=1e-3)
    assert found.gap <= 1e-3


GENERAL: dict[str, tuple[Family, Constraint]] = {
    "floors, bernoulli": (Bernoulli(), Floors(0.3)),
    "dispersion, gaussian": (Gaussian(0.5), Dispersion(0.05)),
    "penalty, gaussian": (Gaussian(0.5), Penalty(0.4, 2.0)),
    "penalty, bernoulli": (Bernoulli(), Penalty(0.4, 2.0)),
}


@pytest.mark.parametrize("name", GENERAL)
def test_the_time_is_the_largest_that_general_solvers_find_at_any_allocation(name: str) -> None:
    family, constraint = GENERAL[name]
    means = np.array([[0.62, 0.55], [0.48, 0.52], [0.30, 0.72]])
    found = plan(problem_of(means, family, constraint, (0.6, 0.4)), means)
    code, q, phi, region = found.problem.standard
    i = found.answer_index

    def least(w: Array) -> float:
        """f*(w) as the definition has it, every alternative left to a general solver."""
        v = w.T / phi
        rivals = [k for k in range(3) if k != i]
        values = [
            conic(Cells(code, v[:, [i, k]].T.ravel(), means[[i, k]].ravel()), beaten(region, q, i, k))
            for k in rivals
        ]
        if region.kind != PENALTY:
            alone = Cells(code, v[:, i], means[i])
            values.append(slsqp_value(alone, outside(region, i, 2), starts=6))
        return min(values)

    assert least(found.allocation) == pytest.approx(1 / found.time_high, rel=1e-5)
    # f* is concave: no better allocation nearby, none anywhere
    rng = np.random.default_rng(4)
    for size in (0.3, 0.03):
        for _ in range(6):
            w = found.allocation * np.exp(size * rng.normal(size=means.shape))
            assert least(w / w.sum()) <= (1 + 1e-6) / found.time_low


DRAWS: dict[str, tuple[Family, float, float, float]] = {
    "gaussian": (Gaussian(0.7), -1.0, 1.0, 0.1),
    "bernoulli": (Bernoulli(), 0.0, 1.0, 0.3),
    "poisson": (Poisson(), 0.0, 4.0, 0.8),
    "exponential": (Exponential(), 0.2, 3.0, 0.8),
}


@given(data=st.data())
@settings(max_examples=60)
def test_no_allocation_beats_the_upper_bound_and_the_interval_is_tight(data: st.DataObject) -> None:
    family, low, high, bound = DRAWS[data.draw(st.sampled_from(sorted(DRAWS)))]
    policies, groups = data.draw(st.integers(2, 5)), data.draw(st.integers(1, 4))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    means = rng.uniform(low, high, (policies, groups))
    mode = data.draw(st.sampled_from(MODES))
    constraint = data.draw(st.sampled_from([NoConstraint(), Floors(bound), Caps(high - bound)]))
    costs = rng.uniform(0.5, 2.0, (policies, groups)) if data.draw(st.booleans()) else None
    arrivals = rng.dirichlet(np.full(groups, 2.0))
    shares = rng.dirichlet(np.full(groups, 2.0))
    problem = problem_of(means, family, constraint, shares, mode, arrivals=arrivals, costs=costs)
    found = solved(problem, means, gap=1e-5)
    assert found.gap <= 1e-5
    alternatives, sampling = alternatives_to(problem, means, problem.answer(means)), mode_of(problem)
    assert alternatives.solve_at(found.w).lower >= found.lower
    for _ in range(5):
        w = sampling.admit(found.w * rng.uniform(0.2, 2.0, found.w.shape))
        assert alternatives.solve_at(w).lower <= found.upper


def reference_cases() -> list[Any]:
    return json.loads(CASES.read_text()) if CASES.exists() else []


@pytest.mark.skipif(not CASES.exists(), reason="the certified reference cases are not on this machine")
@pytest.mark.parametrize("case", reference_cases(), ids=lambda case: case["name"])
def test_independently_certified_intervals_overlap_ours(case: dict[str, Any]) -> None:
    family, constraint = dict(case["family"]), dict(case["constraint"])
    more = {"arrivals": case["arrivals"]} if case.get("arrivals") else {}
    problem = problem_of(
        case["means"],
        FAMILIES[family.pop("name")](**family),
        CONSTRAINTS[constraint.pop("kind")](**constraint),
        case["shares"],
        case["mode"],
        **more,
    )
    found = solved(problem, case["means"])
    assert problem.answer(case["means"]) == case["answer"]
    assert found.gap <= 1e-5
    assert 1 / found.upper <= case["time_high"] * (1 + 1e-6)
    assert 1 / found.lower >= case["time_low"] * (1 - 1e-6)
