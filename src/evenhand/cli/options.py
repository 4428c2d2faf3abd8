"""Arguments and options that several commands share, so that they are spelled and explained alike.

Who works, and how far they are: the options of every command that simulates, its executor and its bar.

Files that commands write: checked before the work, and never over something of another kind.
"""

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
UNDECIDED = 3  # the exit code of a command that was asked for a decision and found none


def study_argument(function: F) -> F:
    """STUDY: the path of a study file."""
    return click.argument("study", type=click.Path())(function)


def json_option(function: F) -> F:
    """--json: print the result as JSON instead of tables."""
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")(function)


def seed_option(function: F) -> F:
    """--seed S: the same seed gives the same numbers."""
    text = "The same seed gives the same numbers."
    return click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help=text)(
        function
    )


def print_json(result: Any) -> None:
    """The result as JSON; a number that is not finite is an error of ours, never printed."""
    click.echo(json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False))


class Crew(NamedTuple):
    """An executor, and whom to tell how far it is."""

    executor: Executor
    progress: Progress


def crew_options(function: F) -> F:
    """--workers, --processes, --dask, --device: who does the work. The decisions do not depend on it."""
    for option in reversed(
        (
            click.option(
                "--workers", type=click.IntRange(min=1), help="How many at once; default: the cores."
            ),
            click.option("--processes", is_flag=True, help="Work with processes instead of threads."),
            click.option("--dask", metavar="ADDRESS", help="A Dask scheduler, tcp://host:8786, or 'local'."),
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
    """--replications R."""
    return click.option(
        "--replications",
        type=click.IntRange(min=1),
        default=default,
        show_default=True,
        help="How many runs.",
    )


def checkpoints_option(function: F) -> F:
    """--checkpoints 3000,6000."""
    text = "Also judge the best feasible estimate after so many samples, e.g. 3000,6000."
    return click.option("--checkpoints", metavar="N,N,..", default="", help=text)(function)


FARTHEST = 10**15  # no run is as long


def checkpoints_of(text: str) -> tuple[int, ...]:
    """The numbers in '3000,6000'."""
    try:
        found = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise BadInput(
            f"checkpoints are whole numbers with commas between, e.g. 3000,6000; got {text!r}."
        ) from None
    if any(number > FARTHEST for number in found):
        raise BadInput(f"checkpoints must be numbers of samples up to {FARTHEST}; got {text!r}.")
    return found


@contextmanager
def crew(
    label: str, total: int, workers: int | None, processes: bool, dask: str | None, device: str,
    quiet: bool = False,
) -> Iterator[Crew]:  # fmt: skip
    """The executor that the options ask for, with a bar on a terminal."""
    from evenhand.cli.terminal import progress
    from evenhand.simulation.executors import open_executor

    kind = "processes" if processes else "threads"
    if device != "cpu":
        workers = workers or 1  # one thread hands work to a GPU, which does many runs at once
    with open_executor(workers, kind, dask) as executor, progress(label, total, quiet) as tick:
        yield Crew(executor, lambda done, _: tick(done))


def new_file(name: str, begins: bytes, what: str) -> Path:
    """Where this can be written: a folder that exists, and no file there but an earlier one of its kind."""
    path = Path(name)
    if not path.parent.is_dir():
        raise BadInput(f"there is no folder {path.parent} to write {path.name} to; make it first.")
    if path.is_dir():
        raise BadInput(f"{name} must name a file; it is a folder.")
    if path.is_file():
        with path.open("rb") as file:
            if file.read(len(begins)) not in (begins, b""):
                raise BadInput(f"{name} exists and is not {what}; give another name, or remove it first.")
    return path
