"""Judging outcomes on shared items: time and memory for a million outcomes, and the items saved by pairing.

    python -m benchmarks items

The data are a CSV file of 10 policies on 100,000 items in 4 groups. The time is processor time, of a process
that has judged a smaller file before. "Items until the decision" compares pairs with the order-free rule on
the same outcomes of two policies of accuracies .90 and .88 that agree on most items.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import evenhand as eh
from benchmarks.rows import Row, less

POLICIES, ITEMS, GROUPS = 10, 100_000, 4
MEANS = np.linspace(0.93, 0.90, POLICIES)
AGREE = 0.8  # share of items on which a policy's outcome follows the item's difficulty
CHILD = """
import json, resource, sys, time
from benchmarks.bench_items import question
import evenhand as eh

eh.judge(question(), sys.argv[1], replications=0)
begun = time.process_time()
verdict = eh.judge(question(), sys.argv[2], replications=0)
seconds = time.process_time() - begun
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
print(json.dumps([seconds, peak / 1e9, verdict.samples]))
"""


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder, "small.csv"), Path(folder, "large.csv")
        write(small, 1_000)
        write(large, ITEMS)
        child = [sys.executable, "-c", CHILD, str(small), str(large)]
        answer = subprocess.run(child, check=True, capture_output=True, text=True).stdout
    taken, memory, samples = json.loads(answer)
    yield less(f"judge {samples:,} outcomes of {POLICIES} policies on {ITEMS:,} items", taken, 10.0, "s", 1.0)
    yield less("memory of the same", memory, 1.0, "GB", 1.0)
    paired, apart = items_until_decided(True), items_until_decided(False)
    yield less("items until the decision, paired against the order-free rule", paired, apart, "items", 2.0)


def question() -> eh.Problem:
    """Return the problem of the benchmark."""
    groups = {f"group {g}": 1 / GROUPS for g in range(GROUPS)}
    return eh.Problem([f"policy {k}" for k in range(POLICIES)], groups, eh.Bernoulli(), eh.Floors(0.85))


def write(path: Path, items: int) -> None:
    """Write outcomes on shared items, policy after policy."""
    rng = np.random.default_rng(0)
    level = rng.random(items)
    with path.open("w") as file:
        file.write("policy,group,item,outcome\n")
        for k, mean in enumerate(MEANS):
            x = np.where(rng.random(items) < AGREE, level, rng.random(items)) < mean
            file.writelines(
                f"policy {k},group {j % GROUPS},item {j},{int(right)}\n" for j, right in enumerate(x)
            )


def items_until_decided(paired: bool, seeds: int = 10) -> float:
    """Return the mean number of items at which two policies are told apart, within a tenth."""
    problem = eh.Problem(["a", "b"], {"x": 0.5, "y": 0.5}, eh.Bernoulli(), None)
    total = 0.0
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        level, own = rng.random(40_000), rng.random((2, 40_000))
        agree = rng.random((2, 40_000)) < AGREE
        x = np.where(agree, level, own) < np.array([[0.90], [0.88]])
        items = 200
        while items < 40_000 and not _decides(problem, x[:, :items].astype(float), paired):
            items = int(1.1 * items)
        total += items
    return total / seeds


def _decides(problem: eh.Problem, x: np.ndarray, paired: bool) -> bool:
    import pandas as pd

    numbers = np.arange(x.shape[1])
    frame = pd.concat(
        pd.DataFrame(
            {"policy": name, "group": np.where(numbers % 2, "x", "y"), "item": numbers, "outcome": row}
        )
        for name, row in zip("ab", x, strict=True)
    )
    return eh.judge(problem, frame if paired else frame.drop(columns="item"), replications=0).decided
