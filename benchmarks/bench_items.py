"""Shared items: time and memory to judge a million outcomes, the items saved by pairing, time per decision.

    python -m benchmarks items

The data are a CSV file of 10 policies on 100,000 items in 4 groups. The time is processor time, of a process
that has judged a smaller file before. "Labels until the decision" compares pairs with the order-free rule on
the same outcomes of four models, on items of four groups in turn, at delta = 0.05 and floors of 0.85. A label
serves all models. "Groups chosen" is the rule of `evaluate`, which chooses the group of the next item. Two
models agree on 93% or 96% of the items: an item's difficulty has this share of the variance of a model's
latent score. "Live experiments" are simulated runs of `items = "shared"`.

A decision is the choice of the next item and of who answers it, and a check of the stopping rule.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

import evenhand as eh
from benchmarks.rows import Row, less
from evenhand.evaluation.pool import open_pool
from evenhand.evaluation.sampling import POPULATION, SharedItems
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.decide import check
from evenhand.procedure.item_steps import ask_item, next_item, record_item
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import RUNNING, STOPPED, new_state, new_work
from evenhand.verdicts.apply_rule import apply_stopping_rule
from evenhand.verdicts.counts import ready
from evenhand.verdicts.items import Answers, Items
from evenhand.verdicts.shared_items import Comparisons, judge_items

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

POLICIES, ITEMS, GROUPS = 10, 100_000, 4
MEANS = np.linspace(0.93, 0.90, POLICIES)
AGREE = 0.8  # share of items on which a policy's outcome follows the item's difficulty
ACCURACIES = np.array(
    [[0.93, 0.91, 0.90, 0.92], [0.92, 0.90, 0.87, 0.90], [0.96, 0.95, 0.80, 0.94], [0.90, 0.88, 0.89, 0.86]]
)
AGREEMENTS = {".93": 0.8, ".96": 0.95}
MEAN_AGREEMENTS = {".93": 0.9121, ".96": 0.9455}  # the same, as the average over pairs and groups
MOST_LABELS = {".93": 6_200.0, ".96": 3_600.0}  # targets with chosen groups
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
    for agreement, loading in AGREEMENTS.items():
        paired, apart = labels_until_decided(loading, True), labels_until_decided(loading, False)
        name = f"labels until the decision, agreement {agreement}, paired against the order-free rule"
        yield less(name, paired, apart, "labels", 2.5)
        live = labels_of_live_experiments(agreement)
        name = f"labels until the decision, agreement {agreement}, live experiments on shared items"
        yield less(name, live, MOST_LABELS[agreement], "labels", 1.0)
        chosen = labels_with_chosen_groups(loading)
        name = f"labels until the decision, agreement {agreement}, paired, groups chosen"
        yield less(name, chosen, MOST_LABELS[agreement], "labels", 1.0)
    name = "decision with 20 policies and 8 groups after 100,000 shared items"
    yield less(name, 1e3 * seconds_per_decision(), 1.0, "ms", 1.0)


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


def labels_with_chosen_groups(loading: float, seeds: int = 30, of_each_group: int = 15_000) -> float:
    """Return the mean number of labels of `evaluate` about the population: it chooses only the group."""
    items, total = 4 * of_each_group, 0
    pool = open_pool([{"group": "wxyz"[n % 4]} for n in range(items)], "group", None)
    for seed in range(seeds):
        outcomes = _outcomes(loading, seed, items)
        sampling = SharedItems(_four_models(), eh.Procedure(delta=0.05), pool, seed, POPULATION, True)
        while not sampling.finished and (asked := sampling.next()) is not None:
            sampling.record(asked, {k: float(outcomes[k, asked.item]) for k in asked.policies})
            total += 1
    return total / seeds


def labels_of_live_experiments(agreement: str, runs: int = 600) -> float:
    """Return the mean number of labels of simulated live experiments on shared items."""
    truth = eh.Truth(means=ACCURACIES.tolist(), agreement=MEAN_AGREEMENTS[agreement])
    procedure = eh.Procedure(delta=0.05, initial=5, items="shared")
    found = eh.simulate(_four_models(), truth, procedure, runs, seed=3, workers=1)
    return float(found.items.mean())


def seconds_per_decision(policies: int = 20, groups: int = 8, items: int = 100_000) -> float:
    """Return the processor time of a decision after so many items."""
    names = [f"policy {k}" for k in range(policies)], {f"group {g}": 1 / groups for g in range(groups)}
    problem = eh.Problem(*names, eh.Bernoulli(), eh.Floors(0.5))
    spec = compile_spec(problem, eh.Procedure(items="shared", max_samples=10**9))
    state, work, answers = new_state(spec), new_work(spec), np.ones(policies, dtype=bool)
    rng, means = np.random.default_rng(0), np.linspace(0.9, 0.89, policies)

    def record(g: int) -> None:
        level = np.where(rng.random(policies) < AGREE, rng.random(), rng.random(policies))
        ask_item(state, work, g, answers)
        record_item(spec, state, work, g, answers, np.where(answers, level < means, math.nan))

    def decide() -> None:
        next_item(spec, state, work, -1, answers)
        check(spec, state, work)
        state.clock[STOPPED] = RUNNING

    for number in range(items):
        record(number % groups)
    taken = []
    for number in range(50):
        record(number % groups)  # without new outcomes a decision would take its results from the cache
        begun = time.process_time()
        decide()
        taken.append(time.process_time() - begun)
    return min(taken)


def _four_models() -> eh.Problem:
    groups = dict(zip("wxyz", (0.4, 0.3, 0.2, 0.1), strict=True))
    return eh.Problem(list("abcd"), groups, eh.Bernoulli(), eh.Floors(0.85))


def _outcomes(loading: float, seed: int, items: int) -> Array:
    """Return outcomes (models, items) on items of four groups in turn."""
    rng, group = np.random.default_rng(seed), np.arange(items) % 4
    difficulty, own = rng.standard_normal(items), rng.standard_normal((4, items))
    level = math.sqrt(loading) * difficulty + math.sqrt(1 - loading) * own
    return np.asarray(level < norm.ppf(ACCURACIES)[:, group], dtype=float)


def labels_until_decided(loading: float, paired: bool, seeds: int = 12, most: int = 60_000) -> float:
    """Return the mean number of labels until four models are distinguished within 3%, each asked."""
    problem, total = _four_models(), 0
    spec = compile_spec(problem, eh.Procedure(delta=0.05))
    for seed in range(seeds):
        group, outcomes = np.arange(most) % 4, _outcomes(loading, seed, most)
        labels = 400
        while labels < most and not _decides(problem, spec, group[:labels], outcomes[:, :labels], paired):
            labels = int(1.03 * labels)
        total += labels
    return total / seeds


def _decides(problem: eh.Problem, spec: Spec, group: Ints, outcomes: Array, paired: bool) -> bool:
    """Return whether these outcomes of every model on every item decide."""
    state = new_state(spec)
    for g in range(state.n.shape[0]):
        state.n[g], state.s[g] = (group == g).sum(), outcomes[:, group == g].sum(axis=1)
    state = ready(spec, state)
    if not paired:
        return apply_stopping_rule(spec, state).decided
    numbers = np.arange(group.size)
    items = Items(group, tuple(Answers(numbers, row.copy()) for row in outcomes), 0)
    return judge_items(problem, spec, state, Comparisons(spec, state, items))[1].decided
