"""Options shared by several commands, executor with progress bar, checks of output paths."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from evenhand.errors import BadInput

if TYPE_CHECKING:
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


class Work(NamedTuple):
    """An executor and its progress callback."""

    executor: Executor
    progress: Progress


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
            click.option(
                "--device",
                type=click.Choice(("cpu", "cuda")),
                default="cpu",
                show_default=True,
                help="Where runs are computed; cuda: on an NVIDIA GPU.",
            ),
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
) -> Iterator[Work]:  # fmt: skip
    """Open the executor that the options select, with a progress bar on a terminal."""
    from evenhand.cli.terminal import progress
    from evenhand.simulation.executors import open_executor

    kind = "processes" if processes else "threads"
    if device != "cpu":
        workers = workers or 1  # one thread hands work to a GPU, which does many runs at once
    with open_executor(workers, kind, dask) as executor, progress(label, total, quiet) as update:
        yield Work(executor, lambda done, _: update(done))


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
