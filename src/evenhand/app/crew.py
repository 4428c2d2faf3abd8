"""Who works, and how far they are: the options of every command that simulates, its executor and its bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from evenhand.errors import BadInput

if TYPE_CHECKING:
    from evenhand.sim.executors import Executor
    from evenhand.sim.jobs import Progress

F = TypeVar("F", bound=Callable[..., Any])


class Crew(NamedTuple):
    """An executor, and whom to tell how far it is."""

    executor: Executor
    progress: Progress


def crew_options(function: F) -> F:
    """--workers, --processes, --dask: who does the work. The numbers do not depend on it."""
    for option in reversed(
        (
            click.option(
                "--workers", type=click.IntRange(min=1), help="How many at once; default: the cores."
            ),
            click.option("--processes", is_flag=True, help="Work with processes instead of threads."),
            click.option("--dask", metavar="ADDRESS", help="A Dask scheduler, tcp://host:8786, or 'local'."),
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
    label: str, total: int, workers: int | None, processes: bool, dask: str | None, quiet: bool = False
) -> Iterator[Crew]:
    """The executor that the options ask for, with a bar on a terminal."""
    from evenhand.app.terminal import progress
    from evenhand.sim.executors import open_executor

    kind = "processes" if processes else "threads"
    with open_executor(workers, kind, dask) as executor, progress(label, total, quiet) as tick:
        yield Crew(executor, lambda done, _: tick(done))
