"""How the cost of intervals grows: with cells, with outcomes, with the length of the log.

    python -m benchmarks interval_growth

A cost is measured at several sizes, and the exponent is the slope of a line through the logarithms of the
three largest. `docs/scale.md` explains the numbers.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from benchmarks.bench_intervals import counts, problem, procedure
from benchmarks.rows import Row, less
from evenhand.live.audit import audit
from evenhand.live.clock import seconds_of
from evenhand.live.experiment import Experiment
from evenhand.verdicts.interval_table import Interval, OutcomeSource

SHAPES = ((4, 3), (10, 10), (32, 32), (100, 100))  # policies and groups
OUTCOMES = (10**3, 10**5, 10**7, 10**9)  # of an interval, told as counts
LOGS = (250, 500, 1_000, 2_000)  # intervals
ROWS = (10**5, 10**6, 10**7, 3 * 10**7)  # of a Parquet file
Curve = Sequence[tuple[float, float]]


def rows() -> Iterator[Row]:
    made = [of_cells(*shape) for shape in SHAPES]
    cells = [policies * groups for policies, groups in SHAPES]
    for place, what in enumerate(("seconds of an interval", "bytes of an interval in the log")):
        yield grown(f"{what}, by cells", [(n, one[place]) for n, one in zip(cells, made, strict=True)], 1.25)
    yield less(f"seconds of an interval with {cells[-1]:,} cells, against 10 s", made[-1][0], 10.0, "s", 1.0)
    yield grown("seconds of an interval, by outcomes", [(n, of_outcomes(n)) for n in OUTCOMES], 0.1)
    opened, audited = zip(*(of_log(length) for length in LOGS), strict=True)
    yield grown("seconds to open a log, by intervals", list(zip(LOGS, opened, strict=True)), 0.3)
    yield grown("seconds to audit a log, by intervals", list(zip(LOGS, audited, strict=True)), 1.2)
    yield grown("seconds to count an interval with DuckDB, by rows", [(n, of_rows(n)) for n in ROWS], 1.2)


def grown(name: str, curve: Curve, most: float) -> Row:
    """Return the exponent of a cost; `most` is the largest that is allowed."""
    sizes, costs = np.log(np.array(curve[-3:], dtype=float)).T
    exponent = float(np.polyfit(sizes, costs, 1)[0])
    row = less(f"exponent of {name}", max(exponent, 0.01), most, "", 1.0)
    return replace(row, curve=tuple((float(size), float(cost)) for size, cost in curve))


def of_cells(policies: int, groups: int) -> tuple[float, float]:
    """Return the seconds of an interval and its bytes in the log."""
    size = 100 * policies * groups
    rng = np.random.default_rng(1)
    asked = problem(policies, groups), procedure(size, floor=0.5 / policies)
    with _new(*asked) as trial:
        took = [_interval(trial, size, rng) for _ in range(4)]
        entries = [len(row.record.body) for row in trial._journal.read("main")]
    return statistics.median(took[1:]), sum(entries[-3:])


def of_outcomes(size: int) -> float:
    """Return the seconds of an interval with so many outcomes."""
    rng = np.random.default_rng(1)
    with _new(problem(), procedure(size)) as trial:
        return statistics.median(_interval(trial, size, rng) for _ in range(21))


def of_log(length: int) -> tuple[float, float]:
    """Return the seconds to open and to audit a log of so many intervals."""
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/t.db"
        with Experiment.create(path, problem(), procedure(10_000), seed=1) as trial:
            for _ in range(length):
                _interval(trial, 10_000, rng)
        opened = _seconds(lambda: Experiment.open(path, write=False).close(), clock=time.process_time)
        return opened, _seconds(lambda: audit(path), 1, time.process_time)


def of_rows(size: int) -> float:
    """Return the seconds to count an interval of so many rows of Parquet."""
    trial = Experiment.create(":memory:", problem(), procedure(size, length="1h"), seed=1)
    start = seconds_of(trial.shares().valid_from or "")
    interval = Interval("main", 1, start, start + 3_600.0, 3_600.0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "outcomes.parquet")
        duckdb.connect().execute(
            f"""COPY (
                SELECT i AS unit, 'policy ' || (hash(i) % 4) AS policy,
                       'group ' || (hash(i + 7) % 3) AS "group",
                       (hash(i * 7 + 3) % 100 < 70)::INT AS outcome, 1 AS version
                FROM range({size}) AS t(i)
            ) TO '{path}' (FORMAT parquet)"""
        )
        source = OutcomeSource(str(path))

        def count() -> None:
            with source.opened() as table:
                del table.own["unit"]  # that every unit occurs once is another query
                table.counts(trial.protocol.problem, interval)

        return _seconds(count)


@contextmanager
def _new(*asked: Any) -> Iterator[Experiment]:
    """Yield a new experiment on the disk."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Experiment.create(f"{folder}/t.db", *asked, seed=1) as trial,
    ):
        yield trial


def _interval(trial: Experiment, size: int, rng: np.random.Generator) -> float:
    shares = trial.shares()
    told = counts(shares, size, rng)
    begun = time.perf_counter()
    trial.tell_counts(shares.version, told, close=True)
    return time.perf_counter() - begun


def _seconds(
    action: Callable[[], object], repeats: int = 3, clock: Callable[[], float] = time.perf_counter
) -> float:
    times = []
    for _ in range(repeats):
        begun = clock()
        action()
        times.append(clock() - begun)
    return min(times)
