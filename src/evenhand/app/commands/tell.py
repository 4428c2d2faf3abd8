"""`evenhand tell`: one outcome, or a file of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evenhand.app.journals import journal_argument, opened, read_batch, unescaped
from evenhand.app.options import json_option, print_json
from evenhand.errors import BadInput

if TYPE_CHECKING:
    from evenhand.live.experiment import Experiment


@click.command("tell", context_settings={"ignore_unknown_options": True})
@journal_argument
@click.argument("ticket")
@click.argument("outcome", required=False)
@click.option("--group", metavar="G", help="The group of the unit (agnostic mode).")
@json_option
def command(
    journal: str, name: str | None, ticket: str, outcome: str | None, group: str | None, as_json: bool
) -> None:
    """Tell the outcome of TICKET, or all outcomes in a CSV file.

    With one argument after JOURNAL, that is a file with the columns ticket and outcome, as `ask` wrote it;
    lines without an outcome are passed over. All others are told or none: the first that cannot be is named.
    """
    with opened(journal, name) as trial:
        if outcome is None:
            result = _tell_file(trial, Path(ticket))
        else:
            result = trial.tell(ticket, _parsed(trial, outcome), group=group)._asdict()
        status = trial.status()
    if as_json:
        print_json(result)
    else:
        click.echo(_words(result))
        click.echo(status["sentence"])


def _tell_file(trial: Experiment, path: Path) -> dict[str, Any]:
    """All lines are told, or none; a line that cannot be told is named."""
    rows, places = [], []
    for number, row in read_batch(path):
        place = f"{path}, line {number}"
        try:
            outcome = _parsed(trial, row["outcome"])
        except BadInput as problem:
            raise BadInput(f"{place}: {problem}") from None
        rows.append((row["ticket"], outcome, _group(trial, row)))
        places.append(place)
    receipts = trial.tell_all(rows, places=places)
    counted = sum(receipt.counted for receipt in receipts)
    return {"told": len(receipts), "counted": counted, "late": len(receipts) - counted, "refused": []}


def _group(trial: Experiment, row: dict[str, str]) -> str | None:
    """The group that a line tells; elsewhere the column repeats what `ask` wrote."""
    if trial.protocol.problem.mode != "agnostic":
        return None
    return unescaped(row.get("group") or "") or None


def _parsed(trial: Experiment, text: str) -> float:
    from evenhand.live.outcomes import parsed_outcome

    return parsed_outcome(text, trial.protocol.problem.family)


def _words(result: dict[str, Any]) -> str:
    if "told" in result:
        late = f", {result['late']} of them late and not counted" if result["late"] else ""
        return f"{result['told']} outcomes are in the log{late}."
    if result["counted"]:
        return f"The outcome of {result['ticket']} is in the log."
    return f"The outcome of {result['ticket']} came late ({result['why']}): it is kept and does not count."
