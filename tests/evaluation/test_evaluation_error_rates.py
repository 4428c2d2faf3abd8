"""The risk of the whole evaluation: group choice, looks after every few items, candidates left out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta

import evenhand as eh
from evenhand.evaluation.pool import open_pool
from evenhand.evaluation.sampling import SharedItems

DELTA, SIZE, RUNS = 0.1, 60, 2_000
GROUPS = {"x": 0.5, "y": 0.5}
# right answers of every candidate in x and y, out of 60; the floor is 48 of 60
POOLS = {
    "the best misses a floor by one item": ([[60, 47], [50, 50], [30, 40]], "b"),
    "the best meets a floor by nothing": ([[60, 48], [50, 50], [30, 40]], "a"),
    "the best is ahead by one item": ([[53, 52], [52, 52], [30, 40]], "a"),
}


def outcomes_of(right: list[list[int]], rng: np.random.Generator) -> np.ndarray:
    """Return outcomes (K, 2 SIZE) with these totals; candidates agree on most items."""
    found = np.zeros((len(right), 2 * SIZE))
    for g in range(2):
        difficulty = rng.random(SIZE)
        for k, totals in enumerate(right):
            order = np.argsort(0.8 * difficulty + 0.2 * rng.random(SIZE))
            found[k, g * SIZE + order[: totals[g]]] = 1.0
    return found


def answer_of(
    problem: eh.Problem, outcomes: np.ndarray, seed: int, about: str, delta: float = DELTA
) -> str | None:
    """Return the answer of a run, "none", or None where it ends undecided."""
    pool = open_pool([{"group": "xy"[n // SIZE]} for n in range(2 * SIZE)], "group", None)
    sampling = SharedItems(problem, eh.Procedure(delta=delta), pool, seed, about, True)
    while not sampling.finished and (asked := sampling.next()) is not None:
        sampling.record(asked, {k: float(outcomes[k, asked.item]) for k in asked.policies})
    if sampling.result is not None and sampling.result.decided:  # what the verdict says, without intervals
        return "none" if sampling.result.leader < 0 else problem.policies[sampling.result.leader]
    verdict = sampling.verdict()
    return (verdict.answer or "none") if verdict.decided else None


def most(wrong: int, runs: int) -> float:
    """Return the exact upper bound on the probability of a wrong answer, at a false alarm of 1e-6."""
    return float(beta.ppf(1.0 - 1e-6, wrong + 1, runs - wrong))


def wrong_answers(name: str, runs: int) -> int:
    right, correct = POOLS[name]
    problem = eh.Problem(list("abc"), GROUPS, eh.Bernoulli(), eh.Floors(48 / 60))
    rng = np.random.default_rng(11)
    answers = [answer_of(problem, outcomes_of(right, rng), seed, "pool") for seed in range(runs)]
    assert None not in answers  # a pool always decides
    return sum(answer != correct for answer in answers)


@pytest.mark.slow
@pytest.mark.parametrize("name", POOLS)
def test_a_wrong_answer_about_a_pool_at_its_boundary_is_rare(name: str) -> None:
    assert most(wrong_answers(name, RUNS), RUNS) <= DELTA
