"""`evenhand transfer`: an export into another storage, with the same head."""

from __future__ import annotations

from pathlib import Path

import click

from evenhand.app.options import json_option, print_json
from evenhand.errors import BadInput


@click.command("transfer")
@click.argument("export", type=click.Path(path_type=Path))
@click.argument("journal")
@json_option
def command(export: Path, journal: str, as_json: bool) -> None:
    """Write the log of an export into a journal: SQLite to PostgreSQL, or back.

    JOURNAL is a file to make, or a postgresql:// address; it may hold other experiments. The export is
    audited first. Every event, key and hash stays as it is, so the experiment goes on there where it stopped
    here: do not go on with both.
    """
    from evenhand.live.transfer import transfer

    if journal == ":memory:":
        raise BadInput("a journal in memory would be gone with this command; name a file to make.")
    found = transfer(export, journal)
    if as_json:
        print_json({"journal": journal, **found._asdict()})
        return
    click.echo(f"{found.events:,} events of {found.experiment!r} are in {journal}, head {found.head}.")
    click.echo(f"Next: evenhand status {journal}")
