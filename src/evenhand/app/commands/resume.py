"""`evenhand resume`: hand out tickets again."""

from __future__ import annotations

import click

from evenhand.app.journals import journal_argument, opened, reason_options
from evenhand.app.options import json_option, print_json


@click.command("resume")
@journal_argument
@reason_options(required=False)
@json_option
def command(journal: str, name: str | None, reason: str | None, by: str | None, as_json: bool) -> None:
    """Hand out tickets again after `pause`."""
    with opened(journal, name) as trial:
        trial.resume(reason or "resumed", by=by)
    if as_json:
        print_json({"paused": False})
    else:
        click.echo(f"Resumed. Next: evenhand ask {journal}")
