"""`evenhand warmup`: compile the kernels now, so that the first command does not wait for them."""

from __future__ import annotations

import time

import click


@click.command("warmup")
def command() -> None:
    """Compile and cache the kernels.

    Every command compiles what it needs when it first needs it. This compiles all of it now, in a minute or
    two; every later command loads it from disk.
    """
    from rich.console import Console

    from evenhand._apart import fill_all
    from evenhand.model.constraints import Floors
    from evenhand.model.families import Bernoulli
    from evenhand.model.problem import Problem
    from evenhand.procedure.spec import Procedure
    from evenhand.sim.simulate import simulate
    from evenhand.theory.plan import plan

    started = time.perf_counter()
    problem = Problem(["a", "b"], {"x": 0.5, "y": 0.5}, Bernoulli(), Floors(0.3))
    means = [[0.8, 0.7], [0.5, 0.6]]
    with Console(stderr=True).status("compiling"):
        plan(problem, means)
        simulate(problem, means, Procedure(max_samples=100), replications=1, seed=1)
        # every kind of region, family and rule is a branch of these kernels
        fill_all()
    click.echo(f"The kernels are compiled and cached ({time.perf_counter() - started:.1f} s).")
    click.echo("Next: evenhand plan STUDY.toml")
