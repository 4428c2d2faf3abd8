"""`evenhand new`: freeze a study as the protocol of a live experiment.

`evenhand pause`: hand out nothing for a while.

`evenhand resume`: hand out tickets again.

`evenhand finish`: end an experiment for good; `evenhand close` is its name until the next release.
"""

from __future__ import annotations

import secrets

import click

from evenhand.cli.journal_options import journal_argument, opened, reason_options
from evenhand.cli.options import json_option, print_json, study_argument
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
def new_command(
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


@click.command("pause")
@journal_argument
@reason_options(required=True)
@json_option
def pause_command(journal: str, name: str | None, reason: str, by: str | None, as_json: bool) -> None:
    """Hand out no tickets until `resume`; outcomes are still taken."""
    with opened(journal, name) as trial:
        trial.pause(reason, by=by)
    if as_json:
        print_json({"paused": True})
    else:
        click.echo(f"Paused. Next: evenhand resume {journal}")


@click.command("resume")
@journal_argument
@reason_options(required=False)
@json_option
def resume_command(journal: str, name: str | None, reason: str | None, by: str | None, as_json: bool) -> None:
    """Hand out tickets again after `pause`."""
    with opened(journal, name) as trial:
        trial.resume(reason or "resumed", by=by)
    if as_json:
        print_json({"paused": False})
    else:
        click.echo(f"Resumed. Next: evenhand ask {journal}")


@click.command("finish")
@journal_argument
@reason_options(required=True)
@json_option
def finish_command(journal: str, name: str | None, reason: str, by: str | None, as_json: bool) -> None:
    """End the experiment for good, decided or not; outcomes that still come are kept as late."""
    _finish(journal, name, reason, by, as_json)


@click.command("close", deprecated=True)
@journal_argument
@reason_options(required=False)
@json_option
def close_command(journal: str, name: str | None, reason: str | None, by: str | None, as_json: bool) -> None:
    """End the experiment for good: the earlier name of `finish`, which the next release removes."""
    _finish(journal, name, reason or "closed", by, as_json)


def _finish(journal: str, name: str | None, reason: str, by: str | None, as_json: bool) -> None:
    with opened(journal, name) as trial:
        trial.finish(reason, by=by)
        status = trial.status()
    if as_json:
        print_json({"closed": True, "decided": status.decided, "answer": status.answer, "head": status.head})
        return
    click.echo(f"Closed. {status.sentence}")
    click.echo(f"Next: evenhand export {journal} -o experiment.jsonl")
