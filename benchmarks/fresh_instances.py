"""Compare the sampling rules on random instances that were not used for tuning.

    python -m benchmarks.fresh_instances [--instances 50] [--replications 200] [--stopping stylised]

The instances, the rules and all settings below were fixed before the first run. Instance j is drawn by
NumPy's default generator with seed FIRST_SEED + j; a draw is kept when its characteristic time lies in TIMES,
so that no instance is trivial and none runs for hours. All rules get the same outcomes (common random
numbers). Prints one JSON line per instance and rule, then the table of docs/sampling.md.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import evenhand as eh
from evenhand.errors import EvenhandError
from evenhand.study import Truth

Array = NDArray[np.float64]

FIRST_SEED = 20_000
SIMULATION_SEED = 7
TIMES = (30.0, 600.0)
DELTA = 0.05
INITIAL = 2
CAP = 50_000
REFERENCE = "ts-ids"
RULES: dict[str, str | eh.TrackAndStop] = {
    REFERENCE: "ts-ids",
    "ids": "ids",
    "frank-wolfe": "frank-wolfe",
    "exact-tracking": "exact-tracking",
    "top-two": "top-two",
    "track-and-stop, step 1": eh.TrackAndStop(),
    "track-and-stop, diminishing": eh.TrackAndStop(diminishing=True),
    "two-stage": "two-stage",
    "policy-track-and-stop": "policy-track-and-stop",
    "uniform": "uniform",
}


class Instance(NamedTuple):
    """A problem, its true means and its characteristic time."""

    seed: int
    problem: eh.Problem
    means: Array
    time: float


class Result(NamedTuple):
    """The result of one rule on one instance."""

    seed: int
    rule: str
    samples: float
    wrong: float
    unstopped: float
    difference: float  # to the reference, in samples
    se: float


def main() -> None:
    """Run the comparison and print it."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--instances", type=int, default=50)
    asked.add_argument("--replications", type=int, default=200)
    asked.add_argument("--stopping", choices=("stylised", "certified"), default="stylised")
    chosen = asked.parse_args()
    results: list[Result] = []
    for number in range(chosen.instances):
        instance = draw(FIRST_SEED + number)
        for result in measure(instance, chosen.replications, chosen.stopping):
            results.append(result)
            print(json.dumps(result._asdict() | {"time": instance.time}), flush=True)
    print("\n".join(table(results)))


def draw(seed: int) -> Instance:
    """Draw an instance with 2 to 4 groups and 4 to 8 policies; repeat until T* is in TIMES."""
    rng = np.random.default_rng(seed)
    while True:
        policies, groups = int(rng.integers(4, 9)), int(rng.integers(2, 5))
        shares = rng.dirichlet(np.full(groups, 5.0))
        binary = bool(rng.integers(2))
        low, high, floor = (0.1, 0.9, 0.3) if binary else (-1.0, 1.5, 0.0)
        overall = rng.uniform(low, high, (policies, 1))
        means = np.clip(overall + rng.normal(0.0, 0.15 * (high - low), (policies, groups)), low, high)
        problem = eh.Problem(
            [f"policy {k}" for k in range(policies)],
            {f"group {l}": float(share) for l, share in enumerate(shares)},
            eh.Bernoulli() if binary else eh.Gaussian(0.5),
            eh.Floors(floor),
            normalise=True,
        )
        try:
            time = eh.plan(problem, means).time_high
        except EvenhandError:  # undecidable: a tie or a mean on its floor
            continue
        if TIMES[0] <= time <= TIMES[1]:
            return Instance(seed, problem, means, time)


def measure(instance: Instance, replications: int, stopping: str) -> Iterator[Result]:
    """Simulate all rules on one instance, on common random numbers."""
    truth = Truth(means=tuple(map(tuple, instance.means.tolist())))
    studies = {
        name: eh.Study(
            instance.problem,
            eh.Procedure(sampling=rule, stopping=stopping, delta=DELTA, initial=INITIAL, max_samples=CAP),
            truth,
        )
        for name, rule in RULES.items()
    }
    found = eh.compare(studies, replications, SIMULATION_SEED, workers=2)
    for name, runs in found.runs.items():
        gap = found.samples(name)
        yield Result(
            instance.seed, name, float(runs.samples.mean()), float(runs.wrong.mean()),
            float(1 - runs.stopped.mean()), gap.mean, gap.se,
        )  # fmt: skip


def table(results: list[Result]) -> list[str]:
    """Return a row per rule: samples relative to the reference, wins, losses and errors."""
    reference = {r.seed: r for r in results if r.rule == REFERENCE}
    lines = [
        "| rule | samples / ts-ids | worst | best | better on | worse on | wrong | unstopped |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for rule in RULES:
        mine = [r for r in results if r.rule == rule]
        ratios = np.array([r.samples / reference[r.seed].samples for r in mine])
        better = sum(r.difference < -2 * r.se for r in mine)
        worse = sum(r.difference > 2 * r.se for r in mine)
        wrong, unstopped = np.mean([r.wrong for r in mine]), np.mean([r.unstopped for r in mine])
        lines.append(
            f"| `{rule}` | {math.exp(np.log(ratios).mean()):.2f} | {ratios.max():.2f} | {ratios.min():.2f} "
            f"| {better} | {worse} | {wrong:.3f} | {unstopped:.3f} |"
        )
    return lines


if __name__ == "__main__":
    main()
