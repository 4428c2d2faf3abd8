"""The compiled loop: determinism, common random numbers, lag, dropout, batches, modes, checkpoints."""

from __future__ import annotations

import numpy as np
import pytest

from evenhand.errors import BadInput
from evenhand.model.families import Gaussian
from evenhand.model.requirements import Floors
from evenhand.procedure.spec import Budget
from evenhand.simulation.engine import NO_ANSWER_YET
from evenhand.simulation.executors import Processes, Serial, Threads
from evenhand.simulation.outcome_laws import DrawnTruth, MeansByReplication
from evenhand.simulation.shards import Shard, prepare, run_job, run_shard, trace_job
from evenhand.simulation.streams import outcome, scenario_uniforms
from evenhand.study import Study
from tests.simulation.studies import problem_of, same_rows, scaling

REPLICATIONS = 60


@pytest.fixture(scope="module")
def serial():
    return run_job(prepare(scaling(), 7, (100, 150)), REPLICATIONS, Serial())


@pytest.mark.parametrize(
    "executor", [Threads(1), Threads(2), Threads(8), Processes(2)], ids=["1", "2", "8", "processes"]
)
def test_rows_are_the_same_for_any_number_of_workers(serial, executor) -> None:
    with executor:
        assert same_rows(serial, run_job(prepare(scaling(), 7, (100, 150)), REPLICATIONS, executor))


def test_a_replication_does_not_depend_on_those_before_it(serial) -> None:
    job = prepare(scaling(), 7, (100, 150))
    for number in (0, 17, 59):
        alone = run_shard(Shard(job, number, 1))
        assert alone.samples[0] == serial.samples[number]
        assert alone.evidence[0] == serial.rows.evidence[number]


def test_another_seed_gives_other_runs(serial) -> None:
    assert not same_rows(serial, run_job(prepare(scaling(), 8, (100, 150)), REPLICATIONS, Serial()))


def test_two_procedures_meet_the_same_outcomes_in_the_same_cells() -> None:
    _, one = trace_job(prepare(scaling(), 7), 3)
    _, other = trace_job(prepare(scaling(sampling="uniform"), 7), 3)
    for k in range(5):
        for g in range(3):
            a = one.outcome[(one.policy == k) & (one.group == g)]
            b = other.outcome[(other.policy == k) & (other.group == g)]
            shared = min(len(a), len(b))
            assert shared >= 5
            assert np.array_equal(a[:shared], b[:shared])


def test_a_trace_is_the_run_it_follows(serial) -> None:
    job = prepare(scaling(), 7)
    rows, trace = trace_job(job, 17)
    assert len(trace.policy) == rows.samples[0] == serial.samples[17]
    assert trace.answer[-1] == serial.answer[17]
    assert trace.evidence[-1] == serial.rows.evidence[17] >= trace.needed[-1]
    # it stopped at the first look at which the evidence sufficed
    looked = trace.needed > 0
    assert np.count_nonzero(trace.evidence[looked] >= trace.needed[looked]) == 1
    first = outcome(job.source, job.source.means[0], trace.policy[0], trace.group[0], 0, 7, 17)
    assert trace.outcome[0] == first


def test_a_long_run_can_be_followed_at_every_so_many_th_sample() -> None:
    job = prepare(scaling(stopping=Budget(300)), 7)
    _, whole = trace_job(job, 2)
    _, thin = trace_job(job, 2, most=50)
    assert thin.every == 6
    assert np.array_equal(thin.outcome, whole.outcome[5::6])


def test_allocation_is_the_mean_share_of_samples() -> None:
    job = prepare(scaling(), 7)
    runs = run_job(job, 3, Serial())
    shares = np.zeros((5, 3))
    for number in range(3):
        _, trace = trace_job(job, number)
        np.add.at(shares, (trace.policy, trace.group), 1 / len(trace.policy) / 3)
    assert np.allclose(runs.allocation, shares, atol=1e-9)
    assert runs.allocation.sum() == pytest.approx(1, abs=1e-9)


def test_checkpoints_hold_the_best_feasible_estimate_of_the_moment() -> None:
    job = prepare(scaling(stopping=Budget(120)), 7, (3, 90, 120, 500))
    runs = run_job(job, 4, Serial())
    problem = job.study.problem
    for number in range(4):
        _, trace = trace_job(job, number)
        n, s = np.zeros((5, 3)), np.zeros((5, 3))
        np.add.at(n, (trace.policy[:90], trace.group[:90]), 1)
        np.add.at(s, (trace.policy[:90], trace.group[:90]), trace.outcome[:90])
        expected = problem.answer(s / n)
        assert runs.rows.checkpoints[number, 1] == (-1 if expected is None else expected)
    assert np.all(runs.rows.checkpoints[:, 0] == NO_ANSWER_YET)
    # beyond the end the answer stays what it was
    assert np.array_equal(runs.rows.checkpoints[:, 2], runs.answer)
    assert np.array_equal(runs.rows.checkpoints[:, 3], runs.answer)


def test_a_run_that_reaches_the_cap_counts_there_and_is_not_stopped() -> None:
    runs = run_job(prepare(scaling(delta=1e-9, max_samples=100), 7), 20, Serial())
    assert set(runs.samples) == {100}
    assert not runs.stopped.any()
    assert not runs.wrong.any()


