"""`evenhand new`: freeze a study as the protocol of a live experiment."""

from __future__ import annotations

import secrets

import click

from evenhand.app.options import json_option, print_json, study_argument
from evenhand.errors import BadInput


@click.command("new")
@click.argument("journal")
@study_argument
@click.option(
    "--seed", type=click.IntRange(0, 2**63 - 1), help="Decides every draw; drawn by chance unless given."
)
@click.option("--experiment", "name", default="main", show_default=True, help="Its name in the journal.")
@click.option(
    "--lease", type=float, metavar="SECONDS", help="Give a ticket up after so long; never unless given."
)
@click.option("--by", metavar="WHO", help="Who begins it.")
@json_option
def command(
    journal: str, study: str, seed: int | None, name: str, lease: float | None, by: str | None, as_json: bool
) -> None:
    """Begin a live experiment.

    JOURNAL is a file to make, or a postgresql:// address. The study, the seed and the versions are its first
    event and never change.
    """
    from evenhand.study import load

    if journal == ":memory:":
        raise BadInput("a journal in memory would be gone with this command; name a file to make.")
    loaded = load(study)
    from evenhand.live.experiment import Experiment

    chosen = secrets.randbits(48) if seed is None else seed
    with Experiment.create(journal, loaded, seed=chosen, name=name, lease=lease, by=by) as trial:
        head = str(trial.head)
    if as_json:
        print_json({"journal": journal, "experiment": name, "seed": chosen, "head": head})
        return
    click.echo(f"The protocol is frozen in {journal} (seed {chosen}, head {head}).")
    click.echo(f"Next: evenhand ask {journal}")
