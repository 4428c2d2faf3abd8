"""Line charts for the paper's figures: several named series of points with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from evenhand.reports.figures.canvas import DASHES, GREY, ORANGE, RULE, SERIES, SMALL, WIDE, Canvas, Scale

LEFT, FOOT, LINE = 62.0, 48.0, 19.0


@dataclass(frozen=True)
class Point:
    """One value of a series, with an optional interval."""

    series: str
    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Axes:
    """Axis titles, logarithmic scales and reference lines.

    A reference line is (name, height), or (name, None) for y = x.
    """

    across: str
    up: str
    log_across: bool = False
    log_up: bool = False
    marks: tuple[tuple[str, float | None], ...] = ()


def curves(points: Sequence[Point], axes: Axes, width: int = WIDE) -> Canvas:
    """Draw a line per series, with a legend above the plot and intervals as vertical lines."""
    names = list(dict.fromkeys(point.series for point in points))
    top = 14.0 + LINE * (len(names) + len(axes.marks))
    canvas = Canvas(width, top + 300.0)
    bottom, right = canvas.height - FOOT, width - 16.0
    across = _scale([p.x for p in points], axes.log_across, LEFT, right, 0.02)
    heights = [h for p in points for h in (p.y, p.low, p.high) if h is not None]
    heights += [height for _, height in axes.marks if height is not None]
    up = _scale(heights, axes.log_up, bottom, top + 10.0, 0.06)
    _grid(canvas, axes, across, up, (top, bottom, right))
    _reference_lines(canvas, axes, across, up, right, len(names))
    for number, name in enumerate(names):
        colour, dashes = SERIES[number % len(SERIES)], DASHES[number % len(DASHES)]
        line = sorted((p for p in points if p.series == name), key=lambda p: p.x)
        xs = [across.at(_to_axis(p.x, axes.log_across)) for p in line]
        canvas.line(xs, [up.at(_to_axis(p.y, axes.log_up)) for p in line], colour, 2.0, dashes)
        for x, p in zip(xs, line, strict=True):
            if p.low is not None and p.high is not None:
                ends = [up.clipped(_to_axis(end, axes.log_up)) for end in (p.low, p.high)]
                canvas.line([x, x], ends, colour, 1.2)
            if len(line) <= 24:
                canvas.dot(x, up.at(_to_axis(p.y, axes.log_up)), colour, size=5)
        canvas.line([LEFT, LEFT + 26], [14.0 + LINE * number] * 2, colour, 2.2, dashes)
        canvas.text(LEFT + 34, 14.0 + LINE * number, name, size=SMALL, room=width - LEFT - 40)
    return canvas


def _to_axis(value: float, log: bool) -> float:
    return math.log10(max(value, 1e-300)) if log else value


def _scale(values: Sequence[float], log: bool, start: float, end: float, margin: float) -> Scale:
    positions = [_to_axis(value, log) for value in values]
    low, high = min(positions), max(positions)
    return Scale(low - margin * (high - low), high + margin * (high - low), start, end)


def _grid(canvas: Canvas, axes: Axes, across: Scale, up: Scale, frame: tuple[float, float, float]) -> None:
    top, bottom, right = frame
    for value, label in _log_ticks(up) if axes.log_up else up.ticks(6):
        canvas.line([LEFT, right], [up.at(value)] * 2, RULE, 0.8)
        canvas.text(LEFT - 8, up.at(value), label, colour=GREY, size=SMALL, anchor="right")
    for value, label in _log_ticks(across) if axes.log_across else across.ticks(6):
        canvas.text(across.at(value), bottom + 14, label, colour=GREY, size=SMALL, anchor="center")
    canvas.text((LEFT + right) / 2, bottom + 34, axes.across, colour=GREY, size=SMALL, anchor="center")
    canvas.text(14, (top + bottom) / 2, axes.up, colour=GREY, size=SMALL, anchor="center", rotation=90)


def _log_ticks(scale: Scale) -> list[tuple[float, str]]:
    """Return round numbers on a log10 scale: the coarsest set with at least three numbers."""
    found: list[float] = []
    for digits in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7)):
        powers = range(math.floor(scale.low), math.ceil(scale.high) + 1)
        found = [digit * 10.0**power for power in powers for digit in digits]
        found = [value for value in found if scale.low <= math.log10(value) <= scale.high]
        if len(found) >= 3:
            break
    return [(math.log10(value), f"{value:,.0f}" if value >= 10 else f"{value:g}") for value in found]


def _reference_lines(canvas: Canvas, axes: Axes, across: Scale, up: Scale, right: float, named: int) -> None:
    for number, (name, height) in enumerate(axes.marks):
        if height is None:
            ends = [max(across.low, up.low), min(across.high, up.high)]
            canvas.line([across.at(e) for e in ends], [up.at(e) for e in ends], ORANGE, 1.4, (4, 3))
        else:
            canvas.line([LEFT, right], [up.at(_to_axis(height, axes.log_up))] * 2, ORANGE, 1.4, (4, 3))
        y = 14.0 + LINE * (named + number)
        canvas.line([LEFT, LEFT + 26], [y, y], ORANGE, 1.4, (4, 3))
        canvas.text(LEFT + 34, y, name, size=SMALL, room=canvas.width - LEFT - 40)
