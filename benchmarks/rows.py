"""One result of a benchmark: evenhand's value, the reference value and the target ratio."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Row:
    """`theirs` is another program's value or the target; a larger `ratio` is better."""

    name: str
    ours: float
    theirs: float
    unit: str
    ratio: float
    least: float | None = None  # the target ratio
    curve: tuple[tuple[float, float], ...] = ()  # (size, seconds) of a growth curve

    @property
    def kept(self) -> bool | None:
        """Return whether the target is met; None without a target."""
        return None if self.least is None else self.ratio >= self.least

    def line(self) -> str:
        """Return the row as JSON, numbers with four digits."""
        return json.dumps({name: _rounded(value) for name, value in asdict(self).items() if name != "curve"})


def less(name: str, ours: float, theirs: float, unit: str, least: float | None = None) -> Row:
    """Return a row for a value that is better when smaller: a time, a size."""
    return Row(name, ours, theirs, unit, theirs / ours, least)


def more(name: str, ours: float, theirs: float, unit: str, least: float | None = None) -> Row:
    """Return a row for a value that is better when larger: a rate."""
    return Row(name, ours, theirs, unit, ours / theirs, least)


def seconds(
    action: Callable[[], object], repeats: int = 5, clock: Callable[[], float] = time.process_time
) -> float:
    """Return the smallest processor time of an action, after one warm-up run.

    The minimum is used because other load on the machine can only increase a time.
    """
    action()
    times = []
    for _ in range(repeats):
        begun = clock()
        action()
        times.append(clock() - begun)
    return min(times)


def _rounded(value: object) -> object:
    return float(f"{value:.4g}") if isinstance(value, float) else value
