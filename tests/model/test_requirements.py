"""Requirements: who is inside, what is refused, and that unit scale means the same as the user's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.errors import BadInput
from evenhand.model.families import Bernoulli, Binomial, Bounded, Gaussian
from evenhand.model.problem import Problem
from evenhand.model.requirements import (
    CONSTRAINTS,
    All,
    Caps,
    Constraint,
    Convex,
    Dispersion,
    Floors,
    Gap,
    NoConstraint,
    Penalty,
    Polyhedron,
    Quota,
    Ratio,
)

SHARES = (0.5, 0.3, 0.2)


def inside(constraint: Constraint, means: Any, family: Any = None) -> bool:
    """Does the first of two policies meet the requirement?"""
    groups = dict(zip("xyz", SHARES, strict=True))
    problem = Problem(["a", "b"], groups, family or Gaussian(1.0), constraint)
    return bool(problem.feasible([means, means])[0])


@pytest.mark.parametrize(
    ("constraint", "meets", "misses"),
    [
        (Floors(0.5), (0.5, 0.6, 9.0), (0.5, 0.49, 9.0)),
        (Floors((0.1, 0.2, 0.3)), (0.1, 0.2, 0.3), (0.3, 0.2, 0.1)),
        (Floors([[0.1, 0.2, 0.3], [9.0, 9.0, 9.0]]), (0.1, 0.2, 0.3), (0.3, 0.2, 0.1)),
        (Caps(0.5), (0.5, 0.4, -9.0), (0.51, 0.0, 0.0)),
        (Gap(0.25), (1.0, 1.25, 1.1), (1.0, 1.25, 0.9)),
        (Ratio(0.8), (0.8, 1.0, 0.9), (0.79, 1.0, 0.9)),
        (Quota(0.5, groups=2), (0.5, 0.6, -9.0), (0.5, 0.4, 0.4)),
        (Quota(0.5, share=0.5), (0.5, 0.6, -9.0), (0.5, 0.4, 0.4)),
        (Quota(0.5, share=1.0), (0.5, 0.6, 0.7), (0.5, 0.6, 0.4)),
        # overall mean 0.5: squared distances 0.25 + 0.25 + 0.25
        (Dispersion(0.75), (0.0, 1.0, 1.0), (0.0, 1.0, 1.1)),
        # the same weighted by shares: 0.25
        (Dispersion(0.25, weighted=True), (0.0, 1.0, 1.0), (0.0, 1.0, 1.1)),
        (Polyhedron([[1, -1, 0], [0, 0, 1]], [0.0, 0.5]), (1.0, 1.0, 0.5), (0.9, 1.0, 0.5)),
        (All((Floors(0.0), Gap(1.0))), (0.0, 1.0, 0.5), (-0.1, 0.5, 0.5)),
        (All((Floors(0.0), Quota(0.5, groups=2), Dispersion(2.0))), (0.5, 0.5, 0.0), (0.5, 0.4, 0.0)),
    ],
)
def test_membership_is_what_the_words_say(constraint: Constraint, meets: Any, misses: Any) -> None:
    assert inside(constraint, meets)
    assert not inside(constraint, misses)


def test_nothing_required_and_penalties_exclude_no_policy() -> None:
    assert inside(NoConstraint(), (-9.0, 9.0, 0.0))
    assert inside(Penalty(0.5, 1.0), (-9.0, 9.0, 0.0))


def test_a_set_of_the_users_own_is_asked_in_the_users_units() -> None:
    ball = Convex(build=lambda m: [], contains=lambda m: bool(m @ m <= 4.0), words="lie in a ball")
    assert inside(ball, (0.0, 2.0, 0.0), Bounded(-3.0, 3.0))
    assert not inside(ball, (0.0, 2.1, 0.0), Bounded(-3.0, 3.0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Floors(math.nan), "at_least must hold finite numbers only"),
        (lambda: Floors("high"), "at_least must be a number or a table of numbers"),
        (lambda: Floors(np.zeros((2, 2, 2))), "it has 3 dimensions"),
        (lambda: Floors([]), "at_least must hold finite numbers only"),
        (lambda: Caps(math.inf), "at_most must hold finite numbers only"),
        (lambda: Gap(0.0), "the gap's at_most must be a positive finite number; it is 0.0"),
        (lambda: Gap(-1.0), "must be a positive finite number"),
        (lambda: Ratio(1.0), "the ratio's at_least must lie strictly between 0 and 1; it is 1.0"),
        (lambda: Ratio(0.0), "strictly between 0 and 1"),
        (lambda: Quota(0.5), "give exactly one"),
        (lambda: Quota(0.5, groups=1, share=0.5), "give exactly one"),
        (lambda: Quota(0.5, groups=0), "a whole number, at least 1; it is 0"),
        (lambda: Quota(0.5, groups=1.5), "a whole number, at least 1; it is 1.5"),  # type: ignore[arg-type]
        (lambda: Quota(0.5, share=1.5), "the quota's share must lie in (0, 1]; it is 1.5"),
        (lambda: Dispersion(0.0), "the dispersion's at_most must be a positive finite number"),
        (lambda: Polyhedron([[1.0, 0.0]], [1.0, 2.0]), "A needs a row for each entry of b"),
        (lambda: Polyhedron([[0.0, 0.0]], [1.0]), "every row of A needs an entry that is not 0"),
        (lambda: All(()), "'all' needs at least one requirement"),
        (lambda: All((Floors(0.1), Penalty(0.1, 1.0))), "it got 'penalty'"),
        (lambda: Penalty(0.5, -1.0), "gamma must be a number of at least 0"),
    ],
)
def test_a_requirement_that_cannot_be_meant_is_refused(make: Any, message: str) -> None:
    with pytest.raises(BadInput) as refusal:
        make()
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("constraint", "family", "message"),
    [
        (Floors(0.0), Bernoulli(), "strictly inside the family's domain (0, 1); one is 0"),
        (Caps(1.0), Bernoulli(), "strictly inside the family's domain (0, 1); one is 1"),
        (Floors([[0.1, 0.2]]), Bernoulli(), "a row per policy and a column per group, 2 x 3; they are 1 x 2"),
        (Quota(0.5, groups=4), Bernoulli(), "the quota asks for 4 groups, but there are only 3"),
        (Ratio(0.8), Bounded(-2.0, -1.0), "a ratio needs means that can be positive"),
        (Polyhedron([[1, 0]], [0.5]), Bernoulli(), "A needs a column per group, 3; it has 2"),
        (Polyhedron([[1, 0, 0], [-1, 0, 0]], [0.6, -0.5]), Bernoulli(), "must leave room"),
        (Polyhedron([[1, 0, 0]], [1.5]), Bernoulli(), "must leave room"),
        (All((Floors(0.6), Caps(0.5))), Bernoulli(), "the floors must lie below the caps"),
        (
            All((Dispersion(1.0), Dispersion(2.0))),
            Bernoulli(),
            "at most one quota and at most one dispersion",
        ),
        (Penalty([[0.1, 0.1, 0.1], [0.2, 0.2, 0.2]], 1.0), Bernoulli(), "not per policy"),
        (Penalty(0.5, (1.0, 2.0)), Bernoulli(), "gamma needs an entry per group, 3; it has 2"),
    ],
)
def test_a_requirement_that_does_not_fit_the_problem_is_refused(
    constraint: Constraint, family: Any, message: str
) -> None:
    with pytest.raises(BadInput) as refusal:
        inside(constraint, (0.5, 0.5, 0.5), family)
    assert message in str(refusal.value)


SCALED = {
    "floors": (Floors(0.3), Floors(3.0)),
    "caps": (Caps(0.7), Caps(7.0)),
    "gap": (Gap(0.4), Gap(4.0)),
    "ratio": (Ratio(0.5), Ratio(0.5)),
    "quota": (Quota(0.4, groups=2), Quota(4.0, groups=2)),
    "dispersion": (Dispersion(0.1), Dispersion(10.0)),
    "polyhedron": (Polyhedron([[1, 1, -1]], [0.2]), Polyhedron([[1, 1, -1]], [2.0])),
}


@given(kind=st.sampled_from(sorted(SCALED)), means=st.tuples(*[st.integers(1, 9)] * 3))
def test_counting_successes_in_ten_trials_is_the_same_question_as_their_rate(
    kind: str, means: tuple[int, int, int]
) -> None:
    rate, total = SCALED[kind]
    rates = [m / 10 for m in means]
    problem = Problem(["a", "b"], dict(zip("xyz", SHARES, strict=True)), Bernoulli(), rate)
    counted = Problem(["a", "b"], dict(zip("xyz", SHARES, strict=True)), Binomial(10), total)
    assert problem.feasible([rates, rates]).tolist() == counted.feasible([means, means]).tolist()


def test_a_gap_given_as_a_whole_number_is_the_same_gap() -> None:
    assert repr(Gap(2)) == repr(Gap(2.0))


@pytest.mark.parametrize("kind", sorted(CONSTRAINTS))
def test_every_requirement_completes_the_sentence_every_policy_must(kind: str) -> None:
    samples: dict[str, Constraint] = {
        "none": NoConstraint(),
        "all": All((Floors(0.1), Gap(0.5))),
        "penalty": Penalty((0.1, 0.2), 2.0),
        **{name: pair[0] for name, pair in SCALED.items()},
    }
    words = samples[kind].describe()
    assert words
    assert words[0].islower()
    assert not words.endswith(".")
