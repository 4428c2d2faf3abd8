"""What intervals cost: the units assigned in runs in intervals against those of runs one by one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evenhand.procedure.choose_evidence import evidence_of
from evenhand.simulation.executors import Executor
from evenhand.simulation.runs import Runs, standard_error
from evenhand.simulation.shards import Progress, prepare, run_job
from evenhand.study import Study

MOST = 200  # runs one by one, which take longer
WIDE = 1.959963984540054  # standard errors on each side of an approximate 95% interval


@dataclass(frozen=True)
class IntervalCost:
    """Units assigned in intervals over units assigned one by one, on common random numbers."""

    replications: int
    assigned: float  # mean of the runs one by one, with those whose outcomes were not known at the end
    se: float
    ratio: float  # of the mean numbers
    low: float  # an approximate 95% interval
    high: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, as `evenhand simulate --json` prints them."""
        return {
            "replications": self.replications,
            "assigned": {"mean": self.assigned, "se": self.se},
            "ratio": {"ratio": self.ratio, "low": self.low, "high": self.high},
        }

    def sentence(self) -> str:
        """Return the cost in words."""
        return (
            f"That is {self.ratio:.2f} times the units of a run one by one (95% interval {self.low:.2f} to "
            f"{self.high:.2f}), {self.assigned:,.0f} on average."
        )


def run_one_by_one(
    study: Study, runs: Runs, executor: Executor, progress: Progress | None = None
) -> IntervalCost:
    """Return the cost of intervals, from runs of the same study and evidence without them."""
    same = evidence_of(study.problem, study.procedure)
    alone = replace(study, procedure=replace(study.procedure, interval=None, evidence=same))
    count = min(runs.replications, MOST)
    found = run_job(prepare(alone, runs.seed), count, executor, progress)
    return cost_of(runs, found)


def cost_of(runs: Runs, one_by_one: Runs) -> IntervalCost:
    """Return the cost of intervals from both kinds of runs; runs of the same number are paired."""
    theirs = np.asarray(one_by_one.assigned, dtype=float)
    ours = np.asarray(runs.assigned[: theirs.size], dtype=float)
    ratio = float(ours.mean() / theirs.mean())
    error = standard_error(ours - ratio * theirs) / float(theirs.mean())  # of a ratio of paired means
    return IntervalCost(
        theirs.size, float(theirs.mean()), standard_error(theirs), ratio, ratio - WIDE * error,
        ratio + WIDE * error,
    )  # fmt: skip
