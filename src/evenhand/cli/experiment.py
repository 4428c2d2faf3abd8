"""`evenhand new`, `pause`, `resume` and `finish`: create an experiment, change its state."""

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
    "--seed", type=click.IntRange(0, 2**63 - 1), help="Seed of all random draws; default: a random one."
)
@click.option(
    "--experiment", "name", default="main", show_default=True, help="Name of the experiment in the journal."
)
@click.option(
    "--lease", type=float, metavar="SECONDS", help="Expire a ticket after this time; default: never."
)
@click.option("--by", metavar="WHO", help="Your name; recorded in the log.")
@json_option
def new_command(
    journal: str, study: str, seed: int | None, name: str, lease: float | None, by: str | None, as_json: bool
) -> None:
    """Create a live experiment from a study file.

    JOURNAL is a file to create, or a postgresql:// address. The study, the seed and the software versions are
    recorded in the first event and cannot be changed.
    """
    from evenhand.study import load

    if journal == ":memory:":
        raise BadInput("a journal in memory would be lost when this command ends; name a file to create.")
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
    """Stop giving out tickets until `resume`. Outcomes are still accepted."""
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
    """Give out tickets again after `pause`."""
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
    """End the experiment: the earlier name of `finish`, which the next release removes."""
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
