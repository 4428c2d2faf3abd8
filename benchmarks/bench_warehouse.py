"""Judging large Parquet files: time and memory, and the ratio to DuckDB's own group-by.

    python -m benchmarks warehouse

The files have 1e7 and 1e8 rows of 4 policies and 3 groups. Times are wall-clock times, because DuckDB uses
all processors; of three runs the smallest. The group-by of DuckDB counts and adds the outcomes of every cell.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import duckdb

import evenhand as eh
from benchmarks.rows import Row, less

SIZES = {10_000_000: 2.0, 100_000_000: 15.0}  # rows: most seconds
CHILD = """
import json, resource, sys, time
import duckdb
from benchmarks.bench_warehouse import question
from benchmarks.rows import seconds
import evenhand as eh

path = sys.argv[1]
columns = 'policy, "group", count(*), sum(outcome)'
query = f"SELECT {columns} FROM read_parquet('{path}') GROUP BY 1, 2"

def judge():
    return eh.judge(question(), path, replications=0)

ours = seconds(judge, 3, time.perf_counter)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def group_by():
    engine = duckdb.connect()
    engine.execute("SET enable_progress_bar = false")
    engine.execute(query).fetchall()


theirs = seconds(group_by, 3, time.perf_counter)
print(json.dumps([ours, theirs, peak / 1e9, judge().samples]))
"""


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        for size, limit in SIZES.items():
            path = Path(folder, f"{size}.parquet")
            write(path, size)
            child = [sys.executable, "-c", CHILD, str(path)]
            answer = subprocess.run(child, check=True, capture_output=True, text=True).stdout
            ours, theirs, memory, samples = json.loads(answer)
            yield less(f"judge {samples:,} rows of Parquet", ours, limit, "s", 1.0)
            yield less(
                f"judge {samples:,} rows of Parquet against DuckDB's group-by", ours, theirs, "s", 1 / 1.5
            )
            yield less(f"memory of judging {samples:,} rows of Parquet", memory, 1.0, "GB", 1.0)
            path.unlink()


def question() -> eh.Problem:
    """Return the problem of the benchmark."""
    groups = {f"group {g}": 1 / 3 for g in range(3)}
    return eh.Problem([f"policy {k}" for k in range(4)], groups, eh.Bernoulli(), eh.Floors(0.7))


def write(path: Path, size: int) -> None:
    """Write outcomes with means of 0.80 to 0.83, policies and groups in turn at random."""
    duckdb.connect().execute(
        f"""COPY (
            SELECT 'policy ' || (hash(i) % 4) AS policy, 'group ' || (hash(i + 1000000007) % 3) AS "group",
                   (hash(i * 7 + 3) % 100 < 80 + hash(i) % 4)::INT AS outcome
            FROM range({size}) AS t(i)
        ) TO '{path}' (FORMAT parquet)"""
    )
