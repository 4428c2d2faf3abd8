"""`evenhand export`: the whole experiment in one file that the audit accepts alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from evenhand.app.journals import journal_argument
from evenhand.errors import StorageFailed


@click.command("export")
@journal_argument
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of standard output.")
def command(journal: str, name: str | None, output: str | None) -> None:
    """Write protocol, events and head as JSON lines."""
    from evenhand.live.export import write_export
    from evenhand.live.journal import open_journal
    from evenhand.live.loading import only_experiment

    store = open_journal(journal, write=False)
    try:
        chosen = only_experiment(store, name)
        if output is None:
            write_export(store, chosen, sys.stdout.buffer)
            return
        target = Path(output)
        part = target.with_name(target.name + ".part")
        try:
            with part.open("wb") as file:
                head = write_export(store, chosen, file)
            os.replace(part, target)  # a file of this name is a whole one
        except OSError as problem:
            raise StorageFailed(f"{target} cannot be written: {problem.strerror}.") from None
        click.echo(f"{head.seq:,} events are in {target}, head {head}.")
        click.echo(f"Next: evenhand audit {target} --head {head}")
    finally:
        store.close()
