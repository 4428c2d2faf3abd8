"""`simulate`, `compare` and `follow`: run procedures on a given truth; what intervals cost.

Every result is a function of the arguments and the seed; executors affect only the running time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from evenhand.errors import BadInput, is_one_of, nearest, shown
from evenhand.model.argument_checks import callable_or_none, instance_of, optional, whole_number
from evenhand.model.problem import Problem
from evenhand.procedure.compile_spec import evidence_of
from evenhand.procedure.spec import Procedure
from evenhand.result import Result
from evenhand.simulation.buffers import Rows, Trace
from evenhand.simulation.calibrate import Calibration, calibrate
from evenhand.simulation.executors import Executor, given_or_new_executor
from evenhand.simulation.outcome_laws import Draw, DrawnTruth, MeansByReplication
from evenhand.simulation.runs import Runs, standard_error
from evenhand.simulation.shards import CPU, MOST_REPLICATIONS, Progress, part_of, prepare, run_job, trace_job
from evenhand.study import Study, Truth, study_of

__all__ = ["Calibration", "Comparison", "calibrate", "compare", "follow", "simulate", "simulate_study"]

MOST_ONE_BY_ONE = 200  # runs against which the cost of intervals is measured; they take longer
WIDE = 1.959963984540054  # standard errors on each side of an approximate 95% interval


def simulate(
    problem: Problem | Study,
    truth: Truth | DrawnTruth | Draw | ArrayLike | Mapping[str, Any] | None = None,
    procedure: Procedure | None = None,
    replications: int = 1000,
    seed: int = 0,
    checkpoints: Sequence[int] = (),
    workers: int | None = None,
    progress: Progress | None = None,
    device: str = CPU,
) -> Runs:
    """Run the procedure many times on outcomes drawn from a truth.

    Parameters
    ----------
    problem : Problem or Study
        The question; of a study its own truth and procedure are taken unless others are given.
    truth : Truth, table, dict, frame or callable
        The means (a row per policy, or by name), a `Truth`, a table for each replication (R x K x L), or a
        function (seed, replication) -> means.
    procedure : Procedure, optional
        How to sample and when to stop; the default procedure unless given.
    replications : int
        The number of runs.
    seed : int
        The seed of all random numbers.
    checkpoints : sequence of int
        Numbers of samples at which the best estimate of every run is recorded.
    workers : int, optional
        The number of threads; one per core unless given.
    progress : callable, optional
        Called as progress(done, replications) when runs finish.
    device : {"cpu", "cuda"}
        Where the runs are computed; "cuda" is an NVIDIA GPU.

    Returns
    -------
    Runs
        A row per run: samples, answer, whether it stopped; with rates and their exact intervals.

    Raises
    ------
    BadInput
        If the truth does not fit the problem, or a number is out of range.

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["a", "b"], {"x": 0.5, "y": 0.5}, eh.Bernoulli(), eh.Floors(0.3))
    >>> runs = eh.simulate(problem, [[0.9, 0.8], [0.5, 0.4]], eh.Procedure(delta=0.1), 100, seed=1, workers=1)
    >>> bool(runs.correct.mean() >= 0.9), runs.replications
    (True, 100)
    """
    _check_numbers(replications, seed, checkpoints, workers, progress)
    study, drawn = _study_of(problem, truth, procedure)
    with given_or_new_executor(None, workers, device) as executor:
        return simulate_study(study, replications, seed, checkpoints, executor, progress, drawn, device)


def simulate_study(
    study: Study,
    replications: int,
    seed: int,
    checkpoints: Sequence[int],
    executor: Executor,
    progress: Progress | None = None,
    drawn: DrawnTruth | None = None,
    device: str = CPU,
) -> Runs:
    """Run a study many times on a given executor."""
    return run_job(prepare(study, seed, checkpoints, drawn, device), replications, executor, progress)


def follow(study: Study, seed: int, replication: int, most: int | None = None) -> tuple[Rows, Trace]:
    """Return one replication sample by sample, as `simulate` ran it under this number."""
    return trace_job(prepare(study, seed), replication, most)


class Difference(NamedTuple):
    """A mean of paired differences, with its standard error and an approximate 95% interval."""

    mean: float
    se: float
    low: float
    high: float


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Result):
    """Several studies on the same random numbers; differences are to the first, run by run.

    `compare` returns one.

    Attributes
    ----------
    runs : mapping
        The runs of every study, by its name.

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bernoulli())
    >>> truth = eh.Truth(means=[[0.9], [0.5]])
    >>> one, two = eh.Study(problem, truth=truth), eh.Study(problem, eh.Procedure("uniform"), truth)
    >>> found = eh.compare({"one": one, "two": two}, replications=20, seed=1, workers=1)
    >>> found.samples("two").low < found.samples("two").mean < found.samples("two").high
    True
    """

    runs: Mapping[str, Runs]

    def samples(self, name: str) -> Difference:
        """Return how many more samples than the first study this one takes."""
        return _paired(self._named(name).samples, self._first.samples)

    def correct(self, name: str) -> Difference:
        """Return how much more often than the first study this one is right."""
        return _paired(self._named(name).correct, self._first.correct)

    def _named(self, name: str) -> Runs:
        if not is_one_of(name, self.runs):
            raise BadInput(f"there is no study {shown(name)}{nearest(str(name), self.runs)}")
        return self.runs[name]

    def to_list(self) -> list[dict[str, Any]]:
        """Return a table for every study, as `evenhand compare --json` prints them."""
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
    """Run several studies on common random numbers, and pair their runs.

    The d-th sample of a cell is the same in all of them.

    Parameters
    ----------
    studies : mapping
        At least two studies, each with a truth, by name.
    replications, seed, checkpoints, workers, progress
        As for `simulate`.
    executor : Executor, optional
        An executor of your own instead of threads.
    device : {"cpu", "cuda"}
        Where the runs are computed; "cuda" is an NVIDIA graphics processor.

    Returns
    -------
    Comparison
        The runs of every study, and paired differences to the first.

    Raises
    ------
    BadInput
        If there are fewer than two studies, or one of them cannot be simulated.

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["a", "b"], {"x": 0.5, "y": 0.5}, eh.Bernoulli(), eh.Floors(0.3))
    >>> truth = eh.Truth(means=[[0.9, 0.8], [0.5, 0.4]])
    >>> found = eh.compare(
    ...     {rule: eh.Study(problem, eh.Procedure(rule), truth) for rule in ("ts-ids", "uniform")},
    ...     replications=50, seed=1, workers=1,
    ... )
    >>> list(found.runs)
    ['ts-ids', 'uniform']
    """
    if not isinstance(studies, Mapping):
        raise BadInput(f"studies must be studies by name; it is {shown(studies)}.")
    for name, study in studies.items():
        instance_of(study, Study, f"the study {name!r}")
    _check_numbers(replications, seed, checkpoints, workers, progress)
    if len(studies) < 2:
        raise BadInput(f"a comparison needs at least two studies; it got {len(studies)}.")
    jobs = {name: prepare(study, seed, checkpoints, device=device) for name, study in studies.items()}
    runs: dict[str, Runs] = {}
    with given_or_new_executor(executor, workers, device) as chosen:
        for number, (name, job) in enumerate(jobs.items()):
            runs[name] = run_job(job, replications, chosen, part_of(progress, number, len(jobs)))
    return Comparison(runs)


def _check_numbers(replications: Any, seed: Any, checkpoints: Any, workers: Any, progress: Any) -> None:
    """Refuse invalid numbers of runs, seeds, checkpoints and workers."""
    whole_number(replications, "replications", 1, MOST_REPLICATIONS)
    whole_number(seed, "seed", 0)
    if not isinstance(checkpoints, (list, tuple, np.ndarray)):
        raise BadInput(f"checkpoints must be a list of numbers of samples; it is {shown(checkpoints)}.")
    for checkpoint in checkpoints:
        whole_number(checkpoint, "a checkpoint", 1)
    if workers is not None:
        whole_number(workers, "workers", 1)
    callable_or_none(progress, "progress")


def _study_of(
    given: Problem | Study, truth: Any, procedure: Procedure | None
) -> tuple[Study, DrawnTruth | None]:
    """Return the study to simulate, and the drawn means, if any."""
    study = study_of(given, optional(procedure, Procedure, "procedure"))
    if truth is None:
        if study.truth is None:
            raise BadInput(
                "a simulation needs a truth: give the means that you expect, or a study with them."
            )
        return study, None
    found, drawn = _truth_of(study.problem, truth)
    return replace(study, truth=found), drawn


def _truth_of(problem: Problem, truth: Any) -> tuple[Truth | None, DrawnTruth | None]:
    """Return the truth, or means for each replication."""
    if isinstance(truth, Truth):
        return truth, None
    if isinstance(truth, DrawnTruth):
        return None, truth
    if callable(truth) and not isinstance(truth, type):
        return None, DrawnTruth(truth)
    if isinstance(truth, (list, tuple)) and any(_has_names(table) for table in truth):
        return None, DrawnTruth(MeansByReplication(np.array([problem.check_means(table) for table in truth])))
    if isinstance(truth, (list, tuple, np.ndarray)) and _dimensions(truth) == 3:
        try:
            return None, DrawnTruth(MeansByReplication(np.asarray(truth, dtype=float)))
        except (TypeError, ValueError):
            raise BadInput(f"means must be tables of numbers, R x K x L; they are {shown(truth)}.") from None
    return Truth(means=tuple(map(tuple, problem.check_means(truth).tolist()))), None


def _has_names(table: Any) -> bool:
    """Return whether this is a table by name: a dict or a frame."""
    return isinstance(table, Mapping) or hasattr(table, "to_numpy")


def _dimensions(table: Any) -> int:
    try:
        return np.ndim(table)
    except ValueError:  # rows of different lengths
        return 0


def _paired(these: Any, those: Any) -> Difference:
    if len(these) != len(those):
        raise BadInput(
            f"runs can be paired only if they are equally many; there are {len(these)} and {len(those)}."
        )
    gaps = np.asarray(these, dtype=float) - np.asarray(those, dtype=float)
    mean = float(gaps.mean())
    se = standard_error(gaps)
    return Difference(mean, se, mean - WIDE * se, mean + WIDE * se)


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
    count = min(runs.replications, MOST_ONE_BY_ONE)
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
