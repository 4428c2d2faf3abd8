"""Rules that track an allocation, with guard-rails: the weights are those of the plan."""

from __future__ import annotations

import numpy as np
import pytest

from evenhand.model.families import Gaussian
from evenhand.model.guardrails import Guardrail
from evenhand.model.problem import Problem
from evenhand.model.requirements import Caps, Constraint, Floors, Gap
from evenhand.procedure.estimates import refresh
from evenhand.procedure.sampling.none_feasible import has_closed_form, optimal_weights
from evenhand.procedure.spec import Budget, Procedure
from evenhand.procedure.state import new_work
from evenhand.theory.plan import plan
from tests.procedure.sampling.rule_run import RULES, RuleRun
from tests.procedure.sampling.test_rules import worth

GROUPS = {"x": 0.6, "y": 0.4}
MEANS = [[0.5, 0.5], [1.0, 0.9], [1.6, 1.5], [1.3, 1.2]]
# p1 is the answer: p2 has too high a load, and p3 is too slow beside p0
LOADS = [[1.0, 1.0], [0.9, 0.8], [1.2, 2.2], [0.8, 1.0]]
SPEEDS = [[0.7, 0.7], [0.7, 0.75], [0.8, 0.8], [0.75, 0.2]]
LOAD = Guardrail("load", Gaussian(0.8), Caps(1.5))
SPEED = Guardrail("speed", Gaussian(0.4), Floors(relative_to="p0", margin=0.1))
BOTH = {"load": LOADS, "speed": SPEEDS}


def shop(
    *rails: Guardrail, mode: str = "active", policies: int = 4, constraint: Constraint | None = None
) -> Problem:
    names = [f"p{k}" for k in range(policies)]
    return Problem(names, GROUPS, Gaussian(0.5), constraint or Floors(0.0), mode, guardrails=rails)


def settled(asked: Problem, rule: str, means: list[list[float]], rails: list[object], steps: int) -> RuleRun:
    """After noise-free outcomes: the estimates are the truth, only the allocation has to be found."""
    procedure = Procedure(sampling=RULES[rule], stopping="stylised", initial=2, max_samples=100_000)
    run = RuleRun(asked, procedure, means, sd=0.0, rails=rails)
    for _ in run.run(steps):
        pass
    return run


@pytest.mark.parametrize("mode", ["active", "proportional", "agnostic"])
def test_exact_tracking_finds_the_optimal_weights(mode: str) -> None:
    asked = shop(LOAD, SPEED, mode=mode)
    run = settled(asked, "exact-tracking", MEANS, [LOADS, SPEEDS], 300)
    best = plan(asked, MEANS, guardrails=BOTH)
    assert best.answer == "p1"
    assert 1 / worth(run, run.state.w) == pytest.approx(best.time_high, rel=0.03)


@pytest.mark.parametrize("rule", ["frank-wolfe", "diminishing", "ts-ids"])
def test_where_samples_go_tends_to_the_optimal_allocation(rule: str) -> None:
    asked = shop(LOAD, SPEED)
    run = settled(asked, rule, MEANS, [LOADS, SPEEDS], 3000)
    counts = run.state.n / run.state.n.sum()
    best = plan(asked, MEANS, guardrails=BOTH)
    assert 1 / worth(run, counts) == pytest.approx(best.time_high, rel=0.2)


@pytest.mark.parametrize("constraint", [Floors(0.0), Gap(0.05)])
@pytest.mark.parametrize("mode", ["active", "agnostic"])
def test_where_no_policy_is_feasible_the_closed_form_gives_the_weights_of_the_plan(
    constraint: Constraint, mode: str
) -> None:
    high = [[2.0, 1.8], [1.0, 2.2], [1.7, 1.6], [1.9, 1.0]]
    means = [[0.5, 0.4], [1.0, 0.9], [1.6, 1.5], [1.3, 1.1]]
    asked = shop(LOAD, mode=mode, constraint=constraint)
    run = settled(asked, "uniform", means, [high], 40)
    refresh(run.spec, run.state, run.work, True)
    assert has_closed_form(run.spec)
    w, v = np.empty((2, 4)), np.empty((2, 4))
    optimal_weights(run.spec, run.state, run.work, w, v)
    found = plan(asked, means, guardrails={"load": high})
    assert found.answer is None
    assert 1 / worth(run, w) == pytest.approx(found.time_high, rel=0.05)


def test_a_relative_guard_rail_has_no_closed_form() -> None:
    run = settled(shop(SPEED), "uniform", MEANS, [SPEEDS], 20)
    assert not has_closed_form(run.spec)


def test_sequential_halving_keeps_the_control_of_a_guard_rail() -> None:
    procedure = Procedure(sampling="sequential-halving", stopping=Budget(400), initial=2, max_samples=400)
    low = [[-1.0, -1.0], *MEANS[1:]]  # the control has the worst mean of all
    run = RuleRun(shop(SPEED), procedure, low, sd=0.0, rails=[SPEEDS])
    for _ in run.run(399):
        pass
    assert np.all(run.state.w[:, 0] > 0)
    assert np.all(run.counts[0] > 30)


def test_two_stage_asks_about_guard_rails_first() -> None:
    procedure = Procedure(sampling="two-stage", stopping="stylised", initial=2, max_samples=4000)
    near = [[1.0, 1.0], [0.9, 0.8], [1.2, 2.2], [0.8, 1.49]]  # p3's load is just below its cap in y
    run = RuleRun(shop(LOAD), procedure, MEANS, sd=0.0, rails=[near])
    cells = list(run.run(600))[200:]
    assert cells.count((3, 1)) > 0.9 * len(cells)


def test_ocba_co_rules_out_a_policy_by_the_guard_rail_that_it_breaks() -> None:
    procedure = Procedure(sampling="ocba-co", stopping="stylised", initial=2, max_samples=4000)
    run = RuleRun(shop(LOAD), procedure, MEANS, sd=0.0, rails=[LOADS])
    for _ in run.run(800):
        pass
    assert run.counts[2, 1] > 2 * run.counts[2, 0]  # p2 breaks the cap in y only


@pytest.mark.parametrize("rule", ["exact-tracking", "frank-wolfe", "two-stage", "ocba-co"])
def test_decisions_do_not_depend_on_what_was_computed_before(rule: str) -> None:
    def run() -> RuleRun:
        procedure = Procedure(sampling=RULES[rule], stopping="stylised", initial=2, max_samples=4000)
        return RuleRun(shop(LOAD, SPEED), procedure, MEANS, rails=[LOADS, SPEEDS])

    kept, fresh = run(), run()
    for cell in kept.run(60):
        fresh.work = new_work(fresh.spec)
        assert fresh.ask() == cell
        fresh.tell(cell)
