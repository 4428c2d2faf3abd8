"""`evenhand export`: the whole experiment in one file that the audit accepts alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evenhand.app.journals import journal_argument
from evenhand.app.options import json_option, print_json
from evenhand.app.targets import new_file
from evenhand.errors import StorageFailed

if TYPE_CHECKING:
    from evenhand.live.chain import Head
    from evenhand.live.journal import Journal


@click.command("export")
@journal_argument
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of standard output.")
@json_option
def command(journal: str, name: str | None, output: str | None, as_json: bool) -> None:
    """Write protocol, events and head as JSON lines.

    With -o, --json prints how far they go. `evenhand transfer` reads them into another storage.
    """
    from evenhand.live.export import write_export
    from evenhand.live.journal import open_journal
    from evenhand.live.loading import only_experiment

    # before the journal is opened: reading a file by other means drops the locks that SQLite holds on it
    target = None if output is None else new_file(output, b'{"evenhand":"export"', "an export")
    store = open_journal(journal, write=False)
    try:
        chosen = only_experiment(store, name)
        if target is None:
            write_export(store, chosen, sys.stdout.buffer)
            return
        head = _write(store, chosen, target)
    finally:
        store.close()
    if as_json:
        print_json({"file": output, "events": head.seq, "head": str(head)})
        return
    click.echo(f"{head.seq:,} events are in {output}, head {head}.")
    click.echo(f"Next: evenhand audit {output} --head {head}")


def _write(store: Journal, experiment: str, target: Path) -> Head:
    """A file of this name is a whole one."""
    from evenhand.live.export import write_export
    from evenhand.live.unfinished import whole_file

    try:
        with whole_file(target) as file:
            return write_export(store, experiment, file)
    except OSError as problem:
        raise StorageFailed(f"{target} cannot be written: {problem.strerror}.") from None
