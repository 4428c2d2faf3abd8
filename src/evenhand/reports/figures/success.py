"""Success curves: how often the answer is right, by the number of samples."""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.reports.figure_rows import Success
from evenhand.reports.figures.canvas import DASHES, GREY, RULE, SERIES, SMALL, WIDE, Canvas, Scale, text_width

HEIGHT, TOP, FOOT, LEFT = 330.0, 20.0, 46.0, 52.0


def success(rows: Sequence[Success], width: int = WIDE) -> Canvas:
    """Draw a line per procedure with its interval, named at its end."""
    names = list(dict.fromkeys(row.name for row in rows))
    wide = width >= 560
    right = width - (min(max(text_width(name, SMALL) for name in names) + 24, 190) if wide else 24)
    top = TOP + (0 if wide else 20 * len(names))
    canvas = Canvas(width, HEIGHT + top - TOP)
    bottom = canvas.height - FOOT
    across = Scale(min(r.samples for r in rows), max(r.samples for r in rows), LEFT, right)
    up = Scale(max(0.0, min(r.low for r in rows) - 0.03), 1.0, bottom, top)
    for value, _ in up.ticks(5):
        canvas.line([LEFT, right], [up.at(value)] * 2, RULE, 0.8)
        canvas.text(LEFT - 8, up.at(value), f"{value:.0%}", colour=GREY, size=SMALL, anchor="right")
    for value, label in across.ticks(6 if wide else 4):
        canvas.text(across.at(value), bottom + 14, label, colour=GREY, size=SMALL, anchor="center")
    canvas.text((LEFT + right) / 2, bottom + 34, "samples", colour=GREY, size=SMALL, anchor="center")
    ends = []
    for number, name in enumerate(names):
        curve = sorted((r for r in rows if r.name == name), key=lambda r: r.samples)
        colour, dashes = SERIES[number % len(SERIES)], DASHES[number % len(DASHES)]
        xs = [across.at(r.samples) for r in curve]
        canvas.area(
            xs, [up.clipped(r.high) for r in curve], [up.clipped(r.low) for r in curve], colour, alpha=0.18
        )
        canvas.line(xs, [up.clipped(r.rate) for r in curve], colour, 2.2, dashes)
        for x, r in zip(xs, curve, strict=True):
            canvas.dot(x, up.clipped(r.rate), colour, size=5)
        ends.append((up.clipped(curve[-1].rate), name, colour, dashes))
    _names(canvas, ends, right, wide)
    return canvas


def _names(
    canvas: Canvas, ends: list[tuple[float, str, str, tuple[float, ...] | None]], right: float, wide: bool
) -> None:
    """Draw the name of each curve at its end, moved apart where they overlap; above a narrow plot."""
    if not wide:
        for number, (_, name, colour, dashes) in enumerate(ends):
            canvas.line([10, 34], [14 + 20 * number] * 2, colour, 2.2, dashes)
            canvas.text(42, 14 + 20 * number, name, size=SMALL, room=canvas.width - 50)
        return
    y = -1e9
    for wanted, name, colour, _ in sorted(ends):
        y = max(wanted, y + 16)
        canvas.line([right + 5, right + 12], [wanted, y], colour, 1.4)
        canvas.text(right + 16, y, name, size=SMALL, room=canvas.width - right - 18)
