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
    with code 4).
    """
    from evenhand.live.audit import audit

    found = audit(source, head, name)
    if as_json:
        print_json(found._asdict())
    elif found.identical:
        click.echo(f"Identical: {found.events:,} events, every decision derived again. Head {found.head}.")
        if found.other_digits:
            click.echo(
                f"On this build {found.other_digits:,} chances differ in their last digits; no decision does."
            )
    else:
        click.echo(f"Not identical: {found.first_difference}")
    return 0 if found.identical else NOT_INTACT
