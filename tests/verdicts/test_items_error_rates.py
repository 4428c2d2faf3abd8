"""The whole rule on shared items, on instances close to another answer: wrong answers stay below delta.

Every policy answers every item, and the rule looks at growing data five times. Outcomes on an item are
independent, agree, or oppose each other.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import evenhand as eh
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.state import NONE, new_state
from evenhand.verdicts.counts import ready
from evenhand.verdicts.items import Answers, Items
from evenhand.verdicts.shared_items import Comparisons, apply_rule_to_items

DELTA, FLOOR, TINY, FALSE_ALARM = 0.1, 0.85, 0.001, 1e-6
LOOKS = (100, 200, 400, 800, 1_600)
# means (K x L) and the right answer
INSTANCES = {
    "a rival is better, narrowly": ([[0.90, 0.90], [0.90 + TINY, 0.90], [0.88, 0.89]], 1),
    "the best misses a floor, narrowly": ([[0.97, FLOOR - TINY], [0.90, 0.90], [0.86, 0.86]], 1),
    "the best meets a floor, narrowly": ([[0.97, FLOOR + TINY], [0.90, 0.90], [0.86, 0.86]], 0),
    "none meets its floors, narrowly": ([[0.95, FLOOR - TINY]] * 3, NONE),
    "one meets its floors, narrowly": ([[0.95, FLOOR - TINY], [0.86, FLOOR + TINY], [0.6, 0.9]], 1),
    "differences of opposite signs": ([[0.99, 0.86], [0.86, 0.99 + TINY], [0.9, 0.9]], 1),
}
DEPENDENCE = ("independent", "agree", "oppose")


def outcomes(rng: np.random.Generator, means: np.ndarray, group: np.ndarray, dependence: str) -> np.ndarray:
    """Return outcomes (K x items) with these means."""
    policies, items = means.shape[0], group.size
    u = rng.random((policies, items))
    if dependence != "independent":
        common, follows = rng.random(items), rng.random((policies, items)) < 0.9
        level = np.array(
            [common if k % 2 == 0 or dependence == "agree" else 1 - common for k in range(policies)]
        )
        u = np.where(follows, level, u)
    return (u < means[:, group]).astype(float)


def answer_of(problem: eh.Problem, group: np.ndarray, x: np.ndarray) -> int | None:
    """Return the answer of these outcomes; None while undecided."""
    spec = compile_spec(problem, eh.Procedure(delta=DELTA))
    state = new_state(spec)
    for g in range(2):
        state.n[g], state.s[g] = (group == g).sum(), x[:, group == g].sum(axis=1)
    state, numbers = ready(spec, state), np.arange(group.size)
    items = Items(group, tuple(Answers(numbers, row.copy()) for row in x), 0)
    weight = apply_rule_to_items(problem, spec, state, Comparisons(spec, state, items))
    return weight.leader if weight.decided else None


def wrong_answers(instance: str, dependence: str, runs: int, seed: int) -> int:
    """Return the number of runs that ever gave a wrong answer."""
    table, right = INSTANCES[instance]
    means, group = np.array(table), np.arange(LOOKS[-1]) % 2
    problem = eh.Problem(["a", "b", "c"], {"x": 0.5, "y": 0.5}, eh.Bernoulli(), eh.Floors(FLOOR))
    rng, wrong = np.random.default_rng(seed), 0
    for _ in range(runs):
        x = outcomes(rng, means, group, dependence)
        given = [answer_of(problem, group[:n], x[:, :n]) for n in LOOKS]
        wrong += any(answer is not None and answer != right for answer in given)
    return wrong


def is_too_often(count: int, runs: int) -> bool:
    return bool(stats.binom.sf(count - 1, runs, DELTA) < FALSE_ALARM)


def largest_risk(wrong: int, runs: int) -> float:
    """Return the exact upper bound on the probability of a wrong answer."""
    return float(stats.beta.ppf(1.0 - FALSE_ALARM, wrong + 1, runs - wrong))


@pytest.mark.parametrize("dependence", DEPENDENCE)
def test_wrong_answers_are_rare(dependence):
    assert not is_too_often(wrong_answers("a rival is better, narrowly", dependence, 40, 1), 40)


@pytest.mark.slow
@pytest.mark.parametrize("dependence", DEPENDENCE)
@pytest.mark.parametrize("instance", INSTANCES)
def test_wrong_answers_are_rare_in_many_runs(instance, dependence):
    assert largest_risk(wrong_answers(instance, dependence, 2_000, 2), 2_000) <= DELTA


def test_a_right_answer_is_given_where_it_is_clear():
    rng, group = np.random.default_rng(0), np.arange(1_600) % 2
    problem = eh.Problem(["a", "b", "c"], {"x": 0.5, "y": 0.5}, eh.Bernoulli(), eh.Floors(FLOOR))
    means = np.array([[0.95, 0.95], [0.90, 0.90], [0.6, 0.6]])
    found = [answer_of(problem, group, outcomes(rng, means, group, "agree")) for _ in range(20)]
    assert found == [0] * 20
