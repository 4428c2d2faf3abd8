"""Live experiments of every kind of question: they replay their simulation and can be audited."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import evenhand as eh
from evenhand.live import events as ev
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.live.status import Status
from evenhand.procedure.classification import settled_by
from evenhand.procedure.estimates import refresh
from evenhand.procedure.state import new_work
from evenhand.simulation.simulate import follow
from tests.live.example_experiments import SetClock, check_copies, log
from tests.wider_studies import STUDIES


def played(kind: str, address: str, seed: int = 3, most: int = 10**9) -> Experiment:
    """A live experiment that was told what happened in the simulation with the same seed."""
    study = STUDIES[kind]
    policies, groups = study.problem.policies, study.problem.group_names
    rows, trace = follow(study, seed, 0, study.procedure.max_samples)
    trial = Experiment.create(address, study, seed=seed, clock=SetClock())
    for step in range(min(int(rows.samples[0]), most)):
        ask = trial.ask()
        assert ask is not None
        assert (ask.policy, ask.group) == (policies[trace.policy[step]], groups[trace.group[step]]), step
        trial.tell(ask, float(trace.outcome[step]))
    if most >= rows.samples[0]:
        status, answer = trial.status(), int(rows.answer[0])
        assert (status.samples, status.decided) == (rows.samples[0], bool(rows.stopped[0]))
        assert status.evidence == rows.evidence[0]
        if study.problem.goal == "screen":
            stop = next(event for event in log(trial) if isinstance(event, ev.Stopped))
            found = np.isin(policies, stop.allowed or [])
            assert found.tolist() == [bool(flag) for flag in rows.allowed]
        elif status.decided:
            assert status.answer == (None if answer < 0 else policies[answer])
    return trial


@pytest.mark.parametrize("kind", STUDIES)
def test_a_live_experiment_of_every_kind_replays_the_simulation_and_is_audited(
    kind: str, tmp_path: Path
) -> None:
    address, export = str(tmp_path / "trial.db"), tmp_path / "log.jsonl"
    with played(kind, address) as trial:
        status = trial.status()
        assert status.decided
        assert Status.from_dict(status.to_dict()).to_dict() == status.to_dict()
        assert {*status.allowed, *status.failed, *status.open} == set(STUDIES[kind].problem.policies)
        assert str(trial.export(export)) == status.head
    check_copies(address, export, status)


@pytest.mark.parametrize("kind", ["relative", "indifference", "screen"])
def test_a_reopened_experiment_continues_as_if_it_was_never_closed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenhand.live.protocol.Protocol.snapshot_every", property(lambda _: 20))
    address = str(tmp_path / "trial.db")
    played(kind, address, most=40).close()
    study = STUDIES[kind]
    rows, trace = follow(study, 3, 0, study.procedure.max_samples)
    with Experiment.open(address, clock=SetClock()) as trial:
        assert any(isinstance(event, ev.Snapshot) for event in log(trial))
        for step in range(40, int(rows.samples[0])):
            ask = trial.ask()
            assert ask is not None
            assert ask.policy == study.problem.policies[trace.policy[step]]
            trial.tell(ask, float(trace.outcome[step]))
        assert trial.status().decided == bool(rows.stopped[0])
    assert audit(address).identical


def test_the_protocol_records_the_question() -> None:
    for kind, words in {
        "indifference": ("indifference = 0.2", "tolerance = 0.05"),
        "relative": ('relative_to = "a"', "margin = 0.1"),
        "screen": ('goal = "screen"',),
        "costs": ("costs = ",),
    }.items():
        trial = Experiment.create(":memory:", STUDIES[kind], seed=1, clock=SetClock())
        created = log(trial)[0]
        assert isinstance(created, ev.Created)
        for word in words:
            assert word in created.study, (kind, created.study)


def test_sentences_say_what_is_certified() -> None:
    said = {kind: played(kind, ":memory:").status() for kind in STUDIES}
    assert (
        "it is within 0.2 of the best overall mean of all that meet the requirement"
        in said["indifference"].sentence
    )
    assert said["screen"].sentence.startswith("2 of 3 policies are allowed (a and b): certified at risk 10%")
    assert (said["screen"].allowed, said["screen"].failed) == (("a", "b"), ("c",))
    assert said["screen one"].sentence.startswith("1 of 1 policies is allowed (model): certified at risk 10%")
    assert said["screen"].answer is None
    assert said["screen"].leader is None
    cost = sum({"a": 1.0, "b": 2.5, "c": 4.0}[cell.policy] * cell.n for cell in said["costs"].cells)
    assert said["costs"].spent == pytest.approx(cost)
    assert f"The samples have cost {cost:,.6g} so far." in said["costs"].sentence
    assert said["relative"].spent is None


def test_relative_floors_are_named_with_their_control() -> None:
    status = played("relative", ":memory:", most=120).status()
    assert status.leader is not None
    assert "at most 0.1 below a" in status.sentence
    cell = next(cell for cell in status.cells if cell.policy == "c" and cell.group == "y")
    assert cell.floor is None
    assert cell.relative_floor is not None
    assert (cell.relative_floor.control, cell.relative_floor.margin) == ("a", 0.1)
    control = next(one for one in status.cells if one.policy == "a" and one.group == "y")
    assert cell.relative_floor.value == pytest.approx(control.mean - 0.1)
    assert control.verdict == "met"
    ended = played("relative", ":memory:").status()
    verdicts = {(one.policy, one.group): one.verdict for one in ended.cells}
    assert (verdicts["b", "x"], verdicts["b", "y"]) == ("met", "met")


@pytest.mark.parametrize("kind", ["relative", "screen"])
def test_classes_are_those_of_the_evidence(kind: str) -> None:
    """A policy is allowed or failed exactly when the evidence of its side reaches K / delta."""
    trial = played(kind, ":memory:", most=150)
    view, status = trial.present(), trial.status()
    work = new_work(view.protocol.spec)
    refresh(view.protocol.spec, view.state, work, False)
    for k, name in enumerate(view.protocol.problem.policies):
        value, needed = settled_by(view.protocol.spec, view.state, work, k)
        if value >= needed:
            assert name in (status.allowed if work.margin[k] >= 0.0 else status.failed)
        else:
            assert name in status.open


def test_a_rule_that_only_follows_the_best_cannot_screen() -> None:
    study = STUDIES["screen"]
    with pytest.raises(eh.BadInput, match='goal = "screen" is sampled by ts-ids, uniform, oracle'):
        Experiment.create(":memory:", study.problem, eh.Procedure(sampling="ids"), seed=1)
