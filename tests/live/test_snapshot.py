"""Opening a long log begins at its latest snapshot and ends where the log ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import evenhand as eh
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.live.journal import open_journal
from evenhand.live.load_log import load, load_protocol
from evenhand.live.projection import Fold
from evenhand.live.protocol import Protocol
from evenhand.live.snapshot import restore, snapshot_of
from tests.live.example_experiments import SetClock, create, endless, even, play


def same(a: Fold, b: Fold) -> None:
    assert a.head == b.head
    for name in a.replay.state._fields:
        assert np.array_equal(getattr(a.replay.state, name), getattr(b.replay.state, name), equal_nan=True), (
            name
        )
    assert snapshot_of(a) == snapshot_of(b)
    assert a.snapshot == b.snapshot
    assert a.open_tickets.held_by("w") == b.open_tickets.held_by("w")


@pytest.mark.parametrize("every", [7, 50])
def test_a_fold_opened_at_a_snapshot_equals_the_one_that_never_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    monkeypatch.setattr(Protocol, "snapshot_every", every)
    address = str(tmp_path / "t.db")
    with create(address, study=endless(), lease=100) as trial:
        play(trial, 40, even)
        trial.ask(3, worker="w")
        trial.import_data([("a", "x", 1.0)])
        with trial._writer.reading() as fold:
            opened = load(trial._journal, "main")
            assert opened.snapshot > 0
            same(fold, opened)


def test_decisions_after_opening_are_those_of_the_run_that_went_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Protocol, "snapshot_every", 9)
    straight = create(study=endless())
    asked = [(ask.policy, ask.group) for ask in play(straight, 60, even)]
    address = str(tmp_path / "t.db")
    create(address, study=endless()).close()
    again = []
    for _ in range(12):
        with Experiment.open(address, clock=SetClock()) as trial:
            again += [(ask.policy, ask.group) for ask in play(trial, 5, even)]
    assert again == asked
    assert audit(address).identical


def test_a_budget_whose_need_is_infinite_survives_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Protocol, "snapshot_every", 20)
    journal = open_journal(":memory:", create=True)
    trial = create(journal, procedure=eh.Procedure(initial=1, stopping=eh.Budget(100)))  # type: ignore[arg-type]
    play(trial, 40)
    same(load(journal, "main"), trial._writer._fold)  # type: ignore[arg-type]
    assert trial.status().needed is None


def test_a_snapshot_reads_back_after_the_stop_too(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = create()
    play(trial)
    with trial._writer.reading() as fold:
        from evenhand.live.events import Snapshot

        event = Snapshot(at=fold.latest, fold=snapshot_of(fold))
        again = restore(load_protocol(trial._journal, "main"), fold.head, event)
        assert again.stop == fold.stop
        assert again.replay.has_stopped


def test_what_is_kept_in_memory_does_not_grow_with_the_log() -> None:
    trial = create(study=endless())
    play(trial, 30, even)
    with trial._writer.reading() as fold:
        short = _size(fold)
    play(trial, 300, even)
    with trial._writer.reading() as fold:
        assert _size(fold) <= 1.3 * short  # eleven times the events, a few more digits


def _size(fold: Fold) -> int:
    return len(str(snapshot_of(fold)))
