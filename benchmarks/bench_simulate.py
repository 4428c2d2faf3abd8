"""Simulated replications per second against the targets and the run times of the paper.

    python -m benchmarks simulate

Two threads share the work. Rates are computed from processor time, so they are the rates of two idle cores.
The commit before kernels were specialised is measured in the same run; the two alternate.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

import evenhand as eh
from benchmarks.earlier import COMMIT, ROOT, output, worktree
from benchmarks.rows import Row, less, more, seconds
from evenhand.study import load

EXAMPLES = ROOT / "examples"
WORKERS, SEED = 2, 7
TURNS = 3  # measurements of each of the two trees
# how many times faster than the earlier commit it must be
RATIOS = {"scaling": 1.8, "scaling, certified": 1.5, "soft": 1.5, "hundred": 1.5}
SIZES = (1_000, 4_000, 16_000)  # numbers of replications for the growth curve
GUARDRAILS, LONG = 4, 500  # guard-rails, and samples of each run, to compare their cost
MANY_POLICIES, STEPS = 100_000, 10_000  # STEPS: samples after the initial ones
PAPER = {
    "scaling": 1 / 60,
    "hundred": 1 / 540,
    "soft": 1 / 2460,
}  # replications per second, from the run times in the paper


def rows() -> Iterator[Row]:
    found, before = rates_of_both()
    yield from against_target("the paper's scaling instance", found["scaling"], 2_000.0, "scaling")
    yield from against_target("the paper's soft instance", found["soft"], 500.0, "soft")
    yield from against_target("100 policies, 12,000 samples in tens", found["hundred"], 50.0, "hundred")
    for name, least in RATIOS.items():
        yield more(f"{name}, against commit {COMMIT}", found[name], before[name], "runs/s", least)
    yield from relative_floors()
    yield from guardrails()
    yield from many_policies()
    yield from growth()


def instances() -> Iterator[tuple[str, eh.Problem, Any, eh.Procedure, int]]:
    """Yield the measured instances: name, problem, means, procedure and replications."""
    scaling, soft = load(EXAMPLES / "scaling.toml"), load(EXAMPLES / "soft.toml")
    quick = eh.Procedure(stopping="stylised", delta=0.05)
    yield "scaling", scaling.problem, scaling.means(), quick, 4_000
    yield "scaling, certified", scaling.problem, scaling.means(), eh.Procedure(delta=0.05), 1_000
    loose = eh.Procedure(stopping="stylised", delta=0.2)
    yield "soft", soft.problem, soft.means(), loose, 1_000
    means = np.random.default_rng(SEED).uniform(0.2, 0.9, (100, 3))
    budget = eh.Procedure(stopping=eh.Budget(12_000), batch=10, initial=2)
    yield "hundred", of_size(100), means, budget, 50


def rates_of_both() -> tuple[dict[str, float], dict[str, float]]:
    """Return the best rates of this tree and of the earlier one; the two are measured alternately."""
    found: tuple[dict[str, float], dict[str, float]] = ({}, {})
    with worktree() as tree:
        for _ in range(TURNS):
            for rates, place in zip(found, (ROOT, tree), strict=True):
                fresh = json.loads(output("benchmarks.bench_simulate", "rates", tree=place))
                rates.update({name: max(rate, rates.get(name, 0.0)) for name, rate in fresh.items()})
    return found


def measure_rates() -> dict[str, float]:
    """Return the replications per second of two cores by instance, after a warm-up."""
    found = {}
    for name, problem, means, procedure, replications in instances():
        simulated(problem, means, procedure, 2)
        begun = time.process_time()
        simulated(problem, means, procedure, replications)
        found[name] = WORKERS * replications / (time.process_time() - begun)
    return found


def against_target(name: str, ours: float, least: float, paper: str) -> Iterator[Row]:
    """Compare with the target and with the paper's time for one replication."""
    yield more(f"{name}, two cores", ours, least, "runs/s", 1.0)
    yield more(f"{name}, against the paper's own runs", ours, PAPER[paper], "runs/s")


def relative_floors() -> Iterator[Row]:
    """Measure runs per second with floors relative to a control against absolute ones, among 100 policies."""
    means = np.random.default_rng(SEED).uniform(0.2, 0.9, (100, 3))
    means[0] = 0.5
    procedure = eh.Procedure(stopping=eh.Budget(3_000), batch=10, initial=2)
    for family in (eh.Gaussian(1.0), eh.Bernoulli()):
        rates = []
        for floors in (eh.Floors(relative_to="policy 0", margin=0.2), eh.Floors(0.3)):
            problem = replace(of_size(100), family=family, constraint=floors)
            took = seconds(lambda problem=problem: simulated(problem, means, procedure, 20), 3)
            rates.append(WORKERS * 20 / took)
        name = f"100 policies, floors relative to a control against absolute ones, {family.name}"
        yield more(name, rates[0], rates[1], "runs/s", 0.4)


