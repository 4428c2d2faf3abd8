"""`evenhand import`: count outcomes collected before."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator
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
        lines: array[int] = array("q")  # where each row stands in the file
        rows, before = _rows(path, trial.protocol.problem, lines), trial.head
        count = trial.import_data(
            rows,
            source=path.name,
            key=key or _content(path),
            place_of=lambda n: f"{path}, line {lines[n - 1]}",
        )
        already = trial.head == before
        status = trial.status()
    if as_json:
        print_json({"imported": count, "already": already})
        return
    known = " already: the file was imported before, and nothing was added" if already else ""
    click.echo(f"{count:,} outcomes are in the log{known}.")
    click.echo(status["sentence"])


def _rows(path: Path, problem: Problem, lines: array[int]) -> Iterator[tuple[str, str, float]]:
    """The rows of a file one by one; the line of each is noted."""
    from evenhand.live.outcomes import parsed_number
    from evenhand.study.data import columns

    for line, (policy, group, text) in columns(path, ("policy", "group", "outcome")):
        try:
            outcome = parsed_number(text, problem.family)
        except BadInput as error:
            raise BadInput(f"{path}, line {line}: {error}") from None
        lines.append(line)
        yield policy, group, outcome


def _content(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return f"content {hashlib.file_digest(file, 'sha256').hexdigest()}"
    except OSError as problem:
        raise BadInput(f"{path} cannot be read: {problem.strerror}.") from None
