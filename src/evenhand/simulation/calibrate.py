"""Calibration: the smallest threshold with an error of at most delta in all scenarios.

Each replication runs to the horizon without stopping, and records the largest evidence (minus the rule's term
for repeated checks) at which a new peak belonged to a wrong answer. A run with any threshold above it does
not stop wrongly. So P(that peak >= b) bounds the error with threshold b, and falls in b.

The threshold is an order statistic of the peaks whose rank is fixed before any run: the largest m with an
exact upper confidence bound of m out of R at most delta. So the error is at most delta, in all scenarios
together, with 95% confidence; no distribution is assumed.

Scenario files: several truths for one problem, each with a name.

    [[scenario]]
    name = "the second policy narrowly misses its floor"
    means = [[0.9, 0.85], [0.91, 0.8332]]

Besides the name a scenario has the keys of a study's [truth].
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput, shown
from evenhand.model.argument_checks import callable_or_none, instance_of, whole_number
from evenhand.model.problem import Problem
from evenhand.procedure.spec import Calibrated
from evenhand.result import Result
from evenhand.simulation.executors import Executor, given_or_new_executor
from evenhand.simulation.runs import CONFIDENCE, Rate, exact_rate
from evenhand.simulation.shards import CPU, Progress, check_replications, part_of, prepare, run_job
from evenhand.study import Study, Truth

Array = NDArray[np.float64]

HORIZON = 10_000
OUT_OF_REACH = (
    2.0**20
)  # a threshold that no run reaches; a power of two, so that subtracting it loses almost no digits
STEPS_PER_NAT = 10_000  # thresholds are rounded up to this resolution


@dataclass(frozen=True)
class Scenario:
    """A bound on the error of one scenario, and the threshold that it needs by itself."""

    name: str
    error: Rate
    needs: float


@dataclass(frozen=True, repr=False)
class Calibration(Result):
    """A threshold and what it was found with; it holds for runs of up to `horizon` samples.

    `calibrate` returns one.

    Attributes
    ----------
    threshold : float
        The threshold, for `Procedure(stopping=Calibrated(threshold))`.
    delta : float
        The risk of the study.
    replications, seed, horizon : int
        What it was found with.
    scenarios : tuple
        The error of every scenario, with its interval, and the threshold that it needs by itself.

    Examples
    --------
    >>> import evenhand as eh
    >>> study = eh.Study(eh.Problem(["a", "b"], {"x": 1.0}, eh.Bernoulli()), eh.Procedure(delta=0.1))
    >>> truths = {"near": eh.Truth(means=[[0.6], [0.5]])}
    >>> found = eh.calibrate(study, truths, replications=100, seed=1, horizon=100, workers=1)
    >>> found.worst.error.rate <= 0.1
    True
    """

    threshold: float
    delta: float
    replications: int
    seed: int
    horizon: int
    scenarios: tuple[Scenario, ...]

    @property
    def worst(self) -> Scenario:
        """Return the scenario that errs most often; on ties, the one with the highest threshold."""
        return max(self.scenarios, key=lambda scenario: (scenario.error.rate, scenario.needs))

    def to_dict(self) -> dict[str, Any]:
        """Return plain names and numbers, as `evenhand calibrate --json` prints them."""
        return {
            "calibrated": self.threshold,
            "worst": _plain(self.worst),
            "scenarios": [_plain(scenario) for scenario in self.scenarios],
            "delta": self.delta,
            "replications": self.replications,
            "seed": self.seed,
            "horizon": self.horizon,
        }


def calibrate(
    study: Study,
    scenarios: Mapping[str, Truth],
    replications: int = 2000,
    seed: int = 0,
    horizon: int = HORIZON,
    workers: int | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
    device: str = CPU,
) -> Calibration:
    """Return the threshold at which the worst scenario errs with at most the risk of the study.

    Parameters
    ----------
    study : Study
        The problem and the procedure, whose risk is delta.
    scenarios : mapping
        Truths by name; the threshold is for these, not for others.
    replications : int
        Runs of every scenario.
    seed : int
        The seed of all random numbers.
    horizon : int
        Samples of every run; the threshold holds for runs of up to this length.
    workers : int, optional
        The number of threads; one per core unless given.
    progress : callable, optional
        Called as progress(done, replications) when runs finish.
    executor : Executor, optional
        An executor of your own instead of threads.
    device : {"cpu", "cuda"}
        Where the runs are computed; "cuda" is an NVIDIA graphics processor.

    Returns
    -------
    Calibration
        The threshold, for `Procedure(stopping=Calibrated(threshold))`, and the error of every scenario.

    Raises
    ------
    BadInput
        If there is no scenario, or too few replications to prove anything.

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bernoulli(), eh.Floors(0.3))
    >>> found = eh.calibrate(
    ...     eh.Study(problem, eh.Procedure(delta=0.1)), {"near": eh.Truth(means=[[0.6], [0.5]])},
    ...     replications=100, seed=1, horizon=100, workers=1,
    ... )
    >>> found.worst.name, found.threshold > 0
    ('near', True)
    """
    instance_of(study, Study, "study")
    if not isinstance(scenarios, Mapping) or not scenarios:
        raise BadInput(f"calibration needs at least one scenario, by name; there is {shown(scenarios)}.")
    for name, truth in scenarios.items():
        instance_of(truth, Truth, f"the scenario {name!r}")
    for value, what in ((replications, "replications"), (horizon, "horizon")):
        whole_number(value, what, 1)
    if workers is not None:
        whole_number(workers, "workers", 1)
    callable_or_none(progress, "progress")
    check_replications(replications)
    delta = study.procedure.delta
    rank = most_errors(replications, delta, len(scenarios))
    peaks: dict[str, Array] = {}
    with given_or_new_executor(executor, workers, device) as chosen:
        for number, (name, truth) in enumerate(scenarios.items()):
            job = prepare(endless(study, truth, horizon), seed, device=device)
            runs = run_job(job, replications, chosen, part_of(progress, number, len(scenarios)))
            peaks[name] = runs.rows.near + OUT_OF_REACH
    needs = {name: rounded_up(float(np.sort(peak)[-1 - rank])) for name, peak in peaks.items()}
    threshold = max(needs.values())
    found = tuple(
        Scenario(name, exact_rate(int(np.count_nonzero(peak >= threshold)), replications), needs[name])
        for name, peak in peaks.items()
    )
    return Calibration(threshold, delta, replications, seed, horizon, found)


def endless(study: Study, truth: Truth | None, horizon: int) -> Study:
    """Return the study with runs that take `horizon` samples and never decide.

    Futility ends runs that would not decide, which are all of these; it can only prevent errors.
    """
    procedure = replace(
        study.procedure, stopping=Calibrated(OUT_OF_REACH), max_samples=horizon, futility=None
    )
    return replace(study, procedure=procedure, truth=truth)


def most_errors(replications: int, delta: float, scenarios: int, what: str = "scenarios") -> int:
    """Return the most errors in this number of runs that still prove an error of at most delta.

    For all scenarios together; `what` is their name in a message.
    """
    chance = (1.0 - CONFIDENCE) / scenarios
    if _upper_bound(0, replications, chance) > delta:
        least = math.ceil(math.log(chance) / math.log1p(-delta))
        raise BadInput(
            f"{scenarios} {what} at delta {delta:g} need at least {least} replications to prove anything; "
            f"there are {replications}."
        )
    low, high = 0, replications
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _upper_bound(middle, replications, chance) <= delta else (low, middle)
    return low


def _upper_bound(errors: int, replications: int, chance: float) -> float:
    """Return the exact one-sided bound: the true rate exceeds it with at most this probability."""
    from scipy.special import betaincinv

    return (
        1.0 if errors >= replications else float(betaincinv(errors + 1, replications - errors, 1.0 - chance))
    )


def rounded_up(peak: float) -> float:
    """Return the next threshold above a peak; positive also where no run was wrong."""
    if peak <= 0.0:
        return 1.0 / STEPS_PER_NAT
    return (math.floor(peak * STEPS_PER_NAT) + 1) / STEPS_PER_NAT


def _plain(scenario: Scenario) -> dict[str, Any]:
    return {"scenario": scenario.name, "error": scenario.error._asdict(), "needs": scenario.needs}


def load_scenarios(path: str | Path, problem: Problem) -> dict[str, Truth]:
    """Return the checked scenarios of a TOML file; paths in it are relative to its folder."""
    path = Path(path)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"there is no scenario file {path}; give the path of a TOML file.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem_found:
        raise BadInput(f"the scenario file {path} cannot be read: {problem_found}.") from None
    entries = table.get("scenario")
    if set(table) != {"scenario"} or not isinstance(entries, list) or not entries:
        raise BadInput(
            f"{path} must hold [[scenario]] tables and nothing else; it has {', '.join(table) or 'none'}."
        )
    found: dict[str, Truth] = {}
    for number, entry in enumerate(entries, start=1):
        name, truth = _scenario(entry, number, problem)
        if name in found:
            raise BadInput(f"scenarios must have different names; {name!r} comes twice.")
        found[name] = replace(truth, folder=path.parent)
    return found


def _scenario(entry: Any, number: int, problem: Problem) -> tuple[str, Truth]:
    if not isinstance(entry, Mapping):
        raise BadInput(f"a scenario must be a table; number {number} is {entry!r}.")
    values = dict(entry)
    name = values.pop("name", f"scenario {number}")
    if not isinstance(name, str) or not name.strip():
        raise BadInput(f"a scenario's name must be text; number {number} has {name!r}.")
    try:
        return name, Truth.from_dict(values, problem)
    except BadInput as fault:
        raise BadInput(f"scenario {name!r}: {fault}") from None
