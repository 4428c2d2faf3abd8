"""Fault 39: events that were written and are not there. Readers say so, as writers do."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from evenhand.cli.main import main
from evenhand.errors import IntegrityFailed
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.live.journal import open_journal
from tests.faults.processes import Process, busy
from tests.live.example_experiments import create, endless, even, play

Say = pytest.CaptureFixture[str]


def refused(journal: Path, words: str, say: Say) -> None:
    """Every command that reads says what is missing, and ends with code 4."""
    export = journal.with_name("export.jsonl")
    for command in (
        ["status", str(journal)], ["export", str(journal), "-o", str(export)], ["audit", str(journal)],
        ["report", str(journal), "-o", str(journal.with_name("page.html"))], ["ask", str(journal)],
    ):  # fmt: skip
        say.readouterr()
        assert main(command) == 4, command
        said = "".join(say.readouterr())
        assert words in said, said
        assert "Traceback" not in said
    assert not export.exists()
    assert main(["audit", str(journal), "--json"]) == 4
    assert json.loads(say.readouterr().out)["identical"] is False


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal of 41 events, and a copy of it as it was after 21."""
    address = tmp_path / "t.db"
    with create(str(address), study=endless()) as trial:
        play(trial, 10, even)
    shutil.copy(address, tmp_path / "old.db")
    with Experiment.open(str(address)) as trial:
        play(trial, 10, even)
    assert audit(str(address)).events == 41
    return address


def test_an_older_copy_put_back_is_noticed_by_every_reader(journal: Path, capsys: Say) -> None:
    for leftover in (f"{journal}-wal", f"{journal}-shm"):
        Path(leftover).unlink(missing_ok=True)
    shutil.copy(journal.with_name("old.db"), journal)
    found = audit(str(journal))
    assert (found.first_different_event, found.events) == (22, 21)
    assert "events up to 41 were written here" in str(found.first_difference)
    with pytest.raises(IntegrityFailed, match="events 22 to 41 of 'main' are missing"):
        Experiment.open(str(journal), write=False)
    refused(journal, "41", capsys)
    Path(f"{journal}.lock").unlink()  # a user who accepts that the newer file is lost can continue
    assert audit(str(journal)).identical
    assert main(["status", str(journal)]) == 0


@pytest.mark.parametrize("count", [1, 5])
def test_last_events_deleted_with_a_head_made_to_fit_are_noticed(
    journal: Path, capsys: Say, count: int
) -> None:
    with closing(sqlite3.connect(journal)) as database:
        database.execute("DELETE FROM evenhand_events WHERE seq > ?", (41 - count,))
        last = database.execute("SELECT hash FROM evenhand_events WHERE seq = ?", (41 - count,)).fetchone()
        database.execute("UPDATE evenhand_experiments SET seq = ?, hash = ?", (41 - count, *last))
        database.commit()
    refused(journal, "41", capsys)
    found = audit(str(journal))
    assert found.first_different_event == 42 - count
    assert "is missing" in str(found.first_difference)


def test_a_log_of_writes_removed_after_a_crash_is_noticed(tmp_path: Path, capsys: Say) -> None:
    address = tmp_path / "t.db"
    create(str(address), study=endless()).close()
    life = Process(busy, str(address), 2, "w")
    heard = life.heard()
    acknowledged = [next(heard) for _ in range(40)]
    life.kill()
    acknowledged += heard
    life.end()
    assert Path(f"{address}-wal").stat().st_size > 0
    assert audit(str(address)).identical
    for leftover in (f"{address}-wal", f"{address}-shm"):
        Path(leftover).unlink()
    refused(address, "missing", capsys)
    found = audit(str(address))
    named = re.search(r"event (\d+) is missing: events up to (\d+) were written", str(found.first_difference))
    assert named is not None
    assert int(named[1]) == found.events + 1
    assert int(named[2]) >= 1 + len(acknowledged)  # the protocol, and one event for each answer


def test_another_log_in_its_place_is_noticed(journal: Path, capsys: Say) -> None:
    """As long as the one that was there, and whole."""
    with create(str(journal.with_name("other.db")), study=endless(), seed=8) as trial:
        play(trial, 20, even)
    for leftover in (f"{journal}-wal", f"{journal}-shm"):
        Path(leftover).unlink(missing_ok=True)
    shutil.copy(journal.with_name("other.db"), journal)
    refused(journal, "event 41", capsys)
    assert audit(str(journal)).first_different_event == 41


def test_of_another_experiment_in_the_journal_too(journal: Path, capsys: Say) -> None:
    shutil.copy(journal, journal.with_name("old.db"))
    with create(str(journal), study=endless(), name="second") as trial:
        play(trial, 3, even)
    for leftover in (f"{journal}-wal", f"{journal}-shm"):
        Path(leftover).unlink(missing_ok=True)
    shutil.copy(journal.with_name("old.db"), journal)
    refused(journal, "an experiment is missing", capsys)


def test_an_empty_journal_in_its_place_is_noticed(journal: Path, capsys: Say) -> None:
    for leftover in (f"{journal}-wal", f"{journal}-shm", str(journal)):
        Path(leftover).unlink(missing_ok=True)
    open_journal(str(journal.with_name("empty.db")), create=True).close()
    shutil.copy(journal.with_name("empty.db"), journal)
    for command in (["status", str(journal)], ["ask", str(journal)], ["audit", str(journal)]):
        assert main(command) == 4
        assert "an experiment is missing" in capsys.readouterr().err


def test_a_damaged_note_of_the_last_event_is_said_in_one_sentence(journal: Path, capsys: Say) -> None:
    lock = Path(f"{journal}.lock")
    for content in (b"12 1 41 nonsense", b"12 one 41 " + b"0" * 64, b"12 1 41"):
        lock.write_bytes(content.ljust(127) + b"\n")
        for command in (["status", str(journal)], ["ask", str(journal)], ["audit", str(journal)]):
            assert main(command) == 4, content
            assert "was damaged" in capsys.readouterr().err


def test_readers_at_work_beside_a_writer_miss_nothing(tmp_path: Path) -> None:
    """The note of the last event is written after the commit; a reader looks at it first."""
    address = str(tmp_path / "t.db")
    create(address, study=endless()).close()
    life = Process(busy, address, 4, "w")
    heard = life.heard()
    for _ in range(150):
        next(heard)
        with Experiment.open(address, write=False) as trial:
            assert trial.head.seq > 0
    life.kill()
    list(heard)
    life.end()
    assert audit(address).identical
