"""Arguments and options shared by commands: executors, output paths, journals, ticket files."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, TypeVar

import click

from evenhand.errors import BadInput
from evenhand.errors import shown_address as shown_address
from evenhand.files import escaped

if TYPE_CHECKING:
    from evenhand.live.experiment import Experiment
    from evenhand.live.tickets import Ask
    from evenhand.simulation.executors import Executor
    from evenhand.simulation.shards import Progress


F = TypeVar("F", bound=Callable[..., Any])
UNDECIDED = 3  # exit code of `judge` and `status --check` when nothing is decided


def study_argument(function: F) -> F:
    """Add the argument STUDY: the path of a study file."""
    return click.argument("study", type=click.Path())(function)


def json_option(function: F) -> F:
    """Add the option --json: print the result as JSON instead of tables."""
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")(function)


def seed_option(function: F) -> F:
    """Add the option --seed S: the same seed gives the same numbers."""
    text = "The same seed gives the same numbers."
    return click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help=text)(
        function
    )


def print_json(result: Any) -> None:
    """Print the result as JSON; raise ValueError if a number is not finite."""
    click.echo(json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False))


class ExecutorAndProgress(NamedTuple):
    """An executor and its progress callback."""

    executor: Executor
    progress: Progress


device_option = click.option(
    "--device",
    type=click.Choice(("cpu", "cuda")),
    default="cpu",
    show_default=True,
    help="Where runs are computed; cuda: on an NVIDIA GPU.",
)


def executor_options(function: F) -> F:
    """Add --workers, --processes, --dask and --device. The decisions do not depend on them."""
    for option in reversed(
        (
            click.option(
                "--workers",
                type=click.IntRange(min=1),
                help="Number of parallel workers; default: the number of cores.",
            ),
            click.option("--processes", is_flag=True, help="Use processes instead of threads."),
            click.option(
                "--dask", metavar="ADDRESS", help="Use a Dask cluster: tcp://host:8786, or 'local'."
            ),
            device_option,
        )
    ):
        function = option(function)
    return function


def replications_option(default: int) -> Callable[[F], F]:
    """Add the option --replications R."""
    return click.option(
        "--replications",
        type=click.IntRange(min=1),
        default=default,
        show_default=True,
        help="Number of simulated runs.",
    )


def checkpoints_option(function: F) -> F:
    """Add the option --checkpoints 3000,6000."""
    text = "Also report how often the best feasible estimate is right after N samples, e.g. 3000,6000."
    return click.option("--checkpoints", metavar="N,N,..", default="", help=text)(function)


LARGEST_CHECKPOINT = 10**15  # larger than any run


def checkpoints_of(text: str) -> tuple[int, ...]:
    """Parse '3000,6000' into (3000, 6000)."""
    try:
        found = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise BadInput(
            f"checkpoints must be whole numbers separated by commas, e.g. 3000,6000; got {text!r}."
        ) from None
    if any(number > LARGEST_CHECKPOINT for number in found):
        raise BadInput(f"checkpoints must be numbers of samples up to {LARGEST_CHECKPOINT}; got {text!r}.")
    return found


@contextmanager
def open_executor_with_progress(
    label: str, total: int, workers: int | None, processes: bool, dask: str | None, device: str,
    quiet: bool = False,
) -> Iterator[ExecutorAndProgress]:  # fmt: skip
    """Open the executor that the options select, with a progress bar on a terminal."""
    from evenhand.cli.terminal import progress
    from evenhand.simulation.executors import open_executor

    kind = "processes" if processes else "threads"
    if device != "cpu":
        workers = workers or 1  # one thread hands work to a GPU, which does many runs at once
    with open_executor(workers, kind, dask) as executor, progress(label, total, quiet) as update:
        yield ExecutorAndProgress(executor, lambda done, _: update(done))


def new_file(name: str, first_bytes: bytes, what: str) -> Path:
    """Return the path to write; refuse to overwrite a file without `first_bytes` at its start."""
    path = Path(name)
    if not path.parent.is_dir():
        raise BadInput(f"there is no folder {path.parent} to write {path.name} to; create it first.")
    if path.is_dir():
        raise BadInput(f"{name} must name a file; it is a folder.")
    if path.is_file():
        with path.open("rb") as file:
            if file.read(len(first_bytes)) not in (first_bytes, b""):
                raise BadInput(f"{name} exists and is not {what}; choose another name, or remove it first.")
    return path


@contextmanager
def option_advice() -> Iterator[None]:
    """Replace the advice for callers in Python by that for the command line."""
    from evenhand.verdicts.counts import ValuesMissing
    from evenhand.verdicts.read_data import MissingColumn

    try:
        yield
    except MissingColumn as error:
        advice = f"Say --column {error.column}=THEIRS if it has another name."
        raise BadInput(f"{error.fault} {advice}") from None
    except ValuesMissing as error:
        advice = "Complete them, or leave them out and have them counted by --missing drop."
        raise BadInput(f"{error.fault} {advice}") from None


def columns_of(pairs: tuple[str, ...]) -> dict[str, str]:
    """Return the columns of `--column NAME=COLUMN`, by our names."""
    found = {}
    for pair in pairs:
        name, sign, column = pair.partition("=")
        if not sign or not column:
            raise BadInput(f"--column must be NAME=COLUMN, such as group=subpopulation; got {pair!r}.")
        found[name] = column
    return found


COLUMNS = ("ticket", "policy", "group", "outcome")


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
def open_experiment(journal: str, name: str | None, *, write: bool = True) -> Iterator[Experiment]:
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
    """Write tickets as CSV, with an empty column for the outcomes and one for each guard-rail.

    A ticket for a shared item has a row for each policy that answers it.
    """
    plain = csv.writer(file, lineterminator="\n")
    quoted = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
    plain.writerow((*COLUMNS, *rails))
    for ask in asks:
        for policy in ask.policies or (ask.policy,):
            row = [ask.ticket, escaped(policy), escaped(ask.group or ""), *[""] * (1 + len(rails))]
            # readers also end a line at a carriage return, but csv.writer quotes only its own line terminator
            (quoted if any("\r" in name for name in row[1:]) else plain).writerow(row)


def read_batch(
    path: Path, rails: Sequence[str] = (), shared: bool = False
) -> list[tuple[int, dict[str, str]]]:
    """Return (line number, row) for every row of a ticket file with an outcome; `shared`: for all rows."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            wanted = ("ticket", "policy", "outcome") if shared else ("ticket", "outcome", *rails)
            missing = set(wanted) - set(reader.fieldnames or ())
            if missing:
                columns = f"{', '.join(wanted[:-1])} and {wanted[-1]}"
                raise BadInput(f"{path} needs the columns {columns}; {sorted(missing)[0]!r} is missing.")
            rows = [(reader.line_num, row) for row in reader]
            return [(line, row) for line, row in rows if shared or (row["outcome"] or "").strip()]
    except FileNotFoundError:
        raise BadInput(
            f"there is no file {path}; give a ticket and its outcome, or the file that `ask` wrote."
        ) from None
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise BadInput(f"{path} cannot be read: {problem}.") from None
