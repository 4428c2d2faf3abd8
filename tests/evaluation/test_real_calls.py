"""Calls that take time, fail, hang and cost: nothing that was paid for is lost, and the verdict stays."""

from __future__ import annotations

import asyncio
import csv
import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import BadInput, Conflict, IntegrityFailed
from evenhand.evaluation.journal import CallJournal

POOL = [{"group": "a" if n % 4 else "b", "number": n, "id": f"q{n}", "target": 1} for n in range(400)]
ACCURACY = {"good": 0.95, "fair": 0.88, "poor": 0.25}
LEVEL = np.random.default_rng(3).random((400, 2))


def answer(name: str, item: dict[str, Any]) -> int:
    """Return 1 on a fixed share of the items; easy items are easy for everyone."""
    shared, own = LEVEL[item["number"]]
    return int((shared if (item["number"] * 7) % 10 < 8 else own) < ACCURACY[name])


def plain(name: str) -> Any:
    return lambda item: answer(name, item)


PLAIN = {name: plain(name) for name in ACCURACY}
COMMON: dict[str, Any] = {"target": "target", "item": "id", "at_least": 0.7, "seed": 4, "backoff": 0.0}


@pytest.fixture(scope="module")
def expected() -> eh.Evaluation:
    return eh.evaluate(PLAIN, POOL, **COMMON)


def test_all_open_candidates_answer_the_same_items(expected: eh.Evaluation) -> None:
    asked: dict[str, list[int]] = {name: [] for name in ACCURACY}

    def noted(name: str) -> Any:
        def call(item: dict[str, Any]) -> int:
            asked[name].append(item["number"])
            return answer(name, item)

        return call

    result = eh.evaluate({name: noted(name) for name in ACCURACY}, POOL, **COMMON)
    assert (result.answer, result.calls) == (expected.answer, expected.calls) == ("good", result.calls)
    assert asked["good"][: len(asked["poor"])] == asked["poor"]  # until it was certified to fail
    assert len(asked["poor"]) < len(asked["good"])
    assert len(set(asked["good"])) == len(asked["good"])
    assert "poor" in result.verdict.failed


def test_the_verdict_is_that_of_judge_on_the_same_rows(expected: eh.Evaluation, tmp_path: Path) -> None:
    kept = tmp_path / "run.jsonl"
    result = eh.evaluate(PLAIN, POOL, journal=kept, **COMMON)
    rows = [json.loads(line) for line in kept.read_text().splitlines()[1:]]
    group = {item["id"]: item["group"] for item in POOL}
    table = tmp_path / "rows.csv"
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["policy", "group", "item", "outcome"])
        writer.writerows([row["policy"], group[row["item"]], row["item"], row["outcome"]] for row in rows)
    judged = eh.judge(result.verdict.problem, table, pool={"a": 300, "b": 100}, replications=0)
    assert (judged.answer, judged.decided) == (result.answer, True)
    assert judged.cells == result.verdict.cells
    assert judged.evidence == pytest.approx(result.verdict.evidence, abs=1e-12)
    assert result.verdict == expected.verdict


async def _async_answer(name: str, item: dict[str, Any]) -> int:
    await asyncio.sleep(0.001 * (item["number"] % 5))
    return answer(name, item)


class Batched:
    def __init__(self, name: str) -> None:
        self.name, self.sizes = name, []

    def predict(self, items: list[dict[str, Any]]) -> list[int]:
        self.sizes.append(len(items))
        return [answer(self.name, item) for item in items]


