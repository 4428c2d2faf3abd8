"""Fault 42: use after release, two processes after a fork, and files deleted under a writer."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from evenhand.errors import IntegrityFailed, StorageFailed
from evenhand.live import fault_points
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.live.journal import open_journal
from tests.faults.processes import Process, hold
from tests.faults.stopped_processes import fork_and_leave, fork_with_a_journal
from tests.live.example_experiments import create, endless, even, kinds, one, play


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "trial.db")
    return str(request.getfixturevalue("postgres_url"))


CALLS: dict[str, Callable[[Experiment], object]] = {
    "ask": lambda trial: trial.ask(),
    "tell": lambda trial: trial.tell(str(trial.last), 1),  # type: ignore[attr-defined]
    "import": lambda trial: trial.import_data([("a", "x", 1)]),
    "view": lambda trial: trial.view("me", "all"),
    "sweep": lambda trial: trial.sweep(),
    "pause": lambda trial: trial.pause("p"),
}


@pytest.mark.parametrize("kind", ["sqlite", "memory", "postgres"])
def test_nothing_can_be_written_after_the_block_and_all_can_be_read(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    files = {"memory": ":memory:", "sqlite": str(tmp_path / "t.db")}
    address = files.get(kind) or str(request.getfixturevalue("postgres_url"))
    with create(address, study=endless()) as trial:
        trial.last = one(trial.ask()).ticket  # type: ignore[attr-defined]
        cells, events = trial.status().cells, kinds(trial)
    for call in CALLS.values():
        with pytest.raises(StorageFailed, match="was closed; open it again"):
            call(trial)
        assert (trial.status().cells, kinds(trial)) == (cells, events)
    trial.close()  # once more is no harm
    if kind != "memory":
        with Experiment.open(address) as again:
            play(again, 2, even)
        assert trial.status().samples == 2  # what others wrote since is seen
        assert trial.head == again.head


def test_a_released_object_does_not_write_beside_another_process(tmp_path: Path) -> None:
    address = str(tmp_path / "t.db")
    with create(address, study=endless()) as trial:
        play(trial, 2, even)
        events = len(kinds(trial))
    life = Process(hold, address)
    assert life.pipe.recv() == "ready"
    with pytest.raises(StorageFailed, match="open it again"):
        trial.ask()
    life.kill()
    life.end()
    assert audit(address).events == events


def test_a_turn_in_another_thread_is_finished_before_the_journal_is_released(tmp_path: Path) -> None:
    trial = create(str(tmp_path / "t.db"), study=endless())
    journal, inside, go_on = trial._journal, threading.Event(), threading.Event()
    released: list[bool] = []

    def transaction() -> None:
        with journal.transaction("main"):
            inside.set()
            go_on.wait()
            released.append(journal.is_closed)

    def leave() -> None:
        trial.close()

    first = threading.Thread(target=transaction)
    first.start()
    inside.wait()
    second = threading.Thread(target=leave)
    second.start()
    go_on.set()
    first.join()
    second.join()
    assert released == [False]


def test_a_forked_process_is_refused_and_harms_nothing(address: str) -> None:
    create(address, study=endless()).close()
    life = Process(fork_with_a_journal, address)
    refused = life.pipe.recv().splitlines()
    assert life.pipe.recv().counted
    life.end()
    for line in refused[:3]:
        assert line.startswith("StorageFailed: this journal was opened by process")
    assert refused[3] == "done"  # letting go is always allowed
    # of its own it may open a shared database, and no file that its parent writes to
    assert refused[4] == "opened" if "://" in address else "must have one writer" in refused[4]
    assert audit(address).identical
    with Experiment.open(address) as trial:
        assert kinds(trial) == ["created", "asked", "told"]


def test_a_forked_process_does_not_keep_the_journal_locked(tmp_path: Path) -> None:
    address = str(tmp_path / "t.db")
    create(address, study=endless()).close()
    life = Process(fork_and_leave, address)
    life.pipe.recv()  # the parent has released it, the child keeps running
    with Experiment.open(address) as trial:
        assert len(play(trial, 2, even)) == 2
    life.pipe.send("end")
    assert life.end() == 0


# ---------------------------------------------------------------- files deleted under a writer


def _move_away(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def _replace(path: Path) -> None:
    shutil.copy(path, path.with_name("copy"))
    os.replace(path.with_name("copy"), path)


@pytest.mark.parametrize("suffix", ["", "-wal", ".lock"])
@pytest.mark.parametrize("harm", [Path.unlink, _move_away, _replace], ids=["deleted", "moved", "replaced"])
def test_a_file_taken_from_under_a_writer_is_noticed_before_an_acknowledgement(
    tmp_path: Path, suffix: str, harm: Callable[[Path], None]
) -> None:
    address = tmp_path / "t.db"
    trial = create(str(address), study=endless())
    asks = trial.ask(3)
    trial.tell(asks[0], 1)
    harm(Path(f"{address}{suffix}"))
    for call in (lambda: trial.tell(asks[1], 1), lambda: trial.tell(asks[0], 1), trial.ask):
        with pytest.raises(StorageFailed, match="deleted"):
            call()
    trial.close()


def test_a_file_deleted_during_the_very_turn_is_noticed(tmp_path: Path) -> None:
    address = tmp_path / "t.db"
    trial = create(str(address), study=endless())

    def delete(place: str) -> None:
        if place == "before commit":
            fault_points.hook = None
            address.unlink()

    fault_points.hook = delete
    try:
        with pytest.raises(StorageFailed, match="deleted"):
            trial.ask()
    finally:
        fault_points.hook = None
    trial.close()


def test_a_lock_file_put_anew_lets_one_writer_in_and_the_other_notices(tmp_path: Path) -> None:
    """Removing the lock file lets a second writer in; the first must not continue beside it."""
    address = tmp_path / "t.db"
    first = create(str(address), study=endless())
    Path(f"{address}.lock").unlink()
    with Experiment.open(str(address)) as second:
        play(second, 3, even)
        with pytest.raises(StorageFailed, match="another process may write"):
            first.ask()
    first.close()
    assert audit(str(address)).identical


def test_a_log_that_another_program_put_back_under_a_writer_is_noticed(tmp_path: Path) -> None:
    """The same file, with the content of an older copy: as `sqlite3 t.db '.restore old'` does."""
    address = tmp_path / "t.db"
    with create(str(address), study=endless()) as trial:
        play(trial, 3, even)
    shutil.copy(address, tmp_path / "old.db")
    with Experiment.open(str(address)) as trial:
        play(trial, 5, even)
        with (
            closing(sqlite3.connect(tmp_path / "old.db")) as old,
            closing(sqlite3.connect(address)) as now,
        ):
            old.backup(now)
        for _ in range(3):
            with pytest.raises(IntegrityFailed, match="older state"):
                trial.ask()
    with pytest.raises(IntegrityFailed, match="older or another copy"):
        Experiment.open(str(address))
    with pytest.raises(IntegrityFailed, match="older or another copy"):
        open_journal(str(address), write=False)
    journal = open_journal(str(address), write=False, allow_missing=True)
    assert journal.head("main").seq == 7
    journal.close()
