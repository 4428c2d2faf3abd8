"""Terminal output: sentences, tables, heat maps and progress bars. Plain text when piped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

BLUE = "#0072B2"

# verdict -> (symbol, colour); both are always shown, so that colour is never the only signal
VERDICTS = {"met": ("●", BLUE), "failed": ("✕", "#D55E00"), "undecided": ("○", "#6B7280")}

# eight colours of the cividis map, from dark blue (low) to yellow (high)
CIVIDIS = ("#00204d", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8779", "#a69d75", "#ffea46")
PIPED_WIDTH = 110


def console() -> Console:
    """Return a console on standard output: as wide as the terminal, PIPED_WIDTH when piped."""
    # names may contain brackets or colons, which must not be read as markup or emoji
    out = Console(highlight=False, markup=False, emoji=False)
    if not out.is_terminal:
        out.width = PIPED_WIDTH
    return out


def print_sentence(out: Console, sentence: str, style: str = "") -> None:
    """Print a sentence on one line, without wrapping."""
    out.print(sentence, style=style, soft_wrap=True)


def section(out: Console, title: str, body: Table) -> None:
    """Print an empty line, a title and a table."""
    out.print()
    out.print(title, style="bold")
    out.print(body)


def verdict(word: str) -> Text:
    """Return a verdict with its symbol, in its colour."""
    symbol, colour = VERDICTS[word]
    return Text(f"{symbol} {word}", style=colour)


def table(columns: Sequence[str], rows: Sequence[Sequence[str | Text]], numbers_from: int = 1) -> Table:
    """Return a table without borders; columns from `numbers_from` on are aligned right."""
    grid = Table(box=None, header_style="dim", pad_edge=False)
    for index, name in enumerate(columns):
        grid.add_column(name, justify="right" if index >= numbers_from else "left", overflow="fold")
    for row in rows:
        grid.add_row(*row)
    return grid


def heat_map(
    rows: Sequence[str], columns: Sequence[str], shares: NDArray[np.float64], leader: str | None = None
) -> Table:
    """Return shares as a coloured table, dark for low shares; the leader's name is bold."""
    largest = float(shares.max()) or 1.0
    cells = [
        [
            Text(name, style="bold" if name == leader else ""),
            *(_shade(share, share / largest) for share in row),
        ]
        for name, row in zip(rows, shares.tolist(), strict=True)
    ]
    return table(["", *columns], cells)


def percent(share: float) -> str:
    """Format a share with as many digits as it needs: 41%, 2.6%, 0.03%, 0."""
    if share < 5e-5:
        return "0" if share < 5e-7 else "<0.01%"
    digits = 0 if share >= 0.0995 else 1 if share >= 0.00995 else 2
    return f"{share:.{digits}%}"


def count(number: float) -> str:
    """Format a number of samples: 19,301."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def count_or_never(value: int | None) -> str:
    """Format a number of samples, or "never" for None."""
    return "never" if value is None else f"{value:,}"


class Update(Protocol):
    def __call__(self, done: int) -> None:
        """Set the progress bar to `done` finished items."""


class _Rate(ProgressColumn):
    """Finished items per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.2g}/s")


@contextmanager
def progress(label: str, total: int, quiet: bool = False) -> Iterator[Update]:
    """Show a bar with rate and time left on standard error; nothing when quiet or piped."""
    err = Console(stderr=True, highlight=False)
    if quiet or not err.is_terminal:
        yield lambda done: None
        return
    bars = BarColumn(complete_style=BLUE, finished_style=BLUE)
    columns = (TextColumn(label), bars, MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.update(task, completed=done)


def _shade(share: float, of_largest: float) -> Text:
    index = min(int(of_largest * len(CIVIDIS)), len(CIVIDIS) - 1)
    text_colour = "#ffffff" if index < 5 else "#10151b"
    return Text(f" {percent(share)} ", style=f"{text_colour} on {CIVIDIS[index]}")
