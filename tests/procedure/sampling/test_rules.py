"""One claim or two for each of the other rules."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import binom

from evenhand.model.families import Gaussian
from evenhand.model.problem import Problem
from evenhand.model.requirements import Floors, Gap, NoConstraint, Penalty
from evenhand.procedure.estimates import refresh
from evenhand.procedure.sampling.none_feasible import optimal_weights
from evenhand.procedure.sampling.policy_track_and_stop import weights_from_gaps
from evenhand.procedure.sampling.weight_ascent import alternatives_at, effective
from evenhand.procedure.spec import Budget, Procedure
from evenhand.theory import inner
from evenhand.theory.plan import plan
from tests.procedure.sampling.rule_run import MEANS, SHARES, RuleRun, problem, rule_run


def worth(run: RuleRun, w: np.ndarray) -> float:
    """f*(w) at the run's estimates; its inverse is the time these weights take per nat."""
    leader = refresh(run.spec, run.state, run.work, True)
    v, values = np.empty_like(w), np.empty(w.shape[1])
    effective(run.spec, run.state, run.work, np.ascontiguousarray(w), v)
    return float(values[alternatives_at(run.spec, run.work, leader, v, 0.0, values)])


def settled(rule: str, mode: str = "active", steps: int = 1500) -> RuleRun:
    """After noise-free outcomes: the estimates are the truth, only the allocation has to be found."""
    run = rule_run(rule, mode)
    run.sd = 0.0
    for _ in run.run(steps):
        pass
    return run


@pytest.mark.parametrize("mode", ["active", "proportional", "agnostic"])
def test_exact_tracking_finds_the_optimal_weights(mode: str) -> None:
    run = settled("exact-tracking", mode, 300)
    assert 1 / worth(run, run.state.w) == pytest.approx(plan(problem(mode), MEANS).time_high, rel=0.03)


@pytest.mark.parametrize(
    ("rule", "mode"),
    [("exact-tracking", "active"), ("frank-wolfe", "active"), ("frank-wolfe", "proportional"),
     ("frank-wolfe", "agnostic"), ("diminishing", "active"), ("ts-ids", "active"), ("ids", "active")],
)  # fmt: skip
def test_where_samples_go_tends_to_the_optimal_allocation(rule: str, mode: str) -> None:
    run = settled(rule, mode, 3000)
    counts = run.state.n / run.state.n.sum()
    assert 1 / worth(run, counts) == pytest.approx(plan(problem(mode), MEANS).time_high, rel=0.2)


def test_c_tracking_is_there_for_exact_weights_too() -> None:
    run = rule_run("exact-tracking", tracking="c")
    for _ in run.run(300):
        pass
    assert run.state.track.sum() == pytest.approx(300)
    assert np.abs(run.state.track - run.state.n).max() < run.state.n.size


def test_top_two_gives_leader_and_challenger_half_each() -> None:
    run = rule_run("top-two", leader=0.0)
    run.start()
    halves = 0
    for _ in range(200):
        cell = run.ask()
        by_policy = run.work.probability.sum(axis=0)
        if cell[0] in np.nonzero(by_policy == 1.0)[0]:
            continue  # the leader against its own floor, or a cell that lagged behind
        assert sorted(by_policy)[-2:] == pytest.approx([0.5, 0.5])
        halves += 1
        run.tell(cell)
    assert halves > 20


@pytest.mark.parametrize(
    "means", [[1.0, 0.7, 0.5, 0.2], [0.0, 0.4], [0.3, 0.3, 0.1], [2.0, 1.0, 1.0, 1.0, 0.0]]
)
def test_policy_weights_are_the_optimal_ones_of_gaussian_arms(means: list[float]) -> None:
    mu = np.array(means)
    w = np.empty(mu.size)
    weights_from_gaps(mu, w)
    assert w.sum() == pytest.approx(1.0)
    best = int(np.argmax(mu))
    gaps = np.delete(mu[best] - mu, best)
    if gaps.min() == 0:
        assert w[np.isclose(mu, mu.max())] == pytest.approx(0.5, abs=1e-6)  # a tie takes all there is
        return

    def cost(x: np.ndarray) -> float:
        return float(np.min(gaps**2 / (1 / x[best] + 1 / np.delete(x, best))))

    costs = gaps**2 / (1 / w[best] + 1 / np.delete(w, best))
    assert costs == pytest.approx(cost(w), rel=1e-6)  # all comparisons cost the same
    start = np.r_[np.full(mu.size, 1 / mu.size), 0.0]
    found = minimize(
        lambda z: -z[-1], start, bounds=[(1e-6, 1)] * mu.size + [(0, None)], method="SLSQP",
        constraints=[
            {"type": "eq", "fun": lambda z: z[:-1].sum() - 1},
            {"type": "ineq", "fun": lambda z: gaps**2 / (1 / z[best] + 1 / np.delete(z[:-1], best)) - z[-1]},
        ],
    )  # fmt: skip
    assert cost(w) == pytest.approx(found.x[-1], rel=1e-4)


