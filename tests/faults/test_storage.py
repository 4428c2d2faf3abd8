"""Faults 4, 6, 11, 12, 23 and 24: restarts, full disks, copies, migrations, second writers, two clocks."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from evenhand.errors import EvenhandError, IntegrityFailed, StorageFailed
from evenhand.live import writer_lock
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.live.journal import open_journal
from tests.conftest import require_postgres
from tests.faults.processes import Process, busy, hold, migrate
from tests.faults.test_kills import compare
from tests.live.example_experiments import START, SetClock, create, endless, even, play
from tests.postgres import PostgresServer

# ---------------------------------------------------------------- 4: the database restarts


def restart_under_load(times: int, workers: int) -> None:
    server = PostgresServer(require_postgres())
    server.start()
    try:
        address = server.create_database("restarts")
        create(address, study=endless()).close()
        life = Process(busy, address, workers, "w")
        heard: list[Any] = []
        listener = threading.Thread(target=lambda: heard.extend(life.heard()))
        listener.start()
        waits = []
        for _ in range(times):
            _until_more(heard, 2 * workers)
            server.stop()
            server.start()
            waits.append(_until_more(heard, 1))
        life.kill()
        listener.join()
        life.end()
        with Experiment.open(address) as trial:
            assert compare(trial, heard) == (0, 0, 0)
        assert audit(address).identical
        print(f"fault 4: {times} restarts, {len(heard)} acks, 0 lost; back after {max(waits):.2f} s at most")
    finally:
        server.remove()


def _until_more(heard: list[Any], count: int) -> float:
    """How long it took until so many more answers came."""
    begun, seen = time.monotonic(), len(heard)
    while len(heard) < seen + count:
        assert time.monotonic() < begun + 60, "the workers do not go on"
        time.sleep(0.01)
    return time.monotonic() - begun


def test_workers_survive_a_database_that_is_stopped_at_once_and_started_again() -> None:
    restart_under_load(2, 4)


@pytest.mark.slow
def test_sixteen_workers_survive_twenty_restarts() -> None:
    restart_under_load(20, 16)


# ---------------------------------------------------------------- 6: the disk is full


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0 or not sys.platform.startswith("linux"):
        pytest.skip("a small disk of one's own needs root on Linux")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", folder], check=False)
    if mounted.returncode != 0:
        pytest.skip("this root may not mount")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_is_reported_and_writing_continues_when_there_is_room(small_disk: Path) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(bytes(100_000))
    with create(str(small_disk / "t.db"), study=endless()) as trial:
        acked = 0
        with pytest.raises(StorageFailed, match="disk is full"):  # noqa: PT012
            while True:
                acked += len(play(trial, 1, even))
        for _ in range(3):
            with pytest.raises(StorageFailed, match="disk is full"):
                play(trial, 3, even)
        told = trial.status().samples
        assert told >= acked
        filler.unlink()
        assert len(play(trial, 20, even)) == 20
        assert trial.status().samples >= told + 20
    assert audit(str(small_disk / "t.db")).identical
    print(f"fault 6: full after {acked} pairs, 0 acknowledged lost, 20 more after space was freed")


# ---------------------------------------------------------------- 11: copies


def test_a_hot_backup_continues_elsewhere_and_an_old_copy_put_back_is_refused(tmp_path: Path) -> None:
    address = tmp_path / "t.db"
    create(str(address), study=endless()).close()
    life = Process(busy, str(address), 4, "w")
    heard = life.heard()
    for _ in range(30):
        next(heard)
    with (
        closing(sqlite3.connect(f"{address.as_uri()}?mode=ro", uri=True)) as source,
        closing(sqlite3.connect(tmp_path / "copy.db")) as target,
    ):
        source.backup(target)
    for _ in range(30):
        next(heard)
    life.kill()
    list(heard)
    life.end()
    with Experiment.open(str(tmp_path / "copy.db")) as copy:
        head = str(copy.head)
        play(copy, 5, even)
        forked = str(copy.head)
    assert audit(str(address), head=head).identical  # the copy was a beginning of the log
    assert not audit(str(address), head=forked).identical  # and has gone another way since
    for leftover in (f"{address}-wal", f"{address}-shm"):
        Path(leftover).unlink(missing_ok=True)
    shutil.copy(tmp_path / "copy.db", address)
    with pytest.raises(IntegrityFailed, match="older or another copy"):
        Experiment.open(str(address))
    Path(f"{address}.lock").unlink()  # a user who means it can continue
    Experiment.open(str(address)).close()


# ---------------------------------------------------------------- 12: migrations


def test_a_migration_killed_halfway_leaves_the_old_journal(tmp_path: Path) -> None:
    address = tmp_path / "t.db"
    with create(str(address)) as trial:
        play(trial, 3)
        head = str(trial.head)
    life = Process(migrate, str(address), True)
    assert list(life.heard()) == []
    assert life.end() == -9
    with Experiment.open(str(address)) as trial:  # version 1 again, with this program
        assert str(trial.head) == head
    life = Process(migrate, str(address), False)
    assert list(life.heard()) == [head]
    assert life.end() == 0
    with closing(sqlite3.connect(address)) as database:
        assert database.execute("SELECT x FROM extra").fetchall() == [(1,)]
    with pytest.raises(IntegrityFailed, match="newer evenhand"):
        Experiment.open(str(address))


# ---------------------------------------------------------------- 23: a second writer, a network disk


def test_a_second_writer_is_refused_at_once_with_the_first_ones_number(tmp_path: Path) -> None:
    address = str(tmp_path / "t.db")
    create(address).close()
    life = Process(hold, address)
    assert life.pipe.recv() == "ready"
    begun = time.monotonic()
    with pytest.raises(StorageFailed, match=rf"one writer; process {life.process.pid} is writing"):
        open_journal(address)
    print(f"fault 23: a second writer is refused after {time.monotonic() - begun:.3f} s")
    (tmp_path / "link.db").symlink_to(address)
    with pytest.raises(StorageFailed, match="one writer"):
        open_journal(str(tmp_path / "link.db"))
    with Experiment.open(address, write=False) as looker:
        assert looker.status().samples == 0
    life.kill()
    life.end()
    with Experiment.open(address), pytest.raises(StorageFailed, match="one writer"):
        Experiment.open(address)


def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    place = tmp_path / "far away"
    place.mkdir()
    spelled = str(place).replace(" ", r"\040")
    mounts.write_text(
        f"1 0 0:1 / / rw - ext4 /dev/sda rw\n2 1 0:2 / {spelled} rw shared:1 - nfs4 server:/x rw\n"
    )
    monkeypatch.setattr(writer_lock, "MOUNTS", mounts)
    with pytest.raises(StorageFailed, match=r"network file system \(nfs4\)"):
        create(str(place / "t.db"))
    create(str(tmp_path / "near.db")).close()


# ---------------------------------------------------------------- 24: two servers, two clocks


def test_two_servers_ten_minutes_apart_agree_on_one_order(postgres_url: str) -> None:
    one, two = SetClock(START), SetClock(START - 600)
    create(postgres_url, study=endless(), lease=3600, clock=one).close()
    with (
        Experiment.open(postgres_url, clock=one) as first,
        Experiment.open(postgres_url, clock=two) as second,
    ):
        for _ in range(10):
            for trial in (first, second):
                ask = trial.ask(1)[0]
                trial.tell(ask, even(ask))
        assert first.status().samples == second.status().samples == 20
        assert first.head == second.head
        assert first.status().counts["clock_back"] == 20
        assert first.status().counts["expired"] == 0
    assert audit(postgres_url).identical


def test_a_server_that_cannot_be_reached_is_given_up_after_a_while_with_a_sentence() -> None:
    with pytest.raises(EvenhandError, match="could not be reached"):
        Experiment.open("postgresql://nobody@127.0.0.1:1/none", patience=0.1)
