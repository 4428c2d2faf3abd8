"""`evenhand amend`: correct an outcome, with a reason and a name."""

from __future__ import annotations

import click

from evenhand.app.journals import journal_argument, opened
from evenhand.app.options import json_option, print_json


@click.command("amend", context_settings={"ignore_unknown_options": True})
@journal_argument
@click.argument("ticket")
@click.argument("outcome")
@click.option("--reason", required=True, help="Why; stays in the log.")
@click.option("--by", required=True, metavar="WHO", help="Who says so.")
@json_option
def command(
    journal: str, name: str | None, ticket: str, outcome: str, reason: str, by: str, as_json: bool
) -> None:
    """Correct the outcome of TICKET.

    The old one stays in the log; estimates are made again from the corrected outcomes.
    """
    with opened(journal, name) as trial:
        from evenhand.live.outcomes import parsed_outcome

        value = parsed_outcome(outcome, trial.protocol.problem.family)
        receipt = trial.amend(ticket, value, reason=reason, by=by)
        status = trial.status()
    if as_json:
        print_json(receipt._asdict())
        return
    click.echo(f"The outcome of {ticket} is now {value:g}; the old one stays in the log.")
    click.echo(status["sentence"])
