"""A plan says who wins, at what certified cost, and refuses what no number of samples decides."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest

from evenhand.errors import BadInput, Undecidable
from evenhand.model.families import Bernoulli, Gaussian, GaussianUnknown
from evenhand.model.problem import Problem
from evenhand.model.requirements import (
    All,
    Caps,
    Constraint,
    Convex,
    Dispersion,
    Floors,
    Gap,
    NoConstraint,
    Penalty,
    Ratio,
)
from evenhand.theory.plan import plan, risk_in_nats
from evenhand.theory.sensitivity import natural_step, sensitivity, tightened

STROKE = [[0.8925, 0.8429], [0.8751, 0.7980], [0.8705, 0.7843], [0.9013, 0.8248]]
NAMES = ["Aspirin only", "Heparin only", "Both", "Neither"]
AGES = {"under 80": 0.7177, "80 and over": 0.2823}


def stroke(constraint: Constraint | None = None, **more: Any) -> Problem:
    return Problem(NAMES, AGES, Bernoulli(), Floors(5 / 6) if constraint is None else constraint, **more)


def two(means: Any, constraint: Constraint) -> Problem:
    return Problem(["a", "b"], {"x": 0.5, "y": 0.5}, Gaussian(1.0), constraint)


def test_the_stroke_trial_is_planned_as_the_paper_describes_it() -> None:
    found = plan(stroke(), STROKE)
    assert (found.answer, found.answer_index, found.feasible) == ("Aspirin only", 0, ("Aspirin only",))
    assert found.time_low == pytest.approx(7283.51, rel=1e-5)
    assert found.time_low <= found.time_high <= found.time_low * (1 + 1.1e-6)
    assert found.allocation.sum() == pytest.approx(1.0)
    assert found.binding[0].piece == "beat"
    assert found.binding[0].policy == "Neither"
    assert {(b.piece, b.group) for b in found.binding if b.policy == "Aspirin only"} == {
        ("leave", "80 and over"),
        ("leave", "under 80"),
    }
    assert sum(b.share for b in found.binding) == pytest.approx(1.0, abs=1e-4)
    assert found.why_none is None


def test_samples_follow_from_the_time_and_the_risk() -> None:
    found = plan(stroke(), STROKE)
    # kl(0.05, 0.95) = 0.9 ln 19
    assert found.samples_at_least(0.05) == pytest.approx(found.time_low * 0.9 * math.log(19))
    assert risk_in_nats(0.2) == pytest.approx(0.8317766166719343)


@pytest.mark.parametrize("delta", [0.0, 0.5, -1.0, math.nan])
def test_a_risk_outside_its_range_is_refused(delta: float) -> None:
    with pytest.raises(BadInput, match=r"delta must lie strictly between 0 and 0\.5"):
        risk_in_nats(delta)


@pytest.mark.parametrize("gap", [0.0, 1.0, -1e-6, math.nan])
def test_an_accuracy_outside_its_range_is_refused(gap: float) -> None:
    with pytest.raises(BadInput, match="gap must lie strictly between 0 and 1"):
        plan(stroke(), STROKE, gap=gap)


def test_a_plan_cannot_be_changed() -> None:
    found = plan(stroke(), STROKE)
    with pytest.raises(ValueError, match="read-only"):
        found.allocation[0, 0] = 1.0


def test_a_tie_is_undecidable_and_says_between_whom() -> None:
    with pytest.raises(Undecidable, match="'a' and 'b' are tied"):
        plan(two(None, Floors(0.0)), [[1.0, 2.0], [2.0, 1.0]])


def test_a_tie_with_an_infeasible_policy_is_no_tie() -> None:
    assert plan(two(None, Floors(0.0)), [[1.0, 2.0], [4.0, -1.0]]).answer == "a"


def test_an_answer_exactly_on_its_floor_is_undecidable() -> None:
    with pytest.raises(Undecidable, match="'a' would be the answer but lies exactly on the boundary"):
        plan(two(None, Floors(0.5)), [[0.5, 2.0], [0.6, 1.0]])


def test_no_policy_clearly_feasible_but_one_exactly_on_the_boundary_is_undecidable() -> None:
    with pytest.raises(Undecidable, match="'b' would be the answer but lies exactly on the boundary"):
        plan(two(None, Floors(0.5)), [[0.4, 2.0], [0.5, 1.0]])


def test_a_rival_exactly_on_its_floor_is_fine() -> None:
    found = plan(two(None, Floors(0.5)), [[1.5, 2.0], [0.5, 1.0]])
    assert found.answer == "a"
    assert math.isfinite(found.time_high)


def test_a_group_that_never_arrives_cannot_be_learned_of() -> None:
    problem = Problem(["a", "b"], {"x": 1.0, "y": 0.0}, Gaussian(1.0), Floors(0.0), mode="agnostic")
    with pytest.raises(Undecidable, match="group 'y' never arrives in agnostic sampling"):
        plan(problem, [[1.0, 1.0], [0.5, 0.5]])


def test_a_group_that_never_arrives_does_no_harm_where_nothing_is_required_of_it() -> None:
    problem = Problem(["a", "b"], {"x": 1.0, "y": 0.0}, Gaussian(1.0), NoConstraint(), mode="proportional")
    # one group, two policies: T* = 2 (1 + 1)^2 / 0.5^2
    assert plan(problem, [[1.0, 1.0], [0.5, 0.5]]).time_low == pytest.approx(32.0, rel=1e-5)


def test_means_near_a_boundary_are_pointed_out() -> None:
    warnings = plan(stroke(), STROKE).warnings
    assert any("'Aspirin only' only just meets its requirement" in text for text in warnings)
    assert any("'Neither' only just misses its requirement" in text for text in warnings)
    assert not any("Both" in text for text in warnings)


def test_a_near_tie_is_pointed_out() -> None:
    warnings = plan(two(None, Floors(0.0)), [[1.0, 1.02], [1.0, 1.0]]).warnings
    assert any("'b' is nearly tied with 'a'" in text for text in warnings)
    assert plan(two(None, Floors(0.0)), [[2.0, 2.0], [1.0, 1.0]]).warnings == ()


def test_an_unknown_variance_is_pointed_out() -> None:
    problem = Problem(["a", "b"], {"x": 1.0}, GaussianUnknown(), NoConstraint())
    assert any("variance is not known" in text for text in plan(problem, [[1.0], [0.0]]).warnings)


def test_when_no_policy_meets_the_floor_the_plan_says_which_group_fails_and_what_would_be_met() -> None:
    found = plan(stroke(Floors(0.85)), STROKE)
    assert (found.answer, found.answer_index, found.feasible) == (None, None, ())
    assert found.why_none is not None
    assert {blame.group for blame in found.why_none.policies} == {"80 and over"}
    assert found.why_none.largest_floor == 0.8429
    assert found.why_none.nearest == "Aspirin only"
    assert "0.8429" in found.why_none.words
    assert {b.piece for b in found.binding} == {"enter"}


@pytest.mark.parametrize("mode", ["active", "proportional", "agnostic"])
def test_the_group_to_blame_is_the_one_below_its_floor_however_many_come_of_each(mode: str) -> None:
    problem = Problem(["a", "b"], {"x": 0.1, "y": 0.9}, Bernoulli(), Floors(0.5), mode=mode)
    found = plan(problem, [[0.2, 0.7], [0.45, 0.3]]).why_none
    assert found is not None
    assert [blame.group for blame in found.policies] == ["x", "y"]


def test_when_no_policy_keeps_the_gap_the_smallest_one_is_named() -> None:
    found = plan(two(None, Gap(0.1)), [[0.0, 1.0], [0.0, 0.4]])
    assert found.why_none is not None
    assert found.why_none.largest_floor is None
    assert "0.4 (b)" in found.why_none.words


def test_costs_move_samples_to_cheap_cells_and_are_never_mixed_up_with_samples() -> None:
    dear = np.ones((4, 2))
    dear[3, 1] = 4.0  # the cell that takes half of the samples
    base, moved = plan(stroke(), STROKE), plan(stroke(costs=dear), STROKE)
    assert base.cost is None
    assert base.cost_at_least(0.05) is None
    assert moved.cost is not None
    # what no procedure can beat in samples does not depend on what they cost
    assert (moved.time_low, moved.time_high) == (base.time_low, base.time_high)
    assert moved.samples_at_least(0.05) == base.samples_at_least(0.05)
    assert base.time_low < moved.cost.low <= moved.cost.high < 4 * base.time_high
    assert moved.cost_at_least(0.05) == pytest.approx(moved.cost.low * 0.9 * math.log(19))
    assert moved.allocation[3, 1] < base.allocation[3, 1]
    assert moved.allocation.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("mode", ["active", "proportional", "agnostic"])
def test_the_same_price_everywhere_changes_the_bill_and_nothing_else(mode: str) -> None:
    base, priced = plan(stroke(mode=mode), STROKE), plan(stroke(mode=mode, costs=2.5), STROKE)
    assert (priced.time_low, priced.time_high) == (base.time_low, base.time_high)
    assert priced.cost is not None
    assert priced.cost.low == pytest.approx(2.5 * base.time_low, rel=1e-5)
    np.testing.assert_allclose(priced.allocation, base.allocation, atol=2e-3)


def test_a_soft_floor_asks_for_no_feasibility() -> None:
    found = plan(stroke(Penalty(5 / 6, 0.5)), STROKE)
    assert found.feasible == tuple(NAMES)
    assert {b.piece for b in found.binding} == {"beat"}


OWN = Convex(
    build=lambda m: [m >= 0.2], contains=lambda m: bool((m >= 0.2).all()), words="reach 0.2 in every group"
)


@pytest.mark.parametrize("means", [[[0.9, 0.6], [0.4, 0.5], [0.1, 1.5]], [[0.1, 0.6], [0.0, -0.1]]])
def test_a_convex_set_of_the_users_own_is_planned_like_the_same_floors(means: list[list[float]]) -> None:
    names, groups = ["a", "b", "c"][: len(means)], {"x": 0.6, "y": 0.4}
    own = plan(Problem(names, groups, Gaussian(1.0), OWN), means, gap=1e-3)
    floors = plan(Problem(names, groups, Gaussian(1.0), Floors(0.2)), means)
    assert own.answer == floors.answer
    assert own.time_low <= floors.time_high
    assert floors.time_low <= own.time_high <= own.time_low * (1 + 2e-3)


def test_an_answer_exactly_on_the_edge_of_the_users_own_set_is_undecidable() -> None:
    with pytest.raises(Undecidable, match="'a' would be the answer but lies exactly on the boundary"):
        plan(two(None, OWN), [[0.2, 0.9], [0.3, 0.3]])


def test_means_near_the_edge_of_the_users_own_set_are_pointed_out() -> None:
    warnings = plan(two(None, OWN), [[0.22, 0.9], [0.18, 2.0]], gap=1e-3).warnings
    assert any("'a' only just meets its requirement" in text for text in warnings)
    assert any("'b' only just misses its requirement" in text for text in warnings)


def test_the_users_own_set_is_planned_beyond_the_groups_in_which_its_polytope_grows() -> None:
    groups = {f"group {g}": 1 / 8 for g in range(8)}
    means = np.vstack(
        [np.linspace(1.4, 1.9, 8), np.linspace(1.3, 1.5, 8)]
    )  # far from leaving: that is not it
    own = plan(Problem(["a", "b"], groups, Gaussian(0.5), OWN), means, gap=1e-2)
    floors = plan(Problem(["a", "b"], groups, Gaussian(0.5), Floors(0.2)), means)
    assert own.time_low <= floors.time_high
    assert floors.time_low <= own.time_high <= own.time_low * (1 + 2e-2)


def test_where_leaving_the_users_own_set_has_only_a_loose_bound_the_plan_says_so() -> None:
    groups = {f"group {g}": 1 / 7 for g in range(7)}
    means = np.vstack([np.full(7, 0.4), np.full(7, 0.1)])
    own = plan(Problem(["a", "b"], groups, Gaussian(0.5), OWN), means, gap=0.05)
    floors = plan(Problem(["a", "b"], groups, Gaussian(0.5), Floors(0.2)), means)
    assert own.time_low <= floors.time_high
    assert floors.time_low <= own.time_high < math.inf
    assert own.time_high > 2 * own.time_low
    assert any("T* is known only to within" in text for text in own.warnings)


def test_without_cvxpy_a_convex_set_of_ones_own_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(BadInput, match=r"needs cvxpy and clarabel; install evenhand\[convex\]"):
        plan(two(None, OWN), [[0.4, 0.9], [0.3, 0.3]])


def test_the_plan_as_json_holds_the_names_of_the_contract() -> None:
    table = plan(stroke(), STROKE).to_dict(0.05)
    keys = "answer answer_index feasible time_low time_high allocation samples_at_least binding why_none"
    assert {*keys.split(), "warnings"} <= set(table)
    assert set(table["binding"][0]) == {"piece", "policy", "group", "share"}


def test_sensitivity_moves_the_floor_both_ways_and_lists_other_risks() -> None:
    found = plan(stroke(), STROKE)
    moved = sensitivity(found)
    assert [shift.change for shift in moved.shifts] == [-0.01, -0.005, 0.005, 0.01]
    assert [shift.answer for shift in moved.shifts] == ["Neither", "Aspirin only", "Aspirin only", None]
    again = plan(stroke(Floors(5 / 6 + 0.005)), STROKE)
    assert moved.shifts[2].time_low == pytest.approx(again.time_low, rel=1e-4)
    assert moved.samples[0.05] == found.samples_at_least(0.05)


def test_a_shift_onto_the_boundary_is_reported_as_never_decided() -> None:
    # range 2, natural step 0.2: half a step tighter puts the answer's 0.6 exactly on the floor
    found = plan(two(None, Floors(0.5)), [[0.6, 2.0], [0.6, 0.0]])
    shift = next(s for s in sensitivity(found).shifts if s.change == pytest.approx(0.1))
    assert (shift.answer, shift.time_low) == ("a", None)


@pytest.mark.parametrize(
    ("constraint", "tighter"),
    [
        (Floors((0.2, 0.3)), Floors((0.3, 0.4))),
        (Caps(0.9), Caps(0.8)),
        (Gap(0.5), Gap(0.4)),
        (Ratio(0.8), Ratio(0.82)),
        (Dispersion(0.5), Dispersion(0.45)),
        (All((Floors(0.2), Gap(0.5))), All((Floors(0.3), Gap(0.4)))),
        (NoConstraint(), NoConstraint()),
    ],
)
def test_tightening_moves_the_bound_that_makes_the_requirement_harder(
    constraint: Constraint, tighter: Constraint
) -> None:
    means = np.array([[0.0, 1.0], [0.5, 0.5]])  # a range of 1: the natural step is 0.1
    assert natural_step(Floors(0.2), means) == 0.1
    moved = tightened(constraint, 1.0, means)
    assert type(moved) is type(tighter)
    assert repr(moved).replace("0.30000000000000004", "0.3").replace("0.8200000000000001", "0.82") == repr(
        tighter
    )
