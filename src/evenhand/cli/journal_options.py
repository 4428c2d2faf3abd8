"""What the commands on journals share: their arguments, opening, and files of tickets."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from evenhand.errors import BadInput

if TYPE_CHECKING:
    from evenhand.live.experiment import Experiment
    from evenhand.live.tickets import Ask

F = TypeVar("F", bound=Callable[..., Any])

COLUMNS = ("ticket", "policy", "group", "outcome")
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\0")  # a spreadsheet takes a field that begins so for a formula


def journal_argument(function: F) -> F:
    """JOURNAL, and --experiment where it holds more than one."""
    text = "Which experiment, where the journal holds more than one."
    function = click.option("--experiment", "name", metavar="NAME", help=text)(function)
    return click.argument("journal")(function)


def reason_options(required: bool) -> Callable[[F], F]:
    """--reason R and --by WHO."""

    def add(function: F) -> F:
        function = click.option("--by", required=False, metavar="WHO", help="Who says so.")(function)
        return click.option("--reason", required=required, help="Why; stays in the log.")(function)

    return add


@contextmanager
def opened(journal: str, name: str | None, *, write: bool = True) -> Iterator[Experiment]:
    """The experiment in a journal, let go of at the end."""
    from evenhand.live.journal import open_journal

    store = open_journal(
        journal, write=write, wait=0.5
    )  # first: a second writer is refused before anything heavy loads
    try:
        from evenhand.live.experiment import Experiment

        yield Experiment.open(store, name)
    finally:
        store.close()


def write_batch(asks: list[Ask], file: TextIO) -> None:
    """Tickets as CSV, with an empty column for the outcomes."""
    plain = csv.writer(file, lineterminator="\n")
    quoted = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
    plain.writerow(COLUMNS)
    for ask in asks:
        row = [ask.ticket, _escaped(ask.policy), _escaped(ask.group or ""), ""]
        # a carriage return ends a line too, for readers; the writer quotes its own line end only
        (quoted if any("\r" in name for name in row[1:]) else plain).writerow(row)


def read_batch(path: Path) -> list[tuple[int, dict[str, str]]]:
    """The lines of such a file that have an outcome, with their numbers."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            missing = {"ticket", "outcome"} - set(reader.fieldnames or ())
            if missing:
                raise BadInput(
                    f"{path} needs the columns ticket and outcome; {sorted(missing)[0]!r} is missing."
                )
            return [(reader.line_num, row) for row in reader if (row["outcome"] or "").strip()]
    except FileNotFoundError:
        raise BadInput(
            f"there is no file {path}; give a ticket and its outcome, or the file that `ask` wrote."
        ) from None
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise BadInput(f"{path} cannot be read: {problem}.") from None


def unescaped(field: str) -> str:
    """A name as it was before `write_batch` or a spreadsheet put an apostrophe before it."""
    return field[1:] if field.startswith("'") and field[1:].startswith(FORMULA) else field


def _escaped(field: str) -> str:
    return "'" + field if field.startswith(FORMULA) else field
