"""Faults 5, 13, 16, 20, 21 and 22: many at once, lost replies, the dead, and lookers-on."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from evenhand.errors import Conflict
from evenhand.live import events as ev
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.live.journal import open_journal
from tests.faults.processes import Process, caller, host, pairs_alone
from tests.live.example_experiments import SetClock, coin, create, endless, even, log, play


def in_threads(count: int, work: Any) -> None:
    """Run work(0), work(1), ... at the same time; the first failure fails the test."""
    failures: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as problem:
            failures.append(problem)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def check_whole(address: str, pairs: int) -> None:
    """No ticket doubled, no outcome lost, no gap, and every decision follows."""
    found = audit(address)
    assert found.identical, found
    with Experiment.open(address, write=False) as trial:
        counts = Counter(type(event).__name__ for event in log(trial))
        tickets = [event.ticket for event in log(trial) if isinstance(event, ev.Asked)]
    assert counts["Asked"] == counts["Told"] == pairs
    assert tickets == list(range(1, pairs + 1))


def crowd_at_one_writer(address: str, gate: str, processes: int, pairs: int, lose_every: int) -> float:
    """Client processes that call one writing process, as they would through the service."""
    create(address, study=endless()).close()
    server = Process(host, address, gate)
    assert server.pipe.recv() == "ready"
    begun = time.monotonic()
    clients = [Process(caller, gate, f"c{i}", pairs, lose_every) for i in range(processes)]
    tickets = [word[0] for client in clients for word in client.heard() if word != "done"]
    seconds = time.monotonic() - begun
    assert [client.end() for client in clients] == [0] * processes
    server.kill()
    server.end()
    assert len(set(tickets)) == len(tickets) == processes * pairs
    check_whole(address, processes * pairs)
    return seconds


def crowd_of_writers(address: str, processes: int, pairs: int) -> float:
    """Processes that each write to one shared database."""
    create(address, study=endless()).close()
    lives = [Process(pairs_alone, address, f"w{i}", pairs) for i in range(processes)]
    for life in lives:
        assert life.pipe.recv() == "ready"
    begun = time.monotonic()
    for life in lives:
        life.pipe.send("go")
    for life in lives:
        assert list(life.heard()) == ["done"]
    seconds = time.monotonic() - begun
    assert [life.end() for life in lives] == [0] * processes
    check_whole(address, processes * pairs)
    return seconds


def test_many_processes_at_one_writer_with_every_tenth_reply_lost_get_one_ticket_each(tmp_path: Path) -> None:
    seconds = crowd_at_one_writer(str(tmp_path / "t.db"), str(tmp_path / "gate"), 8, 25, 10)
    print(
        f"faults 5, 13: 8 processes, 200 pairs, every tenth reply lost, sqlite: {200 / seconds:.0f} pairs/s"
    )


def test_many_writing_processes_share_one_database(postgres_url: str) -> None:
    seconds = crowd_of_writers(postgres_url, 6, 20)
    print(f"fault 13: 6 processes, 120 pairs, postgresql: {120 / seconds:.0f} pairs/s")


@pytest.mark.slow
def test_64_processes_and_50000_pairs_at_one_writer(tmp_path: Path) -> None:
    seconds = crowd_at_one_writer(str(tmp_path / "t.db"), str(tmp_path / "gate"), 64, 782, 0)
    print(f"fault 13: 64 processes, 50048 pairs, sqlite: {50_048 / seconds:.0f} pairs/s, 0 doubled, 0 lost")


@pytest.mark.slow
def test_64_processes_and_50000_pairs_on_one_database(postgres_url: str) -> None:
    seconds = crowd_of_writers(postgres_url, 64, 782)
    print(
        f"fault 13: 64 processes, 50048 pairs, postgresql: {50_048 / seconds:.0f} pairs/s, 0 doubled, 0 lost"
    )


@pytest.mark.parametrize("kind", ["file", "memory", "postgresql"])
def test_experiments_that_share_a_journal_do_not_disturb_each_other(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    address = {"file": str(tmp_path / "t.db"), "memory": ":memory:"}.get(kind)
    journal = open_journal(address or request.getfixturevalue("postgres_url"), create=True)
    trials = [create(journal, study=endless(), name=f"trial-{number}") for number in range(3)]
    pairs, over = 40, threading.Event()

    def work(number: int) -> None:
        if number == 9:
            while not over.wait(0.001):
                for trial in trials:
                    trial.status()
            return
        trial = trials[number % 3]
        try:
            for _ in range(pairs):
                ask = trial.ask(1)[0]
                trial.tell(ask, even(ask))
        finally:
            if number == 0:
                over.set()

    in_threads(10, work)
    for number, trial in enumerate(trials):
        counts = Counter(type(event).__name__ for event in log(trial))
        assert counts["Asked"] == counts["Told"] == 3 * pairs
        again = Experiment.open(journal, f"trial-{number}")  # follows the chain of hashes from event one
        assert again.status() == trial.status()
    journal.close()


def test_an_outcome_told_by_sixteen_threads_at_once_is_one_event_and_all_get_the_same_receipt(
    tmp_path: Path,
) -> None:
    with create(str(tmp_path / "t.db"), study=endless()) as trial:
        ask = trial.ask(1)[0]
        receipts: list[Any] = []
        in_threads(16, lambda _: receipts.extend(trial.tell(ask, 1) for _ in range(63)))
        assert len(receipts) == 16 * 63
        assert len(set(receipts)) == 1
        assert sum(isinstance(event, ev.Told) for event in log(trial)) == 1


def test_of_two_outcomes_told_at_once_one_counts_and_the_other_is_refused(tmp_path: Path) -> None:
    with create(str(tmp_path / "t.db"), study=endless()) as trial:
        for ask in trial.ask(20):
            refused: list[int] = []

            def tell(value: int, ask: Any = ask, refused: list[int] = refused) -> None:
                try:
                    trial.tell(ask, value)
                except Conflict:
                    refused.append(value)

            in_threads(2, tell)
            assert len(refused) == 1
        counts = Counter(type(event).__name__ for event in log(trial))
    assert counts["Told"] == counts["Refused"] == 20


def test_no_ticket_is_issued_after_the_stop_with_sixteen_workers_in_flight(tmp_path: Path) -> None:
    with create(str(tmp_path / "t.db")) as trial:

        def work(number: int) -> None:
            while ask := trial.ask(worker=f"w{number}"):
                trial.tell(ask, coin(ask))

        in_threads(16, work)
        names = [type(event).__name__ for event in log(trial)]
        status = trial.status()
    stop = names.index("Stopped")
    assert set(names[stop + 1 :]) <= {"Late"}
    assert status.decided
    assert status.samples == names.count("Told") == names[:stop].count("Told")
    assert status.pending == 0
    assert audit(str(tmp_path / "t.db")).identical


def test_when_half_the_workers_die_their_tickets_come_back_and_none_stays_open() -> None:
    clock = SetClock()
    trial = create(study=endless(), lease=30, clock=clock)
    dead = itertools.cycle([True, False])
    handed = Counter()  # type: ignore[var-annotated]
    for _ in range(300):
        clock.waited += 1
        ask = trial.ask(1)[0]
        handed[ask.policy, ask.group] += 1
        if not next(dead):
            trial.tell(ask, even(ask))
    clock.waited += 31
    trial.sweep()
    status = trial.status()
    assert status.pending == 0
    assert status.counts["expired"] == 150
    assert status.samples == 150
    assert sum(cell.n for cell in status.cells) == 150
    assert all(cell.pending == 0 for cell in status.cells)
    # the killed workers took every second ticket whatever its cell, so half of the issued tickets are told
    for cell in status.cells:
        assert abs(cell.n - handed[cell.policy, cell.group] / 2) <= 6 * max(cell.n, 1) ** 0.5
    assert status.health.sample_ratio_p > 1e-6


def test_a_starved_start_is_made_up_for_when_its_tickets_expire() -> None:
    clock = SetClock()
    trial = create(study=endless(), lease=30, clock=clock)
    trial.ask(12)  # all tickets of the start, and none is told
    clock.waited += 31
    asks = play(trial, 12, even)
    assert Counter((ask.policy, ask.group) for ask in asks) == {(p, g): 2 for p in "abc" for g in "xy"}


@pytest.mark.slow
def test_lookers_on_do_not_hold_up_the_writer(tmp_path: Path) -> None:
    """Figures, not claims: the machine may be busy with something else."""
    with create(str(tmp_path / "t.db"), study=endless()) as trial:

        def waits(pairs: int) -> list[float]:
            found = []
            for _ in range(pairs):
                begun = time.perf_counter()
                ask = trial.ask(1)[0]
                trial.tell(ask, even(ask))
                found.append(time.perf_counter() - begun)
            return sorted(found)

        waits(200)
        idle = waits(2000)
        over, polls = threading.Event(), [0]

        def poll() -> None:
            while not over.wait(0.01):
                trial.status()
                polls[0] += 1

        looker = threading.Thread(target=poll)
        looker.start()
        watched = waits(2000)
        over.set()
        looker.join()
    p99 = 1000 * idle[1980], 1000 * watched[1980]
    assert polls[0] > 0
    print(f"fault 22: pair p99 {p99[0]:.1f} ms idle, {p99[1]:.1f} ms with {polls[0]} polls; no writer error")
