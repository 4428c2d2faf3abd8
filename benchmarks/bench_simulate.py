"""Simulated replications per second against what was promised and what the paper's own runs took.

    python -m benchmarks simulate

Two threads share the work. Times are those of the processors, so a rate is what two cores to themselves
would give: on a machine with nothing else to do, the same as by the wall clock. The commit before kernels
were specialised runs beside this one, in turns.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import evenhand as eh
from benchmarks.earlier import COMMIT, ROOT, output, worktree
from benchmarks.rows import Row, less, more
from evenhand.study import load

EXAMPLES = ROOT / "examples"
WORKERS, SEED = 2, 7
TURNS = 3  # of each of two trees
# how many times faster than the earlier commit it must be
RATIOS = {"scaling": 1.8, "scaling, certified": 1.5, "soft": 1.5, "hundred": 1.5}
MANY = (1_000, 4_000, 16_000)  # replications of the curve
CROWD, STEPS = 100_000, 2_000  # policies, and samples beyond the initial ones
PAPER = {"scaling": 1 / 60, "hundred": 1 / 540, "soft": 1 / 2460}  # replications per second, as it reports


def rows() -> Iterator[Row]:
    found, before = in_turns()
    yield from promised("the paper's scaling instance", found["scaling"], 2_000.0, "scaling")
    yield from promised("the paper's soft instance", found["soft"], 500.0, "soft")
    yield from promised("100 policies, 12,000 samples in tens", found["hundred"], 50.0, "hundred")
    for name, least in RATIOS.items():
        yield more(f"{name}, against commit {COMMIT}", found[name], before[name], "runs/s", least)
    yield from crowd()
    yield from burden()


def instances() -> Iterator[tuple[str, eh.Problem, Any, eh.Procedure, int]]:
    """What is measured: name, problem, means, procedure and replications."""
    scaling, soft = load(EXAMPLES / "scaling.toml"), load(EXAMPLES / "soft.toml")
    quick = eh.Procedure(stopping="stylised", delta=0.05)
    yield "scaling", scaling.problem, scaling.means(), quick, 4_000
    yield "scaling, certified", scaling.problem, scaling.means(), eh.Procedure(delta=0.05), 1_000
    loose = eh.Procedure(stopping="stylised", delta=0.2)
    yield "soft", soft.problem, soft.means(), loose, 1_000
    means = np.random.default_rng(SEED).uniform(0.2, 0.9, (100, 3))
    budget = eh.Procedure(stopping=eh.Budget(12_000), batch=10, initial=2)
    yield "hundred", of_size(100), means, budget, 50


def in_turns() -> tuple[dict[str, float], dict[str, float]]:
    """The best rates of this tree and of the earlier one, measured by turns."""
    found: tuple[dict[str, float], dict[str, float]] = ({}, {})
    with worktree() as tree:
        for _ in range(TURNS):
            for rates, place in zip(found, (ROOT, tree), strict=True):
                fresh = json.loads(output("benchmarks.bench_simulate", "rates", tree=place))
                rates.update({name: max(rate, rates.get(name, 0.0)) for name, rate in fresh.items()})
    return found


def rates() -> dict[str, float]:
    """Replications per second of two cores, after some that do not count."""
    found = {}
    for name, problem, means, procedure, replications in instances():
        simulated(problem, means, procedure, 2)
        begun = time.process_time()
        simulated(problem, means, procedure, replications)
        found[name] = WORKERS * replications / (time.process_time() - begun)
    return found


def promised(name: str, ours: float, least: float, paper: str) -> Iterator[Row]:
    """Beside the promise, and beside the paper's own time for one replication."""
    yield more(f"{name}, two cores", ours, least, "runs/s", 1.0)
    yield more(f"{name}, against the paper's own runs", ours, PAPER[paper], "runs/s")


def crowd() -> Iterator[Row]:
    """One step among 100,000 policies: time, and what it holds at most."""
    step, held = child("crowd", CROWD)
    yield less("one step among 100,000 policies, 3 groups", step * 1e3, 0.3, "ms", 1.0)
    yield less("memory of those steps, everything loaded", held, 1.0, "GB", 1.0)


def burden() -> Iterator[Row]:
    """Time over the number of replications, and what a replication more adds to the peak of memory."""
    found = {many: child("runs", many) for many in MANY}
    curve = tuple((float(many), took) for many, (took, _) in found.items())
    size, took = np.log(np.array(curve)).T
    exponent = float(np.polyfit(size, took, 1)[0])
    yield Row("simulation time over replications", exponent, 1.0, "exponent", 1.0 / exponent, curve=curve)
    # a row holds an answer, a stopping time, the counts of 15 cells, and little else
    added = (found[MANY[-1]][1] - found[MANY[0]][1]) / (MANY[-1] - MANY[0]) * 1024**2
    yield less("memory that one more replication takes", max(added, 0.01), 1.0, "kB", 1.0)


def child(what: str, size: int) -> tuple[float, float]:
    """Seconds and GB of a run in a process of its own: what it holds at most is its own."""
    command = [sys.executable, "-m", "benchmarks.bench_simulate", what, str(size)]
    took, held = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return took, held


def simulated(problem: eh.Problem, means: Any, procedure: eh.Procedure, replications: int) -> eh.Runs:
    return eh.simulate(problem, means, procedure, replications, SEED, workers=WORKERS)


def of_size(policies: int) -> eh.Problem:
    """So many policies under the paper's model of a hundred: outcomes with a standard deviation of 1."""
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


def runs(replications: int) -> float:
    """Seconds for so many replications of the scaling instance."""
    study, procedure = load(EXAMPLES / "scaling.toml"), eh.Procedure(stopping="stylised", delta=0.05)
    begun = time.process_time()
    simulated(study.problem, study.means(), procedure, replications)
    return time.process_time() - begun


if __name__ == "__main__":
    if sys.argv[1] == "rates":
        print(json.dumps(rates()))
    else:
        action = {"crowd": one_step, "runs": runs}[sys.argv[1]]
        action(1_000)  # loaded and warm
        print(json.dumps([action(int(sys.argv[2])), peak()]))