def test_speed_and_order_of_the_answers_do_not_change_what_is_asked(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    delays = 0.004 * rng.random(400)

    def slow(name: str) -> Any:
        def call(item: dict[str, Any]) -> int:
            time.sleep(delays[item["number"]])
            return answer(name, item)

        return call

    def run(candidates: dict[str, Any]) -> eh.Evaluation:
        return eh.evaluate(candidates, POOL, concurrency=6, **COMMON)

    one, two = run({name: slow(name) for name in ACCURACY}), run(PLAIN)
    assert one.verdict == two.verdict
    assert one.answer == "good"


def test_coroutine_functions_run_at_once() -> None:
    most, now = 0, 0

    async def good(item: dict[str, Any]) -> int:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1
        return answer("good", item)

    async def poor(item: dict[str, Any]) -> int:
        return await _async_answer("poor", item)

    result = eh.evaluate({"good": good, "poor": poor}, POOL, concurrency=8, timeout=20, **COMMON)
    assert result.answer == "good"
    assert 2 <= most <= 8


def test_predictions_come_in_batches() -> None:
    models = {name: Batched(name) for name in ("good", "poor")}
    result = eh.evaluate(models, POOL, batch=16, **COMMON)
    assert result.answer == "good"
    assert max(models["good"].sizes) == 16


def test_a_call_that_raises_is_tried_again_and_never_ends_the_run(expected: eh.Evaluation) -> None:
    tried: dict[Any, int] = {}

    def flaky(name: str) -> Any:
        def call(item: dict[str, Any]) -> int:
            key = name, item["number"]
            tried[key] = tried.get(key, 0) + 1
            if tried[key] <= item["number"] % 3:  # one or two failures on two thirds of the items
                raise ConnectionError("the line is busy")
            return answer(name, item)

        return call

    result = eh.evaluate({name: flaky(name) for name in ACCURACY}, POOL, retries=2, **COMMON)
    assert result.verdict == expected.verdict
    assert result.cost.attempts == sum(tried.values()) > result.calls
    assert result.cost.failed == 0


def broken_on_tens(item: dict[str, Any]) -> int:
    if item["number"] % 10 == 0:
        raise ValueError("no answer")
    return answer("good", item)


@pytest.mark.parametrize("failures", ["lowest", "drop"])
def test_a_call_that_fails_permanently_counts_as_the_lowest_outcome_or_is_left_out(failures: str) -> None:
    result = eh.evaluate(
        {"a": broken_on_tens, "b": PLAIN["poor"]}, POOL, failures=failures, retries=0, **COMMON
    )
    assert result.cost.failed > 0
    assert result.answer == "a"
    said = next(sentence for sentence in result.words() if "calls failed permanently" in sentence)
    assert said.startswith(f"{result.cost.failed} calls failed permanently. The last: a on item q")
    assert said.endswith("0: ValueError: no answer.")
    rows = {(c.policy, c.group): c for c in result.verdict.cells}
    same = rows["a", "a"].n == rows["b", "a"].n or "b" in result.verdict.failed
    assert same == (failures == "lowest") or "b" in result.verdict.failed


def test_a_service_that_is_down_is_not_judged_and_the_run_continues_later(tmp_path: Path) -> None:
    def down(item: dict[str, Any]) -> int:
        raise ConnectionError("refused")

    kept = tmp_path / "run.jsonl"
    first = eh.evaluate({"good": down, "poor": PLAIN["poor"]}, POOL, journal=kept, retries=0, **COMMON)
    assert not first.decided
    assert first.verdict.failed == ()
    assert "good failed on 10 items in a row" in first.interrupted
    assert "ConnectionError: refused" in first.interrupted
    again = eh.evaluate(
        {"good": PLAIN["good"], "poor": PLAIN["poor"]}, POOL, journal=kept, retries=0, **COMMON
    )
    assert again.answer == "good"
    assert next(c for c in again.verdict.cells if c.policy == "good").mean == pytest.approx(0.95, abs=0.06)


def test_a_call_that_hangs_is_given_up() -> None:
    release = threading.Event()

    def hangs(item: dict[str, Any]) -> int:
        if item["number"] == 8:
            release.wait(60)
        return answer("good", item)

    result = eh.evaluate(
        {"good": hangs, "poor": PLAIN["poor"]}, POOL, timeout=0.5, retries=0, concurrency=4, **COMMON
    )
    release.set()
    assert result.answer == "good"


def test_the_journal_is_resumed_without_a_call(expected: eh.Evaluation, tmp_path: Path) -> None:
    kept = tmp_path / "run.jsonl"
    first = eh.evaluate(
        PLAIN, POOL, journal=kept, price={"good": 0.01, "fair": 0.002, "poor": 0.001}, **COMMON
    )

    def never(item: dict[str, Any]) -> int:
        raise AssertionError("this was paid for before")

    again = eh.evaluate(dict.fromkeys(ACCURACY, never), POOL, journal=kept, **COMMON)
    assert again.verdict == first.verdict == expected.verdict
    assert again.cost.calls == first.cost.calls
    assert again.cost.spent == pytest.approx(first.cost.spent)
    spent = sum(json.loads(line)["cost"] for line in kept.read_text().splitlines()[1:])
    assert first.cost.spent == pytest.approx(spent)
    assert any("have cost" in sentence for sentence in first.words())


CHILD = """
import sys, time
import evenhand as eh
from tests.evaluation.test_real_calls import ACCURACY, COMMON, POOL, answer

def slow(name):
    def call(item):
        with open(sys.argv[2], "a") as file:
            file.write(f"{name} {item['number']}\\n")
        time.sleep(0.01)
        return answer(name, item)
    return call

result = eh.evaluate({n: slow(n) for n in ACCURACY}, POOL, journal=sys.argv[1], concurrency=4, **COMMON)
print(result.answer, result.verdict.evidence)
"""


@pytest.mark.slow
def test_a_killed_run_loses_only_the_calls_that_had_not_ended(tmp_path: Path) -> None:
    kept, calls = tmp_path / "run.jsonl", tmp_path / "calls.txt"
    command = [sys.executable, "-c", CHILD, str(kept), str(calls)]
    killed = 0
    for least in (30, 80):
        child = subprocess.Popen(command, cwd=Path(__file__).parents[2])
        while not calls.exists() or len(calls.read_text().splitlines()) < least:
            assert child.poll() is None
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
        killed += child.wait() == -signal.SIGKILL
    assert killed == 2
    done = subprocess.run(command, cwd=Path(__file__).parents[2], check=True, capture_output=True, text=True)
    result = eh.evaluate(PLAIN, POOL, concurrency=4, **COMMON)
    assert done.stdout.split() == [str(result.answer), str(result.verdict.evidence)]
    made = calls.read_text().splitlines()
    assert len(made) - len(set(made)) <= 2 * 4  # at most those that ran when it was killed, twice


def test_a_line_that_was_cut_off_is_made_again(tmp_path: Path, expected: eh.Evaluation) -> None:
    kept = tmp_path / "run.jsonl"
    eh.evaluate(PLAIN, POOL, journal=kept, **COMMON)
    kept.write_bytes(kept.read_bytes()[:-9])
    result = eh.evaluate(PLAIN, POOL, journal=kept, **COMMON)
    assert result.verdict == expected.verdict
    assert len(kept.read_text().splitlines()) == result.calls + 1


@pytest.mark.parametrize("content", ["one line without an end", "policy,group\na,x\nb,y", "{}\n", '{"a": 1}'])
def test_a_file_that_is_no_journal_is_not_touched(tmp_path: Path, content: str) -> None:
    kept = tmp_path / "notes.txt"
    kept.write_text(content)
    with pytest.raises(
        BadInput, match=r"notes\.txt must be the journal of an evaluation; it is another file"
    ):
        eh.evaluate(PLAIN, POOL, journal=kept, **COMMON)
    assert kept.read_text() == content


@pytest.mark.parametrize("length", [1, 14, 40])
def test_a_header_that_was_cut_off_is_written_again(
    tmp_path: Path, expected: eh.Evaluation, length: int
) -> None:
    kept = tmp_path / "run.jsonl"
    eh.evaluate(PLAIN, POOL, journal=kept, **COMMON)
    kept.write_bytes(kept.read_bytes()[:length])
    result = eh.evaluate(PLAIN, POOL, journal=kept, **COMMON)
    assert result.verdict == expected.verdict
    assert len(kept.read_text().splitlines()) == result.calls + 1


def test_outputs_are_shared_by_evaluations(tmp_path: Path) -> None:
    first = eh.evaluate(PLAIN, POOL, cache=tmp_path / "outputs.db", **COMMON)
    again = eh.evaluate(PLAIN, POOL, cache=tmp_path / "outputs.db", **(COMMON | {"at_least": 0.72}))
    assert first.cost.reused == 0
    assert again.cost.reused > 0.5 * first.calls


def test_outputs_within_a_tolerance_are_right() -> None:
    pool = [{"group": "all", "target": f"{n}.0", "n": n} for n in range(300)]
    result = eh.evaluate(
        {"near": lambda item: item["n"] + 0.009, "far": lambda item: item["n"] + 1, "word": lambda item: "?"},
        pool, score={"numeric": 0.01}, target="target", at_least=0.6,
    )  # fmt: skip
    assert result.answer == "near"
    assert result.verdict.failed == ("far", "word")


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_people_give_the_labels_in_a_file(tmp_path: Path, suffix: str) -> None:
    kept, labels = tmp_path / "run.jsonl", tmp_path / f"labels{suffix}"
    calls: list[Any] = []

    def model(name: str) -> Any:
        def call(item: dict[str, Any]) -> str:
            calls.append((name, item["number"]))
            return ("cat", "dog")[answer(name, item)]

        return call

    pool = [{name: value for name, value in item.items() if name != "target"} for item in POOL]
    settings = COMMON | {"target": None, "labels": labels, "journal": kept, "batch": 40}
    for _ in range(20):
        result = eh.evaluate({"good": model("good"), "poor": model("poor")}, pool, **settings)
        if result.decided:
            break
        assert "wait for a label in" in result.interrupted
        fill_in(labels)
    assert result.answer == "good"
    assert (
        len(calls) == len(set(calls)) == result.cost.attempts
    )  # a label serves all; nothing is called twice


def fill_in(path: Path) -> None:
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(row | {"label": "dog"}) + "\n" for row in rows))
        return
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(row | {"label": "dog"} for row in rows)