def guardrails() -> Iterator[Row]:
    """Measure the time of one sample with several guard-rails against that with one."""
    one, several = time_with_guardrails(1), time_with_guardrails(GUARDRAILS)
    name = f"one sample with {GUARDRAILS} guard-rails, against {GUARDRAILS} times one with a single one"
    yield less(name, several * 1e6, GUARDRAILS * one * 1e6, "us", 1.0)


def time_with_guardrails(count: int) -> float:
    """Return the seconds of processor time of one sample; the risk is so small that no run stops early."""
    rails = [eh.Guardrail(f"g{j}", eh.Bernoulli(), eh.Caps(0.5)) for j in range(count)]
    names = [f"p{k}" for k in range(5)]
    problem = eh.Problem(names, {"x": 0.5, "y": 0.5}, eh.Gaussian(1.0), guardrails=rails)
    means = np.random.default_rng(SEED).uniform(0.1, 0.4, (5, 2)).tolist()
    truth = eh.Truth(means, guardrails={rail.name: means for rail in rails})
    procedure = eh.Procedure(delta=1e-200, max_samples=LONG)
    took = seconds(lambda: simulated(problem, truth, procedure, 40), 3)
    return took / (40 * LONG)


def many_policies() -> Iterator[Row]:
    """Measure time and peak memory of one step with 100,000 policies."""
    step, held = child("steps", MANY_POLICIES)
    yield less("one step among 100,000 policies, 3 groups", step * 1e3, 0.3, "ms", 1.0)
    yield less("memory of those steps, everything loaded", held, 1.0, "GB", 1.0)


def growth() -> Iterator[Row]:
    """Measure time over the number of replications, and the memory of one more replication."""
    found = {size: child("runs", size) for size in SIZES}
    curve = tuple((float(size), took) for size, (took, _) in found.items())
    size, took = np.log(np.array(curve)).T
    exponent = float(np.polyfit(size, took, 1)[0])
    yield Row("simulation time over replications", exponent, 1.0, "exponent", 1.0 / exponent, curve=curve)
    # a row mainly has an answer, a stopping time and the counts of 15 cells
    added = (found[SIZES[-1]][1] - found[SIZES[0]][1]) / (SIZES[-1] - SIZES[0]) * 1024**2
    yield less("memory that one more replication takes", max(added, 0.01), 1.0, "kB", 1.0)


def child(what: str, size: int) -> tuple[float, float]:
    """Return seconds and peak memory (GB) of a run in a separate process."""
    command = [sys.executable, "-m", "benchmarks.bench_simulate", what, str(size)]
    took, held = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return took, held


def simulated(problem: eh.Problem, means: Any, procedure: eh.Procedure, replications: int) -> eh.Runs:
    return eh.simulate(problem, means, procedure, replications, SEED, workers=WORKERS)


def of_size(policies: int) -> eh.Problem:
    """Return a problem with this many policies and Gaussian outcomes with sd 1."""
    groups = {"group 1": 0.3, "group 2": 0.3, "group 3": 0.4}
    return eh.Problem([f"policy {k}" for k in range(policies)], groups, eh.Gaussian(1.0), eh.Floors(0.3))


def one_step(policies: int) -> float:
    """Return the seconds per sample after the initial ones, from the shortest of long and of short runs."""
    means = np.random.default_rng(SEED).uniform(0.2, 0.9, (policies, 3))
    asked, first, times = of_size(policies), 3 * policies, []
    for more_samples in (1, 1 + STEPS):
        procedure = eh.Procedure(stopping=eh.Budget(first + more_samples), initial=1)
        times.append(seconds(lambda procedure=procedure: simulated(asked, means, procedure, 1), 3))
    return (times[1] - times[0]) / STEPS


def peak() -> float:
    """Return the peak memory of this process, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


def runs(replications: int) -> float:
    """Return the seconds for this many replications of the scaling instance."""
    study, procedure = load(EXAMPLES / "scaling.toml"), eh.Procedure(stopping="stylised", delta=0.05)
    begun = time.process_time()
    simulated(study.problem, study.means(), procedure, replications)
    return time.process_time() - begun


if __name__ == "__main__":
    if sys.argv[1] == "rates":
        print(json.dumps(measure_rates()))
    else:
        action = {"steps": one_step, "runs": runs}[sys.argv[1]]
        action(1_000)  # warm-up
        print(json.dumps([action(int(sys.argv[2])), peak()]))
