"""A Dask cluster: a scheduler and two workers in processes of their own over TCP, one killed midway."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from evenhand.errors import BadInput
from evenhand.simulation.executors import DaskCluster, Serial
from evenhand.simulation.shards import prepare, run_job
from evenhand.simulation.sweep import sweep
from tests.simulation.studies import same_rows, scaling

pytest.importorskip("distributed", reason="the dask extra is not installed")

STUDIES = {("ours", "scaling"): scaling(), ("certified", "scaling"): scaling(stopping="certified", initial=2)}
REPLICATIONS = 600


class Cluster:
    """A scheduler and its workers, each a process of its own on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "scheduler.json"
        self.processes = [self._start("scheduler", "--port", "0", "--no-dashboard", "--host", "127.0.0.1")]
        self.address = self._address()
        options = ("--nthreads", "1", "--no-dashboard", "--no-nanny", "--host", "127.0.0.1")
        self.workers = [self._start("worker", self.address, *options) for _ in range(2)]
        self.processes += self.workers

    def _start(self, role: str, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{role}", *options]
        command += (
            ["--scheduler-file", str(self.file)]
            if role == "scheduler"
            else ["--local-directory", str(self.folder)]
        )
        return subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=Path(__file__).parents[2]
        )

    def _address(self) -> str:
        import json

        for _ in range(600):
            with suppress(FileNotFoundError, json.JSONDecodeError):
                return str(json.loads(self.file.read_text())["address"])
            time.sleep(0.1)
        raise AssertionError("the scheduler did not come up")

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker_midway_gives_the_serial_result(
    cluster: Cluster, tmp_path: Path
) -> None:
    killed = []

    def kill_one(done: int, total: int) -> None:
        if done >= total // 3 and not killed:
            os.kill(cluster.workers[0].pid, signal.SIGKILL)
            killed.append(done)

    with DaskCluster(cluster.address) as executor:
        assert cluster.address.startswith("tcp://127.0.0.1:")
        found = sweep(STUDIES, REPLICATIONS, 5, tmp_path / "store", executor, progress=kill_one, shard=20)
    assert killed
    assert cluster.workers[0].wait() == -signal.SIGKILL
    assert cluster.workers[1].poll() is None
    for name, study in STUDIES.items():
        assert same_rows(found.runs[name], run_job(prepare(study, 5), REPLICATIONS, Serial()))


def test_an_address_without_a_service_is_refused() -> None:
    with pytest.raises(BadInput, match="did not answer"):
        DaskCluster("tcp://127.0.0.1:9")


@pytest.mark.parametrize("address", ["nonsense", "http://127.0.0.1:1"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(BadInput, match="must be the address"):
        DaskCluster(address)
