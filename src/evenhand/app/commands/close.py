"""`evenhand close`: end an experiment for good."""

from __future__ import annotations

import click

from evenhand.app.journals import journal_argument, opened, reason_options
from evenhand.app.options import json_option, print_json


@click.command("close")
@journal_argument
@reason_options(required=False)
@json_option
def command(journal: str, name: str | None, reason: str | None, by: str | None, as_json: bool) -> None:
    """End the experiment for good, decided or not; outcomes that still come are kept as late."""
    with opened(journal, name) as trial:
        trial.close(reason or "closed", by=by)
        status = trial.status()
    if as_json:
        print_json(
            {"closed": True, "decided": status["decided"], "answer": status["answer"], "head": status["head"]}
        )
        return
    click.echo(f"Closed. {status['sentence']}")
    click.echo(f"Next: evenhand export {journal} -o experiment.jsonl")
