"""The evidence of the weakest comparison over time, against its threshold."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from evenhand.reports.figure_rows import Evidence
from evenhand.reports.figures.canvas import (
    BAND,
    BLUE,
    GREY,
    INK,
    ORANGE,
    RULE,
    SMALL,
    WIDE,
    Canvas,
    Scale,
    number,
    text_width,
)

HEIGHT, TOP, FOOT, LEFT, RIGHT = 330.0, 56.0, 46.0, 46.0, 24.0


def evidence(rows: Sequence[Evidence], width: int = WIDE) -> Canvas:
    """Draw evidence over samples; the strip at the top names the weakest comparison."""
    canvas = Canvas(width, HEIGHT)
    bottom = HEIGHT - FOOT
    across = Scale(rows[0].samples, max(rows[-1].samples, rows[0].samples + 1), LEFT, width - RIGHT)
    needed = max(row.needed for row in rows)
    most = max(needed, max(row.evidence for row in rows))
    least = max(
        min(0.0, min(row.evidence for row in rows)), -0.5 * needed
    )  # evidence far below 0 means no more than evidence a little below it
    up = Scale(least, most * 1.12, bottom, TOP)
    for value, label in up.ticks(6):
        canvas.line([LEFT, width - RIGHT], [up.at(value)] * 2, RULE, 0.8)
        canvas.text(LEFT - 8, up.at(value), label, colour=GREY, size=SMALL, anchor="right")
    for value, label in across.ticks(7 if width >= 560 else 4):
        canvas.text(across.at(value), bottom + 14, label, colour=GREY, size=SMALL, anchor="center")
    canvas.text((LEFT + width) / 2, bottom + 34, "samples", colour=GREY, size=SMALL, anchor="center")
    canvas.text(8, 14, "hardest comparison", colour=GREY, size=SMALL)
    _strip(canvas, rows, across)
    xs = [across.at(row.samples) for row in rows]
    canvas.line(xs, [up.clipped(row.needed) for row in rows], ORANGE, 2.0)
    canvas.text(LEFT + 6, up.clipped(rows[0].needed) - 10, f"needed {number(rows[-1].needed, 2)}", size=SMALL)
    canvas.line(xs, [up.clipped(row.evidence) for row in rows], BLUE, 2.2)
    last = rows[-1]
    canvas.dot(xs[-1], up.clipped(last.evidence), BLUE)
    said = f"evidence {number(last.evidence, 2)}"
    canvas.text(xs[-1] + 8, _free_above(rows, xs, up, said), said, size=SMALL, anchor="right")
    return canvas


def _free_above(rows: Sequence[Evidence], xs: Sequence[float], up: Scale, said: str) -> float:
    """Return the y nearest to the last point at which the text overlaps neither curve nor threshold."""
    from_here = xs[-1] - text_width(said, SMALL) - 4
    tops = [up.clipped(row.evidence) for row, x in zip(rows, xs, strict=True) if x >= from_here]
    above = min(tops) - 12
    line = up.clipped(rows[-1].needed)
    return line - 12 if line - 6 < above < line + 18 else above


def _strip(canvas: Canvas, rows: Sequence[Evidence], across: Scale) -> None:
    """Draw which comparison was the weakest and when; named where it fits, the last one always."""
    spans = _spans(rows, shortest=0.02 * (rows[-1].samples - rows[0].samples))
    for place, (start, end, name) in enumerate(spans):
        x0, x1 = across.at(start), across.at(end)
        canvas.box(x0, 26, max(x1 - x0 - 1, 0.5), 20, BAND if place % 2 == 0 else RULE)
        if x1 - x0 > 44:
            canvas.text(x0 + 6, 36, name, size=SMALL, colour=INK, room=x1 - x0 - 10)
    (start, end, shown), last = spans[-1], rows[-1].weakest
    if shown != last or text_width(last, SMALL) > across.at(end) - across.at(start) - 10:
        room = canvas.width - text_width("hardest comparison", SMALL) - 36
        canvas.text(canvas.width - RIGHT, 14, f"now: {last}", size=SMALL, anchor="right", room=room)


def _spans(rows: Sequence[Evidence], shortest: float) -> list[tuple[int, int, str]]:
    """Return spans with one weakest comparison; a shorter one is joined with the span before it."""
    starts = [next(run) for _, run in groupby(rows, key=lambda row: row.weakest)]
    ends = [row.samples for row in starts[1:]] + [rows[-1].samples]
    spans: list[tuple[int, int, str]] = []
    for row, end in zip(starts, ends, strict=True):
        same = bool(spans) and (spans[-1][2] == row.weakest or end - row.samples < shortest)
        if same:
            spans[-1] = (spans[-1][0], end, spans[-1][2])
        else:
            spans.append((row.samples, end, row.weakest))
    return spans
