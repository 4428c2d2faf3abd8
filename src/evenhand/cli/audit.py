"""`evenhand audit`, `export` and `transfer`: verify, export and copy the log."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evenhand.cli.journal_options import journal_argument
from evenhand.cli.options import json_option, new_file, print_json
from evenhand.errors import BadInput, StorageFailed

if TYPE_CHECKING:
    from evenhand.live.hash_chain import Head
    from evenhand.live.journal import Journal


NOT_INTACT = 4


@click.command("audit")
@click.argument("source", metavar="JOURNAL-or-EXPORT")
@click.option("--head", metavar="HASH", help="A hash noted earlier: the log must still contain that event.")
@click.option(
    "--experiment",
    "name",
    metavar="NAME",
    help="Name of the experiment; needed only if the journal holds several.",
)
@json_option
def audit_command(source: str, head: str | None, name: str | None, as_json: bool) -> int:
    """Recompute every allocation, estimate, evidence value and the stop from the log.

    Prints that everything is identical, or names the first event that does not follow from the events before
    it (exit code 4). Makes all checks that the writer makes, and checks that the journal holds the last event
    written to it.
    """
    from evenhand.live.audit import audit

    found = audit(source, head, name)
    if as_json:
        print_json(found._asdict())
    elif found.identical:
        click.echo(f"Identical: {found.events:,} events, every decision recomputed. Head {found.head}.")
        if found.builds > 1:
            click.echo(f"The log was written by {found.builds:,} builds; each change is an event.")
        if found.other_digits:
            click.echo(
                f"{found.other_digits:,} asks and snapshots of other builds differ here in their last digits."
            )
        if found.close_decisions:
            click.echo(
                f"{found.close_decisions:,} decisions of other builds depend on rounding; to recompute these "
                "too, audit the log on the machine where they were made."
            )
    else:
        click.echo(f"Not identical: {found.first_difference}")
    return 0 if found.identical else NOT_INTACT


@click.command("export")
@journal_argument
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of standard output.")
@json_option
def export_command(journal: str, name: str | None, output: str | None, as_json: bool) -> None:
    """Write protocol, events and head as JSON lines.

    With -o, --json prints the number of events and the head. `evenhand transfer` copies an export to a
    journal.
    """
    from evenhand.live.export import write_export
    from evenhand.live.journal import open_journal
    from evenhand.live.loading import only_experiment

    # before the journal is opened: closing another handle on the file would drop SQLite's locks on it
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
    click.echo(f"{head.seq:,} events written to {output}, head {head}.")
    click.echo(f"Next: evenhand audit {output} --head {head}")


def _write(store: Journal, experiment: str, target: Path) -> Head:
    """Write the export atomically, so that a file of this name is always complete."""
    from evenhand.live.atomic_files import whole_file
    from evenhand.live.export import write_export

    try:
        with whole_file(target) as file:
            return write_export(store, experiment, file)
    except OSError as problem:
        raise StorageFailed(f"{target} cannot be written: {problem.strerror}.") from None


@click.command("transfer")
@click.argument("export", type=click.Path(path_type=Path))
@click.argument("journal")
@json_option
def transfer_command(export: Path, journal: str, as_json: bool) -> None:
    """Copy an export into a journal, for example from SQLite to PostgreSQL.

    JOURNAL is a file to create, or a postgresql:// address; it may hold other experiments. The export is
    audited first. Events, keys and hashes are unchanged, so the experiment can continue in the new journal.
    Do not continue it in both journals.
    """
    from evenhand.live.transfer import transfer

    if journal == ":memory:":
        raise BadInput("a journal in memory would be lost when this command ends; name a file to create.")
    found = transfer(export, journal)
    if as_json:
        print_json({"journal": journal, **found._asdict()})
        return
    click.echo(f"{found.events:,} events of {found.experiment!r} copied to {journal}, head {found.head}.")
    click.echo(f"Next: evenhand status {journal}")
