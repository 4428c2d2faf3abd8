"""The verbs: simulate a procedure on a truth, compare several on common random numbers, follow one run.

Every verb is a function of its arguments and the seed alone: threads, processes and clusters change how long
it takes and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from evenhand.errors import BadInput
from evenhand.model.problem import Problem
from evenhand.procedure.spec import Procedure
from evenhand.simulation.buffers import Rows, Trace
from evenhand.simulation.calibrate import Calibration, calibrate
from evenhand.simulation.executors import Executor, lent_or_own
from evenhand.simulation.outcome_laws import Draw, Drawn, Tables
from evenhand.simulation.runs import Runs, standard_error
from evenhand.simulation.shards import CPU, Progress, part_of, prepare, run_job, trace_job
from evenhand.study import Study, Truth

__all__ = ["Calibration", "Comparison", "calibrate", "compare", "follow", "simulate", "simulate_study"]

WIDE = 1.959963984540054  # standard errors each side of an approximate 95% interval


def simulate(
    problem: Problem,
    truth: Truth | Drawn | Draw | ArrayLike,
    procedure: Procedure | None = None,
    replications: int = 1000,
    seed: int = 0,
    checkpoints: Sequence[int] = (),
    workers: int | None = None,
    progress: Progress | None = None,
    device: str = CPU,
) -> Runs:
    """Run the procedure on outcomes drawn from a truth, many times over.

    `truth` is a table of means (a row per policy), a `Truth`, a table per replication (R x K x L), or a
    function (seed, replication) -> means. `workers` are threads; `progress(done, replications)` is called as
    runs finish. `device` is "cpu", or "cuda" for an NVIDIA graphics processor.
    """
    found, drawn = _truth_of(problem, truth)
    study = Study(problem, procedure or Procedure(), found)
    with lent_or_own(None, workers, device) as executor:
        return simulate_study(study, replications, seed, checkpoints, executor, progress, drawn, device)


def simulate_study(
    study: Study,
    replications: int,
    seed: int,
    checkpoints: Sequence[int],
    executor: Executor,
    progress: Progress | None = None,
    drawn: Drawn | None = None,
    device: str = CPU,
) -> Runs:
    """The same for a study as it is written down, on an executor of your own."""
    return run_job(prepare(study, seed, checkpoints, drawn, device), replications, executor, progress)


def follow(study: Study, seed: int, replication: int, most: int | None = None) -> tuple[Rows, Trace]:
    """One replication sample by sample, the same that `simulate` ran under this number."""
    return trace_job(prepare(study, seed), replication, most)


class Difference(NamedTuple):
    """A mean of paired differences, with its standard error and an approximate 95% interval."""

    mean: float
    se: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """Several studies on the same random numbers; differences are to the first, run by run."""

    runs: Mapping[str, Runs]

    def samples(self, name: str) -> Difference:
        """How many more samples than the first this one takes."""
        return _paired(self.runs[name].samples, self._first.samples)

    def correct(self, name: str) -> Difference:
        """How much more often than the first this one is right."""
        return _paired(self.runs[name].correct, self._first.correct)

    def to_list(self) -> list[dict[str, Any]]:
        """What `evenhand compare --json` prints."""
        against = next(iter(self.runs))
        entries = []
        for name, runs in self.runs.items():
            entry: dict[str, Any] = {"name": name} | runs.to_dict() | {"difference": None}
            if name != against:
                entry["difference"] = {
                    "against": against,
                    "samples": self.samples(name)._asdict(),
                    "correct": self.correct(name)._asdict(),
                }
            entries.append(entry)
        return entries

    @property
    def _first(self) -> Runs:
        return next(iter(self.runs.values()))


def compare(
    studies: Mapping[str, Study],
    replications: int = 1000,
    seed: int = 0,
    checkpoints: Sequence[int] = (),
    workers: int | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
    device: str = CPU,
) -> Comparison:
    """Run several studies on common random numbers: the d-th sample of a cell is the same in all of them."""
    if len(studies) < 2:
        raise BadInput(f"a comparison needs at least two studies; it got {len(studies)}.")
    jobs = {name: prepare(study, seed, checkpoints, device=device) for name, study in studies.items()}
    runs: dict[str, Runs] = {}
    with lent_or_own(executor, workers, device) as crew:
        for number, (name, job) in enumerate(jobs.items()):
            runs[name] = run_job(job, replications, crew, part_of(progress, number, len(jobs)))
    return Comparison(runs)


def _truth_of(problem: Problem, truth: Any) -> tuple[Truth | None, Drawn | None]:
    """The truth as a noun, or as means drawn for each replication."""
    if isinstance(truth, Truth):
        return truth, None
    if isinstance(truth, Drawn):
        return None, truth
    if callable(truth):
        return None, Drawn(truth)
    if np.ndim(truth) == 3:
        return None, Drawn(Tables(np.asarray(truth, dtype=float)))
    return Truth(means=tuple(map(tuple, problem.check_means(truth).tolist()))), None


def _paired(these: Any, those: Any) -> Difference:
    if len(these) != len(those):
        raise BadInput(
            f"runs can be paired only if they are equally many; there are {len(these)} and {len(those)}."
        )
    gaps = np.asarray(these, dtype=float) - np.asarray(those, dtype=float)
    mean = float(gaps.mean())
    se = standard_error(gaps)
    return Difference(mean, se, mean - WIDE * se, mean + WIDE * se)