def test_one_candidate_is_enough_to_say_whether_it_may_be_deployed() -> None:
    result = eh.evaluate({"good": PLAIN["good"]}, POOL, goal="screen", **COMMON)
    assert result.verdict.allowed == ("good",)
    assert any(sentence.startswith("May be deployed: good.") for sentence in result.words())
    result = eh.evaluate({"poor": PLAIN["poor"]}, POOL, goal="screen", **COMMON)
    assert any("Certified to fail: poor." in sentence for sentence in result.words())


def test_the_statement_may_be_about_the_population() -> None:
    result = eh.evaluate(PLAIN, POOL, about="population", **COMMON)
    assert result.verdict.pool is None
    assert not any("about the items of the pool" in sentence for sentence in result.words())


def test_other_families_are_compared_cell_by_cell() -> None:
    result = eh.evaluate(
        {"high": lambda item: 2.0, "low": lambda item: 0.5}, POOL, lambda output, item: output,
        family=eh.Gaussian(0.3), at_least=1.0, concurrency=3,
    )  # fmt: skip
    assert result.answer == "high"


def test_a_result_shows_itself() -> None:
    result = eh.evaluate(PLAIN, POOL, **COMMON)
    assert "May be deployed" in repr(result)
    assert "<svg" in result._repr_html_()
    assert len(result.to_frame()) == 6
    assert json.loads(json.dumps(result.to_dict()))["deployment"]["best"] == "good"


