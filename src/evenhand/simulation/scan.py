"""Scans: the operating characteristics of a procedure over a box of means.

Every point of a grid is simulated with its own random numbers, so the estimates are independent. Chances have
exact (Clopper-Pearson) 95% intervals, each for its own point.

A search for the worst case starts at the worst point of the grid and moves by half a step of the grid, then
by a quarter, and so on. A point that was chosen because it looked worst looks worse than it is, so the point
that is found is simulated again with other random numbers, and only these runs are reported.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.errors import BadInput, is_one_of, nearest, shown
from evenhand.model.argument_checks import callable_or_none, optional, whole_number
from evenhand.model.problem import NOBODY, Problem
from evenhand.procedure.spec import Procedure
from evenhand.procedure.state import NONE
from evenhand.result import Result
from evenhand.simulation.box import (
    Box,
    box_of,
    default_box,
    drawn_at,
    grid_of,
    tables_of,
    without_truth,
)
from evenhand.simulation.buffers import Rows
from evenhand.simulation.executors import Executor, given_or_new_executor
from evenhand.simulation.runs import Rate, exact_rate, standard_error
from evenhand.simulation.shards import CPU, Progress, prepare, run_job
from evenhand.study import Study, Truth, study_of

Array = NDArray[np.float64]

MOST_RUNS = 40_000_000  # of one grid: their rows are about 2.5 GB
MOST_SAMPLES = 50_000  # of a run, unless the caller gives another limit
ROUNDS = 6  # of a search
WORST = ("error", "power", "samples")
WIDE = 1.959963984540054  # standard errors on each side of an approximate 95% interval


@dataclass(frozen=True)
class MeanSamples:
    """The mean number of samples with its standard error and an approximate 95% interval."""

    mean: float
    se: float
    low: float
    high: float


@dataclass(frozen=True)
class ScanPoint:
    """The operating characteristics at one point of a box.

    Attributes
    ----------
    means : tuple of float
        The means of the ranged cells, in the order of the box.
    answer : str, optional
        The right answer at this point; None for none of the policies.
    error : Rate
        The chance of a decision for a wrong answer.
    power : Rate
        The chance of a decision for a right answer.
    undecided : Rate
        The chance that a run ends without a decision.
    samples : MeanSamples
        The expected number of samples.
    answers : dict
        The chance of a decision for each answer; with goal "screen": that a policy is found to meet the
        requirement.
    """

    means: tuple[float, ...]
    answer: str | None
    error: Rate
    power: Rate
    undecided: Rate
    samples: MeanSamples
    answers: dict[str, Rate]

    def to_dict(self) -> dict[str, Any]:
        """Return plain names and numbers."""
        return {
            "means": list(self.means),
            "answer": self.answer,
            "error": self.error._asdict(),
            "power": self.power._asdict(),
            "undecided": self.undecided._asdict(),
            "samples": {"mean": self.samples.mean, "se": self.samples.se, "low": self.samples.low,
                        "high": self.samples.high},
            "answers": {name: rate._asdict() for name, rate in self.answers.items()},
        }  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Scan(Result):
    """Operating characteristics over a box of means; `scan` returns one.

    Attributes
    ----------
    study : Study
        The study; means that are not ranged are those of its truth.
    box : tuple
        The ranges: policy, group, low, high and points of each.
    points : tuple of ScanPoint
        The grid; the last range varies fastest.
    replications, seed : int
        Runs at every point, and the seed.
    seconds : float
        The time that it took.
    searched : str, optional
        What was searched for: "error", "power" or "samples".
    found : ScanPoint, optional
        The worst point of the search, simulated again with other random numbers.

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bernoulli())
    >>> study = eh.Study(problem, truth=eh.Truth(means=[[0.9], [0.5]]))
    >>> found = eh.scan(study, {"b": {"x": (0.2, 0.8)}}, points=3, replications=20, seed=1, workers=1)
    >>> [point.means for point in found.points]
    [(0.2,), (0.5,), (0.8,)]
    """

    study: Study
    box: Box
    points: tuple[ScanPoint, ...]
    replications: int
    seed: int
    seconds: float
    searched: str | None = None
    found: ScanPoint | None = None

    def worst(self, of: str = "error") -> ScanPoint:
        """Return the point of the grid with the largest error, the smallest power or the most samples."""
        _check_worst(of)
        return max(self.points, key=lambda point: _badness(point, of))

    def to_dict(self) -> dict[str, Any]:
        """Return what `evenhand scan --json` prints."""
        return {
            "box": [
                {"policy": one.policy, "group": one.group, "low": one.low, "high": one.high,
                 "points": one.points}
                for one in self.box
            ],
            "points": [point.to_dict() for point in self.points],
            "worst": {of: self.worst(of).to_dict() for of in WORST},
            "search": None if self.found is None else {"for": self.searched} | self.found.to_dict(),
            "delta": self.study.procedure.delta,
            "replications": self.replications,
            "seed": self.seed,
            "seconds": self.seconds,
        }  # fmt: skip


def scan(
    problem: Problem | Study,
    box: Any = None,
    truth: Truth | ArrayLike | None = None,
    procedure: Procedure | None = None,
    points: int | None = None,
    replications: int = 1000,
    seed: int = 0,
    worst: str | None = None,
    max_samples: int | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
    device: str = CPU,
) -> Scan:
    """Simulate a procedure at all points of a grid over a box of means.

    Parameters
    ----------
    problem : Problem or Study
        The question; of a study its own truth and procedure are taken unless others are given.
    box : mapping, optional
        The ranges of means: {policy: {group: (low, high)}}, or (low, high, points). Unless given, the cell
        that a plan samples most, three standard errors to each side.
    truth : Truth or table, optional
        The means of all cells; those of the ranged cells are replaced.
    procedure : Procedure, optional
        How to sample and when to stop.
    points : int, optional
        Points of every range; 15 of one range, 7 each of two, 5 of three and 3 of more unless given.
    replications : int
        Runs at every point.
    seed : int
        The seed of all random numbers.
    worst : {"error", "power", "samples"}, optional
        Also search the box for the largest error, the smallest power or the most samples.
    max_samples : int, optional
        Where runs end undecided; that of the procedure, but at most 50,000 unless given. At some points of a
        box no number of samples decides.
    workers : int, optional
        The number of threads; one per core unless given.
    progress : callable, optional
        Called as progress(done, all) when runs finish.
    executor : Executor, optional
        An executor of your own instead of threads.
    device : {"cpu", "cuda"}
        Where the runs are computed; "cuda" is an NVIDIA GPU.

    Returns
    -------
    Scan
        Error, power, expected samples and the chance of each answer at every point, with intervals.

    Raises
    ------
    BadInput
        If a range is outside the domain of the family, or there are too many points.

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bernoulli())
    >>> box = {"b": {"x": (0.3, 0.6)}}
    >>> found = eh.scan(problem, box, [[0.9], [0.5]], points=2, replications=20, seed=1, workers=1)
    >>> found.worst("error").error.rate <= 0.05
    True
    """
    study = _study_with_truth(problem, truth, procedure, max_samples)
    for value, name, least in ((replications, "replications", 1), (seed, "seed", 0)):
        whole_number(value, name, least)
    if workers is not None:
        whole_number(workers, "workers", 1)
    callable_or_none(progress, "progress")
    if worst is not None:
        _check_worst(worst)
    ranges = box_of(study.problem, default_box(study) if box is None else box, points)
    values = grid_of(ranges)
    if len(values) * replications > MOST_RUNS:
        raise BadInput(
            f"a scan can have {MOST_RUNS:,} runs; this one has {len(values) * replications:,}. Give fewer "
            "replications or points."
        )
    begun = time.perf_counter()
    with given_or_new_executor(executor, workers, device) as chosen:
        work = _Work(
            study, ranges, replications, chosen, progress, device, runs_of(ranges, replications, worst)
        )
        grid = work.simulate(values, seed)
        found = None if worst is None else _search(work, ranges, values, grid, seed, worst)
    return Scan(study, ranges, tuple(grid), replications, seed, time.perf_counter() - begun, worst, found)


def runs_of(box: Box, replications: int, worst: str | None) -> int:
    """Return the largest number of runs of a scan, for a progress bar."""
    searched = 0 if worst is None else ROUNDS * 2 * len(box) + 1
    return replications * (math.prod(one.points for one in box) + searched)


@dataclass
class _Work:
    """Everything that the simulations of one scan share, and the number of runs that are done."""

    study: Study
    box: Box
    replications: int
    executor: Executor
    progress: Progress | None
    device: str
    total: int
    done: int = 0

    def simulate(self, values: Array, seed: int) -> list[ScanPoint]:
        """Return the operating characteristics at these points."""
        tables = tables_of(self.study, self.box, values)
        # screening adds up classifications over all replications of a job, so every point is a job of its own
        parts = [[number] for number in range(len(values))]
        if self.study.problem.goal != "screen":
            parts = [list(range(len(values)))]
        found: list[ScanPoint] = []
        for part in parts:
            rows = simulate_points(
                self.study, tables[part], self.replications, seed, self.executor, self._report, self.device
            )
            self.done += len(part) * self.replications
            found += [
                _point(self.study.problem, values[one], _rows_of(rows, place, self.replications))
                for place, one in enumerate(part)
            ]
        return found

    def _report(self, done: int, _: int) -> None:
        if self.progress is not None:
            self.progress(self.done + done, self.total)


def simulate_points(
    study: Study,
    tables: Array,
    replications: int,
    seed: int,
    executor: Executor,
    progress: Progress | None,
    device: str,
) -> Rows:
    """Return the rows of this number of replications at each table of means, one table after the other.

    All points are one job: one program, and on a GPU one launch.
    """
    job = prepare(without_truth(study), seed, (), drawn_at(study, tables, replications), device)
    return run_job(job, len(tables) * replications, executor, progress).rows


def _rows_of(rows: Rows, place: int, replications: int) -> Rows:
    here = slice(place * replications, (place + 1) * replications)
    return rows._replace(
        **{name: getattr(rows, name)[here] for name in ("samples", "stopped", "answer", "truth", "right")}
    )


def _point(problem: Problem, means: Array, rows: Rows) -> ScanPoint:
    """Return the operating characteristics of the runs at one point."""
    stopped, runs = rows.stopped, len(rows.samples)
    truth = int(rows.truth[0])
    counts = {name: _count(stopped & (rows.answer == k)) for k, name in enumerate(problem.policies)}
    if problem.goal == "screen":
        counts = dict(zip(problem.policies, rows.allowed.tolist(), strict=True))
    else:
        counts[NOBODY] = _count(stopped & (rows.answer == NONE))
    mean, se = float(rows.samples.mean()), standard_error(rows.samples)
    return ScanPoint(
        means=tuple(means.tolist()),
        answer=problem.policies[truth] if truth >= 0 else None,
        error=exact_rate(_count(stopped & ~rows.right), runs),
        power=exact_rate(_count(stopped & rows.right), runs),
        undecided=exact_rate(_count(~stopped), runs),
        samples=MeanSamples(mean, se, mean - WIDE * se, mean + WIDE * se),
        answers={name: exact_rate(count, runs) for name, count in counts.items()},
    )


def _count(flags: NDArray[np.bool_]) -> int:
    return int(np.count_nonzero(flags))


def _search(
    work: _Work, box: Box, values: Array, grid: Sequence[ScanPoint], seed: int, worst: str
) -> ScanPoint:
    """Return the worst point that a pattern search finds, simulated with random numbers of its own."""
    start = max(range(len(grid)), key=lambda place: _badness(grid[place], worst))
    here, best = values[start], grid[start]
    low, high = (np.array([getattr(one, end) for one in box]) for end in ("low", "high"))
    step = (high - low) / np.maximum([one.points - 1 for one in box], 1) / 2
    for number in range(ROUNDS):
        moves = np.concatenate([np.diag(step), -np.diag(step)])
        around = np.unique(np.clip(here + moves, low, high), axis=0)
        points = work.simulate(around, seed + 1 + number)
        place = max(range(len(points)), key=lambda place: _badness(points[place], worst))
        if _badness(points[place], worst) > _badness(best, worst):
            here, best = around[place], points[place]
        else:
            step = step / 2
    return work.simulate(here[np.newaxis], seed + 1 + ROUNDS)[0]


def _check_worst(worst: object) -> None:
    if not is_one_of(worst, WORST):
        raise BadInput(
            f"worst must be one of {', '.join(WORST)}; it is {shown(worst)}{nearest(str(worst), WORST)}"
        )


def _badness(point: ScanPoint, of: str) -> tuple[float, float]:
    """Return what orders points from good to bad; where no run erred, by samples."""
    by = {"error": point.error.rate, "power": -point.power.rate, "samples": point.samples.mean}
    return by[of], point.samples.mean


def _study_with_truth(
    given: Problem | Study, truth: Any, procedure: Procedure | None, max_samples: int | None
) -> Study:
    study = study_of(given, optional(procedure, Procedure, "procedure"))
    if truth is not None:
        means = truth if isinstance(truth, Truth) else Truth(means=study.problem.check_means(truth).tolist())
        study = replace(study, truth=means)
    if study.truth is None:
        raise BadInput(
            "a scan needs the means of the cells that are not ranged: give a truth, or a study with one."
        )
    most = min(study.procedure.max_samples, MOST_SAMPLES) if max_samples is None else max_samples
    return replace(study, procedure=replace(study.procedure, max_samples=most))
