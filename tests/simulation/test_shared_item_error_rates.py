"""The whole procedure on shared items, on instances close to another answer: wrong answers are rare.

Every run chooses the group of each item and who answers it, and checks the stopping rule as a live experiment
does, for at most 1,000 items. Outcomes on an item are independent, or depend on its difficulty.
"""

from __future__ import annotations

from typing import Any

import pytest
from scipy import stats

import evenhand as eh

DELTA, RUNS, SAMPLES = 0.1, 2_000, 3_000
FALSE_ALARM = 1e-6
FLOOR, TINY = 0.85, 0.001
COIN = eh.Bernoulli()

# family, means (K x L), and what else the problem and the procedure have; the second policy is better, or the
# first misses or meets a floor, by TINY of the range of outcomes
INSTANCES: dict[str, tuple[Any, list[list[float]], dict[str, Any]]] = {
    "a rival is better": (COIN, [[0.90, 0.90], [0.90 + TINY, 0.90], [0.88, 0.89]], {}),
    "the best misses a floor": (COIN, [[0.97, FLOOR - TINY], [0.90, 0.90], [0.86, 0.86]], {}),
    "the best meets a floor": (COIN, [[0.97, FLOOR + TINY], [0.90, 0.90], [0.86, 0.86]], {}),
    "none meets its floors": (COIN, [[0.95, FLOOR - TINY]] * 3, {}),
    "one meets its floors": (COIN, [[0.95, FLOOR - TINY], [0.86, FLOOR + TINY], [0.6, 0.9]], {}),
    "differences of opposite signs": (COIN, [[0.99, 0.86], [0.86, 0.99 + TINY], [0.9, 0.9]], {}),
    "a rival is better, groups arrive": (
        COIN, [[0.90, 0.90], [0.90 + TINY, 0.90], [0.88, 0.89]],
        {"mode": "proportional", "arrivals": {"x": 0.8, "y": 0.2}},
    ),
    "a rival is better by more than the indifference": (
        COIN, [[0.90, 0.90], [0.95 + TINY, 0.95 + TINY], [0.88, 0.89]], {"indifference": 0.05},
    ),
    "one of two is to be classified as failed": (
        COIN, [[0.97, FLOOR - TINY], [0.90, FLOOR + TINY], [0.95, 0.95]], {"goal": "screen"},
    ),
    "a rival is better, counts of four trials": (
        eh.Binomial(4), [[3.6, 3.6], [3.6 + 4 * TINY, 3.6], [3.5, 3.55]], {},
    ),
    "a rival is better, outcomes of any size": (
        eh.Bounded(0.0, 1.0), [[0.90, 0.90], [0.90 + TINY, 0.90], [0.88, 0.89]], {},
    ),
}  # fmt: skip
# how often two policies agree on an item; None: their outcomes on an item are independent
AGREEMENT = {
    "a rival is better": 0.95,
    "the best misses a floor": 0.92,
    "the best meets a floor": 0.92,
    "none meets its floors": 0.95,
    "one meets its floors": 0.82,
    "differences of opposite signs": 0.9,
    "a rival is better, groups arrive": 0.95,
    "one of two is to be classified as failed": 0.9,
}
CASES = [(name, None) for name in INSTANCES] + list(AGREEMENT.items())


def wrong_runs(name: str, agreement: float | None, runs: int, samples: int = SAMPLES) -> int:
    """Return the number of runs that gave a wrong answer."""
    family, means, other = INSTANCES[name]
    of_procedure = {key: other[key] for key in other if key == "indifference"}
    of_problem = {key: other[key] for key in other if key not in of_procedure}
    floor = family.low + FLOOR * family.width
    problem = eh.Problem(["a", "b", "c"], {"x": 0.5, "y": 0.5}, family, eh.Floors(floor), **of_problem)
    procedure = eh.Procedure(delta=DELTA, items="shared", max_samples=samples, **of_procedure)
    found = eh.simulate(problem, eh.Truth(means=means, agreement=agreement), procedure, runs, seed=23)
    return int(found.wrong.sum())


def largest_risk(wrong: int, runs: int) -> float:
    """Return the exact upper bound on the probability of a wrong answer, at a false alarm of 1e-6."""
    return float(stats.beta.ppf(1.0 - FALSE_ALARM, wrong + 1, runs - wrong))


def test_wrong_answers_on_shared_items_are_rare() -> None:
    runs = 300
    assert largest_risk(wrong_runs("a rival is better", 0.95, runs, 900), runs) <= DELTA


@pytest.mark.slow
@pytest.mark.parametrize(("name", "agreement"), CASES)
def test_wrong_answers_on_shared_items_are_rare_in_many_runs(name: str, agreement: float | None) -> None:
    assert largest_risk(wrong_runs(name, agreement, RUNS), RUNS) <= DELTA
