"""Compare the evidence by linear bets with that by mixtures, in samples until the certified decision.

    python -m benchmarks.linear_bets [fresh] [stroke] [large] [gaussian] [judged] [--instances 50]
        [--replications 100]

`fresh`: random instances that were not used for tuning, half of them Bernoulli, a quarter binomial and a
quarter bounded (Beta outcomes). `stroke`: the stroke trial. `large`: the paper's operational-scale study with
20 policies, modelled as Bernoulli. `gaussian`: random instances with Gaussian outcomes, in every sampling
mode, every other one with arrivals that differ from the shares. Instance j is drawn by NumPy's default
generator with seed FIRST_SEED + j. Both kinds of evidence get the same outcomes; runs that do not stop count
at the cap. Prints one JSON line per instance, then the table of docs/sampling.md.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import evenhand as eh
from evenhand.cli.paper import paper_module
from evenhand.errors import EvenhandError
from evenhand.model.problem import MODES
from evenhand.simulation.outcome_laws import DrawnTruth
from evenhand.study import Truth

Array = NDArray[np.float64]

FIRST_SEED = 30_000
SIMULATION_SEED = 7
TIMES = (30.0, 600.0)  # characteristic times of the instances that are kept
DELTA = 0.05
CAP = 50_000
DRAWS = 400  # outcomes per cell of a bounded instance, drawn with replacement
KINDS = ("bernoulli", "binomial", "bernoulli", "bounded")
RULES = ("mixture", "linear-bets")
SUBJECTS = ("fresh", "stroke", "large", "gaussian", "judged")
EFFECTS = (0.15, 2.0)  # lead of the best Gaussian policy, in standard deviations
FLOOR, CLEAR = -1.0, 0.15  # floor of Gaussian cells, and the least distance of a mean to it


class Result(NamedTuple):
    """Mean samples and shares of wrong and unstopped runs, by kind of evidence."""

    name: str
    kind: str
    samples: tuple[float, float]
    wrong: tuple[float, float]
    unstopped: tuple[float, float]
    difference: float  # of the mean samples, linear bets minus mixture
    se: float


def main() -> None:
    """Run the comparison and print it."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("subjects", nargs="*", choices=[*SUBJECTS, []], default=[])
    asked.add_argument("--instances", type=int, default=50)
    asked.add_argument("--first", type=int, default=0, help="number of the first fresh instance")
    asked.add_argument("--replications", type=int, default=100)
    asked.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    chosen = asked.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name, kind, problem, truth in _subjects(chosen, Path(folder)):
            result = measure(name, kind, problem, truth, chosen.replications, chosen.device)
            results.append(result)
            print(json.dumps(result._asdict()), flush=True)
    print("\n".join(table(results)))


def _subjects(
    chosen: argparse.Namespace, folder: Path
) -> Iterator[tuple[str, str, eh.Problem, Truth | DrawnTruth]]:
    """Yield name, kind, problem and truth of everything that is compared."""
    subjects = chosen.subjects or SUBJECTS
    if "fresh" in subjects:
        for number in range(chosen.first, chosen.first + chosen.instances):
            kind = KINDS[number % len(KINDS)]
            yield f"instance {number}", kind, *draw(FIRST_SEED + number, kind, folder)
    if "gaussian" in subjects:
        for mode in MODES:
            for number in range(chosen.first, chosen.first + chosen.instances):
                yield (
                    f"gaussian {number}, {mode}", f"gaussian, {mode}",
                    *draw_gaussian(FIRST_SEED + number, mode, number % 2 == 1),
                )  # fmt: skip
    if "judged" in subjects:
        for number in range(chosen.first, chosen.first + chosen.instances):
            yield from _judged(number, folder)
    if not {"stroke", "large"} & set(subjects):
        return
    paper_module()
    from evenhand.paper import instances

    if "stroke" in subjects:
        problem, means = instances.stroke_trial()
        yield "stroke trial", "stroke trial", problem, Truth(means=tuple(map(tuple, means.tolist())))
    if "large" in subjects:
        drawn = instances.OperationalMeans(20)
        yield (
            "operational scale, 20 policies", "operational scale",
            instances.operational_scale(20, eh.Bernoulli()), DrawnTruth(drawn),
        )  # fmt: skip


