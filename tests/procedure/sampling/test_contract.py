"""What every sampling rule promises, in every mode."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from evenhand.model.requirements import Constraint, Dispersion, Gap, Penalty, Polyhedron, Quota, Ratio
from evenhand.procedure.decide import next_cell
from evenhand.procedure.spec import Procedure
from evenhand.procedure.state import new_work
from tests.crossed import crossed
from tests.procedure.sampling.rule_run import MEANS, RULES, RuleRun, problem, rule_run

MODES = ("active", "proportional", "agnostic")
each_rule = pytest.mark.parametrize("rule", RULES)
each_rule_and_mode = crossed("rule", RULES, "mode", MODES)
STEPS = 120

REGIONS: dict[str, Constraint] = {
    "gap": Gap(0.5), "ratio": Ratio(0.5), "quota": Quota(0.3, groups=2), "dispersion": Dispersion(0.1),
    "polyhedron": Polyhedron([[1.0, -1.0, 0.0], [0.0, 1.0, 1.0]], [-0.2, 0.5]), "penalty": Penalty(0.3, 2.0),
}  # fmt: skip


@each_rule_and_mode
def test_the_cell_is_one_the_mode_allows_and_was_drawn_with_positive_chance(rule: str, mode: str) -> None:
    run = rule_run(rule, mode)
    policies, groups = MEANS.shape
    for k, g in run.run(STEPS):
        assert 0 <= k < policies
        assert g == -1 if mode == "agnostic" else 0 <= g < groups
        chance = run.work.probability
        assert chance.sum() == pytest.approx(1.0)
        assert (chance.sum(axis=0)[k] if g == -1 else chance[g, k]) > 0


@each_rule_and_mode
def test_the_same_seed_and_outcomes_give_the_same_cells(rule: str, mode: str) -> None:
    assert list(rule_run(rule, mode).run(STEPS)) == list(rule_run(rule, mode).run(STEPS))


@each_rule_and_mode
def test_a_decision_depends_on_the_state_alone_not_on_what_was_computed_before(rule: str, mode: str) -> None:
    kept, fresh = rule_run(rule, mode), rule_run(rule, mode)
    for cell in kept.run(STEPS):
        fresh.work = new_work(fresh.spec)
        assert fresh.ask() == cell
        fresh.tell(cell)


@each_rule
def test_choosing_a_cell_counts_nothing(rule: str) -> None:
    run = rule_run(rule)
    run.start()
    before = copy.deepcopy(run.state)
    next_cell(run.spec, run.state, run.work, 1, 0, -1)
    for table in ("n", "s", "ss", "out", "bets", "level"):
        assert np.array_equal(getattr(run.state, table), getattr(before, table))


@each_rule_and_mode
def test_samples_that_are_out_count_so_that_no_policy_takes_a_whole_batch(rule: str, mode: str) -> None:
    run = rule_run(rule, mode)
    run.start()
    asked = [run.ask() for _ in range(60)]
    assert len(set(asked)) > 1
    assert run.counts.sum() == pytest.approx(run.state.clock[0] + 60)


@each_rule
def test_a_batch_is_sampled_as_if_its_cells_were_already_counted(rule: str) -> None:
    run = rule_run(rule, batch=5)
    run.start()
    before = run.counts
    cells = [run.ask() for _ in range(5)]
    for k, g in cells:
        before[k, g] += 1
    assert np.array_equal(run.counts, before)


@each_rule
def test_certified_stopping_is_served_as_well(rule: str) -> None:
    run = rule_run(rule, stopping="certified")
    assert len(list(run.run(60))) == 60


@crossed("rule", RULES, "kind", REGIONS)
def test_every_kind_of_requirement_is_served(rule: str, kind: str) -> None:
    procedure = Procedure(sampling=RULES[rule], stopping="stylised", initial=2, max_samples=1000)
    run = RuleRun(problem(constraint=REGIONS[kind]), procedure, MEANS)
    assert len(list(run.run(60))) == 60
    assert np.all(np.isfinite(run.state.w))
    assert np.all(np.isfinite(run.state.track))


@each_rule
def test_one_floor_met_exactly_cannot_absorb_all_sampling(rule: str) -> None:
    # policy 0 leads and stands exactly on its floor in one group, so that its own piece never closes
    means = [[0.0, 1.2, 0.9], [0.5, 0.6, 0.4], [0.4, 0.2, 0.1]]
    procedure = Procedure(sampling=RULES[rule], stopping="stylised", initial=2, max_samples=4000)
    run = RuleRun(problem(policies=3), procedure, means, sd=0.0)
    for _ in run.run(900):
        pass
    if rule == "ids":  # without a draw from the posterior only forced exploration, 0.3 sqrt(t), is left
        assert run.counts.min() >= 0.3 * 900**0.5 - 1
    else:
        assert run.counts.max() < 0.9 * run.counts.sum()


@each_rule
def test_outcomes_all_alike_leave_the_rule_with_an_answer(rule: str) -> None:
    # every estimate on its floor, every comparison a tie: all evidence is zero
    procedure = Procedure(sampling=RULES[rule], stopping="stylised", initial=2, max_samples=4000)
    run = RuleRun(problem(), procedure, np.zeros(MEANS.shape), sd=0.0)
    assert len(set(run.run(200))) == MEANS.size
    assert np.all(np.isfinite(run.state.w))


@each_rule
def test_binary_outcomes_at_the_edge_of_their_domain_are_served(rule: str) -> None:
    means = np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 1.0], [0.6, 0.7, 0.5]])
    procedure = Procedure(sampling=RULES[rule], stopping="stylised", initial=1, max_samples=4000)
    run = RuleRun(problem(bernoulli=True), procedure, means)
    assert len(list(run.run(150))) == 150
    assert np.all(np.isfinite(run.state.w))


@pytest.mark.parametrize(
    "rule",
    ["ids", "track-and-stop", "diminishing", "exact-tracking", "frank-wolfe", "uniform", "ocba-co",
     "policy-track-and-stop"],
)  # fmt: skip
def test_no_cell_is_left_behind(rule: str) -> None:
    # 12 cells and 1500 samples: the slowest floor is 0.5 sqrt(1500 / 12) = 5.6 samples, two of them initial
    run = rule_run(rule)
    for _ in run.run(1500):
        pass
    assert run.counts.min() >= 5
