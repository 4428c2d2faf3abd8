"""The simulated distribution of samples to a decision, one procedure below the other."""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.reports.figure_rows import Duration
from evenhand.reports.figures.canvas import (
    GREY,
    INK,
    ORANGE,
    RULE,
    SERIES,
    SMALL,
    WIDE,
    Canvas,
    Scale,
    number,
    percent,
)

TOP, ROW, FOOT, PEAK = 8.0, 132.0, 62.0, 66.0


def duration(rows: Sequence[Duration], width: int = WIDE) -> Canvas:
    """Draw a histogram per procedure, marks at 50, 70, 80 and 90% of the runs, and the lower bound."""
    canvas = Canvas(width, TOP + ROW * len(rows) + FOOT)
    bottom = canvas.height - FOOT
    across = Scale(0.0, max(_farthest(row) for row in rows) * 1.02, 12, width - 14)
    for value, label in across.ticks(7 if width >= 560 else 4):
        for place in range(len(rows)):
            base = TOP + place * ROW + 44 + PEAK
            canvas.line([across.at(value)] * 2, [base - PEAK - 8, base], RULE, 0.8)
        canvas.text(across.at(value), bottom + 4, label, colour=GREY, size=SMALL, anchor="center")
    canvas.text(
        width / 2, bottom + 24, "samples until the decision", colour=GREY, size=SMALL, anchor="center"
    )
    for place, row in enumerate(rows):
        _histogram(canvas, across, row, TOP + place * ROW, SERIES[place % len(SERIES)])
    bounds = sorted({row.bound for row in rows if row.bound is not None})
    if bounds:
        words = f"dotted: at least {number(bounds[0])} on average by any procedure"
        canvas.text(width / 2, bottom + 46, words, colour=GREY, size=SMALL, anchor="center", room=width - 16)
    return canvas


def _histogram(canvas: Canvas, across: Scale, row: Duration, top: float, colour: str) -> None:
    """Draw the histogram of one procedure and its marks."""
    name = row.name if row.unfinished <= 0 else f"{row.name} ({percent(row.unfinished)} reached the cap)"
    canvas.text(12, top + 10, name, bold=True, room=canvas.width - 26)
    by = " by " if canvas.width >= 560 else " "
    marks = " · ".join(f"{chance:.0%}{by}{number(samples)}" for chance, samples in row.quantiles)
    canvas.text(12, top + 28, marks, colour=GREY, size=SMALL, room=canvas.width - 20)
    base, xs, ys = top + 44 + PEAK, [], []
    tallest = max((bar.count / (bar.high - bar.low) for bar in row.bars), default=1.0) or 1.0
    for bar in row.bars:
        height = base - PEAK * bar.count / (bar.high - bar.low) / tallest
        xs += [across.clipped(bar.low), across.clipped(bar.high)]
        ys += [height, height]
    canvas.area(xs, ys, base, colour, alpha=0.35)
    canvas.line(xs, ys, colour, 1.4)
    canvas.line([across.start, across.end], [base, base], GREY, 0.8)
    for _, samples in row.quantiles:
        canvas.line([across.at(samples)] * 2, [base - 12, base + 5], INK, 1.6)
    if row.bound is not None:
        canvas.line([across.at(row.bound)] * 2, [base - PEAK - 8, base], ORANGE, 2.2, dashes=(1.0, 2.0))


def _farthest(row: Duration) -> float:
    """Return the largest number on the axis for this row: every mark, and a tail that is not very long."""
    marks = [samples for _, samples in row.quantiles] + [row.bound or 0.0]
    tail = max((bar.high for bar in row.bars), default=0.0)
    return max(*marks, min(tail, 1.5 * max(marks)))
