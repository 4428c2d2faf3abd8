"""`evenhand audit`: derive everything again from the log."""

from __future__ import annotations

import click

from evenhand.app.options import json_option, print_json

NOT_INTACT = 4


@click.command("audit")
@click.argument("source", metavar="JOURNAL-or-EXPORT")
@click.option("--head", metavar="HASH", help="A head noted earlier: the log must still hold that event.")
@click.option(
    "--experiment", "name", metavar="NAME", help="Which one, where the journal holds more than one."
)
@json_option
def command(source: str, head: str | None, name: str | None, as_json: bool) -> int:
    """Derive every allocation, estimate, piece of evidence and the stop again from the log.

    Says that all is identical, or names the first event that does not follow from those before it (and ends
    with code 4). It checks whatever the writer checks, and that the journal holds the last event that was
    written to it.
    """
    from evenhand.live.audit import audit

    found = audit(source, head, name)
    if as_json:
        print_json(found._asdict())
    elif found.identical:
        click.echo(f"Identical: {found.events:,} events, every decision derived again. Head {found.head}.")
        if found.builds > 1:
            click.echo(f"The log was written by {found.builds:,} builds in turn; each change is an event.")
        if found.other_digits:
            click.echo(
                f"{found.other_digits:,} asks and snapshots of other builds have other last digits here."
            )
        if found.close_decisions:
            click.echo(
                f"{found.close_decisions:,} decisions of other builds were so close that digits decided; to "
                "derive these too, audit the log where they were made."
            )
    else:
        click.echo(f"Not identical: {found.first_difference}")
    return 0 if found.identical else NOT_INTACT
