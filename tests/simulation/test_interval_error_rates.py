"""Shares that move after every interval and evidence at its end: wrong answers stay below delta.

Every run is a sequence of intervals, as in a live experiment (`test_intervals` replays one): shares by
virtual picks from the counts so far, units at random by these shares, and the stopping rule at the end.
"""

from __future__ import annotations

from typing import Any

import pytest
from scipy.special import betaincinv

import evenhand as eh
from evenhand.simulation.runs import Runs
from evenhand.study import Study, Truth

DELTA, RUNS, SURE = 0.1, 2_000, 0.999
PROBLEM = eh.Problem(
    ["a", "b", "c"], {"x": 0.6, "y": 0.4}, eh.Bernoulli(), eh.Floors(0.6), mode="proportional"
)
INSTANCES = {
    "the best misses a floor, narrowly": ((0.8, 0.599), (0.7, 0.7), (0.5, 0.5)),
    "two are nearly tied": ((0.7, 0.7), (0.701, 0.7), (0.5, 0.5)),
    "none meets its floors, narrowly": ((0.8, 0.599), (0.599, 0.8), (0.5, 0.5)),
}
INTERVALS = {100: 25, 10_000: 5}  # units of an interval: number of intervals


def runs_of(name: str, size: int, evidence: str, runs: int = RUNS, **settings: str) -> Runs:
    """Return runs of so many intervals, each of this size, at the boundary."""
    procedure = eh.Procedure(
        delta=DELTA, evidence=evidence, max_samples=size * INTERVALS[size],
        interval=eh.Intervals(size, **settings),
    )  # fmt: skip
    return eh.simulate(Study(PROBLEM, procedure, Truth(means=INSTANCES[name])), replications=runs, seed=5)


UNKNOWN_SCALE: dict[str, tuple[Any, dict[str, Any]]] = {
    "gaussian-unknown": (eh.GaussianUnknown(), {"sd": 0.3}),
    "exponential": (eh.Exponential(), {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("size", [100, 1_000])
@pytest.mark.parametrize("family", UNKNOWN_SCALE)
@pytest.mark.parametrize("name", INSTANCES)
def test_wrong_answers_stay_below_delta_where_no_scale_is_known(name: str, family: str, size: int) -> None:
    """The first interval of a cell is its opening; nothing is staked on it."""
    kind, law = UNKNOWN_SCALE[family]
    asked = eh.Problem(["a", "b", "c"], {"x": 0.6, "y": 0.4}, kind, eh.Floors(0.6), mode="proportional")
    procedure = eh.Procedure(delta=DELTA, max_samples=12 * size, interval=eh.Intervals(size))
    study = Study(asked, procedure, Truth(means=INSTANCES[name], **law))
    runs = eh.simulate(study, replications=RUNS, seed=5)
    found = highest_error(runs)
    print(f"{name}, {size:,} units, {family}: {runs.wrong.sum()} of {RUNS:,} wrong, at most {found:.4f}")
    assert found <= DELTA


def highest_error(runs: Runs) -> float:
    """Return the exact binomial bound on the probability of a wrong answer."""
    wrong = int(runs.wrong.sum())
    return float(betaincinv(wrong + 1, runs.replications - wrong, SURE))


@pytest.mark.slow
@pytest.mark.parametrize("evidence", ["mixture", "linear-bets"])
@pytest.mark.parametrize("size", INTERVALS)
@pytest.mark.parametrize("name", INSTANCES)
def test_wrong_answers_at_the_boundary_stay_below_delta(name: str, size: int, evidence: str) -> None:
    runs = runs_of(name, size, evidence)
    found = highest_error(runs)
    print(f"{name}, {size:,} units, {evidence}: {runs.wrong.sum()} of {RUNS:,} wrong, at most {found:.4f}")
    assert found <= DELTA


@pytest.mark.slow
def test_wrong_answers_stay_below_delta_where_intervals_are_counted_late() -> None:
    """Three intervals are open at once, and shares depend on older data only."""
    runs = runs_of("two are nearly tied", 100, "mixture", length="1h", delay="2h")
    assert highest_error(runs) <= DELTA


def test_a_threshold_that_is_too_low_is_found_out() -> None:
    """Instances can fail: with a threshold of 0.01 nats runs on a tie decide, and often wrongly."""
    problem = eh.Problem(["a", "b"], {"x": 0.6, "y": 0.4}, eh.Bernoulli(), mode="proportional")
    procedure = eh.Procedure(
        stopping=eh.Calibrated(0.01), delta=DELTA, max_samples=4_000, interval=eh.Intervals(20)
    )
    truth = Truth(means=((0.7, 0.7), (0.701, 0.7)))
    runs = eh.simulate(Study(problem, procedure, truth), replications=80, seed=5)
    wrong = int(runs.wrong.sum())
    assert betaincinv(wrong, 80 - wrong + 1, 1 - SURE) > DELTA  # even the lower bound


def test_an_easy_question_is_answered_right_after_few_intervals() -> None:
    means = ((0.9, 0.9), (0.7, 0.9), (0.4, 0.4))
    study = Study(PROBLEM, eh.Procedure(delta=DELTA, interval=eh.Intervals(10_000)), Truth(means=means))
    assert set(eh.simulate(study, replications=3, seed=1, workers=1).answer.tolist()) == {0}
