"""Prices of calls and labels: what an evaluation costs, and who answers an item."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta

import evenhand as eh
from evenhand.errors import BadInput
from evenhand.evaluation.pool import open_pool
from evenhand.evaluation.sampling import Prices, SharedItems

ACCURACY = np.array([0.95, 0.90, 0.84, 0.78])
NAMES = ("best", "second", "third", "fourth")
SIZE = 3_000
ITEMS = [{"group": "ab"[n % 2], "number": n, "target": 1} for n in range(SIZE)]
RNG = np.random.default_rng(5)
LEVEL = np.where(RNG.random((4, SIZE)) < 0.8, RNG.random(SIZE), RNG.random((4, SIZE)))
OUTCOMES = (ACCURACY[:, None] > LEVEL).astype(float)
COMMON: dict[str, Any] = {"target": "target", "at_least": 0.6, "seed": 2}


def candidate(k: int) -> Any:
    return lambda item: int(OUTCOMES[k, item["number"]])


CANDIDATES = {name: candidate(k) for k, name in enumerate(NAMES)}


def asked(prices: Prices | None, about: str = "population") -> tuple[list[tuple[int, ...]], str | None]:
    """Return who was asked on every item of a run, and the answer."""
    problem = eh.Problem(list(NAMES), {"a": 0.5, "b": 0.5}, eh.Bernoulli(), eh.Floors(0.6))
    sampling = SharedItems(
        problem, eh.Procedure(delta=0.05), open_pool(ITEMS, "group", None), 2, about, True, prices
    )
    found = []
    while not sampling.finished and (item := sampling.next()) is not None:
        found.append(item.policies)
        sampling.record(item, {k: float(OUTCOMES[k, item.item]) for k in item.policies})
    return found, sampling.verdict().answer


def test_a_label_is_paid_once_for_an_item() -> None:
    result = eh.evaluate(CANDIDATES, ITEMS, price=0.1, label_price=2.0, **COMMON)
    assert result.calls > result.cost.labels > 0
    assert result.cost.label_cost == pytest.approx(2.0 * result.cost.labels)
    assert result.cost.total == pytest.approx(0.1 * result.calls + 2.0 * result.cost.labels)
    assert result.to_dict()["cost"] == pytest.approx(result.cost.total)
    assert any(f"for {result.cost.labels:,} labels" in sentence for sentence in result.words())


def test_resuming_pays_for_no_label_twice(tmp_path: Path) -> None:
    kept = tmp_path / "run.jsonl"
    once = eh.evaluate(CANDIDATES, ITEMS, price=0.1, label_price=2.0, **COMMON)
    eh.evaluate(CANDIDATES, ITEMS, price=0.1, label_price=2.0, journal=kept, max_samples=None, **COMMON)
    lines = kept.read_text().splitlines(keepends=True)
    kept.write_text("".join(lines[: len(lines) // 2]))
    again = eh.evaluate(CANDIDATES, ITEMS, price=0.1, label_price=2.0, journal=kept, **COMMON)
    assert again.cost.total == pytest.approx(once.cost.total)
    assert (again.answer, again.cost.labels) == (once.answer, once.cost.labels)


def test_without_prices_every_open_policy_answers_every_item() -> None:
    free, answer = asked(None)
    assert answer == "best"
    assert set(free) == {(0, 1, 2, 3)}


def test_a_policy_whose_comparison_is_settled_is_left_out_where_calls_cost() -> None:
    free, _ = asked(None)
    priced, answer = asked(Prices((1.0,) * 4, 5.0))
    assert answer == "best"
    assert priced[0] == (0, 1, 2, 3)
    assert sum(map(len, priced)) < 0.9 * sum(map(len, free))
    assert all(0 in policies for policies in priced)  # the leader is in every comparison that is open


def test_every_policy_is_asked_where_labels_cost_far_more_than_calls() -> None:
    assert asked(Prices((0.1,) * 4, 5.0)) == asked(None)


def test_in_a_pool_prices_do_not_decide_who_answers() -> None:
    assert asked(Prices((1.0,) * 4, 0.0), "pool") == asked(None, "pool")


def test_who_answers_an_item_does_not_depend_on_its_outcomes() -> None:
    """The choice is made before: with other outcomes on an item the same policies were asked on it."""
    problem = eh.Problem(list(NAMES), {"a": 0.5, "b": 0.5}, eh.Bernoulli(), eh.Floors(0.6))
    prices, runs = Prices((1.0,) * 4, 5.0), []
    for flipped in (False, True):
        sampling = SharedItems(
            problem, eh.Procedure(delta=0.05), open_pool(ITEMS, "group", None), 2, "population", True, prices
        )
        for _ in range(300):
            item = sampling.next()
            assert item is not None
            runs.append((flipped, item.policies, item.item))
            x = OUTCOMES[:, item.item]
            last = len(runs) % 300 == 0
            sampling.record(item, {k: float(1 - x[k] if flipped and last else x[k]) for k in item.policies})
    half = len(runs) // 2
    assert [row[1:] for row in runs[:half]] == [row[1:] for row in runs[half:]]


def test_a_journal_begun_with_other_prices_is_refused_where_they_decide(tmp_path: Path) -> None:
    kept = tmp_path / "run.jsonl"
    given = COMMON | {"about": "population", "journal": kept, "price": 1.0}
    eh.evaluate(CANDIDATES, ITEMS, label_price=5.0, **given)
    assert json.loads(kept.read_text().splitlines()[0])["prices"] == [[1.0] * 4, 5.0]
    with pytest.raises(BadInput, match="its prices of calls and labels differ"):
        eh.evaluate(CANDIDATES, ITEMS, label_price=1.0, **given)


@pytest.mark.parametrize("price", [-1, "much", float("nan"), True])
def test_a_price_of_a_label_that_is_no_price_is_refused(price: Any) -> None:
    with pytest.raises(BadInput, match="the price of a label must be a number, at least 0"):
        eh.evaluate(CANDIDATES, ITEMS, label_price=price, **COMMON)


@pytest.mark.slow
def test_a_wrong_answer_is_rare_where_prices_decide_who_answers_and_a_rival_is_slightly_better() -> None:
    means = np.array([[0.9, 0.9], [0.901, 0.9], [0.8, 0.8]])
    problem = eh.Problem(["a", "b", "c"], {"x": 0.5, "y": 0.5}, eh.Bernoulli(), eh.Floors(0.7))
    pool = open_pool([{"group": "xy"[n % 2]} for n in range(600)], "group", None)
    prices, wrong, partly, runs = Prices((1.0,) * 3, 1.0), 0, 0, 75
    for run in range(runs):
        rng = np.random.default_rng([3, run])
        level = np.where(rng.random((3, 600)) < 0.8, rng.random(600), rng.random((3, 600)))
        right = level < means[:, np.arange(600) % 2]
        sampling = SharedItems(problem, eh.Procedure(delta=0.1), pool, run, "population", True, prices, 10)
        while not sampling.finished and (item := sampling.next()) is not None:
            partly += len(item.policies) < 3
            sampling.record(item, {k: float(right[k, item.item]) for k in item.policies})
        assert sampling.result is not None
        wrong += sampling.result.decided and sampling.result.leader != 1
    assert partly > 0  # prices did decide
    assert float(beta.ppf(0.999, wrong + 1, runs - wrong)) <= 0.1
