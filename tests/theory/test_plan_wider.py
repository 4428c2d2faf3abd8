"""Plans for the wider question: against reference values, closed forms and identities."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import brentq, linprog

from evenhand.errors import BadInput, Undecidable
from evenhand.model.families import Bernoulli, Bounded, Family, Gaussian, Poisson
from evenhand.model.guardrails import Guardrail
from evenhand.model.problem import MODES, Problem
from evenhand.model.requirements import All, Caps, Floors, Gap, NoConstraint, Penalty, Quota
from evenhand.study import Study
from evenhand.theory.answers import kl, risk_in_nats, samples_needed
from evenhand.theory.modes import mode_of
from evenhand.theory.plan import Plan, plan
from evenhand.theory.question import question_of
from evenhand.theory.screening import Screening, screen
from evenhand.theory.sensitivity import sensitivity

Array = NDArray[np.float64]

CASES = Path(__file__).parents[3] / "shared" / "reference" / "plan_cases_2.json"


def cases() -> list[Any]:
    if not CASES.exists():
        return [
            pytest.param(None, marks=pytest.mark.skip(reason=f"the reference file {CASES.name} is absent"))
        ]
    return [pytest.param(case, id=case["name"]) for case in json.loads(CASES.read_text())]


def study_of(case: Any) -> Study:
    """A reference case as a study; policies are p1, p2, ..., groups g1, g2, ..."""
    shares = [*case["shares"][:-1], 1.0 - sum(case["shares"][:-1])]
    rails = case.get("guardrails", [])
    return Study.from_dict(
        {
            "problem": {
                "policies": [f"p{k + 1}" for k in range(len(case["means"]))],
                "groups": {f"g{g + 1}": share for g, share in enumerate(shares)},
                "family": case["family"],
                "constraint": case["constraint"],
                "mode": case["mode"],
                "guardrails": [
                    {key: rail[key] for key in ("name", "family", "constraint")} for rail in rails
                ],
            },
            "procedure": case.get("procedure", {}),
            "truth": {"means": case["means"]}
            | ({"guardrails": {rail["name"]: rail["means"] for rail in rails}} if rails else {}),
        }
    )


@pytest.mark.parametrize("case", cases())
def test_independently_certified_times_are_met(case: Any) -> None:
    found = plan(study_of(case))
    assert found.answer_index == case["answer"]
    assert found.time_high <= found.time_low * (1 + 1.1e-6)
    assert found.time_low <= case["time_high"] * (1 + 1e-6)
    assert found.time_high >= case["time_low"] * (1 - 1e-6)
    if case["answer"] is not None:  # where no policy is allowed, samples of the control may serve as well
        np.testing.assert_allclose(found.allocation, case["allocation"], atol=0.02)
    if "acceptable" in case:
        names = found.problem.policies
        assert {names.index(str(name)) for name in found.acceptable} == set(case["acceptable"])
        assert found.easiest == names[case["easiest"]]
        times = {
            names.index(str(name)): time for name, time in zip(found.acceptable, found.times, strict=True)
        }
        for answer, (low, high) in zip(case["acceptable"], case["times"], strict=True):
            assert times[answer].low <= high * (1 + 1e-6)
            assert times[answer].high >= low * (1 - 1e-6)


def relative(margin: Any = 0.1, policies: int = 3, family: Family | None = None, **more: Any) -> Problem:
    names = ["control", *(f"p{k}" for k in range(1, policies))]
    constraint = more.pop("constraint", Floors(relative_to="control", margin=margin))
    return Problem(names, {"x": 0.6, "y": 0.4}, family or Gaussian(1.0), constraint, **more)


MEANS = [[0.5, 0.4], [0.8, 0.7], [0.6, 0.2]]


def test_the_order_of_the_policies_does_not_matter() -> None:
    straight = plan(relative(), MEANS)
    turned = Problem(["p2", "p1", "control"], {"x": 0.6, "y": 0.4}, Gaussian(1.0),
                     Floors(relative_to="control", margin=0.1))  # fmt: skip
    found = plan(turned, MEANS[::-1])
    assert found.answer == straight.answer == "p1"
    assert found.time_low == pytest.approx(straight.time_low, rel=2e-6)
    np.testing.assert_allclose(found.allocation[::-1], straight.allocation, atol=1e-3)


def test_shifting_all_gaussian_means_leaves_a_margin_as_it_is() -> None:
    base, moved = plan(relative(), MEANS), plan(relative(), np.array(MEANS) + 7.0)
    assert moved.time_low == pytest.approx(base.time_low, rel=2e-6)


def test_a_binomial_is_a_bernoulli_with_many_draws_a_sample() -> None:
    from evenhand.model.families import Binomial

    one = plan(relative(0.1, family=Bernoulli()), MEANS)
    ten = plan(relative(1.0, family=Binomial(10)), 10 * np.array(MEANS))
    assert ten.time_low == pytest.approx(one.time_low / 10, rel=2e-6)
    wide = plan(relative(0.2, family=Bounded(1.0, 3.0)), 1.0 + 2.0 * np.array(MEANS))
    assert wide.time_low == pytest.approx(one.time_low, rel=2e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "means", [MEANS, [[0.9, 0.8], [0.5, 0.4], [1.4, 0.3]]], ids=["another", "the control"]
)
def test_the_allocation_reaches_the_time_it_promises(mode: str, means: list[list[float]]) -> None:
    rails = [Guardrail("c", Poisson(), All((Caps(1.5), Caps(relative_to="control", margin=0.4))))]
    problem = relative(mode=mode, guardrails=rails)
    counts = {"c": [[0.8, 0.9], [1.0, 1.1], [0.5, 1.2]]}
    found = plan(problem, means, guardrails=counts, indifference=0.02, tolerance=0.01)
    asked = question_of(problem, means, counts, 0.02, 0.01)
    easiest = None if found.easiest is None else problem.policies.index(found.easiest)
    found_at = asked.alternatives(easiest).solve_at(np.maximum(found.allocation, 1e-12))
    assert 1.0 / found_at.value == pytest.approx(found.time_high, rel=1e-5)
    assert found_at.lower >= (1.0 - 1e-5) / found.time_high


def test_stricter_margins_take_longer_for_the_one_that_must_keep_them() -> None:
    times = [plan(relative(margin), MEANS).time_low for margin in (0.3, 0.1, 0.0, -0.1)]
    assert times == sorted(times)


def test_an_answer_exactly_at_its_margin_is_undecidable() -> None:
    means = [[0.5, 0.4], [0.8, 0.3], [0.0, 0.0]]
    with pytest.raises(Undecidable, match="'p1' would be the answer but lies exactly on the boundary"):
        plan(relative(0.1), means)
    rails = [Guardrail("c", Poisson(), Caps(1.0))]
    counts = {"c": [[0.5, 0.5], [1.0, 0.5], [0.5, 0.5]]}
    with pytest.raises(Undecidable, match="exactly on the boundary of its guard-rail 'c'"):
        plan(relative(0.2, guardrails=rails), means, guardrails=counts)


def test_a_negative_control_has_no_ratio() -> None:
    with pytest.raises(BadInput, match="a ratio needs a control whose means are not negative"):
        plan(relative(constraint=Floors(relative_to="control", ratio=0.9)), [[-0.5, 0.4], *MEANS[1:]])


# guard-rails


def test_a_guard_rail_that_no_policy_comes_near_changes_nothing() -> None:
    far = [Guardrail("c", Gaussian(1.0), Caps(50.0))]
    zeros = {"c": np.zeros((3, 2))}
    base, railed = plan(relative(), MEANS), plan(relative(guardrails=far), MEANS, guardrails=zeros)
    assert railed.time_low == pytest.approx(base.time_low, rel=2e-6)
    assert any("independent" in text for text in railed.warnings)


def test_the_outcome_itself_as_a_guard_rail_costs_a_rival_twice() -> None:
    # one group, no requirement on the outcome, the same floor on an independent copy of it: beating takes the
    # primary gap, entering the copy's shortfall
    rails = [Guardrail("copy", Gaussian(1.0), Floors(0.0))]
    problem = Problem(["a", "b"], {"x": 1.0}, Gaussian(1.0), NoConstraint(), guardrails=rails)
    found = plan(problem, [[1.0], [2.0]], guardrails={"copy": [[3.0], [-0.5]]})
    # b is better, so only its guard-rail keeps it out: 0.5^2 / 2 a sample of b; a leaves at 3^2 / 2 a sample
    assert found.answer == "a"
    assert found.time_low == pytest.approx(1 / (0.5**2 / 2) + 1 / (3.0**2 / 2), rel=1e-5)
    assert {(b.piece, b.policy, b.metric) for b in found.binding} == {
        ("beat", "b", None),
        ("leave", "a", "copy"),
    }


def test_when_guard_rails_keep_everyone_out_the_plan_names_metric_and_group() -> None:
    rails = [Guardrail("c", Poisson(), Caps(1.0))]
    problem = Problem(["a", "b"], {"x": 0.5, "y": 0.5}, Bernoulli(), Floors(0.3), guardrails=rails)
    found = plan(problem, [[0.5, 0.6], [0.1, 0.5]], guardrails={"c": [[2.0, 0.5], [0.5, 0.9]]})
    assert found.why_none is not None
    assert [(b.policy, b.group, b.metric) for b in found.why_none.policies] == [
        ("a", "x", "c"),
        ("b", "x", None),
    ]
    assert found.why_none.to_dict()["policies"][0] == {
        "policy": "a",
        "group": "x",
        "mean": 2.0,
        "metric": "c",
    }
    # each policy's own game: 1 / d(2, 1) and 1 / d(0.1, 0.3)
    divergences = 2 * math.log(2) - 1, 0.1 * math.log(0.1 / 0.3) + 0.9 * math.log(0.9 / 0.7)
    assert found.time_low == pytest.approx(sum(1 / d for d in divergences), rel=1e-6)


# indifference and tolerance


def test_without_indifference_the_best_is_the_only_acceptable_answer() -> None:
    found = plan(relative(), MEANS)
    assert (found.acceptable, found.easiest) == (("p1",), "p1")
    assert found.samples_at_least(0.05) == pytest.approx(found.time_low * risk_in_nats(0.05))
    assert found.proposal is None


def test_a_tie_is_decidable_with_an_indifference_and_the_refusal_says_so() -> None:
    problem = Problem(["a", "b"], {"x": 0.5, "y": 0.5}, Gaussian(1.0), Floors(-1.0))
    tied = [[0.5, 0.25], [0.25, 0.5]]
    with pytest.raises(
        Undecidable, match=r"tied .* or accept 'a' or 'b': with indifference = 0\.08 T\* is 1250"
    ):
        plan(problem, tied)
    found = plan(problem, tied, indifference=0.08)
    assert found.acceptable == ("a", "b")
    # two policies, unit deviations: T* = 2 (1 + 1)^2 / eps^2
    assert found.time_low == pytest.approx(8 / 0.08**2, rel=1e-5)


def test_a_near_tie_gets_an_indifference_proposed_with_what_it_saves() -> None:
    problem = Problem(["a", "b"], {"x": 0.5, "y": 0.5}, Gaussian(1.0), Floors(-1.0))
    found = plan(problem, [[0.5, 0.26], [0.25, 0.5]])
    assert found.proposal is not None
    again = plan(problem, [[0.5, 0.26], [0.25, 0.5]], indifference=found.proposal.indifference)
    assert found.proposal.acceptable == again.acceptable == ("a", "b")
    assert found.proposal.time_low <= again.time_high
    assert again.time_low <= found.proposal.time_high < 0.5 * found.time_low
    assert again.proposal is None
    assert plan(problem, [[0.9, 0.9], [0.25, 0.5]]).proposal is None


def test_an_answer_exactly_the_indifference_away_is_acceptable_and_never_certified() -> None:
    problem = Problem(["a", "b"], {"x": 1.0}, Gaussian(1.0), NoConstraint())
    found = plan(problem, [[0.5], [0.25]], indifference=0.25)
    assert found.acceptable == ("a", "b")
    assert found.easiest == "a"
    assert found.times[1].low == math.inf
    assert found.to_dict(0.05)["times"][1] == {"answer": "b", "time_low": None, "time_high": None}
    only = plan(problem, [[0.5], [0.25]], indifference=0.2499)
    assert only.acceptable == ("a",)


def test_none_is_acceptable_only_where_no_policy_is_allowed() -> None:
    problem = Problem(["a", "b"], {"x": 1.0}, Gaussian(1.0), Floors(0.5))
    found = plan(problem, [[0.4], [0.1]], tolerance=0.2)
    # a misses its floor by 0.1: "none" and, within the tolerance of 0.2, "a" are both right
    assert found.acceptable == (None, "a")
    assert found.answer is None
    assert found.to_dict(0.05)["acceptable"] == [None, "a"]
    assert plan(problem, [[0.6], [0.1]], tolerance=0.2).acceptable == ("a",)


def test_tolerance_loosens_the_answers_floor_and_no_other() -> None:
    problem = Problem(["a", "b"], {"x": 1.0}, Gaussian(1.0), Floors(0.5))
    # b fails its floor and is not helped; a leaves at 0.5 - 0.3
    found = plan(problem, [[0.6], [0.1]], tolerance=0.3)
    strict = plan(problem, [[0.6], [0.1]])
    # leaving: 1 / (0.4^2 / 2) samples of a; b enters and beats: the same game with a wider first piece
    assert found.time_low < strict.time_low
    alone = plan(Problem(["a", "b"], {"x": 1.0}, Gaussian(1.0), Floors(0.2)), [[0.6], [-50.0]])
    assert {b.piece for b in found.binding} == {"leave", "beat"}
    assert alone.time_low == pytest.approx(2 / 0.4**2, rel=0.01)  # b is out of the way


def test_the_characteristic_time_falls_with_the_indifference() -> None:
    problem = Problem(["a", "b", "c"], {"x": 0.5, "y": 0.5}, Bernoulli(), Floors(0.2))
    means = [[0.6, 0.6], [0.55, 0.58], [0.3, 0.88]]
    times = [plan(problem, means, indifference=eps).time_low for eps in (0.0, 0.02, 0.05, 0.1, 0.3)]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(
    "constraint", [Floors(0.3), Gap(0.5), Quota(0.4, groups=1), Penalty(0.5, 1.0)], ids=lambda c: c.kind
)
def test_indifference_works_with_every_kind_of_requirement(constraint: Any) -> None:
    problem = Problem(["a", "b", "c"], {"x": 0.5, "y": 0.5}, Bernoulli(), constraint)
    means = [[0.6, 0.66], [0.61, 0.64], [0.4, 0.45]]
    strict, loose = plan(problem, means), plan(problem, means, indifference=0.05)
    assert loose.time_high < 0.2 * strict.time_low
    assert set(loose.acceptable) == {"a", "b"}


# the lower bound with several acceptable answers


@pytest.mark.parametrize("delta", [0.2, 0.05, 0.001])
@settings(max_examples=30, deadline=None, derandomize=True)
@given(times=st.lists(st.floats(1.0, 1e4), min_size=1, max_size=4))
def test_the_bound_is_the_least_of_the_largest_over_all_ways_to_share_the_chances(
    delta: float, times: list[float]
) -> None:
    found = samples_needed(times, delta)
    rng = np.random.default_rng(1)
    tried = rng.dirichlet(np.full(len(times), 0.7), 4000) * (1 - delta)

    def needed(p: Array) -> float:
        return max(
            time * (kl(chance, delta) if chance > delta else 0.0)
            for time, chance in zip(times, p, strict=True)
        )

    assert found <= min(needed(p) for p in tried) * (1 + 1e-9)  # no way found needs less
    if found > 0.0:
        # and one way needs no more: every chance as large as the bound allows, and they just suffice
        p = np.array([_largest(found / time, delta) for time in times])
        assert p.sum() == pytest.approx(1 - delta, abs=1e-9)
        assert needed(p) == pytest.approx(found, rel=1e-9)
    if len(times) == 1:
        assert found == pytest.approx(times[0] * kl(1 - delta, delta))


def _largest(nats: float, delta: float) -> float:
    """The p above delta at which kl(p, delta) is this, by another root finder."""
    top = 1.0 - 1e-16
    return (
        float(brentq(lambda p: kl(p, delta) - nats, delta, top, xtol=1e-15)) if kl(top, delta) > nats else 1.0
    )


def test_equal_times_share_the_chances_equally() -> None:
    # m answers of one time: T kl((1 - delta) / m, delta)
    assert samples_needed([7.0] * 3, 0.05) == pytest.approx(7.0 * kl(0.95 / 3, 0.05), rel=1e-9)
    # so many that delta each is enough: nothing can be said
    assert samples_needed([7.0] * 19, 0.05) == 0.0
    assert samples_needed([7.0] * 18, 0.05) > 0.0


def test_an_answer_that_no_samples_certify_helps_by_delta_only() -> None:
    assert samples_needed([5.0, math.inf], 0.05) == pytest.approx(5.0 * kl(0.9, 0.05), rel=1e-9)
    assert samples_needed([math.inf], 0.05) == math.inf


def test_harder_answers_never_raise_the_bound_above_the_single_one() -> None:
    assert (
        samples_needed([10.0], 0.05) > samples_needed([10.0, 1e6], 0.05) > samples_needed([10.0, 10.0], 0.05)
    )


# screening


def linear_programme(problem: Problem, means: Array) -> float:
    """T* of screening absolute floors by the definition: the LP over all pieces."""
    policies, groups = means.shape
    d = problem.family.divergence(means, np.full_like(means, 0.3))
    rows = []
    for k in range(policies):
        if (means[k] >= 0.3).all():
            for g in range(groups):
                row = np.zeros((policies, groups))
                row[k, g] = d[k, g]
                rows.append(row)
        else:
            row = np.zeros((policies, groups))
            row[k] = np.where(means[k] < 0.3, d[k], 0.0)
            rows.append(row)
    found = linprog(
        np.r_[np.zeros(means.size), -1.0],
        A_ub=np.c_[-np.array([row.ravel() for row in rows]), np.ones(len(rows))],
        b_ub=np.zeros(len(rows)),
        A_eq=[np.r_[problem.sampling_costs.ravel(), 0.0]],
        b_eq=[1.0],
    )
    return 1.0 / float(found.x[-1])


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), policies=st.integers(1, 4), groups=st.integers(1, 4), priced=st.booleans())
def test_screening_floors_is_a_sum_over_bounds_and_policies(
    seed: int, policies: int, groups: int, priced: bool
) -> None:
    rng = np.random.default_rng(seed)
    means = rng.uniform(0.05, 0.95, (policies, groups))
    problem = Problem(
        [f"p{k}" for k in range(policies)],
        {f"g{g}": 1.0 for g in range(groups)},
        Bernoulli(),
        Floors(0.3),
        goal="screen",
        costs=rng.uniform(0.5, 3.0, (policies, groups)) if priced else None,
        normalise=True,
    )
    found = plan(problem, means)
    interval = found.cost if found.cost is not None else found.times[0]
    assert interval.low <= linear_programme(problem, means) * (1 + 1e-6)
    assert interval.high >= linear_programme(problem, means) * (1 - 1e-6)
    # the general method comes to the same
    asked = question_of(problem, means, None, 0.0, 0.0)
    general = Screening(asked.metrics, asked.allowed)
    found_at = general.solve_at(
        np.maximum(found.allocation / (problem.sampling_costs * found.allocation).sum(), 1e-15)
    )
    assert 1.0 / found_at.value == pytest.approx(interval.high, rel=1e-6)


def test_screening_one_policy_takes_one_over_the_divergence_in_each_group() -> None:
    problem = Problem(["only"], {"x": 0.5, "y": 0.5}, Gaussian(1.0), Floors(0.0), goal="screen")
    found = plan(problem, [[0.5, 0.25]])
    assert found.time_low == pytest.approx(2 / 0.5**2 + 2 / 0.25**2)
    np.testing.assert_allclose(found.allocation, [[0.2, 0.8]])
    assert (found.answer, found.acceptable, found.feasible, found.failed) == (None, (), ("only",), ())
    table = found.to_dict(0.05)
    assert (table["goal"], table["allowed"], table["failed"]) == ("screen", ["only"], [])
    assert found.samples_at_least(0.05) == pytest.approx(found.time_low * risk_in_nats(0.05))


def test_screening_one_challenger_against_a_control_has_a_closed_form() -> None:
    # sum over groups of 2 (sd_k + r sd_0)^2 / slack^2
    sd = np.array([[0.5, 1.5], [1.0, 0.8]])
    ratio = np.array([0.9, 0.8])
    means = np.array([[1.0, 1.2], [1.4, 1.5]])
    problem = Problem(
        ["control", "new"],
        {"x": 0.5, "y": 0.5},
        Gaussian(sd),
        Floors(relative_to="control", ratio=ratio),
        goal="screen",
    )
    slack = means[1] - ratio * means[0]
    assert plan(problem, means).time_low == pytest.approx(
        (2 * (sd[1] + ratio * sd[0]) ** 2 / slack**2).sum(), rel=1e-5
    )


def test_a_policy_kept_out_by_a_guard_rail_is_screened_by_all_that_it_violates() -> None:
    rails = [Guardrail("c", Gaussian(1.0), Caps(0.0))]
    problem = Problem(["a"], {"x": 1.0}, Gaussian(1.0), Floors(0.0), goal="screen", guardrails=rails)
    # outcome below its floor by 0.3, guard-rail above its cap by 0.4: (0.3^2 + 0.4^2) / 2 a sample
    found = plan(problem, [[-0.3]], guardrails={"c": [[0.4]]})
    assert found.time_low == pytest.approx(2 / (0.3**2 + 0.4**2))
    # allowed: the weaker of the two bounds counts
    found = plan(problem, [[0.3]], guardrails={"c": [[-0.4]]})
    assert found.time_low == pytest.approx(2 / 0.3**2)
    assert [(b.piece, b.metric) for b in found.binding] == [("leave", None)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "constraint",
    [Floors(0.3), Gap(0.35), Floors(relative_to="a", margin=0.1)],
    ids=["floors", "gap", "relative"],
)
def test_screening_is_certified_in_every_mode(mode: str, constraint: Any) -> None:
    problem = Problem(
        ["a", "b", "c"], {"x": 0.5, "y": 0.5}, Bernoulli(), constraint, mode=mode, goal="screen"
    )
    means = np.array([[0.5, 0.6], [0.7, 0.4], [0.2, 0.65]])
    found = plan(problem, means)
    assert found.time_low <= found.time_high <= found.time_low * (1 + 2e-6)
    asked = question_of(problem, means, None, 0.0, 0.0)
    found_at = Screening(asked.metrics, asked.allowed).solve_at(np.maximum(found.allocation, 1e-12))
    assert 1.0 / found_at.value == pytest.approx(found.time_high, rel=1e-5)


def test_screening_many_policies_against_a_control_is_quick_and_certified() -> None:
    rng = np.random.default_rng(2)
    means = rng.uniform(0.3, 0.7, (40, 3))
    names = [f"p{k}" for k in range(40)]
    problem = Problem(
        names,
        {"x": 0.5, "y": 0.3, "z": 0.2},
        Bernoulli(),
        Floors(relative_to="p0", margin=0.1),
        goal="screen",
    )
    asked = question_of(problem, means, None, 0.0, 0.0)
    found = screen(asked.metrics, asked.allowed, mode_of(problem), 1e-4)
    assert found.gap <= 2e-4


def test_a_policy_exactly_on_its_boundary_cannot_be_screened() -> None:
    problem = Problem(["a", "b"], {"x": 1.0}, Gaussian(1.0), Floors(0.5), goal="screen")
    with pytest.raises(Undecidable, match="'b' lies exactly on the boundary of its requirement"):
        plan(problem, [[0.9], [0.5]])


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_the_unit_of_the_outcomes_changes_nothing(unit: float) -> None:
    problem = relative(0.1 * unit, family=Gaussian(unit))
    small = plan(problem, np.array(MEANS) * unit, indifference=0.05 * unit, tolerance=0.02 * unit)
    same = plan(relative(0.1), MEANS, indifference=0.05, tolerance=0.02)
    assert small.time_low == pytest.approx(same.time_low, rel=1e-5)
    assert (small.acceptable, small.easiest) == (same.acceptable, same.easiest)


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_edges_and_ties_are_seen_in_any_unit(unit: float) -> None:
    strict = Problem(
        ["control", "p"], {"x": 1.0}, Gaussian(unit), Floors(relative_to="control", margin=-0.1 * unit)
    )
    # 0.3 - 0.2 is not 0.1 in binary numbers
    with pytest.raises(Undecidable, match="'p' would be the answer but lies exactly on the boundary"):
        plan(strict, [[0.2 * unit], [0.3 * unit]])
    free = Problem(["a", "b"], {"x": 1.0}, Gaussian(unit))
    found = plan(free, [[0.3 * unit], [0.2 * unit]], indifference=0.1 * unit)
    assert found.acceptable == ("a", "b")
    assert found.times[1].low == math.inf


def test_answers_that_nothing_contradicts_take_no_samples() -> None:
    """An indifference as wide as the range of the means: every answer is acceptable without a sample."""
    found = plan(Problem(["a", "b"], {"x": 1.0}, Bernoulli()), [[0.3], [0.6]], indifference=1.5)
    assert found.acceptable == ("b", "a")
    assert (found.time_low, found.time_high, found.samples_at_least(0.05)) == (0.0, 0.0, 0.0)


# costs, sensitivity, and what the plan says


def test_prices_enter_by_their_square_root_and_several_answers_are_priced_too() -> None:
    costs = np.array([[4.0], [1.0]])
    problem = Problem(["a", "b"], {"x": 1.0}, Gaussian(1.0), NoConstraint(), costs=costs)
    found = plan(problem, [[0.5], [0.4]], indifference=0.3)
    assert found.cost is not None
    # 2 (2 + 1)^2 / (0.1 + 0.3)^2 in cost, 2 (1 + 1)^2 / 0.4^2 in samples
    assert found.cost.low == pytest.approx(18 / 0.4**2, rel=1e-5)
    assert found.time_low == pytest.approx(8 / 0.4**2, rel=1e-5)
    assert len(found.costs) == len(found.acceptable) == 2
    expected = samples_needed([18 / 0.4**2, 18 / 0.2**2], 0.05)
    assert found.cost_at_least(0.05) == pytest.approx(expected, rel=2e-3)
    np.testing.assert_allclose(found.allocation, [[1 / 3], [2 / 3]], atol=1e-3)
    table = found.to_dict(0.05)
    assert table["cost_at_least"] > table["samples_at_least"]


def test_sensitivity_moves_margins_and_ratios_and_prices_other_risks() -> None:
    found = plan(relative(0.1, costs=2.0), MEANS)
    moved = sensitivity(found)
    # the means span 0.6, so the natural step is 0.06; tighter is a smaller margin
    assert [shift.change for shift in moved.shifts] == pytest.approx([-0.06, -0.03, 0.03, 0.06])
    tighter = plan(relative(0.04, costs=2.0), MEANS)
    assert moved.shifts[-1].time_low == pytest.approx(tighter.time_low, rel=1e-3)
    assert moved.costs[0.05] == found.cost_at_least(0.05)
    assert moved.to_dict()["delta"][0]["cost_at_least"] == moved.costs[0.2]
    by_group = plan(relative({"x": 0.1, "y": 0.1}), MEANS)
    assert [s.time_low for s in sensitivity(by_group).shifts] == pytest.approx(
        [s.time_low for s in moved.shifts]
    )
    ratio = relative(constraint=Floors(relative_to="control", ratio=0.9))
    assert [s.change for s in sensitivity(plan(ratio, MEANS)).shifts] == [-0.02, -0.01, 0.01, 0.02]


def test_sensitivity_keeps_guard_rails_and_indifference() -> None:
    rails = [Guardrail("c", Poisson(), Caps(1.5))]
    counts = {"c": [[0.8, 0.9], [1.0, 1.1], [0.5, 1.2]]}
    found = plan(relative(guardrails=rails), MEANS, guardrails=counts, indifference=0.5)
    shift = sensitivity(found).shifts[0]
    again = plan(relative(0.16, guardrails=rails), MEANS, guardrails=counts, indifference=0.5)
    assert shift.time_low == pytest.approx(again.time_low, rel=1e-3)


def test_binding_names_the_control_where_a_bound_is_relative() -> None:
    found: Plan = plan(relative(0.0), [[0.5, 0.4], [0.8, 0.45], [0.1, 0.1]])
    leaving = [b for b in found.binding if b.piece == "leave"]
    assert {(b.policy, b.group, b.relative_to) for b in leaving} == {
        ("p1", "y", "control"),
        ("p1", "x", "control"),
    }
    assert leaving[0].to_dict()["relative_to"] == "control"
    plain = plan(Problem(["a", "b"], {"x": 1.0}, Gaussian(1.0), Floors(0.0)), [[1.0], [0.5]])
    assert set(plain.binding[0].to_dict()) == {"piece", "policy", "group", "share"}


def test_near_guard_rails_and_indifferences_are_pointed_out() -> None:
    rails = [Guardrail("c", Gaussian(1.0), Caps(1.0))]
    found = plan(relative(guardrails=rails), MEANS, guardrails={"c": [[0.0, 0.0], [0.98, 0.98], [0.0, 0.0]]})
    assert any("'p1' only just meets its guard-rail 'c'" in text for text in found.warnings)
    problem = Problem(["a", "b"], {"x": 1.0}, Gaussian(1.0), Floors(0.4))
    close = plan(problem, [[0.5], [0.9]], indifference=0.41)
    assert close.easiest == "b"
    assert not any("tied" in text for text in close.warnings)


def test_all_three_at_once_for_many_policies_are_certified() -> None:
    """Relative floors, guard-rails and indifference at K = 100, L = 5."""
    rng = np.random.default_rng(1)
    policies, groups = 100, 5
    base = rng.uniform(0.45, 0.6, groups)
    means = np.clip(
        base + rng.normal(0, 0.1, (policies, 1)) + rng.normal(0, 0.1, (policies, groups)), 0.05, 0.95
    )
    means[0] = base
    rails = [
        Guardrail("satisfaction", Gaussian(1.0), Floors(relative_to="p0", margin=0.2)),
        Guardrail("complaints", Poisson(), Caps(1.5)),
    ]
    counts = {
        "satisfaction": rng.normal(0.5, 0.3, means.shape),
        "complaints": rng.uniform(0.3, 1.7, means.shape),
    }
    problem = Problem(
        [f"p{k}" for k in range(policies)],
        {f"g{g}": 0.2 for g in range(groups)},
        Bernoulli(),
        Floors(relative_to="p0", margin=0.05),
        guardrails=rails,
    )
    found = plan(problem, means, guardrails=counts, indifference=0.04)
    assert found.time_low <= found.time_high <= found.time_low * (1 + 2e-6)
