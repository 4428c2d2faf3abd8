"""`evenhand pause`: hand out nothing for a while."""

from __future__ import annotations

import click

from evenhand.app.journals import journal_argument, opened, reason_options
from evenhand.app.options import json_option, print_json


@click.command("pause")
@journal_argument
@reason_options(required=True)
@json_option
def command(journal: str, name: str | None, reason: str, by: str | None, as_json: bool) -> None:
    """Hand out no tickets until `resume`; outcomes are still taken."""
    with opened(journal, name) as trial:
        trial.pause(reason, by=by)
    if as_json:
        print_json({"paused": True})
    else:
        click.echo(f"Paused. Next: evenhand resume {journal}")
