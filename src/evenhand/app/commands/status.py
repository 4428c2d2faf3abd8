"""`evenhand status`: where an experiment stands, in words and numbers."""

from __future__ import annotations

from typing import Any

import click

from evenhand.app.journals import forecast, journal_argument, opened
from evenhand.app.options import json_option, print_json

UNDECIDED = 3


@click.command("status")
@journal_argument
@click.option("--check", is_flag=True, help="End with code 3 while nothing is decided.")
@json_option
def command(journal: str, name: str | None, check: bool, as_json: bool) -> int:
    """Who leads, what is certified and what is open, and how much longer.

    Reads only, so it can be asked while another process writes.
    """
    with opened(journal, name, write=False) as trial:
        status = trial.status(forecast)
    if as_json:
        print_json(status)
    else:
        _print(status, journal)
    return UNDECIDED if check and not status["decided"] else 0


def _print(status: dict[str, Any], journal: str) -> None:
    from evenhand.app.terminal import console, say, section, table, verdict

    out = console()
    if status["title"]:
        say(out, status["title"], style="bold")
    say(out, status["sentence"])
    rows = [
        [
            cell["policy"],
            cell["group"],
            f"{cell['n']:,}",
            "" if cell["mean"] is None else f"{cell['mean']:.4g}",
            verdict(cell["verdict"]),
        ]
        for cell in status["cells"]
    ]
    section(out, "Cells", table(["policy", "group", "told", "mean", "requirement"], rows, numbers_from=2))
    out.print()
    say(
        out,
        f"{status['state']}: {status['samples']:,} told, {status['pending']:,} out, {status['late']:,} late.",
    )
    say(out, _health(status["health"]))
    say(out, f"{status['events']:,} events, head {status['head']}")
    following = (
        f"evenhand report {journal} -o report.html" if status["decided"] else f"evenhand ask {journal}"
    )
    say(out, f"Next: {following}")


def _health(health: dict[str, Any]) -> str:
    """What needs attention, or that nothing does."""
    if health["well"]:
        return f"Health: allocation as intended (sample-ratio p = {health['sample_ratio_p']:.2g})."
    found = []
    if health["sample_ratio_p"] < 0.001:
        found.append(f"allocation differs from intention (p = {health['sample_ratio_p']:.2g})")
    if health["starved"]:
        found.append(f"{len(health['starved'])} cells have fewer samples than they should")
    if health["pending_too_long"]:
        found.append("a ticket has been out too long")
    if health["clock_back"]:
        found.append(f"the clock went back {health['clock_back']} times")
    return f"Health: {'; '.join(found)}."