def _judged(number: int, folder: Path) -> Iterator[tuple[str, str, eh.Problem, Truth]]:
    """Yield an instance of `fresh` and one of `gaussian` for data that no rule chose."""
    seed, other = FIRST_SEED + number, number % 2 == 1
    arrivals = "other arrivals" if other else "arrivals as the shares"
    kind = KINDS[number // 2 % len(KINDS)]
    problem, truth = draw(seed, kind, folder)
    drawn = np.random.default_rng([seed, 1]).dirichlet(np.full(len(problem.groups), 5.0))
    came = dict(zip(problem.group_names, drawn.tolist(), strict=True)) if other else None
    problem = replace(problem, mode="proportional", arrivals=came, normalise=True)
    yield f"instance {number}", f"judged {kind}, {arrivals}", problem, truth
    yield f"gaussian {number}", f"judged gaussian, {arrivals}", *draw_gaussian(seed, "proportional", other)


def draw_gaussian(seed: int, mode: str, own_arrivals: bool) -> tuple[eh.Problem, Truth]:
    """Draw an instance with 3 to 5 policies, 2 to 4 groups and sd 1; repeat until no mean is at the floor."""
    rng = np.random.default_rng(seed)
    while True:
        policies, groups = int(rng.integers(3, 6)), int(rng.integers(2, 5))
        shares, arrivals = rng.dirichlet(np.full(groups, 5.0)), rng.dirichlet(np.full(groups, 5.0))
        effect = math.exp(rng.uniform(*np.log(EFFECTS)))
        behind = np.concatenate([[0.0, effect], effect * rng.uniform(1.0, 3.0, policies - 2)])
        means = rng.normal(0.0, 0.3, (policies, groups))
        means -= (means @ shares + behind)[:, np.newaxis]
        if np.abs(means - FLOOR).min() < CLEAR or means[0].min() < FLOOR:
            continue
        names = [f"group {g}" for g in range(groups)]
        problem = eh.Problem(
            [f"policy {k}" for k in range(policies)],
            dict(zip(names, shares.tolist(), strict=True)),
            eh.Gaussian(1.0),
            eh.Floors(FLOOR),
            mode=mode,
            arrivals=dict(zip(names, arrivals.tolist(), strict=True)) if own_arrivals else None,
            normalise=True,
        )
        return problem, Truth(means=tuple(map(tuple, means.tolist())))


def draw(seed: int, kind: str, folder: Path) -> tuple[eh.Problem, Truth]:
    """Draw an instance with 4 to 8 policies and 2 to 4 groups; repeat until T* is in TIMES."""
    rng = np.random.default_rng(seed)
    while True:
        policies, groups = int(rng.integers(4, 9)), int(rng.integers(2, 5))
        shares = rng.dirichlet(np.full(groups, 5.0))
        means = np.clip(
            rng.uniform(0.1, 0.9, (policies, 1)) + rng.normal(0.0, 0.12, (policies, groups)), 0.1, 0.9
        )
        trials = 5 if kind == "binomial" else 1
        family = {
            "bernoulli": eh.Bernoulli(),
            "binomial": eh.Binomial(trials),
            "bounded": eh.Bounded(0.0, 1.0),
        }
        problem = eh.Problem(
            [f"policy {k}" for k in range(policies)],
            {f"group {l}": float(share) for l, share in enumerate(shares)},
            family[kind],
            eh.Floors(0.3 * trials),
            normalise=True,
        )
        truth = Truth(means=tuple(map(tuple, (trials * means).tolist())))
        if kind == "bounded":
            truth = _beta(rng, problem, means, folder / f"{seed}.csv")
        try:
            time = eh.plan(problem, truth.cell_means(problem)).time_high
        except EvenhandError:  # undecidable: a tie or a mean on its floor
            continue
        if TIMES[0] <= time <= TIMES[1]:
            return problem, truth


def _beta(rng: np.random.Generator, problem: eh.Problem, means: Array, path: Path) -> Truth:
    """Return a truth whose outcomes are drawn from a table of Beta outcomes; parameters sum to 20."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("policy", "group", "outcome"))
        for policy, row in zip(problem.policies, means, strict=True):
            for group, mean in zip(problem.group_names, row, strict=True):
                for x in rng.beta(20 * mean, 20 * (1 - mean), DRAWS):
                    writer.writerow((policy, group, repr(float(x))))
    return Truth(data=path.name, folder=path.parent)


def measure(
    name: str, kind: str, problem: eh.Problem, truth: Truth | DrawnTruth, replications: int, device: str
) -> Result:
    """Simulate both kinds of evidence on common random numbers."""
    runs = [
        eh.simulate(
            problem,
            truth,
            eh.Procedure(
                delta=DELTA,
                max_samples=CAP if kind != "stroke trial" else 400_000,
                evidence=rule,
                sampling="uniform" if kind.startswith("judged") else "ts-ids",
            ),
            replications,
            SIMULATION_SEED,
            device=device,
        )
        for rule in RULES
    ]
    gap = (runs[1].samples - runs[0].samples).astype(float)
    pairs = [
        (float(run.samples.mean()), float(run.wrong.mean()), float(1 - run.stopped.mean())) for run in runs
    ]
    samples, wrong, unstopped = zip(*pairs, strict=True)
    return Result(
        name, kind, samples, wrong, unstopped, float(gap.mean()), float(gap.std() / math.sqrt(replications))
    )


def table(results: list[Result]) -> list[str]:
    """Return a row per kind of instance: the ratio of samples, wins, losses and errors."""
    columns = (
        "outcomes", "instances", "samples, mixture", "linear bets / mixture", "best", "worst", "fewer on",
        "more on", "wrong", "unstopped",
    )  # fmt: skip
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for kind in dict.fromkeys(result.kind for result in results):
        mine = [result for result in results if result.kind == kind]
        ratios = np.array([result.samples[1] / result.samples[0] for result in mine])
        fewer = sum(result.difference < -2 * result.se for result in mine)
        more = sum(result.difference > 2 * result.se for result in mine)
        before = np.exp(np.mean([math.log(result.samples[0]) for result in mine]))
        wrong, unstopped = (
            " / ".join(f"{np.mean([getattr(result, part)[j] for result in mine]):.3f}" for j in range(2))
            for part in ("wrong", "unstopped")
        )
        lines.append(
            f"| {kind} | {len(mine)} | {before:,.0f} | {math.exp(np.log(ratios).mean()):.2f} "
            f"| {ratios.min():.2f} | {ratios.max():.2f} | {fewer} | {more} | {wrong} | {unstopped} |"
        )
    return lines


if __name__ == "__main__":
    main()
