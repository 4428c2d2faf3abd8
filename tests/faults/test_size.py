"""Journals and imports of a million: rate, opening, audit, chain and memory, as figures."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

import evenhand as eh
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.live.hash_chain import genesis, verified
from evenhand.live.journal import open_journal
from tests.live.example_experiments import create, endless, even, play

EVENTS = 1_000_000


def grow(trial: Experiment, events: int) -> None:
    while trial.head.seq < events:
        trial.tell_all([(ask, even(ask), None) for ask in trial.ask(500)])


def rate(trial: Experiment, pairs: int = 1500) -> float:
    begun = time.perf_counter()
    play(trial, pairs, even)
    return pairs / (time.perf_counter() - begun)


def peak_memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.slow
def test_a_million_events_are_written_opened_and_audited_in_the_memory_of_a_thousand(tmp_path: Path) -> None:
    short, long = str(tmp_path / "short.db"), str(tmp_path / "long.db")
    endless_run = eh.Procedure(delta=1e-9, max_samples=10**9)
    with create(short, study=endless(), procedure=endless_run) as few:
        grow(few, 1_000)
        with create(long, study=endless(), procedure=endless_run) as many:
            grow(many, 1_000)
            rate(many)
            memory = peak_memory()
            grow(many, EVENTS)
            grown = peak_memory() - memory
            # the disk has its moods: turn by turn, so that both journals meet the same ones
            rates = [(rate(few), rate(many)) for _ in range(3)]
    # on the processor: what else runs on the machine would only add
    begun = time.process_time()
    Experiment.open(long).close()
    opened = time.process_time() - begun
    begun = time.process_time()
    found = audit(long)
    audited = time.process_time() - begun
    store = open_journal(long, write=False)
    begun = time.process_time()
    events = sum(1 for _ in verified((row.record for row in store.read("main")), genesis("main")))
    chained = events / (time.process_time() - begun)
    store.close()
    assert found.identical
    assert events == found.events >= EVENTS
    assert grown < 50, f"{grown:.0f} MB more for a thousand times the events"
    early, late = (sum(side) / 3 for side in zip(*rates, strict=True))
    print(
        f"size: {events} events; {late:.0f} pairs/s against {early:.0f} at 1,000 ({late / early:.0%}); "
        f"{grown:.0f} MB more; opened in {opened:.2f} s, audited in {audited:.1f} s; chain {chained:.0f}/s"
    )


# the command in a process of its own, which then says the seconds it took and its peak memory in MB
IMPORT = """
import resource, sys, time
from evenhand.cli.main import main
begun = time.perf_counter()
assert main(["import", sys.argv[1], sys.argv[2]]) == 0
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(time.perf_counter() - begun, time.process_time(), peak)
"""


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["sqlite", "postgres"])
def test_a_million_rows_are_imported_in_bounded_memory(
    tmp_path: Path, storage: str, request: pytest.FixtureRequest
) -> None:
    address = str(tmp_path / "t.db") if storage == "sqlite" else request.getfixturevalue("postgres_url")
    create(address, study=endless(), procedure=eh.Procedure(delta=1e-9, max_samples=10**9)).close()
    with (tmp_path / "rows.csv").open("w") as file:
        file.write("policy,group,outcome\n")
        file.writelines(f"{'abc'[n % 3]},{'xy'[n % 2]},{n * 7919 % 11 % 2}\n" for n in range(EVENTS))
    command = [sys.executable, "-c", IMPORT, address, tmp_path / "rows.csv"]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    wall, processor, peak = map(float, found.stdout.split()[-3:])
    assert peak < 500, f"{peak:.0f} MB"
    audited = audit(address)
    assert audited.identical, audited.first_difference
    assert audited.events > EVENTS
    print(
        f"import on {storage}: {EVENTS} rows in {wall:.1f} s ({processor:.1f} s of processor), {peak:.0f} MB"
    )
