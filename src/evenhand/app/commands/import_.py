"""`evenhand import`: count outcomes collected before."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evenhand.app.journals import journal_argument, opened
from evenhand.app.options import json_option, print_json
from evenhand.errors import BadInput

if TYPE_CHECKING:
    from evenhand.model.problem import Problem


@click.command("import")
@journal_argument
@click.argument("data", type=click.Path())
@click.option("--key", metavar="K", help="A name for this import, which counts once; default: its content.")
@json_option
def command(journal: str, name: str | None, data: str, key: str | None, as_json: bool) -> None:
    """Count the outcomes in DATA.csv (policy, group, outcome), all of them or none.

    The same file counts once, however often it is imported; give data that only look the same another --key.
    """
    path = Path(data)
    with opened(journal, name) as trial:
        rows = _rows(path, trial.protocol.problem)
        before = trial.head
        count = trial.import_data(rows, source=path.name, key=key or _content(path))
        already = trial.head == before
        status = trial.status()
    if as_json:
        print_json({"imported": count, "already": already})
        return
    known = " already: the file was imported before, and nothing was added" if already else ""
    click.echo(f"{count:,} outcomes are in the log{known}.")
    click.echo(status["sentence"])


def _rows(path: Path, problem: Problem) -> list[tuple[str, str, float]]:
    from evenhand.live.outcomes import parsed_outcome
    from evenhand.study.data import lines

    rows = []
    for line in lines(path, problem, ("outcome",)):
        try:
            outcome = parsed_outcome(line.fields["outcome"], problem.family)
        except BadInput as error:
            raise BadInput(f"{line.place}: {error}") from None
        rows.append((problem.policies[line.policy], problem.group_names[line.group], outcome))
    return rows


def _content(path: Path) -> str:
    return f"content {hashlib.sha256(path.read_bytes()).hexdigest()}"
