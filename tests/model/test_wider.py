"""Relative bounds, guard-rails, screening and prices: what is refused, and who is allowed."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.errors import BadInput
from evenhand.model.families import (
    Bernoulli,
    Binomial,
    Bounded,
    Exponential,
    Gamma,
    Gaussian,
    GaussianUnknown,
    Poisson,
)
from evenhand.model.guardrails import Guardrail
from evenhand.model.problem import Problem
from evenhand.model.requirements import (
    All,
    Caps,
    Constraint,
    Convex,
    Floors,
    Gap,
    NoConstraint,
    Penalty,
    Quota,
)

GROUPS = {"young": 0.6, "old": 0.4}
RAIL = Guardrail("complaints", Poisson(), Caps(1.5))


def problem(**change: Any) -> Problem:
    given: dict[str, Any] = {
        "policies": ["standard", "a", "b"],
        "groups": GROUPS,
        "family": Bernoulli(),
        "constraint": Floors(relative_to="standard", margin=0.05),
    }
    return Problem(**(given | change))


MEANS = [[0.6, 0.5], [0.58, 0.46], [0.7, 0.44]]


@pytest.mark.parametrize(
    ("constraint", "allowed"),
    [
        (Floors(relative_to="standard", margin=0.05), [True, True, False]),
        (Floors(relative_to="standard", margin=[0.05, 0.07]), [True, True, True]),
        (Floors(relative_to="standard", margin={"old": 0.03, "young": 0.05}), [True, False, False]),
        (Floors(relative_to="standard"), [True, False, False]),
        (Floors(relative_to="standard", margin=-0.05), [True, False, False]),  # superiority
        (Floors(relative_to="standard", ratio=0.9), [True, True, False]),
        (Floors(relative_to="standard", ratio=(0.9, 0.8)), [True, True, True]),
        (Caps(relative_to="standard", margin=0.05), [True, True, False]),
        (Caps(relative_to="standard", ratio=1.2), [True, True, True]),
        (All((Floors(relative_to="standard", margin=0.05), Floors(0.55))), [False, False, False]),
        (All((Floors(relative_to="b", margin=0.13), Caps(relative_to="b", margin=0.1))), [True, True, True]),
    ],
)
def test_relative_bounds_mean_what_the_words_say(constraint: Constraint, allowed: list[bool]) -> None:
    assert problem(constraint=constraint).feasible(MEANS).tolist() == allowed


@given(
    family=st.sampled_from(
        [Gaussian(2.0), Bernoulli(), Binomial(7), Bounded(2.0, 5.0), Poisson(), GaussianUnknown()]
    ),
    ratio=st.floats(0.5, 1.5),
    margin=st.floats(-0.3, 0.3),
    seed=st.integers(0, 1000),
)
def test_unit_scale_means_the_same_as_the_users(family: Any, ratio: float, margin: float, seed: int) -> None:
    low, high = family.domain
    low, high = max(low, -3.0), min(high, 9.0)
    means = np.random.default_rng(seed).uniform(max(low, 0.0), high, (3, 2))
    for cap, sign in ((False, 1.0), (True, -1.0)):
        kind = Caps if cap else Floors
        by_ratio = problem(family=family, constraint=kind(relative_to="a", ratio=ratio)).feasible(means)
        by_margin = problem(family=family, constraint=kind(relative_to="a", margin=margin)).feasible(means)
        for k in (0, 2):
            away = sign * (means[k] - ratio * means[1])
            if np.abs(away).min() > 1e-9:
                assert by_ratio[k] == (away >= 0).all()
            slack = sign * (means[k] - means[1]) + margin
            if np.abs(slack).min() > 1e-9:
                assert by_margin[k] == (slack >= 0).all()
        assert by_ratio[1]
        assert by_margin[1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Floors(), "the 'floors' constraint needs at_least, or relative_to with a margin or a ratio"),
        (lambda: Caps(), "the 'caps' constraint needs at_most, or relative_to"),
        (lambda: Floors(0.5, relative_to="a"), "absolute (at_least) or relative_to a policy, not both"),
        (lambda: Floors(0.5, margin=0.1), "a margin or ratio needs relative_to, the control policy"),
        (lambda: Floors(relative_to="a", margin=0.1, ratio=0.9), "take a margin or a ratio, not both"),
        (lambda: Floors(relative_to=3, margin=0.1), "relative_to must be the name of a policy; it is 3"),
        (lambda: Floors(relative_to="a", margin="wide"), "margin must be a number or a table of numbers"),
        (lambda: Floors(relative_to="a", margin=math.nan), "margin must hold finite numbers only"),
        (lambda: Floors(relative_to="a", margin={}), "margin by group must name at least one group"),
        (lambda: Floors(relative_to="a", margin={"x": True}), "must map names to finite numbers"),
        (
            lambda: Floors(relative_to="a", margin=[[0.1], [0.2]]),
            "margin must be one number, a list per group",
        ),
        (lambda: Floors(relative_to="a", ratio=0.0), "ratio must be positive in every group; it is 0"),
        (lambda: Guardrail("", Poisson(), Caps(1.0)), "a guard-rail needs a name; it is ''"),
        (lambda: Guardrail("outcome", Poisson(), Caps(1.0)), "a guard-rail cannot be called 'outcome'"),
        (lambda: Guardrail("n", Poisson(), Caps(1.0)), "a guard-rail cannot be called 'n'"),
        (lambda: Guardrail("c", "poisson", Caps(1.0)), "the guard-rail 'c' needs a family; it has 'poisson'"),  # type: ignore[arg-type]
        (
            lambda: Guardrail("c", Poisson(), Gap(1.0)),
            "a guard-rail takes floors, caps and 'all' of these; 'c' has 'gap'",
        ),
        (lambda: Guardrail("c", Poisson(), All((Caps(1.0), Quota(0.1, groups=1)))), "'c' has 'quota'"),
        (lambda: Guardrail("c", Poisson(), NoConstraint()), "'c' has 'none'"),
    ],
)
def test_a_bound_or_guard_rail_that_cannot_be_meant_is_refused(make: Any, message: str) -> None:
    with pytest.raises(BadInput) as refusal:
        make()
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


RELATIVE = Floors(relative_to="standard", margin=0.05)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"constraint": Floors(relative_to="standrd", margin=0.1)},
            "relative_to must name one of the policies; it is 'standrd'; did you mean 'standard'?",
        ),
        (
            {"constraint": Floors(relative_to="standard", margin=[0.1])},
            "margin must have one number per group, 2; it has 1",
        ),
        (
            {"constraint": Floors(relative_to="standard", ratio=[0.9, 0.9, 0.9])},
            "ratio must have one number per group, 2; it has 3",
        ),
        (
            {"constraint": Floors(relative_to="standard", margin={"young": 0.1})},
            "margin by group must name every group; 'old' is missing",
        ),
        (
            {"constraint": Floors(relative_to="standard", margin={"young": 0.1, "odl": 0.1})},
            "unknown group 'odl'; did you mean 'old'?",
        ),
        (
            {"constraint": Floors(relative_to="standard", margin=1.0)},
            "a margin must be smaller than the range of the means, 1; one is 1",
        ),
        (
            {"family": Bounded(-1.0, 1.0), "constraint": Floors(relative_to="standard", ratio=0.9)},
            "a ratio needs means that cannot be negative; these lie in [-1, 1]. Use a margin.",
        ),
        ({"family": Exponential()}, "the family is exponential, whose divergence is not convex"),
        ({"family": Gamma(2.0)}, "the family is gamma, whose divergence is not convex"),
        ({"constraint": All((RELATIVE, Gap(0.1)))}, "can be joined with floors and caps only"),
        (
            {"constraint": All((RELATIVE, Floors(relative_to="a", margin=0.1)))},
            "must name the same one everywhere",
        ),
        (
            {"constraint": All((RELATIVE, Floors(relative_to="standard", ratio=0.9)))},
            "at most one relative floor and one relative cap",
        ),
        (
            {"constraint": All((Floors(relative_to="a", margin=-0.2), Caps(relative_to="a", margin=0.1)))},
            "must lie below the relative caps",
        ),
        ({"guardrails": [RAIL, RAIL]}, "guard-rails must have different names; 'complaints' comes twice"),
        ({"guardrails": RAIL}, "guardrails must be a list of guard-rails"),
        ({"guardrails": ["complaints"]}, "guardrails must be a list of guard-rails; it holds 'complaints'"),
        (
            {"guardrails": [Guardrail("x", Poisson(), Caps([1.0, 2.0, 3.0]))]},
            "guard-rail 'x': caps need one number per group",
        ),
        (
            {"guardrails": [Guardrail("x", Poisson(), Caps(relative_to="a", margin=1.0))]},
            "must name the same one everywhere, guard-rails included",
        ),
        ({"goal": "scren"}, "goal must be one of best, screen; it is 'scren'; did you mean 'screen'?"),
        ({"policies": [], "goal": "screen"}, "policies must hold at least 1 names; there are 0"),
        ({"policies": ["standard"]}, "policies must hold at least 2 names; there are 1"),
        ({"goal": "screen", "constraint": NoConstraint()}, "needs a requirement to screen by"),
        ({"goal": "screen", "constraint": Penalty(0.5, 1.0)}, "a penalty keeps no policy out"),
        ({"goal": "screen", "constraint": Convex(list, bool)}, "not a convex set of your own"),
        (
            {"max_policies": 2},
            "max_policies must be a whole number, at least the 3 policies there are; it is 2",
        ),
        ({"max_policies": 4.5}, "max_policies must be a whole number"),
        ({"costs": {"bb": 2.0}}, "costs: there is no policy or group 'bb'; did you mean 'b'?"),
        ({"costs": {"a": 2.0, "old": 3.0}}, "costs by name must name policies only or groups only"),
        ({"costs": {"a": -2.0}}, "costs must be positive finite numbers; 'a' has -2.0"),
        ({"costs": {"a": "dear"}}, "costs must be positive finite numbers; 'a' has 'dear'"),
        ({"costs": {"a": {"yung": 2.0}}}, "costs of 'a': there is no group 'yung'; did you mean 'young'?"),
        (
            {"costs": [1.0, 2.0, 3.0, 4.0]},
            "costs must be positive numbers, a row per policy, 3 x 2, or a table by policy",
        ),
        (
            {"policies": ["a", "b"], "constraint": Floors(0.3), "costs": [1.0, 2.0]},
            "a list of 2 costs could be by policy or by group",
        ),
        (
            {"policies": ["a", "old"], "constraint": Floors(0.3), "costs": {"old": 2.0}},
            "'old' is both a policy and a group",
        ),
    ],
)
def test_a_problem_that_cannot_be_meant_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as refusal:
        problem(**change)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("costs", "table"),
    [
        ({"b": 2.0}, [[1, 1], [1, 1], [2, 2]]),
        ({"old": 3.0}, [[1, 3], [1, 3], [1, 3]]),
        ({"a": {"old": 5.0}}, [[1, 1], [1, 5], [1, 1]]),
        ([1.0, 2.0, 3.0], [[1, 1], [2, 2], [3, 3]]),
        ([4.0, 5.0], [[4, 5], [4, 5], [4, 5]]),
        (2.5, [[2.5, 2.5]] * 3),
        ([[1, 2], [3, 4], [5, 6]], [[1, 2], [3, 4], [5, 6]]),
        (np.array([[1.0], [2.0], [3.0]]), [[1, 1], [2, 2], [3, 3]]),
    ],
)
def test_prices_come_by_policy_by_group_or_by_cell(costs: Any, table: list[list[float]]) -> None:
    assert problem(costs=costs).sampling_costs.tolist() == table


def test_guard_rails_have_a_say_in_who_is_allowed() -> None:
    both = problem(
        guardrails=[RAIL, Guardrail("speed", Gaussian(1.0), Floors(relative_to="standard", margin=0.2))]
    )
    means = {
        "complaints": [[1.0, 1.0], [1.4, 1.6], [1.0, 1.0]],
        "speed": [[0.5, 0.5], [0.5, 0.5], [0.4, 0.2]],
    }
    assert both.control == "standard"
    better = [[0.6, 0.5], [0.7, 0.6], [0.8, 0.6]]
    assert both.feasible(better, means).tolist() == [True, False, False]
    assert both.answer(better, means) == 0
    with pytest.raises(
        BadInput, match="every guard-rail needs means, a row per policy; 'complaints' has none"
    ):
        both.feasible(better)
    with pytest.raises(BadInput, match="there is no guard-rail 'complaint'; did you mean 'complaints'"):
        both.answer(better, {"complaint": means["complaints"], "speed": means["speed"]})
    with pytest.raises(
        BadInput, match="guard-rail 'complaints': means must lie in the domain of the poisson"
    ):
        both.answer(better, means | {"complaints": [[1.0, 1.0], [-1.0, 1.0], [1.0, 1.0]]})


def test_means_may_come_by_name() -> None:
    by_name = {"b": {"old": 0.44, "young": 0.7}, "standard": {"young": 0.6, "old": 0.5}, "a": [0.58, 0.46]}
    assert problem().check_means(by_name).tolist() == MEANS
    with pytest.raises(BadInput, match="means by name must have a row for every policy; 'a' has none"):
        problem().check_means({"standard": [0.6, 0.5], "b": [0.7, 0.4]})
    with pytest.raises(BadInput, match="means of 'a' must have a number for every group; 'old' has none"):
        problem().check_means(by_name | {"a": {"young": 0.5}})


def test_a_ratio_to_a_control_with_a_negative_mean_is_refused() -> None:
    wide = problem(family=Gaussian(1.0), constraint=Floors(relative_to="standard", ratio=0.9))
    wide.check_truth([[1.0, 0.5], [-1.0, 0.2], [0.0, 0.0]])
    with pytest.raises(BadInput, match=r"not negative; 'standard' in 'old' has -0\.5\. Use a margin\."):
        wide.check_truth([[1.0, -0.5], [1.0, 0.2], [0.0, 0.0]])


def test_a_tolerance_lowers_floors_and_raises_caps_of_the_answer_only() -> None:
    box = problem(constraint=All((Floors(0.3), Caps(0.9))), family=Binomial(10))
    with pytest.raises(BadInput, match="strictly inside"):
        problem(constraint=Caps(10.0), family=Binomial(10))
    loose = problem(constraint=All((Floors(3.0), Caps(9.0))), family=Binomial(10)).loosened(
        {"young": 0.5, "old": 1.0}
    )
    assert loose.lo[:, 0].tolist() == pytest.approx([0.25, 0.2])  # unit scale: a tenth of the trials
    assert loose.hi[:, 0].tolist() == pytest.approx([0.95, 1.0])
    assert box.loosened(0.0) is box.standard.region
    moving = problem(constraint=All((Floors(relative_to="a", margin=0.1), Floors(0.2)))).loosened([0.05, 0.0])
    assert moving.floor_margin.tolist() == pytest.approx([0.15, 0.1])
    assert moving.lo[:, 1].tolist() == pytest.approx([0.15, 0.2])


@pytest.mark.parametrize(
    ("change", "tolerance", "message"),
    [
        ({}, -0.1, "tolerance must not be negative; it is -0.1"),
        ({}, [0.1, -0.1], "tolerance must not be negative"),
        ({}, [0.1], "tolerance must have one number per group, 2; it has 1"),
        ({}, math.inf, "tolerance must hold finite numbers only"),
        (
            {"constraint": Gap(0.1)},
            0.1,
            "tolerance loosens floors, caps and quotas; the requirement is 'gap'",
        ),
        ({"constraint": NoConstraint()}, 0.1, "the requirement is 'none'"),
        ({"goal": "screen"}, 0.1, 'tolerance belongs to goal = "best"'),
    ],
)
def test_a_tolerance_that_cannot_be_meant_is_refused(change: Any, tolerance: Any, message: str) -> None:
    with pytest.raises(BadInput) as refusal:
        problem(**change).loosened(tolerance)
    assert message in str(refusal.value)


@pytest.mark.parametrize("indifference", [-0.1, math.nan, math.inf, "0.1", True, None])
def test_an_indifference_that_is_no_finite_number_is_refused(indifference: Any) -> None:
    with pytest.raises(BadInput, match="indifference must be a finite number, 0 or more"):
        problem().check_indifference(indifference)


def test_screening_refuses_an_indifference_and_takes_one_policy() -> None:
    one = problem(policies=["only"], constraint=Floors(0.5), goal="screen")
    assert one.feasible([[0.6, 0.4]]).tolist() == [False]
    with pytest.raises(BadInput, match='indifference belongs to goal = "best"'):
        one.check_indifference(0.1)


def test_problems_and_their_parts_can_be_compared_and_sent_elsewhere() -> None:
    asked = problem(
        constraint=Floors(relative_to="standard", margin={"young": 0.1, "old": 0.2}),
        guardrails=[RAIL],
        costs={"b": 2.0},
        max_policies=6,
    )
    assert pickle.loads(pickle.dumps(asked)) == asked
    assert hash(asked.constraint) == hash(Floors(relative_to="standard", margin={"young": 0.1, "old": 0.2}))
    assert asked != problem(guardrails=[RAIL])


@pytest.mark.parametrize(
    ("constraint", "words"),
    [
        (Floors(relative_to="S", margin=0.02), "fall no more than 0.02 below S in any group"),
        (Floors(relative_to="S"), "reach the mean of S in every group"),
        (Floors(relative_to="S", margin=-0.1), "exceed the mean of S by 0.1 in every group"),
        (Floors(relative_to="S", ratio=(0.9, 0.8)), "reach 0.8 to 0.9 times the mean of S in every group"),
        (Caps(relative_to="S", margin=0.5), "exceed S by no more than 0.5 in any group"),
        (Caps(relative_to="S", margin=-0.5), "stay below the mean of S by 0.5 in every group"),
        (Caps(relative_to="S"), "stay at or below the mean of S in every group"),
        (Caps(relative_to="S", ratio=1.1), "stay at or below 1.1 times the mean of S in every group"),
    ],
)
def test_relative_bounds_are_described_in_words(constraint: Constraint, words: str) -> None:
    assert constraint.describe() == words
