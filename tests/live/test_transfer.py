"""Fault 48: an export moved between storages keeps its head, and the experiment continues there."""

from __future__ import annotations

from pathlib import Path

import pytest

from evenhand.cli.main import main
from evenhand.errors import BadInput, IntegrityFailed
from evenhand.live import fault_points
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.live.export import write_export
from evenhand.live.journal import open_journal
from evenhand.live.protocol import Protocol
from evenhand.live.transfer import transfer
from tests.live.example_experiments import SetClock, create, endless, even, play
from tests.live.test_journals_of_0_1 import KEPT


def exported(address: str, path: Path, name: str = "main") -> Path:
    journal = open_journal(address, write=False)
    with path.open("wb") as file:
        write_export(journal, name, file)
    journal.close()
    return path


def test_an_export_moved_from_sqlite_to_postgresql_and_back_keeps_its_head(
    whole: Path, tmp_path: Path, postgres_url: str
) -> None:
    """Every byte is the same on the way, and each storage's own journal is audited."""
    first = exported(str(whole), tmp_path / "first.jsonl")
    there = transfer(first, postgres_url)
    found = audit(postgres_url, head=there.head)
    assert found.identical, found.first_difference
    second = exported(postgres_url, tmp_path / "second.jsonl")
    back = transfer(second, str(tmp_path / "back.db"))
    assert there == back
    assert audit(str(tmp_path / "back.db"), head=there.head).identical
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes() == exported(str(tmp_path / "back.db"), tmp_path / "third.jsonl").read_bytes()
    assert there.head == audit(str(whole)).head
    print(f"fault 48: {there.events} events to PostgreSQL and back, the same head and the same bytes")


@pytest.mark.parametrize("kept", KEPT, ids=lambda path: path.stem)
def test_exports_of_earlier_versions_can_be_transferred(kept: Path, tmp_path: Path) -> None:
    found = transfer(kept.with_suffix(".jsonl"), str(tmp_path / "t.db"))
    assert audit(str(tmp_path / "t.db"), head=found.head).identical
    Experiment.open(str(tmp_path / "t.db")).close()


@pytest.mark.parametrize("to_postgres", [False, True])
def test_the_experiment_continues_there_as_it_would_have_here(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, to_postgres: bool
) -> None:
    """Tickets that are out, keys, leases and the rule's memory arrive too."""
    monkeypatch.setattr(Protocol, "snapshot_every", 25)
    here = str(tmp_path / "here.db")
    there = request.getfixturevalue("postgres_url") if to_postgres else str(tmp_path / "there.db")
    with create(here, study=endless(), lease=600) as trial:
        play(trial, 40, even)
        out = trial.ask(2, key="k", worker="w")
        told = trial.status().samples
    transfer(exported(here, tmp_path / "e.jsonl"), there)
    asked = []
    for address in (here, there):
        with Experiment.open(address, clock=SetClock(1_700_000_100.0)) as trial:
            assert trial.ask(2, key="k", worker="w") == out
            trial.tell_all([(ask, even(ask), None) for ask in out])
            asked.append([(ask.ticket, ask.policy, ask.group) for ask in play(trial, 30, even)])
            assert trial.status().samples == told + 32
        assert audit(address).identical
    assert asked[0] == asked[1]


def test_a_journal_takes_in_several_experiments_and_each_once(tmp_path: Path) -> None:
    target = str(tmp_path / "target.db")
    for name in ("one", "two"):
        with create(str(tmp_path / f"{name}.db"), name=name) as trial:
            play(trial, 5)
        transfer(exported(str(tmp_path / f"{name}.db"), tmp_path / f"{name}.jsonl", name), target)
    assert transfer(tmp_path / "one.jsonl", target).experiment == "one"  # the same again is no harm
    with Experiment.open(target, "one") as trial:
        play(trial, 1)
    with pytest.raises(BadInput, match="another experiment 'one'"):
        transfer(tmp_path / "one.jsonl", target)
    for name in ("one", "two"):
        assert audit(target, experiment=name).identical


def test_what_is_damaged_is_not_transferred_and_nothing_is_made(whole: Path, tmp_path: Path) -> None:
    path, target = exported(str(whole), tmp_path / "e.jsonl"), tmp_path / "t.db"
    path.write_bytes(path.read_bytes().replace(b'"outcome":1.0', b'"outcome":0.0', 1))
    with pytest.raises(IntegrityFailed, match="event 2 was changed"):
        transfer(path, str(target))
    with pytest.raises(BadInput, match="is a journal"):
        transfer(whole, str(target))
    assert not target.exists()


def test_a_transfer_that_fails_halfway_leaves_nothing(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, target = exported(str(whole), tmp_path / "e.jsonl"), str(tmp_path / "t.db")

    def fail(place: str) -> None:
        if place == "after write":
            raise OSError("the disk went away")

    monkeypatch.setattr(fault_points, "hook", fail)
    with pytest.raises(OSError, match="went away"):
        transfer(path, target)
    monkeypatch.setattr(fault_points, "hook", None)
    journal = open_journal(target, write=False)
    assert journal.experiments() == []
    journal.close()
    assert transfer(path, target).head == audit(target).head


def test_the_command_says_what_is_where(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, target = exported(str(whole), tmp_path / "e.jsonl"), str(tmp_path / "t.db")
    assert main(["transfer", str(path), target]) == 0
    assert f"head {audit(target).head}" in capsys.readouterr().out
    assert main(["transfer", str(path), target, "--json"]) == 0
    assert f'"head": "{audit(target).head}"' in capsys.readouterr().out
    assert main(["transfer", str(tmp_path / "none.jsonl"), target]) == 2
    assert main(["transfer", str(path), ":memory:"]) == 2
    path.write_bytes(path.read_bytes()[:-1])
    assert main(["transfer", str(path), str(tmp_path / "u.db")]) == 4
