"""Arguments of the commands on journals, opening a journal, and CSV files of tickets."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
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
FORMULA = (
    "=",
    "+",
    "-",
    "@",
    "\t",
    "\r",
    "\0",
)  # spreadsheets read a field that starts with one of these as a formula


def journal_argument(function: F) -> F:
    """Add the argument JOURNAL and the option --experiment."""
    text = "Name of the experiment; needed only if the journal holds several."
    function = click.option("--experiment", "name", metavar="NAME", help=text)(function)
    return click.argument("journal")(function)


def reason_options(required: bool) -> Callable[[F], F]:
    """Return a decorator that adds --reason R and --by WHO."""

    def add(function: F) -> F:
        function = click.option(
            "--by", required=False, metavar="WHO", help="Your name; recorded in the log."
        )(function)
        return click.option("--reason", required=required, help="The reason; recorded in the log.")(function)

    return add


@contextmanager
def opened(journal: str, name: str | None, *, write: bool = True) -> Iterator[Experiment]:
    """Open an experiment of a journal; close the journal at the end."""
    from evenhand.live.journal import open_journal

    # open first: a second writer is refused before the slow imports
    store = open_journal(journal, write=write, wait=0.5)
    try:
        from evenhand.live.experiment import Experiment

        yield Experiment.open(store, name)
    finally:
        store.close()


metric_option = click.option(
    "--metric", multiple=True, metavar="NAME=VALUE",
    help="Outcome of a guard-rail, once for each; without a value it is missing.",
)  # fmt: skip


def rail_names(trial: Experiment) -> list[str]:
    """Return the names of the guard-rails."""
    return [rail.name for rail in trial.protocol.problem.guardrails]


def write_batch(asks: list[Ask], file: TextIO, rails: Sequence[str] = ()) -> None:
    """Write tickets as CSV, with an empty column for the outcomes and one for each guard-rail."""
    plain = csv.writer(file, lineterminator="\n")
    quoted = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
    plain.writerow((*COLUMNS, *rails))
    for ask in asks:
        row = [ask.ticket, _escaped(ask.policy), _escaped(ask.group or ""), *[""] * (1 + len(rails))]
        # readers also end a line at a carriage return, but csv.writer quotes only its own line terminator
        (quoted if any("\r" in name for name in row[1:]) else plain).writerow(row)


def read_batch(path: Path, rails: Sequence[str] = ()) -> list[tuple[int, dict[str, str]]]:
    """Return (line number, row) for every row of a ticket file that has an outcome."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            wanted = ("ticket", "outcome", *rails)
            missing = set(wanted) - set(reader.fieldnames or ())
            if missing:
                columns = f"{', '.join(wanted[:-1])} and {wanted[-1]}"
                raise BadInput(f"{path} needs the columns {columns}; {sorted(missing)[0]!r} is missing.")
            return [(reader.line_num, row) for row in reader if (row["outcome"] or "").strip()]
    except FileNotFoundError:
        raise BadInput(
            f"there is no file {path}; give a ticket and its outcome, or the file that `ask` wrote."
        ) from None
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise BadInput(f"{path} cannot be read: {problem}.") from None


def unescaped(field: str) -> str:
    """Remove the apostrophe that `write_batch` or a spreadsheet put before a name."""
    return field[1:] if field.startswith("'") and field[1:].startswith(FORMULA) else field


def _escaped(field: str) -> str:
    return "'" + field if field.startswith(FORMULA) else field
