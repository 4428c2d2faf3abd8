"""Faults 36, 43 and 44: a database that goes back, writers that are stopped, clocks that leap."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from evenhand.errors import IntegrityFailed
from evenhand.live import postgres
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.live.journal import open_journal
from evenhand.live.tickets import Receipt
from tests.conftest import require_postgres
from tests.faults.processes import Process
from tests.faults.stopped_processes import LEASE, LOCK_WAIT, stop_inside_a_turn
from tests.live.example_experiments import SetClock, create, endless, even, kinds, play
from tests.postgres import PostgresServer

# ---------------------------------------------------------------- 36: the database goes back


def dump(url: str, file: Path) -> None:
    subprocess.run([require_postgres() / "pg_dump", "-Fc", "-f", file, url], check=True)


def restore(url: str, file: Path) -> None:
    """As an operator would: over the tables that are there, while programs are connected."""
    command = [require_postgres() / "pg_restore", "--clean", "--single-transaction", "-d", url, file]
    subprocess.run(command, check=True)


@pytest.mark.parametrize("first_call", ["write", "read"])
def test_a_writer_over_a_database_that_went_back_is_refused_and_starts_over(
    postgres_url: str, tmp_path: Path, first_call: str
) -> None:
    create(postgres_url, study=endless()).close()
    with Experiment.open(postgres_url) as trial:
        play(trial, 5, even)
        old = str(trial.head)
        dump(postgres_url, tmp_path / "old")
        play(trial, 20, even)
        restore(postgres_url, tmp_path / "old")
        with pytest.raises(IntegrityFailed, match="went back to an older state"):
            trial.ask() if first_call == "write" else trial.status()
        assert str(trial.head) == old  # nothing was written over it
        assert len(play(trial, 10, even)) == 10
        assert trial.status().samples == 15
    found = audit(postgres_url, head=old)
    assert found.identical, found.first_difference
    with Experiment.open(postgres_url) as again:
        assert again.status().samples == 15


@pytest.mark.parametrize("first_call", ["write", "read"])
def test_a_writer_over_a_log_that_went_back_and_grew_again_is_refused(
    postgres_url: str, tmp_path: Path, first_call: str
) -> None:
    """The new log is longer than what the writer has read: only its hashes differ."""
    create(postgres_url, study=endless()).close()
    with Experiment.open(postgres_url) as trial:
        play(trial, 3, even)
        dump(postgres_url, tmp_path / "old")
        play(trial, 4, even)
        restore(postgres_url, tmp_path / "old")
        with Experiment.open(postgres_url) as other:
            play(other, 10, lambda ask: 1 - even(ask))
        with pytest.raises(IntegrityFailed, match="went back to an older state"):
            trial.ask() if first_call == "write" else trial.status()
        assert trial.status().samples == 13
        assert len(play(trial, 5, even)) == 5
    assert audit(postgres_url).identical


def test_a_database_dropped_and_made_again_from_a_dump_is_noticed(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """Every connection is cut, so the writer reads the log from its start, up to its last event."""
    url = postgres_server.create_database("dropped")
    create(url, study=endless(), lease=60).close()
    with Experiment.open(url) as trial:
        play(trial, 5, even)
        dump(url, tmp_path / "old")
        play(trial, 20, even)
        with psycopg.connect(postgres_server.url(), autocommit=True) as admin:
            admin.execute("DROP DATABASE dropped WITH (FORCE)")
        postgres_server.create_database("dropped")
        command = [require_postgres() / "pg_restore", "-d", url, tmp_path / "old"]
        subprocess.run(command, check=True)
        with pytest.raises(IntegrityFailed, match="went back to an older state"):
            trial.ask()
        assert len(play(trial, 10, even)) == 10
    found = audit(url)
    assert found.identical, found.first_difference


def test_an_experiment_opened_again_in_one_process_continues_at_the_end_of_the_log(
    postgres_url: str, tmp_path: Path
) -> None:
    trial = create(postgres_url, study=endless())
    play(trial, 5, even)
    dump(postgres_url, tmp_path / "old")
    play(trial, 20, even)
    restore(postgres_url, tmp_path / "old")
    with pytest.raises(IntegrityFailed, match="went back to an older state"):
        Experiment.open(trial._journal)  # as the service does with those that were idle
    with Experiment.open(trial._journal) as again:
        assert again.status().samples == 5
    trial.close()


def test_another_experiment_under_the_same_name_is_not_taken_for_the_one_opened(
    postgres_url: str, tmp_path: Path
) -> None:
    create(postgres_url, study=endless(), seed=1).close()
    dump(postgres_url, tmp_path / "other")
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("DELETE FROM evenhand_events")
        admin.execute("DELETE FROM evenhand_experiments")
    with create(postgres_url, study=endless(), seed=2) as trial:
        play(trial, 3, even)
        restore(postgres_url, tmp_path / "other")
        for _ in range(3):
            with pytest.raises(IntegrityFailed):
                trial.ask()
    assert audit(postgres_url).events == 1


# ---------------------------------------------------------------- 43: a stopped writer


def is_stopped(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.parametrize(
    ("place", "rows"),
    [
        ("before write", 0),
        ("after write", 0),
        ("before commit", 0),
        ("after commit", 0),
        ("before reply", 0),
        ("before commit", 600),
    ],
)
def test_others_go_on_when_a_writer_is_stopped_inside_its_turn_and_it_is_fenced(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, place: str, rows: int
) -> None:
    monkeypatch.setattr(postgres, "LEASE", LEASE)
    monkeypatch.setattr(postgres, "LOCK_WAIT", LOCK_WAIT)
    create(postgres_url, study=endless()).close()
    life = Process(stop_inside_a_turn, postgres_url, place, rows)
    pid = life.process.pid
    assert pid is not None
    try:
        ask = life.pipe.recv()
        while not is_stopped(pid):
            time.sleep(0.01)
        begun = time.monotonic()
        with Experiment.open(postgres_url) as trial:
            assert len(play(trial, 5, even)) == 5
            waited = time.monotonic() - begun
            os.kill(pid, signal.SIGCONT)
            heard = list(life.heard())
            told = kinds(trial).count("told")
            assert kinds(trial).count("imported") in ((rows,) if heard[0] == rows else (0, rows))
    finally:
        life.kill()  # a stopped process would wait without end
        life.end()
    if rows == 0:
        assert heard[-1] == Receipt(ask.ticket, 1.0, True)
        assert told == 6  # five of the others, and one of the stopped writer: once
    found = audit(postgres_url)
    assert found.identical, found.first_difference
    print(f"fault 43: stopped {place}: others continued after {waited:.1f} s with a lease of {LEASE:g} s")


def test_a_writer_that_is_at_work_for_long_is_waited_for(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "LEASE", LEASE)
    monkeypatch.setattr(postgres, "LOCK_WAIT", LOCK_WAIT)
    create(postgres_url, study=endless()).close()
    journal = open_journal(postgres_url)
    with Experiment.open(postgres_url, patience=0.1) as trial:
        asked: list[Any] = []
        other = threading.Thread(target=lambda: asked.append(trial.ask()))
        with journal.transaction("main") as transaction:
            other.start()
            until = time.monotonic() + 2.5 * LEASE
            while time.monotonic() < until:
                assert transaction.hash_of(1) == transaction.head.hash  # says something now and then
                time.sleep(LOCK_WAIT)
            assert asked == []
        other.join()
        assert len(asked) == 1
        assert asked[0] is not None
    journal.close()


# ---------------------------------------------------------------- 44: clocks that leap


def cut_connections(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


@pytest.mark.parametrize("leap", [365 * 86_400.0, -86_400.0])
def test_leases_keep_to_the_steady_clock_through_a_leap_and_a_reconnect(
    postgres_url: str, leap: float
) -> None:
    clock = SetClock()
    with create(postgres_url, study=endless(), lease=60, clock=clock) as trial:
        trial.ask(2)
        clock.waited += 20
        clock.wall += 20 + leap
        trial.ask(1)
        cut_connections(postgres_url)
        trial.sweep()  # over a new connection, from a log read again
        assert trial.status().pending == 3
        clock.waited += 39
        trial.sweep()
        assert trial.status().pending == 3
        clock.waited += 2
        trial.sweep()
        assert trial.status().pending == 1
        clock.waited += 20
        trial.sweep()
        assert trial.status().pending == 0
    assert audit(postgres_url).identical


def test_a_ticket_first_seen_after_a_leap_and_a_reconnect_has_not_run_out(postgres_url: str) -> None:
    """Another process hands it out while this one is cut off: no more time has passed than by our clock."""
    clock, other_clock = SetClock(), SetClock()
    create(postgres_url, study=endless(), lease=60, clock=clock).close()
    with (
        Experiment.open(postgres_url, clock=clock) as trial,
        Experiment.open(postgres_url, clock=other_clock) as other,
    ):
        trial.ask(1)
        other.ask(1)
        clock.wall += 365 * 86_400.0
        clock.waited += 10
        cut_connections(postgres_url)
        trial.sweep()
        assert trial.status().pending == 2
        clock.waited += 51
        trial.sweep()
        assert trial.status().pending == 0


def test_an_experiment_opened_again_in_one_process_keeps_its_deadlines(postgres_url: str) -> None:
    """As the service does with those that were idle."""
    clock: Any = SetClock()
    trial = create(postgres_url, study=endless(), lease=60, clock=clock)
    trial.ask(1)
    clock.wall += 365 * 86_400.0
    again = Experiment.open(trial._journal, clock=clock)
    again.sweep()
    assert again.status().pending == 1
    clock.waited += 61
    again.sweep()
    assert again.status().pending == 0
    trial.close()
