"""Live experiments with linear bets: they replay their simulation, survive reopening, and can be audited."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import BadInput
from evenhand.live import events as ev
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.live.journal import open_journal
from evenhand.live.load_log import load
from evenhand.live.status import Status
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.outcome_order import LINEAR, ORDER_FREE
from evenhand.procedure.state import new_state, new_work
from evenhand.simulation.simulate import follow
from evenhand.study import Study, Truth
from evenhand.verdicts.counts import record_all
from tests.live.example_experiments import SetClock, check_copies, log, ticket

PROBLEM = eh.Problem(["a", "b", "c"], {"x": 0.6, "y": 0.4}, eh.Bernoulli(), eh.Floors(0.3))
PROCEDURE = eh.Procedure(delta=0.1, evidence="linear-bets", initial_order="random", max_samples=5_000)
STUDY = Study(PROBLEM, PROCEDURE, Truth(means=((0.85, 0.8), (0.5, 0.45), (0.2, 0.15))))
SEED = 3


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenhand.live.protocol.Protocol.snapshot_every", property(lambda _: 25))


def played(address: str, most: int = 10**9) -> Experiment:
    """A live experiment that was told what happened in the simulation with the same seed."""
    rows, trace = follow(STUDY, SEED, 0, PROCEDURE.max_samples)
    trial = Experiment.create(address, STUDY, seed=SEED, clock=SetClock())
    tell_on(trial, trace, 0, min(int(rows.samples[0]), most))
    return trial


def tell_on(trial: Experiment, trace, begin: int, end: int) -> None:
    for step in range(begin, end):
        ask = trial.ask()
        assert ask is not None
        wanted = PROBLEM.policies[trace.policy[step]], PROBLEM.group_names[trace.group[step]]
        assert (ask.policy, ask.group) == wanted, step
        trial.tell(ask, float(trace.outcome[step]))


def test_a_live_experiment_replays_the_simulation_and_is_audited(tmp_path: Path) -> None:
    address, export = str(tmp_path / "trial.db"), tmp_path / "log.jsonl"
    rows, trace = follow(STUDY, SEED, 0, PROCEDURE.max_samples)
    played(address, most=30).close()
    with Experiment.open(address, clock=SetClock()) as trial:  # from a snapshot
        assert any(isinstance(event, ev.Snapshot) for event in log(trial))
        tell_on(trial, trace, 30, int(rows.samples[0]))
        status = trial.status()
        assert (status.samples, status.decided, status.answer) == (rows.samples[0], True, "a")
        assert status.evidence == rows.evidence[0]
        assert status.method == LINEAR
        assert "compared by linear bets" in status.sentence
        assert Status.from_dict(status.to_dict()).to_dict() == status.to_dict()
        assert str(trial.export(export)) == status.head
    check_copies(address, export, status)


def test_a_correction_folds_all_outcomes_again_in_their_order(tmp_path: Path) -> None:
    address = str(tmp_path / "trial.db")
    with played(address, most=40) as trial:
        told = [event for event in log(trial) if isinstance(event, ev.Told)]
        asked = {event.ticket: event for event in log(trial) if isinstance(event, ev.Asked)}
        wrong = told[5]
        trial.amend(ticket(trial, wrong.ticket), 1.0 - wrong.outcome, reason="mistyped", by="the clerk")
        rest = trial.ask()
        assert rest is not None
        trial.tell(rest, 1.0)
        state = trial.present().state
    outcomes = [1.0 - event.outcome if event is wrong else event.outcome for event in told] + [1.0]
    places = [asked[event.ticket] for event in told]
    policies = [PROBLEM.policies.index(place.policy) for place in places]
    groups = [PROBLEM.group_names.index(place.group) for place in places]
    policies.append(PROBLEM.policies.index(rest.policy))
    groups.append(PROBLEM.group_names.index(rest.group))
    spec = compile_spec(PROBLEM, PROCEDURE)
    expected = new_state(spec)
    record_all(
        spec, expected, new_work(spec), np.array(policies), np.array(groups), np.array(outcomes),
        np.zeros((len(outcomes), 0)),
    )  # fmt: skip
    for name in ("n", "s", "ss", "bets"):
        assert np.array_equal(getattr(state, name), getattr(expected, name)), name
    again = load(open_journal(address, write=False), "main").replay.state
    for one, other in zip(state, again, strict=True):
        assert np.array_equal(one, other, equal_nan=True)
    assert audit(address).identical


def test_a_changed_outcome_is_found_by_the_audit_of_an_export(tmp_path: Path) -> None:
    export = tmp_path / "log.jsonl"
    with played(str(tmp_path / "trial.db"), most=20) as trial:
        trial.export(export)
    text = export.read_text()
    export.write_text(
        text.replace('\\"outcome\\":1.0', '\\"outcome\\":0.0', 1).replace('"outcome":1.0', '"outcome":0.0', 1)
    )
    assert export.read_text() != text
    assert not audit(str(export)).identical


def test_sorted_rows_are_not_imported(tmp_path: Path) -> None:
    rows = [(policy, group, x) for policy in "abc" for group in "xy" for x in [0.0] * 40 + [1.0] * 40]
    with Experiment.create(str(tmp_path / "t.db"), STUDY, seed=1, clock=SetClock()) as trial:
        with pytest.raises(BadInput, match="come sorted by size"):
            trial.import_data(rows)
        mixed = [(policy, group, float(t % 3 == 0)) for t in range(40) for policy in "abc" for group in "xy"]
        trial.import_data(mixed)
        assert trial.status().samples == 240
    assert audit(str(tmp_path / "t.db")).identical


def test_the_study_of_a_journal_decides_which_evidence_is_used(tmp_path: Path) -> None:
    plain = replace(STUDY, procedure=replace(PROCEDURE, evidence="mixture"))
    for name, study, method in (("a.db", STUDY, LINEAR), ("b.db", plain, ORDER_FREE)):
        address = str(tmp_path / name)
        Experiment.create(address, study, seed=1).close()
        with Experiment.open(address, write=False) as trial:
            assert trial.status().method == method
            assert ("linear-bets" in str(trial.present().protocol.study.to_dict())) == (method == LINEAR)


def test_judged_rows_do_not_use_the_order() -> None:
    rng = np.random.default_rng(1)
    data = {"a": {"x": rng.random(60) < 0.9, "y": rng.random(60) < 0.8}}
    data |= {k: {g: rng.random(60) < 0.4 for g in "xy"} for k in "bc"}
    found = eh.judge(STUDY, data, replications=0)
    same = eh.judge(PROBLEM, data, procedure=replace(PROCEDURE, evidence="mixture"), replications=0)
    assert (found.method, found.evidence) == (ORDER_FREE, same.evidence)


def test_an_evaluation_refuses_linear_bets() -> None:
    items = [{"group": "xy"[number % 2]} for number in range(40)]
    with pytest.raises(BadInput, match="does not support evidence 'linear-bets'"):
        eh.evaluate(
            {name: lambda item: 1.0 for name in "abc"}, items, lambda output, item: output, at_least=0.3,
            procedure=PROCEDURE,
        )  # fmt: skip


def test_gaussian_units_that_arrive_are_compared_by_linear_bets_and_audited(tmp_path: Path) -> None:
    address = str(tmp_path / "t.db")
    asked = eh.Problem(
        ["a", "b"], {"x": 0.8, "y": 0.2}, eh.Gaussian([[1.0, 2.0], [0.5, 1.0]]), eh.Floors(-3.0),
        mode="proportional",
    )  # fmt: skip
    rng = np.random.default_rng(5)
    with Experiment.create(address, asked, eh.Procedure(delta=0.1), seed=2, clock=SetClock()) as trial:
        for number in range(60):
            ask = trial.ask(group="xxyx"[number % 4])
            if ask is None:
                break
            last = ask
            trial.tell(ask, 100.0 + 0.2 * (ask.policy == "a") + rng.standard_normal())
        trial.amend(last, 100.25, reason="mistyped", by="the clerk")
        status, study = trial.status(), log(trial)[0].study
        state = trial.present().state
    assert 'evidence = "linear-bets"' in study
    assert (status.method, status.samples) == (LINEAR, 60)
    again = load(open_journal(address, write=False), "main").replay.state
    for one, other in zip(state, again, strict=True):
        assert np.array_equal(one, other, equal_nan=True)
    assert audit(address).identical
