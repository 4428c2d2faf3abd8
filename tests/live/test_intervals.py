"""An experiment in intervals: publish shares, record counts, and a log from which both are derived again."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import BadInput, Closed, Conflict, KeyReused, NotFound
from evenhand.live import events as ev
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.live.load_log import load
from evenhand.live.protocol import Protocol
from evenhand.live.snapshot import snapshot_of
from evenhand.live.transfer import transfer
from evenhand.study import dumps, loads
from evenhand.study.problem_tables import problem_to_dict
from tests.live import example_experiments
from tests.live.example_experiments import SetClock, log
from tests.live.forgeries import write_chain
from tests.live.interval_experiments import EVEN, GROUPS, POLICIES, counts, create, play, problem


def totals(trial: Experiment) -> dict[str, Any]:
    """All counts of closed intervals, as `judge` takes them."""
    n: dict[tuple[str, str], list[float]] = {}
    for event in log(trial):
        if isinstance(event, ev.Counted):
            for cell in event.cells:
                old = n.setdefault((cell.policy, cell.group), [0, 0.0])
                old[0], old[1] = old[0] + cell.n, old[1] + cell.sum
    return {
        "policy": [k for k, _ in n],
        "group": [g for _, g in n],
        "n": [int(row[0]) for row in n.values()],
        "successes": [int(row[1]) for row in n.values()],
    }


def frame(table: dict[str, Any]) -> Any:
    import polars as pl

    return pl.DataFrame(table)


# ---- the life of an experiment ----


def test_the_first_shares_are_equal_and_published_with_the_protocol() -> None:
    trial = create(salt="example-1")
    shares = trial.shares()
    assert (shares.version, shares.salt, shares.valid_from) == (1, "example-1", trial.protocol.at)
    assert [shares.share(g, k) for g in GROUPS for k in POLICIES] == pytest.approx([1 / 3] * 6, abs=2e-5)
    assert [type(event).__name__ for event in log(trial)] == ["Created", "SharesPublished"]


def test_an_experiment_stops_with_the_right_answer_and_its_log_is_derived_again(tmp_path: Path) -> None:
    address = str(tmp_path / "t.db")
    with create(address) as trial:
        done = play(trial)
        status = trial.status()
        head = str(trial.head)
        assert trial.shares().version == done  # none is published after the stop
        trial.export(tmp_path / "t.jsonl")
    assert (status.state, status.answer, status.decided) == ("decided", "a", True)
    assert 1 < done < 20
    for source in (address, str(tmp_path / "t.jsonl")):
        found = audit(source, head)
        assert found.identical, found.first_difference
        assert found.same_build
    with Experiment.open(address, write=False) as again:
        assert again.status().answer == "a"


def test_evidence_and_shares_are_those_of_judge_and_next_shares() -> None:
    trial = create(volume={"x": 600, "y": 400}, floor=0.05)
    first = trial.shares()
    for _ in range(3):
        before = trial.shares()
        trial.tell_counts(before.version, counts(before, means=EVEN), close=True)
        data, study = frame(totals(trial)), trial.protocol.study
        verdict = eh.judge(study, data, replications=0)
        closed = [event for event in log(trial) if isinstance(event, ev.IntervalClosed)][-1]
        assert closed.evidence == pytest.approx(verdict.evidence, rel=1e-12)
        assert (closed.needed, closed.samples) == (verdict.needed, verdict.samples)
        after = trial.shares()
        expected = eh.next_shares(
            study, data, before, volume={"x": 600, "y": 400}, floor=0.05, seed=7, valid_from=after.valid_from
        )
        assert after == expected
        for group in GROUPS:
            assert min(after.share(group, k) for k in POLICIES) > 0.049
    assert first.salt == trial.shares().salt


def test_outcomes_that_take_longer_than_an_interval_are_counted_later(tmp_path: Path) -> None:
    """Three intervals are open at once; the shares take their units for pending."""
    address = str(tmp_path / "t.db")
    with create(address) as trial:
        published = [trial.shares(), trial.publish_shares(), trial.publish_shares()]
        assert [shares.version for shares in published] == [1, 2, 3]
        assert published[2].share("x", "a") == pytest.approx(1 / 3, abs=2e-5)  # nothing is known yet
        trial.tell_counts(2, counts(published[1]))
        with pytest.raises(Conflict, match=r"closed in order.*the next is 1, not 2"):
            trial.close_interval(2)
        trial.tell_counts(1, counts(published[0]), close=True)
        assert trial.shares().version == 3  # interval 3 stays open
        trial.close_interval()
        fourth = trial.publish_shares()
        assert fourth.version == 4
        assert fourth.share("y", "c") < 0.2  # c misses its floor in y
        status = trial.status()
        assert status.samples == 2_000
        assert status.intervals is not None
        assert (status.intervals.closed, status.intervals.open) == (2, (3, 4))
    assert audit(address).identical


def test_a_correction_counts_instead_of_what_it_corrects(tmp_path: Path) -> None:
    address = str(tmp_path / "t.db")
    with create(address) as trial:
        told = counts(trial.shares())
        trial.tell_counts(1, told)
        right = copy.deepcopy(told)
        right["a"]["x"] = (told["a"]["x"][0], told["a"]["x"][1] - 30)
        receipt = trial.correct_counts(1, right, reason="double conversions", by="Ann")
        assert (receipt.counted, receipt.closed) == (True, False)
        assert trial.tell_counts(1, right).outcomes == 1_000
        trial.close_interval()
        cell = trial.status().cells[0]
        assert (cell.policy, cell.group, cell.n) == ("a", "x", right["a"]["x"][0])
        assert cell.mean == pytest.approx(right["a"]["x"][1] / right["a"]["x"][0])
        correction = next(event for event in log(trial) if isinstance(event, ev.CountsCorrected))
        assert (correction.reason, correction.by) == ("double conversions", "Ann")
        with pytest.raises(Conflict, match="interval 1 is closed"):
            trial.correct_counts(1, told, reason="r", by="Ann")
    assert audit(address).identical


def test_counts_after_the_end_are_kept_and_do_not_count() -> None:
    trial = create()
    first, second = trial.shares(), trial.publish_shares()
    trial.tell_counts(1, counts(first), close=True)
    trial.finish("enough")
    before = trial.status()
    receipt = trial.tell_counts(2, counts(second), close=True)
    assert (receipt.counted, receipt.closed, receipt.why) == (False, False, "closed")
    after = trial.status()
    assert after.samples == before.samples
    assert after.intervals is not None
    assert after.intervals.late == 1_000
    assert "came after the end" in after.sentence
    for call in (trial.publish_shares, trial.close_interval):
        with pytest.raises(Closed, match="closed"):
            call()


def test_the_cap_ends_an_experiment_without_a_decision() -> None:
    trial = create(procedure=eh.Procedure(max_samples=2_500))
    assert play(trial, means=EVEN) == 3
    assert trial.status().state == "exhausted"


def test_guardrails_are_counted_too() -> None:
    rail = eh.Guardrail("complaints", eh.Poisson(), eh.Caps(0.5))
    trial = create(study=problem(guardrails=[rail]), volume=4_000)
    rng = np.random.default_rng(0)
    while not trial.is_over:
        shares = trial.shares()
        rows = [
            {
                "policy": k, "group": g, "n": n, "sum": s, "complaints n": n - 3,
                "complaints": int(rng.poisson(0.9 * n if k == "a" else 0.2 * n)),
            }
            for k, groups in counts(shares, 4_000).items()
            for g, (n, s) in groups.items()
        ]  # fmt: skip
        trial.tell_counts(shares.version, rows, close=True)
    assert trial.status().answer == "b"  # a has too many complaints, c misses its floor


FAMILIES: dict[str, tuple[Any, float, Any]] = {  # family, floor, sum of n outcomes with a mean
    "gaussian-unknown": (eh.GaussianUnknown(), 0.5, lambda n, mean: n * mean + 0.1),
    "exponential": (eh.Exponential(), 0.5, lambda n, mean: n * mean + 0.1),
    "gamma": (eh.Gamma(2.0), 0.5, lambda n, mean: n * mean + 0.1),
    "binomial": (eh.Binomial(trials=5), 2.5, lambda n, mean: round(5 * n * mean)),
    "poisson": (eh.Poisson(), 0.5, lambda n, mean: round(n * mean)),
    "gaussian": (eh.Gaussian(0.5), 0.5, lambda n, mean: n * mean + 0.1),
    "bounded": (eh.Bounded(-1, 1), 0.0, lambda n, mean: n * (2 * mean - 1) + 0.1),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_counted(name: str, tmp_path: Path) -> None:
    family, floor, total = FAMILIES[name]
    asked = eh.Problem(list(POLICIES), {"x": 0.6, "y": 0.4}, family, eh.Floors(floor), mode="proportional")
    trial = create(study=asked)
    means = {"a": 0.9, "b": 0.7, "c": 0.3}
    while not trial.is_over:
        told = [
            {"policy": k, "group": g, "n": 500, "sum": total(500, mean)}
            | ({"squares": 500 * (mean**2 + 0.04)} if name == "gaussian-unknown" else {})
            for k, mean in means.items()
            for g in GROUPS
        ]
        trial.tell_counts(trial.shares().version, told, close=True)
    status = trial.status()
    assert (status.answer, status.failed) == ("a", ("c",))
    assert status.cells[0].mean == pytest.approx(total(500, 0.9) / 500)
    trial.export(tmp_path / "t.jsonl")
    assert audit(str(tmp_path / "t.jsonl")).identical


def test_guardrails_of_unknown_scale_are_counted(tmp_path: Path) -> None:
    """Of a and b, which differ in the outcome, a costs too much; c misses its floor."""
    rails = [
        eh.Guardrail("cost", eh.GaussianUnknown(), eh.Caps(5.0)),
        eh.Guardrail("wait", eh.Exponential(), eh.Caps(3.0)),
    ]
    trial = create(study=problem(guardrails=rails), volume=4_000)
    while not trial.is_over:
        shares = trial.shares()
        rows = []
        for k, groups in counts(shares, 4_000).items():
            for g, (n, s) in groups.items():
                mean, known = (6.0 if k == "a" else 4.0), n - 2
                rows.append(
                    {"policy": k, "group": g, "n": n, "sum": s, "wait": 2.0 * n, "cost": known * mean}
                )
                rows[-1] |= {"cost n": known, "cost squares": known * (mean**2 + 1.0)}
        trial.tell_counts(shares.version, rows, close=True)
    assert trial.status().answer == "b"
    trial.export(tmp_path / "t.jsonl")
    assert audit(str(tmp_path / "t.jsonl")).identical


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"n": 3, "sum": 1.5}, "gaussian-unknown outcomes need squares"),
        ({"n": 3, "sum": 1.5, "squares": 0.5}, "cannot have the sum of squares 0.5"),
        ({"n": 2, "sum": 2e6, "squares": 2e12 + 50}, "variance is lost in the rounding"),
        ({"n": 3, "sum": 1.5, "squares": 1, "cost": 1.0}, "'cost': gaussian-unknown outcomes need squares"),
        ({"n": 3, "sum": 1.5, "squares": 1, "wait": 3.0, "wait squares": 3.0}, "those of 'wait' are not"),
    ],
)
def test_sums_of_squares_that_cannot_be_are_refused(row: dict[str, Any], words: str) -> None:
    rails = [eh.Guardrail("cost", eh.GaussianUnknown(), eh.Caps(5.0))]
    rails += [eh.Guardrail("wait", eh.Exponential(), eh.Caps(3.0))]
    asked = eh.Problem(
        ["a", "b"], {"x": 0.5, "y": 0.5}, eh.GaussianUnknown(), mode="proportional", guardrails=rails
    )
    trial = create(study=asked)
    head = trial.head
    with pytest.raises(BadInput, match=words):
        trial.tell_counts(1, [{"policy": "a", "group": "x"} | row])
    assert trial.head == head


# ---- policies that join and leave ----


def test_a_policy_that_joins_or_leaves_begins_another_interval(tmp_path: Path) -> None:
    address = str(tmp_path / "t.db")
    with create(address, study=problem(max_policies=4)) as trial:
        play(trial, 2, EVEN)
        third = trial.shares()
        assert third.version == 3
        trial.add_policy("d", reason="new", by="Ann")
        joined = trial.shares()
        assert joined.version == 4
        # a policy without outcomes: equal shares for all
        assert [joined.share("x", k) for k in "abcd"] == pytest.approx([0.25] * 4, abs=2e-5)
        trial.withdraw("c", reason="harm", by="Ann")
        left = trial.shares()
        assert (left.version, left.share("x", "c"), left.share("y", "c")) == (5, 0.0, 0.0)
        # units of the intervals before are counted under their own shares, with c
        for shares in (third, joined, left):
            given = counts(shares, means=EVEN)
            assert ("c" in given) == (shares.version < 5)
            trial.tell_counts(shares.version, given, close=True)
        status = trial.status()
        assert [row.policy for row in status.policies] == ["a", "b", "d"]
        cells = {(row.policy, row.group): row.n for row in status.cells}
        assert cells["d", "x"] > 100
        assert status.intervals is not None
        assert min(status.intervals.sample_ratios.values()) > 0.001
    assert audit(address).identical


def test_policies_stay_without_max_policies() -> None:
    with pytest.raises(BadInput, match="max_policies"):
        create().add_policy("d", reason="new", by="Ann")


# ---- repeated and contradictory calls ----


def test_the_same_counts_may_be_repeated_and_others_are_refused() -> None:
    trial = create()
    told = counts(trial.shares())
    first = trial.tell_counts(1, told)
    head = trial.head
    assert trial.tell_counts(1, told) == first
    as_rows = [
        {"policy": k, "group": g, "n": n, "successes": s}
        for k, groups in reversed(told.items())
        for g, (n, s) in groups.items()
    ]
    assert trial.tell_counts(1, as_rows) == first
    fewer, other = copy.deepcopy(told), copy.deepcopy(told)
    fewer["b"]["y"] = (told["b"]["y"][0] - 1, told["b"]["y"][1] - 1)
    other["b"]["y"] = (told["b"]["y"][0], told["b"]["y"][1] - 1)
    for wrong, words in ((fewer, "counts must not shrink: interval 1"), (other, "one set of counts")):
        with pytest.raises(Conflict, match=words):
            trial.tell_counts(1, wrong)
    assert trial.head == head
    trial.close_interval(1)
    assert trial.close_interval(1).closed
    assert trial.tell_counts(1, told).closed
    head = trial.head
    with pytest.raises(Conflict, match=r"counts must not shrink.*its counts are final"):
        trial.tell_counts(1, fewer)
    assert trial.head == head


def test_a_repeated_key_gets_the_first_answer() -> None:
    trial = create()
    told = counts(trial.shares())
    first = trial.tell_counts(1, told, close=True, key="k1")
    head = trial.head
    assert trial.tell_counts(1, told, close=True, key="k1") == first
    assert trial.head == head
    second = trial.publish_shares(key="k2")
    assert trial.publish_shares(key="k2") == second
    assert trial.shares() == second
    with pytest.raises(KeyReused):
        trial.close_interval(key="k1")
    trial.tell_counts(2, counts(second), key="k3")
    closed = trial.close_interval(2, key="k4")
    assert trial.close_interval(2, key="k4") == closed
    again = trial.correct_counts  # a correction of a closed interval is refused, with a key or without
    with pytest.raises(Conflict):
        again(2, told, reason="r", by="b", key="k5")


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"a": {"x": (10, 11)}}, BadInput, "more successes than trials: 11 of 10"),
        ({"a": {"x": (10, 2.5)}}, BadInput, "sum must be a whole number"),
        ({"a": {"x": (10, -1)}}, BadInput, "cannot have the sum -1"),
        ({"a": {"x": (-1, 0)}}, BadInput, "n must be a whole number"),
        ({"a": {"x": (True, 0)}}, BadInput, "n must be a whole number"),
        ({"a": {"x": (float("nan"), 0)}}, BadInput, "finite numbers"),
        ({"a": {"x": 3}}, BadInput, r"must be \(n, sum\)"),
        ({"a": 3}, BadInput, "by policy and group"),
        ({"z": {"x": (10, 1)}}, BadInput, "have no policy 'z'"),
        ({"a": {"z": (10, 1)}}, BadInput, "no group 'z'"),
        ({"a": {"x": {"n": 3, "sum": 1, "mean": 0.5}}}, BadInput, "exactly one of sum, successes, mean"),
        ({"a": {"x": {"n": 3, "total": 1}}}, BadInput, "unknown key 'total'"),
        ([{"policy": "a", "group": "x", "n": 1, "sum": 1}] * 2, BadInput, "row 2: every cell may come once"),
        ({"a": {"x": (0, 0)}}, BadInput, "at least one outcome"),
        ([], BadInput, "at least one outcome"),
        ("counts", BadInput, "must be rows"),
        ({"a": {"x": {"n": 2, "sum": 1, "squares": 9}}}, BadInput, "cannot have the sum of squares 9"),
        ({"a": {"x": {"n": 2, "sum": 1, "logs": [0.1]}}}, BadInput, "logs are for linear bets"),
    ],
)
def test_bad_counts_are_refused_in_one_sentence_and_nothing_is_written(
    given: Any, error: type[Exception], words: str
) -> None:
    trial = create()
    head = trial.head
    with pytest.raises(error, match=words):
        trial.tell_counts(1, given)
    assert trial.head == head


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda trial: trial.tell_counts(2, {"a": {"x": (1, 1)}}), NotFound, "interval 2 has not begun"),
        (lambda trial: trial.tell_counts(0, {}), BadInput, "whole number from 1"),
        (lambda trial: trial.tell_counts("1", {}), BadInput, "whole number from 1"),
        (lambda trial: trial.close_interval(), BadInput, "interval 1 has no counts yet"),
        (lambda trial: trial.close_interval(3), NotFound, "interval 3 has not begun"),
        (lambda trial: trial.correct_counts(1, {}, reason="r", by="b"), BadInput, "no counts to correct"),
        (lambda trial: trial.correct_counts(1, {}, reason="", by="b"), BadInput, "reason must be"),
        (lambda trial: trial.publish_shares(valid_from="2001-01-01T00:00:00Z"), BadInput, "older than those"),
        (lambda trial: trial.publish_shares(valid_from="2033-01-01T00:00:00"), BadInput, "with its zone"),
        (lambda trial: trial.publish_shares(valid_from="soon"), BadInput, "must be a time"),
        (lambda trial: trial.bets(), BadInput, "evidence = 'linear-bets'"),
        (lambda trial: trial.ask(), BadInput, "runs in intervals and has no tickets"),
        (lambda trial: trial.import_data([("a", "x", 1)]), BadInput, "runs in intervals"),
        (lambda trial: trial.pause("why"), BadInput, "cannot be paused"),
    ],
)  # fmt: skip
def test_calls_that_an_experiment_in_intervals_refuses(call: Any, error: type[Exception], words: str) -> None:
    trial = create()
    head = trial.head
    with pytest.raises(error, match=words):
        call(trial)
    assert trial.head == head


@pytest.mark.parametrize(
    "call",
    [
        lambda trial: trial.tell_counts(1, {"a": {"x": (1, 1)}}),
        lambda trial: trial.close_interval(),
        lambda trial: trial.publish_shares(),
        lambda trial: trial.shares(),
        lambda trial: trial.bets(),
        lambda trial: trial.correct_counts(1, {"a": {"x": (1, 1)}}, reason="r", by="b"),
    ],
)
def test_an_experiment_with_tickets_refuses_shares_and_counts(call: Any) -> None:
    trial = example_experiments.create()
    with pytest.raises(BadInput, match="has tickets: ask for them"):
        call(trial)
    assert trial.head.seq == 1


def test_a_closing_whose_time_cannot_be_used_writes_nothing() -> None:
    trial = create()
    trial.tell_counts(1, counts(trial.shares()))
    head = trial.head
    with pytest.raises(BadInput, match="older than those of the log"):
        trial.close_interval(valid_from="2001-01-01T00:00:00Z")
    assert trial.head == head
    trial.close_interval(valid_from="2033-05-18T12:00:00+02:00")
    assert trial.shares().valid_from == "2033-05-18T10:00:00.000000Z"


# ---- the study ----


def test_a_study_file_describes_intervals_and_reads_back() -> None:
    settings = eh.Intervals({"x": 600, "y": 400}, 0.05, "example-1", "6h", "7d")
    study = eh.Study(problem(), eh.Procedure(interval=settings))
    assert loads(dumps(study)) == study
    assert (settings.length_seconds, settings.delay_seconds, settings.lag) == (21_600, 604_800, 28)
    assert "interval" not in eh.Procedure().to_dict()


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({}, "interval needs volume"),
        ({"volume": 0}, "volume must be"),
        ({"volume": {"x": 1}}, "for the groups 'x', 'y'"),
        ({"volume": True}, "volume must be"),
        ({"volume": 10, "floor": 0.4}, "from 0 to 1/3"),
        ({"volume": 10, "floor": -1}, "from 0 to 1/2"),
        ({"volume": 10, "salt": "short"}, "salt must be"),
        ({"volume": 10, "length": "soon"}, "length must be a number of s, m, h, d or w"),
        ({"volume": 10, "length": "0m"}, "must be more than 0"),
        ({"volume": 10, "delay": 7}, "delay must be a number"),
        ({"volume": 10, "lenght": "1d"}, "did you mean 'length'"),
        (True, "must be a table"),
    ],
)
def test_bad_settings_are_refused(table: Any, words: str) -> None:
    study = {"problem": problem_to_dict(problem()), "procedure": {"interval": table}}
    with pytest.raises(BadInput, match=words):
        Experiment.create(":memory:", eh.Study.from_dict(study), seed=1)


@pytest.mark.parametrize(
    ("family", "mode", "words"),
    [
        (eh.Bernoulli(), "active", "write mode = 'proportional'"),
        (eh.Bernoulli(), "agnostic", "write mode = 'proportional'"),
    ],
)
def test_questions_that_counts_cannot_answer_are_refused(family: Any, mode: str, words: str) -> None:
    asked = eh.Problem(["a", "b"], {"x": 1.0}, family, mode=mode)
    with pytest.raises(BadInput, match=words):
        Experiment.create(":memory:", asked, eh.Procedure(interval=eh.Intervals(100)), seed=1)


def test_the_salt_is_fixed_at_creation_and_depends_on_the_seed() -> None:
    one, two = (
        Experiment.create(":memory:", problem(), eh.Procedure(interval=eh.Intervals(100)), seed=seed)
        for seed in (1, 2)
    )
    assert one.shares().salt != two.shares().salt
    assert len(one.shares().salt) == 16


# ---- the log ----


@pytest.mark.parametrize("every", [3, 10])
def test_a_fold_opened_at_a_snapshot_equals_the_one_that_never_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    monkeypatch.setattr(Protocol, "snapshot_every", every)
    address = str(tmp_path / "t.db")
    with create(address, study=problem(max_policies=4)) as trial:
        play(trial, 3, EVEN)
        trial.add_policy("d", reason="new", by="Ann")
        trial.publish_shares()
        trial.tell_counts(4, {k: dict.fromkeys(GROUPS, (100, 70)) for k in "abc"})
        with trial._writer.reading() as fold:
            opened = load(trial._journal, "main")
            assert opened.snapshot > 0
            assert snapshot_of(opened) == snapshot_of(fold)
            assert vars(opened.intervals) == vars(fold.intervals)
    with Experiment.open(address, clock=SetClock()) as again:
        again.close_interval()
    assert audit(address).identical


def changed(path: str, value: Any) -> Any:
    """Return a change of one field, given as "cells.0.n"."""

    def change(event: dict[str, Any]) -> None:
        *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        place: Any = event
        for part in way:
            place = place[part]
        place[last] = value(place[last]) if callable(value) else value

    return change


FORGERIES = [
    ("counted", changed("cells.0.n", lambda n: n + 1)),
    ("counted", changed("cells.0.sum", lambda s: s - 1.0)),
    ("counted", changed("cells.1.policy", "c")),
    ("counted", changed("interval", lambda n: n + 1)),
    ("counted", changed("counts", "0" * 16)),
    ("counted", changed("late", "stopped")),
    ("counts_corrected", changed("cells.0.sum", lambda s: s - 1.0)),
    ("counts_corrected", changed("interval", lambda n: n + 1)),
    ("shares_published", changed("version", lambda n: n + 1)),
    ("shares_published", changed("state", "0" * 16)),
    ("shares_published", changed("hash_salt", "another-salt")),
    ("shares_published", changed("valid_from", "2001-01-01T00:00:00.000000Z")),
    ("shares_published", changed("ranges.x.0.1", lambda end: end - 1)),
    ("interval_closed", changed("interval", lambda n: n + 1)),
    ("interval_closed", changed("samples", lambda n: n + 1)),
    ("interval_closed", changed("outcomes", lambda n: n + 1)),
    ("interval_closed", changed("sums", "0" * 16)),
    ("interval_closed", changed("leader", "b")),
    ("interval_closed", changed("weakest", lambda n: n + 1)),
    ("interval_closed", changed("evidence", lambda x: x + 1e-9)),
    ("interval_closed", changed("needed", lambda x: x - 1e-9)),
    ("stopped", changed("evidence", lambda x: x + 1e-9)),
    ("stopped", changed("answer", "b")),
]


@pytest.fixture(scope="module")
def honest() -> list[dict[str, Any]]:
    trial = create()
    told = counts(trial.shares())
    trial.tell_counts(1, told)
    told["a"]["x"] = (told["a"]["x"][0], told["a"]["x"][1] - 1)
    trial.correct_counts(1, told, reason="typo", by="Ann")
    trial.close_interval()
    play(trial)
    return [json.loads(row.record.body) for row in trial._journal.read("main")]


@pytest.mark.parametrize(("kind", "change"), FORGERIES)
def test_of_a_log_forged_to_fit_the_audit_names_the_changed_event(
    kind: str, change: Any, honest: list[dict[str, Any]], tmp_path: Path
) -> None:
    for place in [n for n, event in enumerate(honest) if event["kind"] == kind][:2]:
        events = copy.deepcopy(honest)
        change(events[place])
        found = audit(str(write_chain(tmp_path / "forged.jsonl", events)))
        assert found.first_different_event == place + 1, (events[place], found)


def test_an_event_that_is_left_out_is_found(honest: list[dict[str, Any]], tmp_path: Path) -> None:
    assert audit(str(write_chain(tmp_path / "honest.jsonl", honest))).identical
    for place in range(1, len(honest)):
        found = audit(str(write_chain(tmp_path / "cut.jsonl", honest[:place] + honest[place + 1 :])))
        assert not found.identical, honest[place]


def test_shares_of_another_build_may_differ_by_its_last_digits(
    honest: list[dict[str, Any]], tmp_path: Path
) -> None:
    """A rounding error may change a few virtual picks; a larger difference is none of that."""
    second = [n for n, event in enumerate(honest) if event["kind"] == "shares_published"][1]
    for points, identical in ((0, True), (500, True), (3_000, False)):
        events = copy.deepcopy(honest)
        events[0]["versions"]["numpy"] = "1.0.0"  # another build wrote the log
        ranges = events[second]["ranges"]["x"]
        ranges[0][1] -= points
        found = audit(str(write_chain(tmp_path / "other.jsonl", events)))
        assert found.identical == identical, found
        assert not found.same_build
        assert (found.close_decisions > 0) == (points > 0 and identical)


def test_a_log_moves_to_another_storage_with_the_same_head(tmp_path: Path) -> None:
    trial = create()
    play(trial)
    trial.export(tmp_path / "t.jsonl")
    moved = transfer(tmp_path / "t.jsonl", str(tmp_path / "moved.db"))
    assert moved.head == str(trial.head)
    assert audit(str(tmp_path / "moved.db"), moved.head).identical
    with Experiment.open(str(tmp_path / "moved.db")) as there:
        told = next(event for event in log(trial) if isinstance(event, ev.Counted))
        rows = [{"policy": c.policy, "group": c.group, "n": c.n, "sum": c.sum} for c in told.cells]
        assert there.tell_counts(1, rows).closed  # found by its index


# ---- health ----


def test_lost_units_of_one_policy_are_seen_and_honest_ones_are_not() -> None:
    honest, lossy = create(volume=2_000), create(volume=2_000)
    for trial, kept in ((honest, 1.0), (lossy, 0.85)):
        for _ in range(8):
            shares = trial.shares()
            told = counts(shares, 2_000, EVEN)
            told["b"]["x"] = tuple(int(kept * n) for n in told["b"]["x"])  # type: ignore[assignment]
            trial.tell_counts(shares.version, told, close=True)
    well, ill = honest.status(), lossy.status()
    assert well.health.well, well.health
    assert well.intervals is not None
    assert min(well.intervals.sample_ratios.values()) > 0.05
    assert ill.intervals is not None
    assert ill.intervals.sample_ratios["x"] < 0.001 < ill.intervals.sample_ratios["y"]
    assert not ill.health.well
    assert ill.health.sample_ratio_p is not None
    assert ill.health.sample_ratio_p < 0.001


def test_a_volume_far_from_the_expected_and_overdue_counts_need_attention() -> None:
    clock = SetClock()
    trial = create(volume=100, length="1h", delay="1h", clock=clock)
    trial.tell_counts(1, counts(trial.shares(), 1_000, EVEN), close=True)
    status = trial.status()
    assert status.health.volume_ratio == 10.0
    assert not status.health.well
    clock.wall += 3 * 3_600 + 60
    assert trial.status().health.overdue == 2
    from evenhand.live.status_sentences import health_sentence

    words = health_sentence(trial.status().health)
    assert "interval 2 are overdue" in words
    assert "10 times the expected units" in words
    assert eh.Status.from_dict(trial.status().to_dict()).intervals == trial.status().intervals
