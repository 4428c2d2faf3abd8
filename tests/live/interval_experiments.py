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
