"""A sweep on a Dask cluster: two sampling rules and two scenarios, in shards.

`dask="local"` starts a small cluster on this machine; for a real cluster give the address of its scheduler.
The sweep continues when workers are lost. The numbers are identical to those of a single thread, and a second
sweep with the same store computes nothing.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from evenhand.simulation.executors import open_executor
from evenhand.simulation.sweep import Sweep, grid, sweep
from evenhand.study import Truth, load

FIRST_GROUP_MEANS = (-0.9, -0.6)  # of the policy that is best overall but misses its floor of 0
REPLICATIONS = 100


def main(dask: str | None = "local", store: str | None = None) -> Sweep:
    study = load(Path(__file__).with_name("scaling.toml"))
    rules = {
        rule: replace(study, procedure=replace(study.procedure, sampling=rule))
        for rule in ("ts-ids", "uniform")
    }
    scenarios = {}
    for mean in FIRST_GROUP_MEANS:
        means = [list(row) for row in study.means()]
        means[2][0] = mean
        scenarios[f"misses by {-mean}"] = Truth(means=tuple(map(tuple, means)))
    with tempfile.TemporaryDirectory() as folder, open_executor(2, dask=dask) as cluster:
        found = sweep(grid(rules, scenarios), REPLICATIONS, 1, store or folder, cluster)
    for (rule, scenario), runs in found.runs.items():
        print(f"{rule:8} {scenario:14} {runs.samples.mean():6.0f} samples on average")
    return found


if __name__ == "__main__":
    main(*sys.argv[1:2])
