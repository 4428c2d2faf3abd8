"""Figures of simulations: success curves, the samples to a decision, and calibrations."""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.reports.figure_rows import Duration, Success
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
from evenhand.simulation.calibrate import Calibration

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
    for place, name in enumerate(names):
        curve = sorted((r for r in rows if r.name == name), key=lambda r: r.samples)
        colour, dashes = SERIES[place % len(SERIES)], DASHES[place % len(DASHES)]
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


CALIBRATION_TOP, CALIBRATION_ROW, CALIBRATION_FOOT = 40.0, 30.0, 44.0


def calibration(found: Calibration, width: int = WIDE) -> Canvas:
    """A row per scenario: its error with interval, a line at delta; at the right the threshold it needs."""
    scenarios = found.scenarios
    canvas = Canvas(width, CALIBRATION_TOP + CALIBRATION_ROW * len(scenarios) + CALIBRATION_FOOT)
    left = min(max(text_width(s.name, TEXT) for s in scenarios) + 24, 0.4 * width)
    right, bottom = width - 76.0, canvas.height - CALIBRATION_FOOT
    most = max(found.delta, *(s.error.high for s in scenarios))
    across = Scale(0.0, 1.08 * most, left, right)
    for value, _ in across.ticks(5 if width >= 560 else 3):
        canvas.line([across.at(value)] * 2, [CALIBRATION_TOP - 4, bottom], RULE, 0.8)
        canvas.text(across.at(value), bottom + 14, f"{value:.3g}", colour=GREY, size=SMALL, anchor="center")
    canvas.text((left + right) / 2, bottom + 32, "share of runs with a wrong answer", colour=GREY, size=SMALL,
                anchor="center")  # fmt: skip
    canvas.line([across.at(found.delta)] * 2, [CALIBRATION_TOP - 4, bottom], ORANGE, 2.0)
    canvas.text(
        across.at(found.delta), CALIBRATION_TOP - 16, f"risk {found.delta:g}", size=SMALL, anchor="center"
    )
    canvas.text(width - 8, CALIBRATION_TOP - 16, "needs", colour=GREY, size=SMALL, anchor="right")
    for place, scenario in enumerate(scenarios):
        y = CALIBRATION_TOP + (place + 0.5) * CALIBRATION_ROW
        worst = scenario is found.worst
        canvas.text(8, y, scenario.name, bold=worst, room=left - 16)
        canvas.line([across.at(scenario.error.low), across.at(scenario.error.high)], [y, y], BLUE, 2.2)
        canvas.dot(across.at(scenario.error.rate), y, BLUE)
        canvas.text(width - 8, y, f"{scenario.needs:.3g}", size=SMALL, anchor="right")
    return canvas


DURATION_TOP, DURATION_ROW, DURATION_FOOT, DURATION_PEAK = 8.0, 132.0, 62.0, 66.0


def duration(rows: Sequence[Duration], width: int = WIDE) -> Canvas:
    """Draw a histogram per procedure, marks at 50, 70, 80 and 90% of the runs, and the lower bound."""
    canvas = Canvas(width, DURATION_TOP + DURATION_ROW * len(rows) + DURATION_FOOT)
    bottom = canvas.height - DURATION_FOOT
    across = Scale(0.0, max(_farthest(row) for row in rows) * 1.02, 12, width - 14)
    for value, label in across.ticks(7 if width >= 560 else 4):
        for place in range(len(rows)):
            base = DURATION_TOP + place * DURATION_ROW + 44 + DURATION_PEAK
            canvas.line([across.at(value)] * 2, [base - DURATION_PEAK - 8, base], RULE, 0.8)
        canvas.text(across.at(value), bottom + 4, label, colour=GREY, size=SMALL, anchor="center")
    canvas.text(
        width / 2, bottom + 24, "samples until the decision", colour=GREY, size=SMALL, anchor="center"
    )
    for place, row in enumerate(rows):
        _histogram(canvas, across, row, DURATION_TOP + place * DURATION_ROW, SERIES[place % len(SERIES)])
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
    base, xs, ys = top + 44 + DURATION_PEAK, [], []
    tallest = max((bar.count / (bar.high - bar.low) for bar in row.bars), default=1.0) or 1.0
    for bar in row.bars:
        height = base - DURATION_PEAK * bar.count / (bar.high - bar.low) / tallest
        xs += [across.clipped(bar.low), across.clipped(bar.high)]
        ys += [height, height]
    canvas.area(xs, ys, base, colour, alpha=0.35)
    canvas.line(xs, ys, colour, 1.4)
    canvas.line([across.start, across.end], [base, base], GREY, 0.8)
    for _, samples in row.quantiles:
        canvas.line([across.at(samples)] * 2, [base - 12, base + 5], INK, 1.6)
    if row.bound is not None:
        canvas.line(
            [across.at(row.bound)] * 2, [base - DURATION_PEAK - 8, base], ORANGE, 2.2, dashes=(1.0, 2.0)
        )


def _farthest(row: Duration) -> float:
    """Return the largest number on the axis for this row: every mark, and a tail that is not very long."""
    marks = [samples for _, samples in row.quantiles] + [row.bound or 0.0]
    tail = max((bar.high for bar in row.bars), default=0.0)
    return max(*marks, min(tail, 1.5 * max(marks)))
