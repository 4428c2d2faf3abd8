"""Compile the kernels, or load them from the cache, by calling the public functions once."""

from __future__ import annotations

from collections.abc import Iterator

from evenhand.model.families import (
    Bernoulli,
    Bounded,
    Exponential,
    Family,
    Gaussian,
    GaussianUnknown,
    Poisson,
)
from evenhand.model.problem import Problem
from evenhand.model.requirements import (
    All,
    Caps,
    Constraint,
    Dispersion,
    Floors,
    Gap,
    NoConstraint,
    Penalty,
    Quota,
)
from evenhand.procedure.spec import Procedure

NAMES, GROUPS = ["a", "b"], {"x": 0.5, "y": 0.5}
MEANS = [[0.8, 0.7], [0.5, 0.6]]
SMALL = Problem(NAMES, GROUPS, Bernoulli(), Floors(0.3))


def common_problems() -> Iterator[Problem]:
    """Yield problems with every family and floors, and with every requirement and Bernoulli outcomes."""
    families: list[Family] = [Gaussian(0.5), GaussianUnknown(), Poisson(), Exponential(), Bounded()]
    requirements: list[Constraint] = [
        NoConstraint(), Caps(0.9), Gap(0.4), Quota(0.3, 1), Dispersion(0.1), Penalty(0.3, 1.0),
        All((Floors(0.3), Gap(0.4))),
    ]  # fmt: skip
    yield SMALL
    yield from (Problem(NAMES, GROUPS, family, Floors(0.3)) for family in families)
    yield from (Problem(NAMES, GROUPS, Bernoulli(), requirement) for requirement in requirements)


def load_kernels(problem: Problem) -> None:
    """Compile or load what plan, simulate and judge call with the default procedure."""
    from evenhand.simulation.simulate import simulate
    from evenhand.theory.plan import plan
    from evenhand.verdicts.judge import judge

    plan(problem, MEANS)
    simulate(problem, MEANS, Procedure(max_samples=100), replications=1, seed=1, workers=1)
    rows = [
        {"policy": name, "group": group, "outcome": _outcome(problem, number)}
        for name in NAMES
        for group in GROUPS
        for number in range(3)
    ]
    judge(problem, rows, replications=2)


def load_live_kernels(problem: Problem = SMALL) -> None:
    """Compile or load what a live experiment calls, by running a small one in memory."""
    from evenhand.live.experiment import Experiment

    with Experiment.create(":memory:", problem, Procedure(initial=1), seed=1) as trial:
        for number in range(8):
            ask = trial.ask()
            assert ask is not None
            trial.tell(ask, _outcome(problem, number))
        trial.status()


def _outcome(problem: Problem, number: int) -> float:
    """Return a valid outcome of the problem's family."""
    return 1.0 if number % 2 or problem.family.open_below else 0.0


def are_compiled() -> bool:
    """Return whether the simulation of `SMALL` is in the cache, which `evenhand warmup` puts there."""
    from evenhand.compile.dispatch import is_compiled
    from evenhand.simulation.engine import run_block
    from evenhand.simulation.shards import arguments_of, prepare
    from evenhand.study import Study, Truth

    truth = Truth(means=tuple(map(tuple, MEANS)))
    job = prepare(Study(SMALL, Procedure(max_samples=100), truth), 1)
    return is_compiled(run_block, *arguments_of(job))
