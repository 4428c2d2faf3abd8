"""The evidence of the weakest comparison over time, against its threshold."""

from __future__ import annotations

from collections import Counter
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
    line_height,
    number,
    text_width,
    wrapped,
)

HEIGHT, TOP, FOOT, LEFT, RIGHT = 330.0, 56.0, 46.0, 46.0, 24.0
KEY_GAP = 8.0
MAX_KEYS = 8  # comparisons with a number in the key
Span = tuple[int, int, str]  # first and last sample, and the weakest comparison between them


def evidence(rows: Sequence[Evidence], width: int = WIDE) -> Canvas:
    """Draw evidence over samples; the strip at the top names the weakest comparison."""
    across = Scale(rows[0].samples, max(rows[-1].samples, rows[0].samples + 1), LEFT, width - RIGHT)
    spans = _spans(rows, shortest=0.02 * (rows[-1].samples - rows[0].samples))
    key = _key(spans, rows[-1].weakest, across)
    lines = [wrapped(f"{mark}: {name}", width - LEFT - RIGHT, SMALL) for name, mark in key.items()]
    below = KEY_GAP + line_height(SMALL) * sum(map(len, lines)) if lines else 0.0
    canvas = Canvas(width, HEIGHT + below)
    bottom = HEIGHT - FOOT
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
    _strip(canvas, spans, key, across)
    _explain(canvas, lines)
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


def _key(spans: Sequence[Span], last: str, across: Scale) -> dict[str, str]:
    """Return a number for each comparison, or nothing if every name fits into the strip.

    Of many comparisons those with the longest spans get a number, and the last one always.
    """
    fit = all(text_width(name, SMALL) <= across.at(end) - across.at(start) - 10 for start, end, name in spans)
    if fit and spans[-1][2] == last:
        return {}
    lengths: Counter[str] = Counter()
    for start, end, name in spans:
        lengths[name] += end - start
    kept = {last, *(name for name, _ in lengths.most_common(MAX_KEYS - 1))}
    names = [name for name in dict.fromkeys([*(name for _, _, name in spans), last]) if name in kept]
    marks = {name: str(number) for number, name in enumerate(names, start=1)}
    return {name: f"{mark} (now)" if name == last else mark for name, mark in marks.items()}


def _strip(canvas: Canvas, spans: Sequence[Span], key: dict[str, str], across: Scale) -> None:
    """Draw which comparison was the weakest and when, by its name or by its number in the key."""
    for place, (start, end, name) in enumerate(spans):
        x0, x1 = across.at(start), across.at(end)
        canvas.box(x0, 26, max(x1 - x0 - 1, 0.5), 20, BAND if place % 2 == 0 else RULE)
        label = key.get(name, "").removesuffix(" (now)") if key else name
        if label and text_width(label, SMALL) <= x1 - x0 - 4:
            canvas.text((x0 + x1) / 2, 36, label, size=SMALL, colour=INK, anchor="center")


def _explain(canvas: Canvas, lines: Sequence[Sequence[str]]) -> None:
    """Write the key below the axis; a name that is too long takes several lines."""
    y = HEIGHT + KEY_GAP
    for paragraph in lines:
        canvas.paragraph(LEFT, y + line_height(SMALL) * (len(paragraph) - 1) / 2, paragraph, size=SMALL)
        y += line_height(SMALL) * len(paragraph)


def _spans(rows: Sequence[Evidence], shortest: float) -> list[Span]:
    """Return spans with one weakest comparison; a shorter one is joined with the span before it."""
    starts = [next(run) for _, run in groupby(rows, key=lambda row: row.weakest)]
    ends = [row.samples for row in starts[1:]] + [rows[-1].samples]
    spans: list[Span] = []
    for row, end in zip(starts, ends, strict=True):
        same = bool(spans) and (spans[-1][2] == row.weakest or end - row.samples < shortest)
        if same:
            spans[-1] = (spans[-1][0], end, spans[-1][2])
        else:
            spans.append((row.samples, end, row.weakest))
    return spans
