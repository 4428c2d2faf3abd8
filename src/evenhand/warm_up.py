"""Load the kernels that a verb calls, or compile them, by using the verb once."""

from __future__ import annotations

from evenhand.model.families import Bernoulli
from evenhand.model.problem import Problem
from evenhand.model.requirements import Floors
from evenhand.procedure.spec import Procedure

SMALL = Problem(["a", "b"], {"x": 0.5, "y": 0.5}, Bernoulli(), Floors(0.3))
MEANS = [[0.8, 0.7], [0.5, 0.6]]


def load_all_kernels() -> None:
    """Planning and simulation with all they may ever call: each family, region and rule is a branch of it."""
    from evenhand._apart import fill_all
    from evenhand.simulation.simulate import simulate
    from evenhand.theory.plan import plan

    plan(SMALL, MEANS)
    simulate(SMALL, MEANS, Procedure(max_samples=100), replications=1, seed=1)
    fill_all()


def load_live_kernels() -> None:
    """A small experiment in memory, from asking to status."""
    from evenhand.live.experiment import Experiment

    with Experiment.create(":memory:", SMALL, Procedure(initial=1), seed=1) as trial:
        for number in range(8):
            ask = trial.ask()
            assert ask is not None
            trial.tell(ask, number % 2)
        trial.status()
