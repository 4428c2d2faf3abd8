"""`evenhand drop`: a ticket that will have no outcome."""

from __future__ import annotations

import click

from evenhand.app.journals import journal_argument, opened, reason_options
from evenhand.app.options import json_option, print_json


@click.command("drop")
@journal_argument
@click.argument("ticket")
@reason_options(required=True)
@json_option
def command(journal: str, name: str | None, ticket: str, reason: str, by: str | None, as_json: bool) -> None:
    """Give TICKET up: it will have no outcome."""
    with opened(journal, name) as trial:
        trial.drop(ticket, reason, by=by)
    if as_json:
        print_json({"ticket": ticket, "dropped": True})
    else:
        click.echo(f"{ticket} is given up. An outcome that still comes is kept as late.")
