"""A problem refuses contradictory input, and returns the best and the feasible policies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from evenhand.errors import BadInput
from evenhand.model.families import Bernoulli, Binomial, Bounded, Exponential, Gaussian, Poisson
from evenhand.model.problem import Problem
from evenhand.model.requirements import Floors, NoConstraint, Penalty

GROUPS = {"x": 0.75, "y": 0.25}


def problem(**change: Any) -> Problem:
    given: dict[str, Any] = {
        "policies": ["a", "b"],
        "groups": GROUPS,
        "family": Bernoulli(),
        "constraint": Floors(0.3),
    }
    return Problem(**(given | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policies": ["a"]}, "policies must hold at least 2 names; there are 1"),
        ({"policies": ["a", "a"]}, "policies must have different names; 'a' comes twice"),
        ({"policies": ["a", " "]}, "policies must be non-empty names"),
        ({"policies": ["a", 3]}, "policies must be non-empty names; one is 3"),
        ({"groups": {}}, "groups must hold at least 1 names; there are 0"),
        ({"groups": {"x": 0.7, "y": 0.25}}, "shares must sum to 1; they sum to 0.95. Rescale them"),
        ({"groups": {"x": 1.5, "y": -0.5}}, "shares must not be negative; 'y' has -0.5"),
        ({"groups": {"x": math.nan, "y": 1.0}}, "shares must be finite numbers; 'x' has nan"),
        ({"groups": {"x": True, "y": 0.0}}, "shares must be finite numbers; 'x' has True"),
        ({"groups": {"x": 0.0, "y": 0.0}, "normalise": True}, "shares must sum to 1; they sum to 0"),
        ({"groups": ["x", "y"]}, "shares must map each group's name to its share"),
        ({"mode": "activ"}, "did you mean 'active'?"),
        ({"mode": "agnostic", "arrivals": {"x": 0.5, "z": 0.5}}, "unknown group 'z'"),
        ({"mode": "agnostic", "arrivals": {"x": 1.0}}, "'y' has none"),
        (
            {"mode": "agnostic", "arrivals": {"x": 1.0, "y": 0.0}},
            "every group must arrive with a positive share",
        ),
        ({"costs": [[1, 2]]}, "costs must be positive numbers, a row per policy, 2 x 2"),
        ({"costs": [[1, 2], [0, 1]]}, "costs must be positive numbers"),
        ({"costs": [[1, 2], [math.inf, 1]]}, "costs must be positive numbers"),
        (
            {"constraint": Floors(1.0)},
            "a floor must lie strictly inside the family's domain (0, 1); one is 1",
        ),
        ({"constraint": Floors([0.1, 0.2, 0.3])}, "floors need one number per group, 2; there are 3"),
        (
            {"family": Gaussian(np.ones((3, 2)))},
            "sd must have a row per policy and a column per group, 2 x 2",
        ),
    ],
)
def test_a_problem_that_cannot_be_meant_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as refusal:
        problem(**change)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("family", "means", "message"),
    [
        (Bernoulli(), [[0.5, 1.1], [0.2, 0.2]], "[0, 1]; 'a' in 'y' has 1.1"),
        (Bernoulli(), [[0.5, math.nan], [0.2, 0.2]], "'a' in 'y' has nan"),
        (Poisson(), [[1.0, 2.0], [-1.0, 2.0]], "[0, inf); 'b' in 'x' has -1"),
        (Exponential(), [[1.0, 2.0], [0.0, 2.0]], "(0, inf); 'b' in 'x' has 0"),
        (Gaussian(1.0), [[1.0, math.inf], [0.0, 2.0]], "'a' in 'y' has inf"),
        (Binomial(3), [[1.0, 2.0], [3.5, 2.0]], "[0, 3]; 'b' in 'x' has 3.5"),
        (Bounded(-1.0, 1.0), [[1.0, 0.0], [-1.5, 0.0]], "[-1, 1]; 'b' in 'x' has -1.5"),
        (Bernoulli(), [[0.5, 0.5]], "2 x 2; they are 1 x 2"),
        (Bernoulli(), 0.5, "they are one number"),
        (Bernoulli(), [[0.5, "high"], [0.1, 0.1]], "means must be a table of numbers"),
        (Bernoulli(), [[0.5], [0.1, 0.1]], "means must be a table of numbers"),
    ],
)  # fmt: skip
def test_means_outside_the_domain_or_of_the_wrong_shape_are_refused(
    family: Any, means: Any, message: str
) -> None:
    with pytest.raises(BadInput) as refusal:
        problem(family=family, constraint=NoConstraint()).check_means(means)
    assert message in str(refusal.value)


def test_means_on_the_edge_of_the_domain_are_taken() -> None:
    assert problem().check_means([[0.0, 1.0], [1.0, 0.0]]).tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_the_answer_is_the_best_overall_mean_among_the_feasible() -> None:
    # b is better overall (0.75 * 0.9 + 0.25 * 0.2 = 0.725 against 0.6) but misses the floor in y
    assert problem().answer([[0.6, 0.6], [0.9, 0.2]]) == 0
    assert problem(constraint=NoConstraint()).answer([[0.6, 0.6], [0.9, 0.2]]) == 1
    assert problem().answer([[0.6, 0.2], [0.9, 0.2]]) is None


def test_a_mean_exactly_on_the_floor_meets_it() -> None:
    assert problem().feasible([[0.3, 0.3], [0.3, 0.29999999]]).tolist() == [True, False]


def test_equal_scores_go_to_the_first() -> None:
    assert problem().answer([[0.6, 0.6], [0.6, 0.6]]) == 0


def test_a_penalty_lowers_the_score_by_the_weighted_shortfall_and_excludes_no_policy() -> None:
    soft = problem(constraint=Penalty(0.5, 2.0))
    # b falls short by 0.3 in y: 0.725 - 0.25 * 2 * 0.3
    assert soft.scores([[0.6, 0.6], [0.9, 0.2]]) == pytest.approx([0.6, 0.575])
    assert soft.feasible([[0.6, 0.6], [0.9, 0.2]]).all()


def test_under_a_penalty_the_answer_is_the_best_score_less_penalties() -> None:
    means = [[0.6, 0.6], [0.9, 0.2]]
    # b scores 0.725 - 0.25 * gamma * 0.3, a 0.6: they meet at gamma = 5 / 3
    assert problem(constraint=Penalty(0.5, 1.66)).answer(means) == 1
    assert problem(constraint=Penalty(0.5, 1.67)).answer(means) == 0
    # no policy reaches the floor, and there is an answer
    assert problem(constraint=Penalty(0.95, 2.0)).answer(means) is not None


def test_shares_given_as_counts_are_rescaled_on_request() -> None:
    assert problem(groups={"x": 30, "y": 10}, normalise=True).groups == GROUPS


def test_arrivals_default_to_the_shares() -> None:
    assert problem(mode="agnostic").arrival_shares.tolist() == [0.75, 0.25]
    given = problem(mode="agnostic", arrivals={"y": 0.5, "x": 0.5})
    assert given.arrival_shares.tolist() == [0.5, 0.5]


def test_problems_are_values() -> None:
    assert problem() == problem()
    assert problem() != problem(mode="agnostic")
    with pytest.raises(AttributeError):
        problem().mode = "agnostic"  # type: ignore[misc]


def test_names_are_found_or_the_nearest_is_suggested() -> None:
    assert problem().policy_index("b") == 1
    with pytest.raises(BadInput, match="there is no group 'z'"):
        problem().group_index("z")


def test_the_standard_form_divides_out_width_and_dispersion() -> None:
    # binomial with 4 trials: means over 4, one sample worth 4 unit samples
    standard = problem(family=Binomial(4), constraint=Floors(1.0)).standard
    assert standard.region.lo.tolist() == [[0.25, 0.25], [0.25, 0.25]]
    assert standard.phi.tolist() == [[0.25, 0.25], [0.25, 0.25]]
    assert problem(family=Binomial(4), constraint=Floors(1.0)).unit_means([[1, 2], [3, 4]]).tolist() == [
        [0.25, 0.75],
        [0.5, 1.0],
    ]
