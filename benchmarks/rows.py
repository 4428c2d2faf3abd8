"""One figure of a benchmark: ours beside theirs, and the ratio that was promised."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Row:
    """Theirs is a peer's in the same run, or the figure promised; the ratio says how many times better."""

    name: str
    ours: float
    theirs: float
    unit: str
    ratio: float
    least: float | None = None  # the ratio promised
    curve: tuple[tuple[float, float], ...] = ()  # for a growth: size and seconds

    @property
    def kept(self) -> bool | None:
        """Is the promise kept? None where there is none."""
        return None if self.least is None else self.ratio >= self.least

    def line(self) -> str:
        """As JSON, numbers to four digits."""
        return json.dumps({name: _rounded(value) for name, value in asdict(self).items() if name != "curve"})


def less(name: str, ours: float, theirs: float, unit: str, least: float | None = None) -> Row:
    """A figure that is better when smaller: a time, a size."""
    return Row(name, ours, theirs, unit, theirs / ours, least)


def more(name: str, ours: float, theirs: float, unit: str, least: float | None = None) -> Row:
    """A figure that is better when larger: a rate."""
    return Row(name, ours, theirs, unit, ours / theirs, least)


def seconds(
    action: Callable[[], object], repeats: int = 5, clock: Callable[[], float] = time.process_time
) -> float:
    """The least time of an action on its processor, after one run that does not count.

    What else runs on a machine only adds to a time, and to the longer of two times more often.
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
