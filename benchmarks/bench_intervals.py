"""Experiments in intervals: the cost of an interval, of opening a log, and of a thousand experiments.

    python -m benchmarks intervals

An interval told as counts must cost the same whatever the number of its outcomes. The experiments are all
in one PostgreSQL journal, with their outcomes in one table of the same server, 1,000 rows each.
"""

from __future__ import annotations

import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

import evenhand as eh
from benchmarks.bench_live import postgres
from benchmarks.rows import Row, less, seconds
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.live.journal import open_journal
from evenhand.verdicts.interval_table import OutcomeSource
from evenhand.verdicts.sync import sync_all
from tests.service.service_process import Running

EXPERIMENTS, ROWS = 1_000, 1_000
SMALL, LARGE = 1_000, 1_000_000  # outcomes of an interval
POLICIES, GROUPS = 4, 3
CLOSED = 50  # intervals per measurement


def rows() -> Iterator[Row]:
    small, large = (interval_seconds(size) for size in (SMALL, LARGE))
    name = f"an interval of {LARGE:,} outcomes as counts, against one of {SMALL:,}"
    yield less(name, large, small, "s", 1 / 1.5)
    yield less("an interval: counts, evidence and next shares, against 50 ms", large, 0.05, "s", 1.0)
    with tempfile.TemporaryDirectory() as folder, postgres() as databases:
        yield from long_log(str(Path(folder, "long.db")))
        yield from thousand(next(iter(databases)), Path(folder, "log"))


def problem(policies: int = POLICIES, groups: int = GROUPS) -> eh.Problem:
    """Return a question that no run answers: all means are equal."""
    return eh.Problem(
        [f"policy {k}" for k in range(policies)], {f"group {g}": 1 / groups for g in range(groups)},
        eh.Bernoulli(), eh.Floors(0.3), mode="proportional",
    )  # fmt: skip


def procedure(volume: float, **settings: Any) -> eh.Procedure:
    return eh.Procedure(delta=1e-9, max_samples=10**12, interval=eh.Intervals(volume, **settings))