def test_a_budget_is_met_exactly_even_where_batches_do_not_divide_it() -> None:
    runs = run_job(prepare(scaling(stopping=Budget(100), batch=7), 7), 5, Serial())
    assert set(runs.samples) == {100}
    assert runs.stopped.all()


def test_looks_come_after_whole_batches_only() -> None:
    rows, trace = trace_job(prepare(scaling(batch=10), 7), 0)
    assert (rows.samples[0] - 75) % 10 == 0
    changes = 1 + np.flatnonzero(np.diff(trace.evidence))
    assert np.all((changes + 1 - 75) % 10 == 0)


@pytest.mark.parametrize("mode", ["active", "proportional", "agnostic"])
def test_an_outcome_with_a_lag_is_told_that_many_asks_later(mode: str) -> None:
    study = scaling({"lag": 20}, mode=mode)
    runs = run_job(prepare(study, 7), 10, Serial())
    assert np.all(runs.rows.asked - runs.samples == 20)


def test_a_random_lag_changes_the_order_but_not_what_a_cell_gives() -> None:
    job = prepare(scaling({"lag": (0, 40)}, stopping=Budget(200), sampling="uniform"), 7)
    rows, late = trace_job(job, 0)
    for k in range(5):
        for g in range(3):
            told = late.outcome[(late.policy == k) & (late.group == g)]
            asked = [outcome(job.source, job.source.means[0], k, g, draw, 7, 0) for draw in range(20)]
            places = [asked.index(x) for x in told]
            assert len(set(places)) == len(places)
    prompt = trace_job(prepare(scaling(stopping=Budget(200), sampling="uniform"), 7), 0)[1]
    assert not np.array_equal(prompt.outcome, late.outcome)
    assert 0 < rows.asked[0] - rows.samples[0] <= 40


@pytest.mark.parametrize("mode", ["active", "proportional", "agnostic"])
def test_dropped_samples_are_asked_again_and_never_told(mode: str) -> None:
    study = scaling({"dropout": 0.3, "lag": (0, 5)}, mode=mode, stopping=Budget(1000))
    runs = run_job(prepare(study, 7), 10, Serial())
    assert set(runs.samples) == {1000}
    asked = int(runs.rows.asked.sum())
    # told = asked - lost - out: 10,000 told at 70% each; 5.5 standard deviations of the number lost
    assert abs(asked * 0.7 - 10_000) < 5.5 * (asked * 0.21) ** 0.5 + 10 * 6


def test_groups_that_come_by_themselves_come_by_their_shares() -> None:
    study = scaling(mode="proportional", stopping=Budget(2000))
    runs = run_job(prepare(study, 7), 10, Serial())
    shares = runs.allocation.sum(axis=0)
    assert np.all(np.abs(shares - 1 / 3) < 5.5 * (2 / 9 / 20_000) ** 0.5)


def test_means_may_be_drawn_anew_for_each_replication() -> None:
    problem = problem_of(3, 2, Gaussian(0.5), Floors(0.0))
    study = Study(problem, scaling(stopping=Budget(60)).procedure)
    runs = run_job(prepare(study, 5, drawn=DrawnTruth(fresh_means)), 40, Serial())
    answers = [problem.answer(fresh_means(5, number)) for number in range(40)]
    assert [int(truth) for truth in runs.rows.truth] == answers
    assert len(set(answers)) > 1
    tables = np.array([fresh_means(5, number) for number in range(40)])
    with Processes(2) as executor:
        again = run_job(prepare(study, 5, drawn=DrawnTruth(MeansByReplication(tables))), 40, executor)
    assert same_rows(runs, again)


def test_outcomes_may_be_coins_under_another_family() -> None:
    problem = problem_of(3, 2, Gaussian(1.0), Floors(0.0))
    study = Study(problem, scaling(stopping=Budget(60)).procedure)
    _, trace = trace_job(prepare(study, 5, drawn=DrawnTruth(fresh_means, outcomes="bernoulli")), 0)
    assert set(trace.outcome) == {0.0, 1.0}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stopping": Budget(30)}, "must cover the initial samples"),
        ({"max_samples": 74}, "must cover the initial samples"),
    ],
)
def test_a_cap_below_the_initial_samples_is_refused(changes: dict, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        prepare(scaling(**changes), 1)


@pytest.mark.parametrize("seed", [-1, 2**63, 0.5, True])
def test_a_seed_that_is_no_64_bit_number_is_refused(seed) -> None:
    with pytest.raises(BadInput, match="seed must be a whole number"):
        prepare(scaling(), seed)


def test_the_oracle_follows_the_plan() -> None:
    runs = run_job(prepare(scaling(sampling="oracle", stopping=Budget(6000)), 3), 4, Serial())
    # theory: the first policy's cells get .1546 each, the second's .1533, the fourth's first cell .0041
    assert np.allclose(runs.allocation[0], 0.1546, atol=0.01)
    assert np.allclose(runs.allocation[1], 0.1533, atol=0.01)
    assert runs.allocation[3].sum() < 0.02


def fresh_means(seed: int, replication: int) -> np.ndarray:
    return scenario_uniforms(seed, replication, 6).reshape(3, 2)
