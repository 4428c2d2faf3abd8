"""A million units from four servers that assign by hash, counted where they are: the right answer, audited.

Every minute each server reads the published shares, assigns its units without a call, and writes their
outcomes: a Parquet file, or rows of a PostgreSQL table. `evenhand sync` runs after every minute.
"""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import psycopg
import pytest

import evenhand as eh
from evenhand.live.audit import audit
from evenhand.verdicts.interval_table import OutcomeSource
from evenhand.verdicts.sync import sync_experiment
from tests.live.example_experiments import START, SetClock
from tests.live.interval_experiments import create

pytestmark = pytest.mark.slow
SERVERS, MINUTES, UNITS = 4, 40, 6_250  # units of a server in a minute: 1e6 in all
# c is better overall and misses its floor of 0.6 in y; a is better than b by 0.006
TRUTH = {"a": {"x": 0.800, "y": 0.700}, "b": {"x": 0.794, "y": 0.694}, "c": {"x": 0.85, "y": 0.58}}


def serve(server: int, minute: int, folder: str, url: str | None) -> int:
    """Assign a minute's units of a server by the published shares, and store their outcomes."""
    document = json.loads(Path(folder, "shares.json").read_text())
    rng = np.random.default_rng([server, minute])
    units = (minute * SERVERS + server) * UNITS + np.arange(UNITS)
    groups = np.where(rng.random(UNITS) < 0.6, "x", "y")
    policies = eh.assign(units, groups, document)
    chance = np.array([TRUTH[k][g] for k, g in zip(policies, groups, strict=True)])
    at = START + 60 * minute + 60 * rng.random(UNITS)
    rows = pl.DataFrame(
        {
            "unit": units,
            "policy": policies,
            "group": groups,
            "outcome": (rng.random(UNITS) < chance).astype(int),
            "version": np.full(UNITS, document["version"]),
            "time": pl.Series((1e6 * at).astype(np.int64)).cast(pl.Datetime("us")),
        }
    )
    if url is None:
        rows.write_parquet(Path(folder, f"{minute:02}-{server}.parquet"))
        return UNITS
    with psycopg.connect(url) as connection, connection.cursor().copy("COPY outcomes FROM STDIN") as copy:
        for row in rows.iter_rows():
            copy.write_row(row)
    return UNITS


def create_table(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(
            'CREATE TABLE outcomes (unit bigint, policy text, "group" text, outcome integer, version bigint, '
            "time timestamp)"
        )


@pytest.mark.parametrize(("warehouse", "delay"), [("files", "1m"), ("postgresql", "0s")])
def test_a_million_units_are_assigned_by_four_processes_counted_decided_and_audited(
    warehouse: str, delay: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = tmp_path / "outcomes"
    folder.mkdir()
    url: str | None = None
    source, address = OutcomeSource(str(folder / "*.parquet")), str(tmp_path / "t.db")
    if warehouse == "postgresql":
        url = request.getfixturevalue("postgres_url")
        assert url is not None
        create_table(url)
        source, address = OutcomeSource(url, "outcomes"), url
    clock, served, counted = SetClock(START - 1), 0, 0
    trial = create(address, volume=SERVERS * UNITS, length="1m", delay=delay, clock=clock)
    with multiprocessing.get_context("spawn").Pool(SERVERS) as pool:
        for minute in range(MINUTES):
            (folder / "shares.json").write_text(json.dumps(trial.shares().to_dict()))
            work: list[Any] = [(server, minute, str(folder), url) for server in range(SERVERS)]
            served += sum(pool.starmap(serve, work))
            clock.wall = START + 60 * (minute + 1)
            found = sync_experiment(trial, source)
            counted += found.outcomes
            assert found.late == 0
    status = trial.status()
    assert served == 1_000_000
    assert (status.state, status.answer) == ("decided", "a")
    assert status.samples == counted
    assert 100_000 < counted < 1_000_000
    assert status.intervals is not None
    assert min(status.intervals.sample_ratios.values()) > 0.001
    assert min(status.intervals.shares[group]["c"] for group in "xy") < 0.05
    assert audit(address, str(trial.head)).identical
    print(f"{warehouse}: decided after {counted:,} of {served:,} units, {status.intervals.closed} intervals")
    trial.close()
