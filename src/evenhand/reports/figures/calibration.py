"""Calibration: the error of every scenario with its interval, against the risk asked for."""

from __future__ import annotations

from evenhand.reports.figures.canvas import (
    BLUE,
    GREY,
    ORANGE,
    RULE,
    SMALL,
    TEXT,
    WIDE,
    Canvas,
    Scale,
    text_width,
)
from evenhand.simulation.calibrate import Calibration

TOP, ROW, FOOT = 40.0, 30.0, 44.0


def calibration(found: Calibration, width: int = WIDE) -> Canvas:
    """A row per scenario: its error with interval, a line at delta; at the right the threshold it needs."""
    scenarios = found.scenarios
    canvas = Canvas(width, TOP + ROW * len(scenarios) + FOOT)
    left = min(max(text_width(s.name, TEXT) for s in scenarios) + 24, 0.4 * width)
    right, bottom = width - 76.0, canvas.height - FOOT
    most = max(found.delta, *(s.error.high for s in scenarios))
    across = Scale(0.0, 1.08 * most, left, right)
    for value, _ in across.ticks(5 if width >= 560 else 3):
        canvas.line([across.at(value)] * 2, [TOP - 4, bottom], RULE, 0.8)
        canvas.text(across.at(value), bottom + 14, f"{value:.3g}", colour=GREY, size=SMALL, anchor="center")
    canvas.text((left + right) / 2, bottom + 32, "share of runs with a wrong answer", colour=GREY, size=SMALL,
                anchor="center")  # fmt: skip
    canvas.line([across.at(found.delta)] * 2, [TOP - 4, bottom], ORANGE, 2.0)
    canvas.text(across.at(found.delta), TOP - 16, f"risk {found.delta:g}", size=SMALL, anchor="center")
    canvas.text(width - 8, TOP - 16, "needs", colour=GREY, size=SMALL, anchor="right")
    for place, scenario in enumerate(scenarios):
        y = TOP + (place + 0.5) * ROW
        worst = scenario is found.worst
        canvas.text(8, y, scenario.name, bold=worst, room=left - 16)
        canvas.line([across.at(scenario.error.low), across.at(scenario.error.high)], [y, y], BLUE, 2.2)
        canvas.dot(across.at(scenario.error.rate), y, BLUE)
        canvas.text(width - 8, y, f"{scenario.needs:.3g}", size=SMALL, anchor="right")
    return canvas
