"""Operating characteristics over a box: curves over one mean, heat maps over two."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex
from numpy.typing import NDArray

from evenhand.reports.figures.allocation import black_or_white
from evenhand.reports.figures.canvas import (
    BLUE,
    DASHES,
    GREY,
    INK,
    ORANGE,
    RULE,
    SERIES,
    SMALL,
    TEXT,
    WIDE,
    Canvas,
    Scale,
    number,
    percent,
    text_width,
)
from evenhand.simulation.box import MeanRange
from evenhand.simulation.scan import Scan, ScanPoint

Array = NDArray[np.float64]
Curve = tuple[str, list[float], list[float], list[float]]  # name, values, low and high ends

LEFT, RIGHT, HEAD, FOOT, GAP = 66.0, 18.0, 30.0, 48.0, 26.0
CHANCES_HEIGHT, HEIGHT, LINE, STRIP = 190.0, 120.0, 18.0, 22.0
ROW, LABELS, NARROW_CELL = 26.0, 46.0, 40.0
SMALL_ROW, SMALL_COLUMNS = 12.0, 3
MEASURES: dict[str, Callable[[ScanPoint], float]] = {
    "error": lambda point: point.error.rate,
    "power": lambda point: point.power.rate,
    "samples": lambda point: point.samples.mean,
}


def scan_figure(found: Scan, width: int = WIDE) -> Canvas:
    """Draw error, power, samples and the chance of each answer over the box."""
    ranged = [one for one in found.box if one.points > 1]
    return _maps(found, ranged, width) if len(ranged) > 1 else _curves(found, ranged, width)


def answers_given(found: Scan) -> list[str]:
    """Return the answers that some run gave, in the order of the problem."""
    names = found.points[0].answers
    return [name for name in names if any(point.answers[name].rate > 0 for point in found.points)]


def _curves(found: Scan, ranged: Sequence[MeanRange], width: int) -> Canvas:
    """Draw three panels over the only mean that varies."""
    one = ranged[0] if ranged else found.box[0]
    place = found.box.index(one)
    points, at = found.points, [point.means[place] for point in found.points]
    names = answers_given(found)
    chances = [_curve(name, [point.answers[name] for point in points]) for name in names]
    if any(point.undecided.rate > 0 for point in points):
        chances.append(_curve("undecided", [point.undecided for point in points]))
    key = LINE * len(chances)
    height = HEAD + key + STRIP + CHANCES_HEIGHT + 2 * (GAP + HEAD + HEIGHT) + FOOT
    canvas = Canvas(width, height)
    across = Scale(one.low, one.high, LEFT, width - RIGHT)
    top = HEAD + key + STRIP
    canvas.text(8, 14, "Chance of each answer", bold=True)
    for line, (name, *_) in enumerate(chances):
        y = HEAD + LINE * line
        colour, dashes = _style(line, name)
        canvas.line([LEFT, LEFT + 26], [y, y], colour, 2.2, dashes)
        canvas.text(LEFT + 34, y, name, size=SMALL, room=width - LEFT - 44)
    _right_answers(canvas, across, at, points, top - STRIP / 2, top, CHANCES_HEIGHT)
    _panel(canvas, across, at, chances, (0.0, 1.0), (top, CHANCES_HEIGHT), percent)
    top += CHANCES_HEIGHT + GAP + HEAD
    errors = [_curve("error", [point.error for point in points])]
    canvas.text(8, top - 16, "Chance of a wrong answer", bold=True)
    most = max(*errors[0][3], 1.15 * found.study.procedure.delta)
    _panel(
        canvas, across, at, errors, (0.0, most), (top, HEIGHT), _small_percent, found.study.procedure.delta
    )
    top += HEIGHT + GAP + HEAD
    samples = [point.samples for point in points]
    curve = [("samples", [s.mean for s in samples], [s.low for s in samples], [s.high for s in samples])]
    canvas.text(8, top - 16, "Expected samples", bold=True)
    _panel(canvas, across, at, curve, (0.0, 1.05 * max(curve[0][3])), (top, HEIGHT), _whole)
    bottom = top + HEIGHT
    for value, label in across.ticks(8 if width >= 560 else 4):
        canvas.text(across.at(value), bottom + 14, label, colour=GREY, size=SMALL, anchor="center")
    assumed = _assumed(found, one, across)
    note = f"mean of {one.label}" + ("" if assumed is None else " (dotted: the assumed mean)")
    canvas.text(width / 2, bottom + 34, note, colour=GREY, size=SMALL, anchor="center", room=width - 16)
    for end, tall in ((bottom, HEIGHT), (bottom - HEIGHT - GAP - HEAD, HEIGHT), (HEAD + key + STRIP, 0.0)):
        if assumed is not None:
            span = [end - tall, end] if tall else [end, end + CHANCES_HEIGHT]
            canvas.line([across.at(assumed)] * 2, span, INK, 1.2, (1.0, 2.5))
    return canvas


def _curve(name: str, rates: Sequence[Sequence[float]]) -> Curve:
    """Return a curve from rates (rate, low, high)."""
    return name, [r[0] for r in rates], [r[1] for r in rates], [r[2] for r in rates]


def _style(line: int, name: str) -> tuple[str, tuple[float, ...] | None]:
    if name == "undecided":
        return GREY, (2.0, 2.0)
    return SERIES[line % (len(SERIES) - 1)], DASHES[(line // (len(SERIES) - 1)) % len(DASHES)]


def _panel(
    canvas: Canvas, across: Scale, at: list[float], curves: Sequence[Curve], values: tuple[float, float],
    place: tuple[float, float], label: Callable[[float], str], limit: float | None = None,
) -> None:  # fmt: skip
    """Draw curves with their bands; `limit` is a horizontal line."""
    top, height = place
    up = Scale(*values, top + height, top)
    for value, _ in up.ticks(4):
        canvas.line([across.start, across.end], [up.at(value)] * 2, RULE, 0.8)
        canvas.text(across.start - 8, up.at(value), label(value), colour=GREY, size=SMALL, anchor="right")
    xs = [across.at(value) for value in at]
    for line, (name, middle, low, high) in enumerate(curves):
        colour, dashes = _style(line, name)
        if len(xs) > 1:
            canvas.area(xs, [up.clipped(v) for v in high], [up.clipped(v) for v in low], colour, alpha=0.2)
            canvas.line(xs, [up.clipped(v) for v in middle], colour, 2.0, dashes)
        for x, value in zip(xs, middle, strict=True):
            canvas.dot(x, up.clipped(value), colour, size=4)
    if limit is not None:
        canvas.line([across.start, across.end], [up.at(limit)] * 2, ORANGE, 2.0)
        canvas.text(across.end, up.at(limit) - 10, f"risk {limit:g}", size=SMALL, anchor="right")


def _right_answers(
    canvas: Canvas, across: Scale, at: list[float], points: Sequence[ScanPoint], y: float, top: float,
    height: float,
) -> None:  # fmt: skip
    """Name the right answer above the stretch of means where it is right."""
    stretches = [
        [place for place, _ in part]
        for _, part in itertools.groupby(enumerate(points), key=lambda one: one[1].answer)
    ]
    for part in stretches:
        start = across.start if part[0] == 0 else across.at((at[part[0] - 1] + at[part[0]]) / 2)
        end = across.end if part[-1] == len(at) - 1 else across.at((at[part[-1]] + at[part[-1] + 1]) / 2)
        if part[0] > 0:
            canvas.line([start, start], [y - 6, top + height], GREY, 1.0, (4.0, 3.0))
        answer = points[part[0]].answer or "none"
        words = f"right: {answer}" if text_width(f"right: {answer}", SMALL) < end - start - 6 else answer
        if end - start > 24:
            canvas.text(
                (start + end) / 2, y, words, colour=GREY, size=SMALL, anchor="center", room=end - start - 6
            )


def _assumed(found: Scan, one: MeanRange, across: Scale) -> float | None:
    k, g = one.cell(found.study.problem)
    mean = found.study.means()[k][g]
    return mean if across.low <= mean <= across.high else None


def _whole(samples: float) -> str:
    return f"{samples:,.0f}"


def _small_percent(share: float) -> str:
    return "0%" if share <= 0 else f"{100 * share:.3g}%"


def _maps(found: Scan, ranged: Sequence[MeanRange], width: int) -> Canvas:
    """Draw a heat map of error, power and samples over two means, and small ones of each answer."""
    rows, columns = ranged[0], ranged[1]
    titles = {
        "error": f"Chance of a wrong answer (risk {found.study.procedure.delta:g})",
        "power": "Chance of a right answer",
        "samples": "Expected samples",
    }
    large = LABELS + ROW * rows.points + GAP
    names = answers_given(found)
    lines = -(-len(names) // SMALL_COLUMNS)
    small = LABELS / 2 + SMALL_ROW * rows.points + 14
    rest = "; worst over the other means" if len(ranged) > 2 else ""
    canvas = Canvas(width, 48 + len(titles) * large + lines * small + 34)
    canvas.text(8, 14, f"rows: mean of {rows.label}{rest}", colour=GREY, size=SMALL, room=width - 16)
    canvas.text(8, 34, f"columns: mean of {columns.label}", colour=GREY, size=SMALL, room=width - 16)
    top = 48.0
    for measure, title in titles.items():
        table = worst_over_others(found, MEASURES[measure], np.min if measure == "power" else np.max)
        # an error below the risk is not drawn in the brightest colour
        least = {"error": found.study.procedure.delta, "power": 1.0, "samples": 1.0}[measure]
        _map(canvas, table, title, rows, columns, top, width, measure, max(float(table.max()), least))
        top += large
    cell = (width - 16) / SMALL_COLUMNS
    for place, name in enumerate(names):
        table = worst_over_others(found, partial(_chance, name), np.max)
        x, y = 8 + cell * (place % SMALL_COLUMNS), top + small * (place // SMALL_COLUMNS)
        canvas.text(x, y + 8, f"chance of {name}", size=SMALL, room=cell - 14)
        _cells(canvas, table, x, y + 18, (cell - 14) / columns.points, SMALL_ROW, 1.0)
    canvas.text(8, canvas.height - 16, "small maps: dark 0, yellow 1; same rows and columns", colour=GREY,
                size=SMALL, room=width - 16)  # fmt: skip
    return canvas


def _chance(name: str, point: ScanPoint) -> float:
    return point.answers[name].rate


def worst_over_others(
    found: Scan, measure: Callable[[ScanPoint], float], worst: Callable[..., Array]
) -> Array:
    """Return a table over the first two ranged means: the worst over the others; high rows first."""
    ranged = [place for place, one in enumerate(found.box) if one.points > 1]
    full = np.array([measure(point) for point in found.points]).reshape([one.points for one in found.box])
    others = tuple(place for place in range(len(found.box)) if place not in ranged[:2])
    return np.asarray(worst(full, axis=others) if others else full)[::-1]


def _map(
    canvas: Canvas, table: Array, title: str, rows: MeanRange, columns: MeanRange, top: float, width: int,
    measure: str, most: float,
) -> None:  # fmt: skip
    """Draw one heat map with the means at its rows and columns."""
    cell = (width - LEFT - RIGHT) / columns.points
    canvas.text(8, top + 12, title, size=TEXT, bold=True, room=width - 16)
    y = top + 26
    for place, value in enumerate(reversed(rows.values)):
        canvas.text(LEFT - 8, y + ROW * (place + 0.5), number(value), colour=GREY, size=SMALL, anchor="right")
    every = max(1, -(-int(NARROW_CELL + 6) // max(int(cell), 1)))
    for place, value in enumerate(columns.values):
        if place % every == 0:
            x = LEFT + cell * (place + 0.5)
            canvas.text(
                x, y + ROW * rows.points + 12, number(value), colour=GREY, size=SMALL, anchor="center"
            )
    label = _whole if measure == "samples" else _small_percent
    _cells(canvas, table, LEFT, y, cell, ROW, most, label)


def _cells(
    canvas: Canvas, table: Array, left: float, top: float, width: float, height: float, most: float,
    label: Callable[[float], str] | None = None,
) -> None:  # fmt: skip
    """Draw the cells of a heat map, with numbers where there is room for them."""
    texts = [[label(float(v)) for v in row] for row in table] if label is not None else []
    fits = bool(texts) and max(text_width(t, SMALL) for row in texts for t in row) <= width - 4
    gap = 1.0 if height > SMALL_ROW else 0.4
    for row, values in enumerate(table.tolist()):
        for column, value in enumerate(values):
            red, green, blue, _ = colormaps["cividis"](0.06 + 0.94 * value / most)
            x, y = left + width * column, top + height * row
            canvas.box(x + gap, y + gap, width - 2 * gap, height - 2 * gap, to_hex((red, green, blue)))
            if fits:
                ink = black_or_white(red, green, blue)
                canvas.text(x + width / 2, y + height / 2, texts[row][column], colour=ink, size=SMALL,
                            anchor="center")  # fmt: skip


def box_calibration_figure(threshold: float, needs: Sequence[tuple[float, float, float]], label: str,
                           width: int = WIDE) -> Canvas:  # fmt: skip
    """Draw the threshold that each tile needs by itself over one mean: (low, high, needs) of every tile."""
    top, height = 40.0, 220.0
    canvas = Canvas(width, top + height + FOOT)
    across = Scale(min(low for low, _, _ in needs), max(high for _, high, _ in needs), LEFT, width - RIGHT)
    up = Scale(0.0, 1.1 * threshold, top + height, top)
    for value, text in up.ticks(5):
        canvas.line([LEFT, width - RIGHT], [up.at(value)] * 2, RULE, 0.8)
        canvas.text(LEFT - 8, up.at(value), text, colour=GREY, size=SMALL, anchor="right")
    for value, text in across.ticks(8 if width >= 560 else 4):
        canvas.text(across.at(value), top + height + 14, text, colour=GREY, size=SMALL, anchor="center")
    canvas.text(8, 14, "Threshold that each part of the box needs", bold=True, room=width - 16)
    canvas.line([LEFT, width - RIGHT], [up.at(threshold)] * 2, ORANGE, 2.0)
    canvas.text(width - RIGHT, up.at(threshold) - 10, f"threshold {threshold:g}", size=SMALL, anchor="right")
    for low, high, need in needs:
        canvas.line([across.at(low), across.at(high)], [up.at(need)] * 2, BLUE, 3.0)
    canvas.text(width / 2, top + height + 34, f"mean of {label}", colour=GREY, size=SMALL, anchor="center",
                room=width - 16)  # fmt: skip
    return canvas