class TestBadInput:
    """One sentence each; the journal keeps every call that ended."""

    def test_a_journal_of_another_study(self, tmp_path: Path) -> None:
        kept = tmp_path / "run.jsonl"
        eh.evaluate(PLAIN, POOL, journal=kept, **COMMON)
        before = kept.read_bytes()
        for change, words in (
            ({"at_least": 0.6}, "its problem differs"),
            ({"delta": 0.01}, "its procedure differs"),
            ({"seed": 5}, "its seed differs"),
            ({"about": "population"}, "its choice of pool or population differs"),
        ):
            with pytest.raises(BadInput, match=words):
                eh.evaluate(PLAIN, POOL, journal=kept, **(COMMON | change))
        other = [item | {"number": item["number"] + 1} for item in POOL]
        with pytest.raises(BadInput, match="its content of the items differs"):
            eh.evaluate(PLAIN, other, journal=kept, **COMMON)
        assert kept.read_bytes() == before

    def test_a_pool_smaller_than_what_was_answered(self, tmp_path: Path) -> None:
        kept = tmp_path / "run.jsonl"
        shares = {"a": 0.75, "b": 0.25}
        eh.evaluate(PLAIN, POOL, journal=kept, shares=shares, **COMMON)
        with pytest.raises(
            BadInput, match="the pool must hold every item that was answered; it has 100 items"
        ):
            eh.evaluate(PLAIN, POOL[:100], journal=kept, shares=shares, **COMMON)

    def test_two_outcomes_of_a_policy_on_an_item(self, tmp_path: Path) -> None:
        kept = tmp_path / "run.jsonl"
        eh.evaluate(PLAIN, POOL, journal=kept, **COMMON)
        line = json.loads(kept.read_text().splitlines()[1])
        line["outcome"] = 1.0 - line["outcome"]
        with kept.open("a") as file:
            file.write(json.dumps(line) + "\n")
        with pytest.raises(BadInput, match="an item counts once per policy"):
            eh.evaluate(PLAIN, POOL, journal=kept, **COMMON)

    def test_an_item_in_two_groups(self) -> None:
        pool = [*POOL, POOL[0] | {"group": "a"}]
        with pytest.raises(BadInput, match="an item belongs to one group; item 'q0' is in 'b' and in 'a'"):
            eh.evaluate(PLAIN, pool, **COMMON)
        with pytest.raises(BadInput, match="a name of its own; 'q0' comes twice"):
            eh.evaluate(PLAIN, [*POOL, POOL[0]], **COMMON)

    def test_an_item_without_a_target(self) -> None:
        for target in (None, float("nan")):
            pool = [item | {"target": target if item["number"] == 8 else 1} for item in POOL]
            with pytest.raises(
                BadInput, match="every item needs a 'target' that outputs must equal; item q8"
            ):
                eh.evaluate(PLAIN, pool, **COMMON)

    def test_a_journal_that_is_damaged_or_in_use(self, tmp_path: Path) -> None:
        kept = tmp_path / "run.jsonl"
        eh.evaluate(PLAIN, POOL, journal=kept, **COMMON)
        lines = kept.read_text().splitlines()
        header = {k: v for k, v in json.loads(lines[0]).items() if k not in ("evenhand", "version")}
        held = CallJournal(kept, header, _pool())
        with pytest.raises(Conflict, match="another process is writing"):
            eh.evaluate(PLAIN, POOL, journal=kept, **COMMON)
        held.close()
        kept.write_text("\n".join([*lines[:3], lines[3][:-5], *lines[4:]]) + "\n")
        with pytest.raises(IntegrityFailed, match="line 4 is damaged"):
            eh.evaluate(PLAIN, POOL, journal=kept, **COMMON)
        kept.write_text('{"something": 1}\n')
        with pytest.raises(BadInput, match="must be the journal of an evaluation"):
            eh.evaluate(PLAIN, POOL, journal=kept, **COMMON)

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"concurrency": 0}, "concurrency must be a whole number"),
            ({"timeout": -1}, "timeout must be a positive number"),
            ({"backoff": -1.0}, "backoff must be"),
            ({"failures": "ignore"}, "failures must be 'lowest' or 'drop'"),
            ({"about": "everyone"}, "about must be 'pool' or 'population'"),
            ({"price": {"god": 1.0}}, "did you mean 'good'"),
            ({"price": -1.0}, "at least 0"),
            ({"score": "near"}, "score must be a function"),
            ({"item": "name"}, "needs a name"),
            ({"journal": 7}, "journal must be the path"),
            ({"journal": "no/such/folder/run.jsonl"}, "there is no folder"),
            ({"labels": __file__}, "the labels in test_real_calls.py cannot be read"),
        ],
    )  # fmt: skip
    def test_arguments_that_cannot_be_used(self, change: dict[str, Any], words: str) -> None:
        with pytest.raises(BadInput, match=words):
            eh.evaluate(PLAIN, POOL, **(COMMON | change))


def _pool() -> Any:
    from evenhand.evaluation.pool import open_pool

    return open_pool(POOL, "group", None, "id")
