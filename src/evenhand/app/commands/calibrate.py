"""`evenhand calibrate`: the threshold at which the worst of a set of scenarios errs at most delta."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from evenhand.app.crew import crew, crew_options, replications_option
from evenhand.app.options import json_option, print_json, seed_option, study_argument

if TYPE_CHECKING:
    from evenhand.sim.calibrate import Calibration


@click.command("calibrate")
@study_argument
@click.option("--scenarios", required=True, type=click.Path(), help="TOML file with [[scenario]] tables.")
@replications_option(2000)
@seed_option
@click.option(
    "--horizon", type=click.IntRange(min=1), default=10_000, show_default=True, help="Samples a run may take."
)
@crew_options
@json_option
def command(
    study: str, scenarios: str, replications: int, seed: int, horizon: int, workers: int | None,
    processes: bool, dask: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Find a threshold by simulation.

    Runs the study's sampling rule on every scenario up to the horizon, and finds the smallest threshold at
    which the worst of them errs at most delta, with 95% confidence and without any assumption on
    distributions. What it guarantees, it guarantees for these scenarios and this horizon.

    \b
    A scenario is a truth with a name:
        [[scenario]]
        name  = "the best policy misses its floor by a hair"
        means = [[0.9, 0.833], [0.88, 0.86]]
    """
    from evenhand.sim.calibrate import calibrate
    from evenhand.sim.scenarios import load_scenarios
    from evenhand.study import load

    loaded = load(study)
    truths = load_scenarios(scenarios, loaded.problem)
    with crew("calibrate", replications * len(truths), workers, processes, dask, as_json) as team:
        found = calibrate(loaded, truths, replications, seed, horizon, None, team.progress, team.executor)
    if as_json:
        print_json(found.to_dict())
        return
    _print(found)


def _print(found: Calibration) -> None:
    from evenhand.app.terminal import console, say, section, table

    out, worst = console(), found.worst
    say(
        out,
        f"With threshold {found.threshold:g} every scenario errs at most {found.delta:g} "
        f"(95% confidence, runs of up to {found.horizon:,} samples).",
    )
    say(
        out,
        f"The worst is {worst.name}: at most {worst.error.rate:.2%} of {found.replications:,} runs wrong "
        f"(95% interval {worst.error.low:.2%} to {worst.error.high:.2%}).",
    )
    rows = [
        [one.name, f"{one.error.rate:.2%}", f"{one.error.low:.2%} to {one.error.high:.2%}", f"{one.needs:g}"]
        for one in found.scenarios
    ]
    section(out, "Scenarios", table(["", "wrong, at most", "95% interval", "needs by itself"], rows))
    out.print()
    say(out, f"Next: write stopping = {{ calibrated = {found.threshold:g} }} into [procedure], and simulate.")
