"""Sweeps: shards under their content, resumed after any death, equal to the serial result bit for bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evenhand.errors import BadInput
from evenhand.simulation.executors import Processes, Serial
from evenhand.simulation.shards import Shard, prepare, run_job
from evenhand.simulation.sweep import ShardStore, address_of, grid, sweep
from evenhand.study import Truth
from tests.simulation.studies import coins, same_rows

EASY = Truth(means=((0.9, 0.8), (0.2, 0.3)))
STUDIES = grid(
    {"ours": coins(), "uniform": coins(sampling="uniform")}, {"plain": coins().truth, "easy": EASY}
)
REPLICATIONS, SHARD = 30, 8


@pytest.fixture(scope="module")
def serial():
    return {name: run_job(prepare(study, 3), REPLICATIONS, Serial()) for name, study in STUDIES.items()}


def test_a_sweep_is_the_serial_result(serial, tmp_path: Path) -> None:
    with Processes(2) as executor:
        found = sweep(STUDIES, REPLICATIONS, 3, tmp_path, executor, shard=SHARD)
    assert found.computed == 4 * 4
    assert_equal(found, serial)


def test_what_is_in_the_store_is_not_computed_again(serial, tmp_path: Path) -> None:
    first = sweep(STUDIES, 16, 3, tmp_path, Serial(), shard=SHARD)
    assert (first.computed, first.reused) == (8, 0)
    more = sweep(STUDIES, REPLICATIONS, 3, tmp_path, Serial(), shard=SHARD)
    assert (more.computed, more.reused) == (8, 8)
    assert_equal(more, serial)
    again = sweep(STUDIES, REPLICATIONS, 3, tmp_path, Refusing(), shard=SHARD)
    assert (again.computed, again.reused) == (0, 16)
    assert_equal(again, serial)


def test_a_damaged_shard_is_computed_again(serial, tmp_path: Path) -> None:
    sweep(STUDIES, REPLICATIONS, 3, tmp_path, Serial(), shard=SHARD)
    one, other = sorted(tmp_path.rglob("*.npz"))[:2]
    one.write_bytes(one.read_bytes()[:50])
    other.write_bytes(sorted(tmp_path.rglob("*.npz"))[2].read_bytes())  # another shard under this name
    found = sweep(STUDIES, REPLICATIONS, 3, tmp_path, Serial(), shard=SHARD)
    assert (found.computed, found.reused) == (2, 14)
    assert_equal(found, serial)


def test_a_shard_is_known_by_all_that_its_rows_depend_on() -> None:
    job = prepare(coins(), 3)
    changed = [
        Shard(prepare(coins(), 4), 0, 8),
        Shard(prepare(coins(), 3, (50,)), 0, 8),
        Shard(prepare(coins(delta=0.11), 3), 0, 8),
        Shard(prepare(coins(sampling="uniform"), 3), 0, 8),
        Shard(job, 1, 8),
        Shard(job, 0, 9),
    ]
    addresses = {address_of(shard) for shard in [Shard(job, 0, 8), *changed]}
    assert len(addresses) == 7
    assert address_of(Shard(prepare(coins(), 3), 0, 8)) == address_of(Shard(job, 0, 8))


def test_a_store_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="cannot be made"):
        ShardStore(tmp_path / "file" / "store")


def test_a_driver_killed_midway_loses_no_finished_shard(serial, tmp_path: Path) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.simulation.slow_sweep", str(tmp_path)], cwd=Path(__file__).parents[2]
    )
    wait_for(lambda: len(list(tmp_path.rglob("*.npz"))) >= 3, driver)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    kept = len(list(tmp_path.rglob("[!.]*.npz")))
    assert kept >= 3
    found = sweep(STUDIES, REPLICATIONS, 3, tmp_path, Serial(), shard=SHARD)
    assert found.reused >= kept
    assert found.computed == 16 - found.reused
    assert_equal(found, serial)


def assert_equal(found, serial) -> None:
    assert set(found.runs) == set(serial)
    for name, runs in serial.items():
        assert same_rows(found.runs[name], runs)


def wait_for(ready, process: subprocess.Popen, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert process.poll() is None, "ended too early"
        assert time.monotonic() < end, "took too long"
        time.sleep(0.02)


class Refusing(Serial):
    """Does nothing, and minds being asked to."""

    def run(self, task, jobs):
        assert not jobs
        return iter(())
