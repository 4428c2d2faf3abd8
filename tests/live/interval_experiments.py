"""Small experiments in intervals: problems, and the counts of units that servers assign by hash."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import evenhand as eh
from evenhand.live.experiment import Experiment
from evenhand.live.journal import Journal
from tests.live.example_experiments import SetClock

POLICIES, GROUPS = ("a", "b", "c"), ("x", "y")
MEANS = {"a": {"x": 0.80, "y": 0.70}, "b": {"x": 0.70, "y": 0.66}, "c": {"x": 0.85, "y": 0.45}}
EVEN = {policy: dict.fromkeys(GROUPS, 0.7) for policy in (*POLICIES, "d")}  # no run of these ends


def problem(**more: Any) -> eh.Problem:
    """Policy a is the answer: c is better overall, and misses its floor in y."""
    return eh.Problem(
        list(POLICIES), {"x": 0.6, "y": 0.4}, eh.Bernoulli(), eh.Floors(0.6), mode="proportional", **more
    )


def create(address: str | Journal = ":memory:", volume: Any = 1_000, **options: Any) -> Experiment:
    settings = {name: options.pop(name) for name in ("floor", "salt", "length", "delay") if name in options}
    procedure = options.pop("procedure", eh.Procedure(delta=0.05))
    asked = options.pop("study", None) or problem()
    intervals = eh.Intervals(volume=volume, **settings)
    return Experiment.create(
        address, asked, replace(procedure, interval=intervals), seed=7, **{"clock": SetClock(), **options}
    )


def counts(
    shares: eh.Shares, units: int = 1_000, means: dict[str, dict[str, float]] = MEANS
) -> dict[str, dict[str, tuple[int, int]]]:
    """The number of units and of successes of every cell in an interval; the same every time."""
    rng = np.random.default_rng([shares.version, units])
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for group, arriving in zip(GROUPS, rng.multinomial(units, [0.6, 0.4]), strict=True):
        numbers = shares.version * 10**6 + np.arange(arriving)
        policies = eh.assign(numbers, group, shares)
        for policy in sorted(set(policies.tolist())):
            n = int((policies == policy).sum())
            found.setdefault(policy, {})[group] = (n, int(rng.binomial(n, means[policy][group])))
    return found


def play(trial: Experiment, most: int = 100, means: dict[str, dict[str, float]] = MEANS) -> int:
    """Run intervals until the end, or so many; return how many."""
    done = 0
    while done < most and not trial.is_over:
        shares = trial.shares()
        trial.tell_counts(shares.version, counts(shares, means=means), close=True)
        done += 1
    return done


Scores = list[tuple[int, str, str, float]]  # unit, policy, group, outcome


def shared(address: str | Journal = ":memory:", **options: Any) -> Experiment:
    """An experiment in intervals in which every policy serves every unit."""
    return create(address, 400, procedure=eh.Procedure(delta=0.05, items="shared"), **options)


def scores(
    version: int, units: int = 400, means: dict[str, dict[str, float]] = MEANS, agreement: float = 0.9,
    values: tuple[float, ...] = (0.0, 1.0),
) -> Scores:  # fmt: skip
    """Outcomes of every policy on the units of an interval, which mostly agree; the same every time.

    With more than two values they are spread evenly above and below the mean.
    """
    rng = np.random.default_rng([version, units])
    found: Scores = []
    for number in range(units):
        easy, group = rng.random(), "x" if rng.random() < 0.6 else "y"
        for policy, by_group in means.items():
            level = easy if rng.random() < agreement else rng.random()
            right = level < by_group[group]
            half = len(values) // 2
            value = values[half + int(level * 97) % half] if right else values[int(level * 89) % half]
            found.append((version * 10**6 + number, policy, group, value))
    return found


def paired_counts(given: Scores, bets: eh.PairIntervalBets | None = None) -> list[dict[str, Any]]:
    """The rows of counts of an interval: cells, and pairs with the sums of the bets where they are given."""
    table = {(unit, policy): outcome for unit, policy, _, outcome in given}
    places = {unit: group for unit, _, group, _ in given}
    policies = list(dict.fromkeys(policy for _, policy, _, _ in given))
    rows: list[dict[str, Any]] = []
    for group in GROUPS:
        units = [unit for unit, place in places.items() if place == group]
        x = {policy: np.array([table[unit, policy] for unit in units]) for policy in policies}
        for i, policy in enumerate(policies if units else ()):
            rows.append({"policy": policy, "group": group, "n": len(units), "sum": float(x[policy].sum())})
            for other in policies[i + 1 :]:
                apart = x[policy] - x[other]
                row = {"policy": policy, "other": other, "group": group, "n": len(units)}
                row |= {"sum": float(apart.sum()), "squares": float(np.square(apart).sum())}
                if bets is not None:
                    row["logs"] = [
                        float(np.log1p(bet.slope * (apart - bet.centre)).sum())
                        for bet in bets.rows
                        if (bet.policy, bet.other, bet.group) == (policy, other, group)
                    ]
                rows.append(row)
    return rows
