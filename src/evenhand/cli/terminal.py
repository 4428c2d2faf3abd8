"""How results look on a terminal: sentences, tables, a heat map, a bar. Plain text when piped."""

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

# a word, a symbol and a colour for each verdict: never colour alone
VERDICTS = {"met": ("●", BLUE), "failed": ("✕", "#D55E00"), "undecided": ("○", "#6B7280")}

# cividis at eight places, dark blue for little to yellow for much
CIVIDIS = ("#00204d", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8779", "#a69d75", "#ffea46")
PIPED_WIDTH = 110


def console() -> Console:
    """Standard output: as wide as the terminal, or of one width when piped."""
    # names may hold brackets or colons, which are neither markup nor emoji here
    out = Console(highlight=False, markup=False, emoji=False)
    if not out.is_terminal:
        out.width = PIPED_WIDTH
    return out


def say(out: Console, sentence: str, style: str = "") -> None:
    """A sentence on one line, however long."""
    out.print(sentence, style=style, soft_wrap=True)


def section(out: Console, title: str, body: Table) -> None:
    """A titled table, set off by an empty line."""
    out.print()
    out.print(title, style="bold")
    out.print(body)


def verdict(word: str) -> Text:
    """A verdict with its symbol, in its colour."""
    symbol, colour = VERDICTS[word]
    return Text(f"{symbol} {word}", style=colour)


def table(columns: Sequence[str], rows: Sequence[Sequence[str | Text]], numbers_from: int = 1) -> Table:
    """A table without boxes; columns from `numbers_from` on are aligned to the right."""
    grid = Table(box=None, header_style="dim", pad_edge=False)
    for place, name in enumerate(columns):
        grid.add_column(name, justify="right" if place >= numbers_from else "left", overflow="fold")
    for row in rows:
        grid.add_row(*row)
    return grid


def heat_map(
    rows: Sequence[str], columns: Sequence[str], shares: NDArray[np.float64], leader: str | None = None
) -> Table:
    """Shares as a table whose cells are the darker the less; the leader's row in bold."""
    most = float(shares.max()) or 1.0
    cells = [
        [Text(name, style="bold" if name == leader else ""), *(_shade(share, share / most) for share in row)]
        for name, row in zip(rows, shares.tolist(), strict=True)
    ]
    return table(["", *columns], cells)


def percent(share: float) -> str:
    """A share with the digits it needs: 41%, 2.6%, 0.03%, 0."""
    if share < 5e-5:
        return "0" if share < 5e-7 else "<0.01%"
    digits = 0 if share >= 0.0995 else 1 if share >= 0.00995 else 2
    return f"{share:.{digits}%}"


def count(number: float) -> str:
    """A number of samples: 19,301."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def count_or_never(value: int | None) -> str:
    """When so many runs had decided."""
    return "never" if value is None else f"{value:,}"


class Ticks(Protocol):
    def __call__(self, done: int) -> None:
        """So many are done by now."""


class _Rate(ProgressColumn):
    """How many a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.2g}/s")


@contextmanager
def progress(label: str, total: int, quiet: bool = False) -> Iterator[Ticks]:
    """A bar with rate and time left on standard error; nothing when quiet or piped."""
    err = Console(stderr=True, highlight=False)
    if quiet or not err.is_terminal:
        yield lambda done: None
        return
    bars = BarColumn(complete_style=BLUE, finished_style=BLUE)
    columns = (TextColumn(label), bars, MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.update(task, completed=done)


def _shade(share: float, of_most: float) -> Text:
    place = min(int(of_most * len(CIVIDIS)), len(CIVIDIS) - 1)
    ink = "#ffffff" if place < 5 else "#10151b"
    return Text(f" {percent(share)} ", style=f"{ink} on {CIVIDIS[place]}")
