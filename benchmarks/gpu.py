"""Measure simulations of the scaling instance on an NVIDIA GPU.

    python -m benchmarks.gpu                      # on the machine with the GPU; needs CuPy, no network
    python -m benchmarks.gpu --prepare cpu.npz    # on any machine: the CPU's 20,000 runs
    python -m benchmarks.gpu --cpu cpu.npz        # on the machine with the GPU, with these runs

Prints a JSON line for each row, and at last the whole run as one line in the format of
benchmarks/history/runs.jsonl. With --keep that line is appended to the history. The program is compiled
before anything is timed. Rows of the kernel alone are timed on the GPU; the others include the copies to the
CPU and all else that `simulate` does.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import evenhand as eh
from benchmarks.rows import Row, less, more
from evenhand.simulation.buffers import new_rows
from evenhand.simulation.runs import Runs
from evenhand.simulation.shards import Shard, prepare

ROOT = Path(__file__).parents[1]
SIZES = (1_000_000, 4_000_000, 16_000_000)
COMPARED, SEED = 20_000, 1
TARGET = 1_000_000.0  # runs per second
SCAN_BOX = {"a3": {"g1": (-0.6, 0.6, 9)}, "a1": {"g3": (0.3, 1.1, 9)}}
SCAN_RUNS, SCAN_SAMPLES, SCAN_SECONDS = 10_000, 2_000, 30.0
# decisions must be equal; evidence may differ in the last digits
EQUAL = ("samples", "asked", "stopped", "answer", "truth", "right")


def main() -> None:
    """Print the rows, and the run as one line of the history."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.splitlines()[0])
    parser.add_argument("--prepare", metavar="FILE", help="only write the CPU's runs to FILE.npz")
    parser.add_argument("--cpu", metavar="FILE", help="read the CPU's runs from FILE.npz")
    parser.add_argument("--keep", action="store_true", help="append the run to benchmarks/history/runs.jsonl")
    asked = parser.parse_args()
    if asked.prepare:
        runs_on("cpu", COMPARED).save(asked.prepare)
        return
    found = []
    for row in rows(asked.cpu):
        print(row.line(), flush=True)
        found.append(row)
    line = json.dumps(run_of(found))
    print(line)
    if asked.keep:
        with (ROOT / "benchmarks/history/runs.jsonl").open("a") as file:
            file.write(line + "\n")


def rows(cpu: str | None) -> Iterator[Row]:
    """Yield runs per second, equality with the CPU and the time of a scan."""
    runs_on("cuda", 2_000)  # compiles
    for size in SIZES:
        begun = time.perf_counter()
        runs_on("cuda", size)
        rate = size / (time.perf_counter() - begun)
        least = 1.0 if size == SIZES[-1] else None
        yield more(f"the scaling instance on a GPU, {size:,} runs", rate, TARGET, "runs/s", least)
        rate = size / kernel_seconds(size)
        yield more(f"the scaling instance on a GPU, kernel alone, {size:,} runs", rate, TARGET, "runs/s")
    yield equality(Runs.load(cpu) if cpu else runs_on("cpu", COMPARED))
    yield scan_row()


def kernel_seconds(replications: int) -> float:
    """Return the time that the GPU takes for one launch, without copies."""
    import cupy

    from evenhand.simulation import cuda

    shard = Shard(prepare(scaling_study(), SEED, device="cuda"), 0, replications)
    rows = new_rows(replications, 0, shard.job.spec.phi.shape)
    program = cuda._program_of(shard.job)
    begun, ended = cupy.cuda.Event(), cupy.cuda.Event()
    begun.record()
    found = cuda._launch(cupy, program, shard, rows)
    ended.record()
    ended.synchronize()
    assert int(found[0].min()) > 0, "every run has samples"
    return float(cupy.cuda.get_elapsed_time(begun, ended)) / 1000.0


def equality(cpu: Runs) -> Row:
    """Compare the decisions of the GPU with those of the CPU, run by run."""
    gpu = runs_on("cuda", COMPARED)
    same = np.all([getattr(gpu.rows, name) == getattr(cpu.rows, name) for name in EQUAL], axis=0)
    name = f"runs on a GPU with the decisions of the CPU, of {COMPARED:,}"
    return more(name, float(np.count_nonzero(same)), float(COMPARED), "runs", 1.0)


def scan_row() -> Row:
    """Measure a scan of 81 points; the program for drawn means is compiled before."""
    study = scaling_study()
    for replications in (10, SCAN_RUNS):
        begun = time.perf_counter()
        eh.scan(
            study, SCAN_BOX, replications=replications, seed=SEED, max_samples=SCAN_SAMPLES, device="cuda"
        )
        took = time.perf_counter() - begun
    name = f"a scan of the scaling instance on a GPU, 81 points of {SCAN_RUNS:,} runs"
    return less(name, took, SCAN_SECONDS, "s", 1.0)


def runs_on(device: str, replications: int) -> Runs:
    """Simulate the scaling instance with the certified rule at a risk of 5%."""
    return eh.simulate(scaling_study(), replications=replications, seed=SEED, device=device)


def scaling_study() -> eh.Study:
    """Return the scaling instance with the certified rule at a risk of 5%."""
    return eh.load(ROOT / "examples/scaling.toml")


def run_of(found: list[Row]) -> dict[str, Any]:
    """Return the run as the history has it, with the name of the device."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "device": properties["name"].decode(),
        "rows": [json.loads(row.line()) for row in found],
    }


def _commit() -> str | None:
    try:
        command = ["git", "rev-parse", "--short", "HEAD"]
        found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    except FileNotFoundError:
        return None
    return found.stdout.strip() or None


if __name__ == "__main__":
    main()