def test_the_policy_baseline_draws_groups_evenly_whatever_the_shares() -> None:
    run = rule_run("policy-track-and-stop")
    groups = np.array([g for _, g in run.run(1224)][24:])
    for g in range(3):
        # exact binomial bounds, 1200 draws at 1/3, false alarm 1e-6 in all
        low, high = binom.ppf([1e-7, 1 - 1e-7], 1200, 1 / 3)
        assert low <= (groups == g).sum() <= high


def test_two_stage_asks_about_feasibility_first() -> None:
    # policy 0 leads clearly and far inside; policy 1 is inside by a little, so its floor is what is open
    means = [[3.0, 3.0, 3.0], [2.0, 2.0, 0.15], [1.0, 1.0, 1.0]]
    run = RuleRun(problem(policies=3), Procedure(sampling="two-stage", stopping="stylised", initial=5), means)
    run.start()
    run.state.n[:, 0] *= 0.2  # the leader has not yet shown that it stands
    first = [run.ask() for _ in range(3)]
    assert {k for k, _ in first} <= {0, 1}


def test_two_stage_compares_once_feasibility_is_settled() -> None:
    means = [[3.0, 3.0, 3.0], [2.9, 2.9, 2.9], [-3.0, -3.0, -3.0]]
    run = RuleRun(problem(policies=3), Procedure(sampling="two-stage", stopping="stylised", initial=5), means)
    run.start()
    assert {k for k, _ in run.run(100)} == {0, 1}


def test_ocba_co_balances_the_leader_against_its_rivals() -> None:
    # without a requirement and with one group: w_0^2 = w_1^2 + w_2^2, w_1 / w_2 = (gap_2 / gap_1)^2
    asked = Problem(["a", "b", "c"], {"all": 1.0}, Gaussian(1.0), NoConstraint())
    run = RuleRun(
        asked, Procedure(sampling="ocba-co", stopping="stylised", initial=3), [[1.0], [0.6], [0.2]], sd=0.0
    )
    for _ in run.run(3000):
        pass
    w = run.counts[:, 0] / run.counts.sum()
    assert w[1] / w[2] == pytest.approx(4.0, rel=0.02)
    assert w[0] ** 2 == pytest.approx(w[1] ** 2 + w[2] ** 2, rel=0.02)


def test_ocba_co_rules_out_the_infeasible_by_the_floor_they_miss() -> None:
    run = rule_run("ocba-co")
    run.sd = 0.0
    for _ in run.run(1500):
        pass
    # policy 2 misses its floor in the first group only, and its overall mean is close to the leader's
    assert run.counts[2, 0] > 3 * run.counts[2, 1:].max()


def test_sequential_halving_halves_the_policies_and_spends_equally() -> None:
    means = np.linspace(0.9, 0.2, 8)[:, None] + np.zeros((8, 3))
    procedure = Procedure(sampling="sequential-halving", stopping=Budget(2400), initial=2)
    run = RuleRun(problem(policies=8), procedure, means, sd=0.0)
    cells = list(run.run(2400))
    thirds = [{k for k, _ in cells[j : j + 700]} for j in (0, 850, 1650)]
    assert thirds == [set(range(8)), {0, 1, 2, 3}, {0, 1}]
    # 800 over 24 cells, then 800 over 12, then 800 over 6
    assert run.counts[0] == pytest.approx(800 / 24 + 800 / 12 + 800 / 6, abs=2)
    assert run.counts[7] == pytest.approx(800 / 24, abs=1)


