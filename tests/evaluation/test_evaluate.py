"""Evaluating models: the procedure's answer about a pool, in as few calls as it takes."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import evenhand as eh
from evenhand.errors import BadInput
from evenhand.verdicts.judge import judge

EXAMPLES = Path(__file__).parents[2] / "examples"


def items(count: int = 400) -> list[dict[str, Any]]:
    return [{"group": "a" if i % 4 else "b", "number": i} for i in range(count)]


def good(item: dict[str, Any]) -> int:
    return int(item["number"] % 20 != 0)  # right on 95% of everything


def skewed(item: dict[str, Any]) -> int:
    return int(item["group"] == "a" or item["number"] % 8 == 0)  # right on all of a, on half of b


def poor(item: dict[str, Any]) -> int:
    return int(item["number"] % 3 == 0)


CANDIDATES = {"good": good, "skewed": skewed, "poor": poor}


def right(output: int, item: dict[str, Any]) -> float:
    return float(output)


def test_the_best_candidate_that_is_good_enough_for_every_group_wins_and_calls_are_saved() -> None:
    result = eh.evaluate(CANDIDATES, items(), right, "group", at_least=0.75, seed=1)
    assert result.decided
    assert result.answer == "good"
    assert result.calls <= result.cost.samples
    assert 0 < result.saved < 1
    assert result.words()[-1].endswith("saved.")
    eh.assert_meets(result)
    eh.assert_meets(result, "good")


def test_the_same_seed_asks_for_the_same_items() -> None:
    calls: list[list[int]] = [[], []]
    for log in calls:

        def noted(item: dict[str, Any], log: list[int] = log) -> int:
            log.append(item["number"])
            return good(item)

        eh.evaluate({"good": noted, "poor": poor}, items(), right, "group", at_least=0.7, seed=5)
    assert calls[0] == calls[1]
    assert len(set(calls[0])) == len(calls[0])  # an item answered before costs no second call


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_frames_of_any_kind_are_pools(make: type) -> None:
    frame = make({"group": [i["group"] for i in items()], "number": [i["number"] for i in items()]})
    one = eh.evaluate(CANDIDATES, frame, right, "group", at_least=0.75, seed=1)
    two = eh.evaluate(CANDIDATES, items(), right, "group", at_least=0.75, seed=1)
    assert (one.answer, one.calls) == (two.answer, two.calls)


def test_fitted_models_predict_from_their_features() -> None:
    class Model:
        def predict(self, x: pd.DataFrame) -> np.ndarray:
            assert list(x.columns) == ["number"]
            return (x["number"] % 20 != 0).to_numpy().astype(int)

    frame = pd.DataFrame(items()).assign(truth=1)
    result = eh.evaluate({"model": Model(), "never": lambda item: 0}, frame, groups="group", target="truth",
                         features=["number"], at_least=0.7)  # fmt: skip
    assert result.answer == "model"


def test_a_tie_is_settled_by_evaluating_everything() -> None:
    result = eh.evaluate({"one": good, "two": good}, items(60), right, "group", at_least=0.6)
    assert result.exact
    assert result.decided
    assert result.calls == 120
    assert result.saved == 0


def test_evaluating_everything_gives_the_pools_own_means_and_says_so() -> None:
    result = eh.evaluate({"one": good, "two": good}, items(60), right, "group", at_least=0.75)
    # of 45 items in a all are right; of 15 in b, numbers 0, 20 and 40 are wrong
    cells = [(c.n, c.mean, c.low, c.high, c.verdict) for c in result.verdict.cells]
    assert cells == 2 * [(45, 1.0, 1.0, 1.0, "met"), (15, 0.8, 0.8, 0.8, "met")]
    assert result.words()[0].startswith("one is the answer (everything was evaluated): ")


def test_an_exact_verdict_finds_who_falls_short() -> None:
    from evenhand.verdicts.exhausted_pool import exact_verdict

    problem = eh.Problem(["one", "two"], {"a": 0.75, "b": 0.25}, eh.Bernoulli(), eh.Floors(0.8))
    frame = pl.DataFrame({"policy": ["one"], "group": ["a"], "n": [1], "successes": [1]})
    told = exact_verdict(
        judge(problem, frame, replications=0), np.array([[9, 3], [7, 3]]), np.full((2, 2), 10.0)
    )
    assert [c.verdict for c in told.cells] == ["met", "failed", "failed", "failed"]
    assert [p.verdict for p in told.policies] == ["failed", "failed"]
    assert told.decided
    assert told.answer is None


def test_groups_left_out_of_the_shares_are_left_out_of_the_count() -> None:
    result = eh.evaluate({"one": good, "two": good}, items(60), right, shares={"b": 1.0}, at_least=0.6)
    assert result.exact
    assert result.cost.everything == 30


def test_a_risk_in_the_procedure_is_not_overruled_unasked() -> None:
    strict = eh.Procedure(delta=1e-4, max_samples=40)
    assert eh.evaluate(CANDIDATES, items(), right, procedure=strict).verdict.procedure.delta == 1e-4
    assert eh.evaluate(CANDIDATES, items(), right, procedure=strict, delta=0.1).verdict.procedure.delta == 0.1


def test_a_cap_on_samples_leaves_the_verdict_open() -> None:
    result = eh.evaluate(CANDIDATES, items(), right, "group", at_least=0.75, max_samples=40)
    assert not result.decided
    with pytest.raises(AssertionError, match="Undecided"):
        eh.assert_meets(result)


def test_progress_is_reported_during_the_run() -> None:
    seen: list[int] = []
    result = eh.evaluate(
        CANDIDATES, items(), right, "group", at_least=0.75, progress=lambda cost: seen.append(cost.calls)
    )
    assert seen == list(range(1, result.calls + 1))


def test_assert_meets_names_the_group_that_is_not_certified() -> None:
    result = eh.evaluate(CANDIDATES, items(), right, "group", at_least=0.75, seed=1)
    with pytest.raises(AssertionError, match="poor is not certified to meet the requirement: a: "):
        eh.assert_meets(result.verdict, "poor")
    with pytest.raises(BadInput, match="did you mean 'good'"):
        eh.assert_meets(result, "goood")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"groups": "grp"}, "needs a 'grp'"),
        ({"score": None}, "give score"),
        ({"pool": []}, "at least one item"),
        ({"pool": 7}, "sequence of items"),
        ({"candidates": {"a": 3, "b": good}}, "must be callable"),
        ({"candidates": [good, good]}, "different names"),
        ({"shares": {"a": 0.5, "c": 0.5}}, "no item of group 'c'"),
    ],
)  # fmt: skip
def test_what_cannot_be_evaluated_is_refused(change: dict[str, Any], words: str) -> None:
    call: dict[str, Any] = {
        "candidates": CANDIDATES,
        "pool": items(),
        "score": right,
        "groups": "group",
        "at_least": 0.7,
    }
    with pytest.raises(BadInput, match=words):
        eh.evaluate(**(call | change))


def test_a_verdict_on_a_table_can_stand_in_a_test_too() -> None:
    problem = eh.Problem(["a", "b"], {"g": 1.0}, eh.Bernoulli(), eh.Floors(0.5))
    frame = pl.DataFrame(
        {"policy": ["a", "b"], "group": ["g", "g"], "n": [4000, 4000], "successes": [3600, 2400]}
    )
    eh.assert_meets(judge(problem, frame, replications=0), "a")


@pytest.mark.parametrize(
    ("name", "answer"), [("choose_classifier", "all features"), ("llm_evaluation", "large")]
)
def test_the_examples_run_and_decide(name: str, answer: str, capsys: pytest.CaptureFixture[str]) -> None:
    verdict = runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]()
    assert verdict.decided
    assert verdict.answer == answer
    assert "saved" in capsys.readouterr().out


@pytest.mark.slow
def test_the_notebook_runs_from_first_to_last_cell(capsys: pytest.CaptureFixture[str]) -> None:
    cells = runpy.run_path(str((EXAMPLES / "evaluate_models").with_suffix(".py")))
    assert cells["slices"].answer == "neighbours"
    assert cells["slices"].saved > 0.1
    assert cells["resumed"]["answer"] == "large"
    assert cells["calls_before"] >= 149
    assert cells["paid_twice"] == 0
    assert "were paid for when the process was killed" in capsys.readouterr().out


def test_the_stand_ins_for_endpoints_give_the_same_answers_again() -> None:
    module = runpy.run_path(str(EXAMPLES / "endpoints.py"))  # "endpoints" is served in test_evaluate_command
    questions = module["questions"](90)
    first = [module["answer"](name, item) for item in questions for name in module["MODELS"]]
    assert first == [module["answer"](name, item) for item in questions for name in module["MODELS"]]
    assert "up" in first
