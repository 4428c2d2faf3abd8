"""`evenhand ask`: the next tickets, as a table, as CSV when piped, or as JSON."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from evenhand.app.journals import journal_argument, opened, write_batch
from evenhand.app.options import json_option, print_json

if TYPE_CHECKING:
    from evenhand.live.asking import Ask


@click.command("ask")
@journal_argument
@click.option("-n", "count", type=click.IntRange(1), default=1, show_default=True, help="How many tickets.")
@click.option("--group", metavar="G", help="The group of the unit that came by itself (proportional mode).")
@click.option("--worker", metavar="W", help="Who asks; gets the same ticket again until its outcome is told.")
@click.option("--key", metavar="K", help="A name for this request; repeated, it gets the same answer.")
@json_option
def command(
    journal: str,
    name: str | None,
    count: int,
    group: str | None,
    worker: str | None,
    key: str | None,
    as_json: bool,
) -> None:
    """Which policy for whom, next.

    Piped into a file it is CSV with an empty column for the outcomes: fill it in and give it to `tell`.
    """
    with opened(journal, name) as trial:
        asks = trial.ask(count, group=group, worker=worker, key=key)
        status = None if asks else trial.status()
    if as_json:
        print_json([ask._asdict() for ask in asks])
    elif not sys.stdout.isatty():
        write_batch(asks, sys.stdout)
    elif asks:
        _print(asks, journal)
    if status is not None:
        waiting = (
            "All its samples are handed out; tell their outcomes." if status["state"] == "running" else ""
        )
        click.echo(f"No ticket: {status['sentence']} {waiting}".rstrip(), err=True)


def _print(asks: list[Ask], journal: str) -> None:
    from evenhand.app.terminal import console, table

    out = console()
    rows = [[ask.ticket, ask.policy, ask.group or "told with the outcome"] for ask in asks]
    out.print(table(["ticket", "policy", "group"], rows, numbers_from=3))
    group = " --group GROUP" if asks[0].group is None else ""
    out.print(f"\nNext: evenhand tell {journal} {asks[0].ticket} OUTCOME{group}", soft_wrap=True)
