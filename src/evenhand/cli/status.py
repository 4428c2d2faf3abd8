"""`evenhand status`: the state of an experiment as sentences and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from evenhand.cli.journal_options import journal_argument, opened
from evenhand.cli.options import UNDECIDED, json_option, print_json

if TYPE_CHECKING:
    from rich.text import Text

    from evenhand.live.status import Status


@click.command("status")
@journal_argument
@click.option("--check", is_flag=True, help="Exit with code 3 while nothing is decided.")
@json_option
def status_command(journal: str, name: str | None, check: bool, as_json: bool) -> int:
    """Show the leader, what is certified, what is open and a forecast of further samples.

    Only reads, so it works while another process writes. The forecast assumes Jeffreys' prior on the means.
    """
    with opened(journal, name, write=False) as trial:
        from evenhand.verdicts.forecast import experiment_forecast

        status = trial.status(experiment_forecast)
    if as_json:
        print_json(status.to_dict())
    else:
        _print(status, journal if name is None else f"{journal} --experiment {name}")
    return UNDECIDED if check and not status.decided else 0


def _print(status: Status, journal: str) -> None:
    from evenhand.cli.terminal import console, print_sentence, section, table, verdict
    from evenhand.live.sentences import counts_sentence, health_sentence
    from evenhand.model.sentences import requirement_words

    out = console()
    if status.title:
        print_sentence(out, status.title, style="bold")
    print_sentence(out, status.sentence)
    relative = any(bound is not None for cell in status.cells for bound in cell.relative)
    rows: list[list[str | Text]] = [
        [
            cell.policy,
            cell.group,
            f"{cell.n:,}",
            "" if cell.mean is None else f"{cell.mean:.4g}",
            *([requirement_words(cell)] if relative else []),
            verdict(cell.verdict),
        ]
        for cell in status.cells
    ]
    columns = ["policy", "group", "samples", "mean", *(["bound"] if relative else []), "requirement"]
    section(out, "Cells", table(columns, rows, numbers_from=2))
    out.print()
    forecast = "" if status.forecast is None else status.forecast["statement"]
    for sentence in (counts_sentence(status), forecast, health_sentence(status.health)):
        if sentence:
            print_sentence(out, sentence)
    events = "1 event" if status.events == 1 else f"{status.events:,} events"
    print_sentence(out, f"{events}, head {status.head}")
    following = {"running": f"ask {journal}", "paused": f"resume {journal}"}
    print_sentence(out, f"Next: evenhand {following.get(status.state, f'report {journal} -o report.html')}")