def counts(shares: eh.Shares, size: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Return the counts of an interval with so many outcomes."""
    found = []
    for group, ranges in shares.ranges.items():
        for policy in dict.fromkeys(name for name, _ in ranges):
            n = int(rng.poisson(size / len(shares.ranges) * shares.share(group, policy)))
            found.append({"policy": policy, "group": group, "n": n, "sum": int(rng.binomial(n, 0.7))})
    return found


def interval_seconds(size: int, policies: int = POLICIES, groups: int = GROUPS) -> float:
    """Return the seconds of one interval, on the disk."""
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        asked = problem(policies, groups), procedure(size, floor=0.5 / policies)
        with Experiment.create(f"{folder}/t.db", *asked, seed=1) as trial:

            def one() -> None:
                shares = trial.shares()
                trial.tell_counts(shares.version, counts(shares, size, rng), close=True)

            return statistics.median(seconds(one, 1, time.perf_counter) for _ in range(CLOSED // 2))


def long_log(address: str, intervals: int = 2_000) -> Iterator[Row]:
    """Measure the opening and the audit of a log with many intervals."""
    rng = np.random.default_rng(1)
    with Experiment.create(address, problem(), procedure(10_000), seed=1) as trial:
        for _ in range(intervals):
            shares = trial.shares()
            trial.tell_counts(shares.version, counts(shares, 10_000, rng), close=True)

    def opened() -> None:
        with Experiment.open(address, write=False) as trial:
            trial.status()

    yield less(f"open a log of {intervals:,} intervals, against 1 s", seconds(opened, 3), 1.0, "s", 1.0)
    took = seconds(lambda: audit(address), 1)
    yield less(f"audit a log of {intervals:,} intervals, against 60 s", took, 60.0, "s", 1.0)


def thousand(url: str, log: Path) -> Iterator[Row]:
    """Measure a thousand experiments on PostgreSQL: sync, list and status."""
    fill(url)
    journal = open_journal(url)
    begun = time.perf_counter()
    found = list(sync_all(journal, OutcomeSource(url, "outcomes")))
    took = time.perf_counter() - begun
    assert all(one.closed == (1,) for one in found), next(one for one in found if one.closed != (1,))
    yield less(f"sync {EXPERIMENTS:,} experiments, against 60 s", took, 60.0, "s", 1.0)
    begun = time.perf_counter()
    idle = list(sync_all(journal, OutcomeSource(url, "outcomes")))
    assert not any(one.closed for one in idle)
    took = time.perf_counter() - begun
    yield less(f"sweep {EXPERIMENTS:,} experiments of which none is due, against 30 s", took, 30.0, "s", 1.0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    yield less("memory of the process that syncs them, against 1 GB", peak / 1e9, 1.0, "GB", 1.0)
    journal.close()
    with Running(url, log) as service:
        yield from served(service)


def served(service: Running) -> Iterator[Row]:
    """Measure the requests of a service with a thousand experiments."""
    import json
    import urllib.request

    def get(path: str) -> Any:
        with urllib.request.urlopen(f"{service.url}{path}") as answer:
            return json.loads(answer.read())

    get("/api/v1/experiments/trial-0")
    times = []
    for number in range(0, EXPERIMENTS, 5):
        begun = time.perf_counter()
        assert get(f"/api/v1/experiments/trial-{number}")["samples"] > 0
        times.append(time.perf_counter() - begun)
    # every first status also writes that it was viewed, and starts a forecast in another process
    half, most = (sorted(times)[int(share * len(times))] for share in (0.5, 0.95))
    yield less("status of an experiment that was not open, median, against 50 ms", half, 0.05, "s", 1.0)
    yield less("status of an experiment that was not open, 95% of them, against 50 ms", most, 0.05, "s")
    again = seconds(lambda: get("/api/v1/experiments/trial-995"), 20, time.perf_counter)
    yield less("status of an experiment that is open, against 50 ms", again, 0.05, "s", 1.0)
    begun = time.perf_counter()
    assert len(get("/api/v1/experiments?limit=100&start=500")) == 100
    took = time.perf_counter() - begun
    yield less("list 100 of 1,000 experiments that were not open, against 5 s", took, 5.0, "s", 1.0)
    took = seconds(lambda: get("/api/v1/experiments?limit=100&start=500"), 3, time.perf_counter)
    yield less("list 100 of 1,000 experiments that are open, against 1 s", took, 1.0, "s", 1.0)
    yield less("memory of the service after that, against 1 GB", service.memory / 1e9, 1.0, "GB", 1.0)


def fill(url: str) -> None:
    """Create the experiments, whose first interval is over, and the table of its outcomes."""
    clock = Earlier()
    journal = open_journal(url, create=True)
    shares = {}
    for number in range(EXPERIMENTS):
        asked = problem(), procedure(ROWS, length="1h")
        name = f"trial-{number}"
        trial = Experiment.create(journal, *asked, seed=number, name=name, clock=clock)
        shares[name] = trial.shares()
    journal.close()
    rng = np.random.default_rng(0)
    with psycopg.connect(url) as connection:
        connection.execute(
            'CREATE TABLE outcomes (unit bigint, policy text, "group" text, outcome integer, version bigint, '
            "experiment text)"
        )
        with connection.cursor().copy("COPY outcomes FROM STDIN") as copy:
            for name, published in shares.items():
                groups = rng.choice(list(published.ranges), ROWS)
                policies = eh.assign(np.arange(ROWS), groups, published)
                good = rng.integers(0, 10, ROWS) < 7
                for unit in range(ROWS):
                    row = (unit, str(policies[unit]), str(groups[unit]), int(good[unit]), 1, name)
                    copy.write_row(row)
        connection.execute("CREATE INDEX ON outcomes (experiment, version)")
        connection.commit()
        connection.execute("ANALYZE outcomes")


class Earlier:
    """A clock two hours ago."""

    def now(self) -> float:
        return time.time() - 7_200.0

    def monotonic(self) -> float:
        return time.monotonic()