def test_the_oracle_ends_at_its_budget() -> None:
    weights = np.arange(1.0, 13.0).reshape(4, 3) / 78
    run = RuleRun(
        problem(), Procedure(sampling="oracle", stopping="stylised", initial=1), MEANS, weights=weights
    )
    for _ in run.run(780):
        pass
    assert run.counts == pytest.approx(780 * weights, abs=1.0)


def test_where_no_policy_is_feasible_the_weights_are_the_lemmas() -> None:
    means = [[-0.8, 0.6, 0.7], [0.5, -0.6, -0.4], [-0.6, 1.2, 1.1], [0.4, 0.2, -0.5]]
    run = RuleRun(problem(), Procedure(stopping="stylised", initial=2), means, sd=0.0)
    run.start()
    refresh(run.spec, run.state, run.work, True)
    w, v = np.empty((3, 4)), np.empty((3, 4))
    optimal_weights(run.spec, run.state, run.work, w, v)
    d = np.array([0.8, 0.6, 0.6, 0.5]) ** 2  # each policy's worst shortfall, in groups 0, 1, 0 and 2
    expected = np.zeros((4, 3))
    expected[[0, 1, 2, 3], [0, 1, 0, 2]] = 1 / d / (1 / d).sum()
    assert pytest.approx(expected) == w.T
    assert worth(run, w) == pytest.approx(1 / (0.5 / d).sum())


def test_where_no_policy_is_feasible_any_region_gets_its_best_split() -> None:
    means = [[0.0, 0.9, 0.0], [0.0, 0.5, 1.0]]
    asked = Problem(["a", "b"], SHARES, Gaussian(0.5), Gap(0.3))
    run = RuleRun(asked, Procedure(stopping="stylised", initial=2), means, sd=0.0)
    run.start()
    refresh(run.spec, run.state, run.work, True)
    w, v = np.empty((3, 2)), np.empty((3, 2))
    optimal_weights(run.spec, run.state, run.work, w, v)
    assert 1 / worth(run, w) == pytest.approx(plan(asked, means).time_high, rel=0.05)


def test_a_rival_without_a_chance_gets_little() -> None:
    run = settled("exact-tracking")
    assert run.counts[3].sum() < 0.15 * run.counts.sum()


def test_floors_for_every_policy_of_its_own_are_respected_by_the_closed_form() -> None:
    # only policy 1's floor lies above its mean in group 2; every policy fails somewhere
    floors = [[1.0, -9.0, -9.0], [-9.0, -9.0, 1.0], [1.0, -9.0, -9.0], [-9.0, 1.0, -9.0]]
    run = RuleRun(
        problem(constraint=Floors(floors)), Procedure(stopping="stylised", initial=2), MEANS, sd=0.0
    )
    run.start()
    refresh(run.spec, run.state, run.work, True)
    w, v = np.empty((3, 4)), np.empty((3, 4))
    optimal_weights(run.spec, run.state, run.work, w, v)
    assert [int(g) for g in w.argmax(axis=0)] == [0, 2, 0, 1]


def test_under_penalties_the_cheapest_piece_is_found_without_solving_them_all() -> None:
    rng = np.random.default_rng(5)
    soft = Problem(tuple("abcdefgh"), SHARES, Gaussian(0.5), Penalty(0.2, 5.0))
    run = RuleRun(soft, Procedure(sampling="track-and-stop", initial=4), rng.uniform(0.0, 0.8, (8, 3)))
    run.start()
    leader = refresh(run.spec, run.state, run.work, True)
    lam_i, lam_k = np.empty(3), np.empty(3)
    remembered = np.zeros(8)
    run.work.mean[:, 6] = run.work.mean[:, 7]  # two of a kind, so that pieces tie
    for _ in range(40):
        v = rng.gamma(1.0, size=(3, 8)) + 0.01
        v[:, 6] = v[:, 7]
        each = np.array([
            inner.beat(run.spec.code, run.spec.region, run.spec.shares, 0.0, leader, k, v, run.work.mean,
                       lam_i, lam_k, lam_k, run.work.scratch)[1] if k != leader else np.inf
            for k in range(8)
        ])  # fmt: skip
        for slack in (0.0, 0.3):
            found = alternatives_at(run.spec, run.work, leader, v, slack, remembered)
            assert found == each.argmin()
            near = each <= each.min() + slack
            assert np.array_equal(remembered[near], each[near])
            assert np.all(remembered[~near] >= each.min() + slack)
