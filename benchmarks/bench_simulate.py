"""Simulated replications per second against what was promised and what the paper's own runs took.

    python -m benchmarks simulate

Two threads share the work. Times are those of the processors, so a rate is what two cores to themselves
would give: on a machine with nothing else to do, the same as by the wall clock.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import evenhand as eh
from benchmarks.rows import Row, less, more
from evenhand.study import load

EXAMPLES = Path(__file__).parents[1] / "examples"
WORKERS, SEED = 2, 7
MANY = (250, 1_000, 4_000)  # replications of the curve
CROWD, STEPS = 100_000, 2_000  # policies, and samples beyond the initial ones
PAPER = {"scaling": 1 / 60, "hundred": 1 / 540, "soft": 1 / 2460}  # replications per second, as it reports


def rows() -> Iterator[Row]:
    scaling = load(EXAMPLES / "scaling.toml")
    stylised = eh.Procedure(stopping="stylised", delta=0.05)
    yield from promised("the paper's scaling instance", rate(scaling, stylised, 4_000), 2_000.0, "scaling")
    soft = load(EXAMPLES / "soft.toml")
    soft_rule = eh.Procedure(stopping="stylised", delta=0.2)
    yield from promised("the paper's soft instance", rate(soft, soft_rule, 1_000), 500.0, "soft")
    yield from promised("100 policies, 12,000 samples in tens", hundred(50), 50.0, "hundred")
    yield from crowd()
    yield from burden(scaling, stylised)


def rate(study: eh.Study, procedure: eh.Procedure, replications: int) -> float:
    """Replications per second, after some that do not count."""
    means = np.array(study.truth.means)
    simulated(study.problem, means, procedure, 10)
    begun = time.process_time()
    simulated(study.problem, means, procedure, replications)
    return WORKERS * replications / (time.process_time() - begun)


def hundred(replications: int) -> float:
    """The same for 100 policies on a budget, under the paper's model of them."""
    means = np.random.default_rng(SEED).uniform(0.2, 0.9, (100, 3))
    procedure = eh.Procedure(stopping=eh.Budget(12_000), batch=10, initial=2)
    simulated(of_size(100), means, procedure, 2)
    begun = time.process_time()
    simulated(of_size(100), means, procedure, replications)
    return WORKERS * replications / (time.process_time() - begun)


def promised(name: str, ours: float, least: float, paper: str) -> Iterator[Row]:
    """Beside the promise, and beside the paper's own time for one replication."""
    yield more(f"{name}, two cores", ours, least, "runs/s", 1.0)
    yield more(f"{name}, against the paper's own runs", ours, PAPER[paper], "runs/s")


def crowd() -> Iterator[Row]:
    """One step among 100,000 policies, in a process of its own: time, and what it holds at most."""
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench_simulate"], check=True, capture_output=True, text=True
    )
    step, held = json.loads(found.stdout)
    yield less("one step among 100,000 policies, 3 groups", step * 1e3, 1.0, "ms", 1.0)
    yield less("memory of those steps, everything loaded", held, 1.0, "GB", 1.0)


def burden(study: eh.Study, procedure: eh.Procedure) -> Iterator[Row]:
    """Time over the number of replications, and what a replication more adds to the peak of memory."""
    means, curve = np.array(study.truth.means), []
    held = peak()
    for many in MANY:
        begun = time.process_time()
        simulated(study.problem, means, procedure, many)
        curve.append((float(many), time.process_time() - begun))
    size, took = np.log(np.array(curve)).T
    exponent = float(np.polyfit(size, took, 1)[0])
    yield Row(
        "simulation time over replications", exponent, 1.0, "exponent", 1.0 / exponent, curve=tuple(curve)
    )
    # a row holds an answer, a stopping time, the counts of 15 cells, and little else
    yield less("memory per replication", (peak() - held) * 1024**2 / MANY[-1], 2.0, "kB", 1.0)


def simulated(problem: eh.Problem, means: Any, procedure: eh.Procedure, replications: int) -> eh.Runs:
    return eh.simulate(problem, means, procedure, replications, SEED, workers=WORKERS)


def of_size(policies: int) -> eh.Problem:
    groups = {"group 1": 0.3, "group 2": 0.3, "group 3": 0.4}
    return eh.Problem([f"policy {k}" for k in range(policies)], groups, eh.Gaussian(1.0), eh.Floors(0.3))


def one_step(policies: int) -> float:
    """Seconds per sample once every cell has its first: the time of longer runs less that of shorter ones."""
    means = np.random.default_rng(SEED).uniform(0.2, 0.9, (policies, 3))
    first, times = 3 * policies, []
    for more_samples in (1, 1 + STEPS):
        procedure = eh.Procedure(stopping=eh.Budget(first + more_samples), initial=1)
        begun = time.process_time()
        simulated(of_size(policies), means, procedure, 1)
        times.append(time.process_time() - begun)
    return (times[1] - times[0]) / STEPS


def peak() -> float:
    """The most memory this process has held, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


if __name__ == "__main__":
    one_step(1_000)  # compiled and warm
    print(json.dumps([one_step(CROWD), peak()]))
