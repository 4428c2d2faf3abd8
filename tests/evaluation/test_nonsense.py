"""Candidates and graders that return nonsense: the call fails with one sentence, and the run continues."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import BadInput, shown

POOL = [{"group": "ab"[n % 2], "n": n, "id": f"q{n}", "target": 1} for n in range(200)]
COMMON: dict[str, Any] = {
    "at_least": 0.6, "item": "id", "seed": 1, "retries": 0, "backoff": 0.0, "family": eh.Bernoulli(),
}  # fmt: skip


def good(item: dict[str, Any]) -> int:
    return int(item["n"] % 20 != 0)


def poor(item: dict[str, Any]) -> int:
    return int(item["n"] % 4 == 0)


async def coroutine() -> int:
    return 1


def generator() -> Any:
    yield 1


async def asynchronous_generator() -> Any:
    yield 1


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


def odd(make: Callable[[], Any]) -> Callable[[dict[str, Any]], Any]:
    """Return a candidate that is right, but returns something odd on every seventh item."""
    return lambda item: make() if item["n"] % 7 == 3 else good(item)


def raising(problem: BaseException) -> Callable[[], Any]:
    def make() -> Any:
        raise problem

    return make


class Model:
    def __init__(self, call: Callable[[dict[str, Any]], Any]) -> None:
        self.call = call

    def predict(self, items: list[dict[str, Any]]) -> list[Any]:
        return [self.call(item) for item in items]


NOT_EQUAL = {
    "None": lambda: None,
    "text": lambda: "nonsense",
    "half a character": lambda: "\ud800",
    "not a number": lambda: float("nan"),
    "a very large number": lambda: 10**6_000,
    "nested lists": lambda: [[1], [2]],
    "lists nested very deeply": lambda: nested(100_000),
    "an unprintable object": Unprintable,
}
NOT_AN_OUTPUT = {
    "a generator": generator,
    "an async_generator": asynchronous_generator,
    "a coroutine": lambda: [coroutine()].pop(),
}
EXCEPTIONS = {
    "Wordless: without a readable message": Wordless(),
    "StopIteration": StopIteration(),
    "TimeoutError: the candidate's own": TimeoutError("the candidate's own"),
    "BadInput: the candidate's own": BadInput("the candidate's own"),
    "ExceptionGroup: several": ExceptionGroup("several", [ValueError("one")]),
    "MemoryError": MemoryError(),
    "RecursionError: too deep": RecursionError("too deep"),
}


def run(candidates: dict[str, Any], score: Any = None, **settings: Any) -> eh.Evaluation:
    target = None if score else "target"
    return eh.evaluate(candidates, POOL, score, target=target, **(COMMON | settings))


@pytest.mark.parametrize("kind", NOT_EQUAL)
@pytest.mark.parametrize("batched", [False, True])
def test_an_output_that_is_nonsense_is_wrong_like_any_other(kind: str, batched: bool, tmp_path: Path) -> None:
    call = odd(NOT_EQUAL[kind])
    candidates = {"good": good, "poor": poor, "odd": Model(call) if batched else call}
    first = run(candidates, journal=tmp_path / "run.jsonl")
    assert (first.answer, first.cost.failed) == ("good", 0)
    assert run(candidates, journal=tmp_path / "run.jsonl").verdict == first.verdict


@pytest.mark.parametrize("kind", NOT_AN_OUTPUT)
def test_what_is_no_output_yet_fails_the_call_of_this_item_alone(kind: str) -> None:
    result = run({"good": good, "poor": poor, "odd": Model(odd(NOT_AN_OUTPUT[kind]))})
    assert result.answer == "good"
    assert 0 < result.cost.failed < 40
    words = f"a candidate must return an output; it returned {kind}."
    assert any(words in sentence and "The last: odd on item q" in sentence for sentence in result.words())


@pytest.mark.parametrize("name", EXCEPTIONS)
@pytest.mark.parametrize("concurrency", [1, 4])
def test_an_exception_of_any_class_fails_its_call_and_the_run_goes_on(name: str, concurrency: int) -> None:
    candidates = {"good": good, "poor": poor, "odd": odd(raising(EXCEPTIONS[name]))}
    result = run(candidates, concurrency=concurrency)
    assert result.answer == "good"
    assert result.cost.failed > 0
    assert name in result.cost.last_error


def test_a_candidate_that_ends_its_thread_fails_its_call() -> None:
    result = run({"good": good, "poor": poor, "odd": odd(raising(SystemExit(3)))}, concurrency=4)
    assert result.answer == "good"
    assert "SystemExit: 3" in result.cost.last_error


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: None, "score must return a number; it returned None"),
        (lambda: "1", "score must return a number; it returned '1'"),
        (lambda: float("nan"), "scores must be 0 or 1; this one is nan"),
        (lambda: 2.0, "scores must be 0 or 1; this one is 2"),
        (lambda: 10**6_000, "score must return a number; it returned a very large number"),
        (lambda: np.arange(2), "score must return a number; it returned array([0, 1])"),
        (generator, "score must return a number; it returned a generator"),
        (Unprintable, "score must return a number; it returned an Unprintable"),
        (raising(ValueError("no rule")), "ValueError: no rule"),
    ],
)
@pytest.mark.parametrize("is_asynchronous", [False, True])
def test_a_score_that_is_nonsense_fails_the_call_and_names_it(
    make: Callable[[], Any], words: str, is_asynchronous: bool
) -> None:
    async def later(output: Any, item: Any) -> Any:
        return odd(make)(item) if output else 0.0

    def now(output: Any, item: Any) -> Any:
        return odd(make)(item) if output else 0.0

    result = run({"good": good, "poor": poor}, later if is_asynchronous else now)
    assert result.answer == "good"
    assert result.cost.failed > 0
    assert words in result.cost.last_error
    policy, item = result.cost.last_error.split(":")[0].split(" on item q")
    assert policy in ("good", "poor")
    assert int(item) % 7 == 3


@pytest.mark.parametrize("outputs", [[1], "ones", {"a": 1}, None, 7, {1, 2}, range(3)])
def test_predictions_of_another_number_or_kind_interrupt_the_run_in_one_sentence(outputs: Any) -> None:
    class Terse:
        def predict(self, items: Any) -> Any:
            return outputs

    result = run({"good": good, "terse": Terse()})
    assert not result.decided
    assert "terse failed on 64 items in a row" in result.interrupted
    assert "one output an item; it " in result.interrupted
    assert shown(outputs) in result.interrupted or "for 64 items" in result.interrupted
    assert result.verdict.failed == ()  # these failures do not count


def test_a_grader_is_corrected_and_nothing_that_was_paid_for_is_lost(tmp_path: Path) -> None:
    kept, calls = tmp_path / "run.jsonl", []

    def counted(item: dict[str, Any]) -> int:
        calls.append(item["id"])
        return good(item)

    def graded(output: Any, item: Any) -> Any:
        return output if works else float("nan")

    works = False
    first = run({"good": counted, "poor": poor}, graded, journal=kept)
    assert "failed on 10 items in a row" in first.interrupted
    assert "scores must be 0 or 1; this one is nan." in first.interrupted
    works = True
    second = run({"good": counted, "poor": poor}, graded, journal=kept)
    assert second.answer == "good"
    assert len(calls) == len(set(calls))
    assert second.cost.failed == 0


def test_outcomes_that_counted_as_failures_of_a_grader_are_graded_again(tmp_path: Path) -> None:
    def graded(output: Any, item: Any) -> Any:
        return "?" if item["n"] % 7 == 3 and not works else output

    works = False
    first = run({"good": good, "poor": poor}, graded, journal=tmp_path / "run.jsonl")
    assert first.cost.failed > 0
    again = run({"good": good, "poor": poor}, graded, journal=tmp_path / "run.jsonl")
    assert (again.verdict, again.cost.failed) == (first.verdict, first.cost.failed)
    works = True
    mended = run({"good": good, "poor": poor}, graded, journal=tmp_path / "run.jsonl")
    assert mended.cost.failed == 0
    assert mended.verdict == run({"good": good, "poor": poor}, graded).verdict


def test_an_output_that_waits_for_a_label_must_be_kept_in_the_journal(tmp_path: Path) -> None:
    settings = {"labels": tmp_path / "labels.csv", "journal": tmp_path / "run.jsonl", "target": None}
    result = eh.evaluate(
        {"good": good, "objects": lambda item: object()}, POOL, **(COMMON | settings | {"batch": 12})
    )
    words = "an output that waits for a label must be text, a number, a list or a mapping; it is an object"
    assert words in result.interrupted
    rows = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()[1:]]
    assert sum(row["policy"] == "good" for row in rows) >= 10
