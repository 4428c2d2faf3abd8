"""`evenhand sweep`: many studies and scenarios in shards that survive whatever happens to the workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from evenhand.app.crew import checkpoints_of, checkpoints_option, crew, crew_options, replications_option
from evenhand.app.options import json_option, print_json, seed_option

if TYPE_CHECKING:
    from evenhand.sim.sweep import Name, Sweep
    from evenhand.study import Study


@click.command("sweep")
@click.argument("studies", nargs=-1, required=True, type=click.Path(), metavar="STUDY..")
@click.option(
    "--scenarios", type=click.Path(), help="TOML file with [[scenario]] tables; default: each study's truth."
)
@click.option("--sampling", multiple=True, help="With one study: also this sampling rule. May be repeated.")
@replications_option(1000)
@seed_option
@checkpoints_option
@click.option(
    "--store",
    type=click.Path(file_okay=False),
    default="sweep",
    show_default=True,
    help="Folder of finished shards.",
)
@crew_options
@json_option
def command(
    studies: tuple[str, ...], scenarios: str | None, sampling: tuple[str, ...], replications: int, seed: int,
    checkpoints: str, store: str, workers: int | None, processes: bool, dask: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Run studies x scenarios x replications, resumably.

    The work is cut into shards whose results are kept in the store under a hash of all they depend on.
    Started again after a crash, or with more replications or scenarios, the sweep computes only what is
    missing. On threads, processes or a Dask cluster the numbers are the same, bit for bit.
    """
    from evenhand.app.commands.compare import named_studies
    from evenhand.sim.sweep import SHARD, sweep

    grid = _grid(named_studies(studies, sampling), scenarios)
    shards = len(grid) * -(-replications // SHARD)
    with crew("sweep", shards, workers, processes, dask, as_json) as team:
        found = sweep(
            grid, replications, seed, store, team.executor, checkpoints_of(checkpoints), team.progress
        )
    if as_json:
        print_json(_result(found))
        return
    _print(found, store)


def _grid(studies: dict[str, Study], scenarios: str | None) -> dict[Name, Study]:
    from evenhand.sim.scenarios import load_scenarios
    from evenhand.sim.sweep import grid

    if scenarios is None:
        return {(name, "its own truth"): study for name, study in studies.items()}
    found: dict[Name, Study] = {}
    for name, study in studies.items():
        found |= grid({name: study}, load_scenarios(scenarios, study.problem))
    return found


def _result(found: Sweep) -> dict[str, Any]:
    return {
        "shards": {"computed": found.computed, "reused": found.reused},
        "runs": [
            {"study": study, "scenario": scenario} | runs.to_dict()
            for (study, scenario), runs in found.runs.items()
        ],
    }


def _print(found: Sweep, store: str) -> None:
    from evenhand.app.terminal import console, count, count_or_never, say, section, table
    from evenhand.sim.runs import rate

    out = console()
    rows = []
    for (study, scenario), runs in found.runs.items():
        right, wrong = rate(runs.correct), rate(runs.wrong)
        row = [study, scenario, count(runs.samples.mean()), count_or_never(runs.decided_by(0.9))]
        row += [f"{right.rate:.1%}", f"{right.low:.1%} to {right.high:.1%}", f"{wrong.rate:.2%}"]
        rows.append(row)
    say(out, f"{found.computed:,} shards computed, {found.reused:,} found in {store}.")
    columns = ["study", "scenario", "mean samples", "90% by", "right", "95% interval", "decided wrongly"]
    section(out, "Runs", table(columns, rows, numbers_from=2))
    out.print()
    say(out, "Next: run it again with more --replications; what is in the store is not computed twice.")
