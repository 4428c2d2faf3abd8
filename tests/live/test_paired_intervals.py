"""Experiments in intervals in which every policy serves every unit: pairs in the log, and what is refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

import evenhand as eh
from evenhand.errors import BadInput, Conflict
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.live.load_log import load
from evenhand.live.protocol import Protocol
from evenhand.live.snapshot import snapshot_of
from evenhand.study import Study, Truth, dumps, loads
from tests.live.example_experiments import SetClock
from tests.live.forgeries import write_chain
from tests.live.interval_experiments import MEANS, paired_counts, problem, scores, shared

CLOSE = {"a": {"x": 0.80, "y": 0.74}, "b": {"x": 0.78, "y": 0.72}, "c": {"x": 0.85, "y": 0.45}}
MINUTES = (0.0, 3.0, 11.0, 20.0, 31.0, 60.0)


def bounded() -> eh.Problem:
    return eh.Problem(
        ["a", "b", "c"], {"x": 0.6, "y": 0.4}, eh.Bounded(0, 60), eh.Floors(10), mode="proportional"
    )


def run(trial: Experiment, most: int = 40, means: dict[str, dict[str, float]] = CLOSE) -> int:
    """Run intervals until the end, or so many; return how many."""
    done = 0
    while done < most and not trial.is_over:
        version = trial.shares().version
        trial.tell_counts(version, paired_counts(scores(version, means=means)), close=True)
        done += 1
    return done


def test_a_narrow_lead_is_certified_by_pairs_and_the_log_is_derived_again(tmp_path: Path) -> None:
    address = str(tmp_path / "t.db")
    with shared(address) as trial:
        done = run(trial)
        status, head = trial.status(), trial.head
        verdict = audit(address, str(head))
    assert (status.answer, status.samples) == ("a", 3 * 400 * done)
    assert done > 1
    assert status.intervals is not None
    assert (status.intervals.shared, dict(status.intervals.sample_ratios)) == (True, {})
    assert sum(status.intervals.units.values()) == 400
    assert status.health.well
    assert "had 400 units, of 400 expected" in status.sentence
    assert verdict.identical
    with shared() as again:  # the same counts lead to the same decision
        assert run(again) == done
    alone = eh.Experiment.create(
        ":memory:", problem(), eh.Procedure(delta=0.05, interval=eh.Intervals(1_000)), seed=7
    )
    for _ in range(done):  # the counts of the cells alone do not decide
        version = alone.shares().version
        rows = [row for row in paired_counts(scores(version, means=CLOSE)) if "other" not in row]
        alone.tell_counts(version, rows, close=True)
    assert not alone.is_over


@pytest.mark.parametrize("asked", [problem(), bounded()], ids=["outcomes 0 and 1", "minutes"])
def test_the_evidence_is_that_of_paired_intervals(asked: eh.Problem) -> None:
    values = MINUTES if asked.family.name == "bounded" else (0.0, 1.0)
    engine, trial = duckdb.connect(), shared(study=asked)
    engine.execute('CREATE TABLE scores (unit bigint, policy text, "group" text, outcome double)')
    beside, leaders = eh.PairedIntervals(asked), []
    while not trial.is_over and trial.shares().version < 6:
        version, bets = trial.shares().version, trial.bets()
        assert isinstance(bets, eh.PairIntervalBets)
        given = scores(version, 200, CLOSE, values=values)
        engine.executemany("INSERT INTO scores VALUES (?, ?, ?, ?)", given)
        where = f"unit // 1000000 = {version}"
        pairs = bets.counts(engine.execute(bets.to_sql("scores", where=where)).fetchall())
        cells = [row for row in paired_counts(given) if "other" not in row]
        trial.tell_counts(version, [*cells, *pairs], close=True)
        beside.add(version, lambda sql: engine.execute(sql).fetchall(), "scores", where=where)
        verdict, status = beside.verdict(), trial.status()
        assert status.evidence == pytest.approx(verdict.evidence, rel=1e-6)
        assert status.needed == pytest.approx(verdict.needed)
        assert status.leader == verdict.leader
        leaders.append(status.leader)
    assert leaders[-1] == "a"


def test_outcomes_that_are_not_0_and_1_are_counted_by_the_sums_of_their_bets(tmp_path: Path) -> None:
    address = str(tmp_path / "t.db")
    with shared(address, study=bounded()) as trial:
        while not trial.is_over and trial.shares().version < 40:
            version, bets = trial.shares().version, trial.bets()
            assert isinstance(bets, eh.PairIntervalBets)
            assert bets.needed
            given = scores(version, means=CLOSE, values=MINUTES)
            trial.tell_counts(version, paired_counts(given, bets), close=True)
        assert trial.status().answer == "a"
    assert audit(address).identical


def test_counts_of_later_intervals_and_corrections_take_pairs_too(tmp_path: Path) -> None:
    address = str(tmp_path / "t.db")
    with shared(address) as trial:
        trial.publish_shares()
        trial.tell_counts(2, paired_counts(scores(2)))
        trial.tell_counts(1, paired_counts(scores(3)))
        trial.correct_counts(1, paired_counts(scores(1)), reason="another day", by="Ann")
        trial.close_interval()
        trial.close_interval()
        assert trial.tell_counts(1, paired_counts(scores(1))).closed  # the same again
        with pytest.raises(Conflict, match="It is closed, and its counts are final"):
            trial.tell_counts(1, paired_counts(scores(3)))
        evidence = trial.status().evidence
    assert audit(address).identical
    with shared() as beside:
        assert run(beside, 2, means=MEANS) == 2
        assert beside.status().evidence == evidence


def test_a_fold_opened_at_a_snapshot_equals_the_one_that_never_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Protocol, "snapshot_every", 4)
    address = str(tmp_path / "t.db")
    with shared(address) as trial:
        run(trial, 2, {policy: dict.fromkeys("xy", 0.7) for policy in "abc"})
        trial.tell_counts(3, paired_counts(scores(3)))
        with trial._writer.reading() as fold:
            opened = load(trial._journal, "main")
            assert opened.snapshot > 0
            assert snapshot_of(opened) == snapshot_of(fold)
    with Experiment.open(address, clock=SetClock()) as again:
        again.close_interval()
    assert audit(address).identical


FORGERIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "sum": lambda cell: cell["pairs"]["b"].update(sum=cell["pairs"]["b"]["sum"] + 1.0),
    "squares": lambda cell: cell["pairs"]["b"].update(squares=cell["pairs"]["b"]["squares"] + 2.0),
    "another pair": lambda cell: cell["pairs"].update(z=cell["pairs"].pop("b")),
    "a pair left out": lambda cell: cell["pairs"].pop("c"),
    "no pairs": lambda cell: cell.pop("pairs"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_of_forged_pairs_the_audit_names_the_event(name: str, tmp_path: Path) -> None:
    trial = shared()
    run(trial, 2)
    events = [json.loads(row.record.body) for row in trial._journal.read("main")]
    assert audit(str(write_chain(tmp_path / "honest.jsonl", events))).identical
    for place in [n for n, event in enumerate(events) if event["kind"] == "counted"]:
        forged = copy.deepcopy(events)
        FORGERIES[name](forged[place]["cells"][0])
        found = audit(str(write_chain(tmp_path / "forged.jsonl", forged)))
        assert found.first_different_event == place + 1, found


Rows = list[dict[str, Any]]
CELLS = [{"policy": policy, "group": "x", "n": 10, "sum": s} for policy, s in (("a", 8), ("b", 6), ("c", 5))]
PAIRS = [
    {"policy": "a", "other": "b", "group": "x", "n": 10, "sum": 2, "squares": 4},
    {"policy": "a", "other": "c", "group": "x", "n": 10, "sum": 3, "squares": 5},
    {"policy": "c", "other": "b", "group": "x", "n": 10, "sum": -1, "squares": 3},
]


def with_row(place: int, **values: Any) -> Callable[[Rows], Rows]:
    """Return a change of one row; a value of None removes the key."""
    return lambda rows: [
        {key: value for key, value in (row | values).items() if value is not None} if at == place else row
        for at, row in enumerate(rows)
    ]


REFUSED: dict[str, tuple[Callable[[Rows], Rows], type[Exception], str]] = {
    "no pairs": (lambda rows: rows[:3], BadInput, "'a' served 10, 'b' 10, and both 0 of them"),
    "a pair is missing": (lambda rows: rows[:-1], BadInput, "'b' served 10, 'c' 10, and both 0 of them"),
    "a policy is missing": (lambda rows: rows[:2] + rows[3:], BadInput, "'a' served 10, 'c' 0, and both 10"),
    "a unit is missing": (with_row(5, n=9), BadInput, "'b' served 10, 'c' 10, and both 9 of them"),
    "a pair twice": (lambda rows: [*rows, rows[3]], BadInput, "row 7: every pair may come once in a group"),
    "a pair and its reverse": (
        lambda rows: [*rows, rows[3] | {"policy": "b", "other": "a", "sum": -2}], BadInput,
        "'a' and 'b' come twice in 'x'",
    ),
    "one policy": (with_row(5, other="c"), BadInput, "row 6: a pair must be of two policies"),
    "another policy": (with_row(5, other="z"), BadInput, "no policy 'z'"),
    "another group": (with_row(5, group="z"), BadInput, "no group 'z'"),
    "another sum": (
        with_row(5, sum=1), BadInput, "must sum to the difference of their sums, 1; they sum to -1"
    ),
    "too few squares": (with_row(4, squares=2), BadInput, "cannot have the sum of squares 2"),
    "too many squares": (with_row(3, squares=8), BadInput, "cannot have the sum of squares 8"),
    "an odd number of squares": (with_row(3, squares=3), BadInput, "cannot have the sum of squares 3"),
    "half a square": (with_row(3, squares=2.5), BadInput, "cannot have the sum of squares 2.5"),
    "no squares": (with_row(5, squares=None), BadInput, "row 6: squares must be a finite number; it is None"),
    "logs in another order": (with_row(5, logs=[0.0]), BadInput, "row 6: logs are of the pair 'b', 'c'"),
    "logs of outcomes 0 and 1": (
        with_row(3, logs=[0.0]), BadInput, "logs are for outcomes other than 0 and 1"
    ),
    "an unknown key": (with_row(5, mean=0.1), BadInput, "row 6: unknown key 'mean'"),
    "half a unit": (with_row(5, n=9.5), BadInput, "row 6: n must be a whole number"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_pairs_that_cannot_be_right_are_refused_in_one_sentence_and_nothing_is_written(name: str) -> None:
    change, error, words = REFUSED[name]
    with shared() as trial:
        head = trial.head
        with pytest.raises(error, match=words) as caught:
            trial.tell_counts(1, change([dict(row) for row in (*CELLS, *PAIRS)]), close=True)
        assert trial.head == head
        assert "\n" not in str(caught.value)
        assert trial.tell_counts(1, [*CELLS, *PAIRS], close=True).closed  # the honest rows are taken


def test_bets_of_an_interval_whose_turn_has_not_come_or_with_other_sums_are_refused() -> None:
    with shared(study=bounded()) as trial:
        trial.publish_shares()
        bets = trial.bets()
        assert isinstance(bets, eh.PairIntervalBets)
        given = scores(1, 20, values=MINUTES)
        right = paired_counts(given, bets)
        with pytest.raises(Conflict, match="the bets of interval 2 are known when interval 1 is closed"):
            trial.tell_counts(2, right)
        with pytest.raises(BadInput, match="the pairs need logs of 'a' and 'b' in 'x'"):
            trial.tell_counts(1, paired_counts(given))
        wrong = [row | {"logs": [x + 1.0 for x in row["logs"]]} if "logs" in row else row for row in right]
        with pytest.raises(BadInput, match="must be the 20 sums of the bets of the interval"):
            trial.tell_counts(1, wrong)
        assert trial.tell_counts(1, right, close=True).outcomes == 60


def test_rows_of_pairs_belong_to_shared_units() -> None:
    trial = eh.Experiment.create(":memory:", problem(), eh.Procedure(interval=eh.Intervals(100)), seed=7)
    with pytest.raises(BadInput, match="row 4: a row with 'other' is about units that every policy serves"):
        trial.tell_counts(1, [*CELLS, *PAIRS])


def test_a_study_file_says_shared_units_and_reads_back() -> None:
    procedure = eh.Procedure(items="shared", interval=eh.Intervals(100))
    study = Study(problem(), procedure, Truth(means=((0.8, 0.7), (0.7, 0.7), (0.5, 0.5))))
    assert loads(dumps(study)) == study
    with pytest.raises(BadInput, match="shared items are simulated one by one; leave interval out"):
        eh.simulate(study, replications=2, seed=1)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"family": eh.Poisson()}, "outcomes must be bernoulli, binomial or bounded"),
        ({"policies": [f"p{k}" for k in range(13)]}, "at most 12 policies"),
        ({"mode": "active"}, "groups arrive by themselves"),
        ({"max_policies": 6}, "policies cannot join or leave"),
    ],
)
def test_questions_that_pairs_cannot_answer_are_refused(asked: dict[str, Any], words: str) -> None:
    given = {"policies": ["a", "b"], "groups": {"x": 1.0}, "family": eh.Bernoulli(), "mode": "proportional"}
    with pytest.raises(BadInput, match=words):
        shared(study=eh.Problem(**{**given, **asked}))
