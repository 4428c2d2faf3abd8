"""The published shares of every policy in every group, interval by interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evenhand.reports.figure_rows import IntervalShares
from evenhand.reports.figures.canvas import (
    DASHES,
    GREY,
    INK,
    RULE,
    SERIES,
    SMALL,
    WIDE,
    Canvas,
    Scale,
    line_height,
    percent,
    wrapped,
)

TOP, FOOT, LEFT, RIGHT, GAP, ROW, LINE = 10.0, 40.0, 46.0, 72.0, 40.0, 104.0, 14.0
MARK = 34.0  # width of a line in the legend, with the space after it
MOST_GROUPS = 8  # the table has all of them
MOST_NAMED = 5  # policies with a colour of their own
OTHERS = "the others"


def shares_over_time(
    rows: Sequence[IntervalShares], policies: Sequence[str], groups: Sequence[str], width: int = WIDE
) -> Canvas:
    """Draw a panel for each group: a line for every policy, with its current share at the end.

    `policies` are in the order of the other figures, the leader first.
    """
    shown, named = groups[:MOST_GROUPS], policies[:MOST_NAMED]
    legend = [wrapped(name, width - MARK - 16, SMALL) for name in (*named, OTHERS)]
    legend = legend if len(policies) > len(named) else legend[:-1]
    height = sum(len(lines) * line_height(SMALL) for lines in legend) + 12
    begin = TOP + height
    canvas = Canvas(width, begin + FOOT + len(shown) * (ROW + GAP))
    _legend(canvas, legend)
    across = Scale(rows[0].interval, max(rows[-1].interval, rows[0].interval + 1), LEFT, width - RIGHT)
    for place, group in enumerate(shown):
        top = begin + place * (ROW + GAP)
        canvas.text(8, top + 6, group, bold=True, size=SMALL, room=width - 16)
        _panel(canvas, rows, policies, group, across, top + 26)
    bottom = begin + len(shown) * (ROW + GAP)
    for value, _ in across.ticks(7 if width >= 560 else 4):
        if float(value).is_integer():
            label = f"{value:,.0f}"
            canvas.text(across.at(value), bottom + 2, label, colour=GREY, size=SMALL, anchor="center")
    middle = (LEFT + width - RIGHT) / 2
    canvas.text(middle, bottom + 20, "interval", colour=GREY, size=SMALL, anchor="center")
    return canvas


def _style(place: int) -> tuple[str, tuple[float, ...] | None]:
    """Return the colour and the dashes of the policy at this place; those after the first few are alike."""
    return (SERIES[place], DASHES[place]) if place < MOST_NAMED else (GREY, None)


def _legend(canvas: Canvas, names: Sequence[Sequence[str]]) -> None:
    """Name the line of every policy, in full."""
    y = TOP
    for place, lines in enumerate(names):
        colour, dashes = _style(place)
        at = y + line_height(SMALL) / 2
        canvas.line([8, 8 + MARK - 10], [at, at], colour, 2.0, dashes)
        for words in lines:
            canvas.text(8 + MARK, y + line_height(SMALL) / 2, words, size=SMALL)
            y += line_height(SMALL)


def _panel(
    canvas: Canvas, rows: Sequence[IntervalShares], policies: Sequence[str], group: str, across: Scale,
    top: float,
) -> None:  # fmt: skip
    """Draw the lines of one group."""
    up, end = Scale(0.0, 1.0, top + ROW - 6, top), canvas.width - RIGHT
    for value in (0.0, 0.5, 1.0):
        canvas.line([LEFT, end], [up.at(value)] * 2, RULE, 0.8)
        canvas.text(LEFT - 8, up.at(value), f"{value:.0%}", colour=GREY, size=SMALL, anchor="right")
    ends: dict[int, float] = {}
    for place in reversed(range(len(policies))):  # the leader is drawn last, above the others
        points = [(row.interval, row.shares[group].get(policies[place])) for row in rows]
        known = [(number, share) for number, share in points if share is not None]
        if not known:
            continue
        colour, dashes = _style(place)
        xs, ys = _steps(known, across, up, rows[-1].interval)
        canvas.line(xs, ys, colour, 2.2 if place == 0 else 1.6, dashes)
        if known[-1][0] == rows[-1].interval and place < MOST_NAMED:
            ends[place] = known[-1][1]
    _labels(canvas, ends, up, end + 10)


def _steps(
    points: Sequence[tuple[int, float]], across: Scale, up: Scale, last: int
) -> tuple[list[float], list[float]]:
    """Return the corners of a line that stays level until the next interval begins."""
    xs, ys = [across.at(points[0][0])], [up.at(points[0][1])]
    for number, share in points[1:]:
        xs += [across.at(number), across.at(number)]
        ys += [ys[-1], up.at(share)]
    if len(points) == 1:  # one interval is a level line
        xs, ys = [*xs, across.at(last + 1)], [*ys, ys[-1]]
    return xs, ys


def _labels(canvas: Canvas, ends: Mapping[int, float], up: Scale, x: float) -> None:
    """Write the current shares beside the ends of the lines, none upon another."""
    ordered = sorted(ends, key=lambda place: -ends[place])
    places: list[float] = []
    for place in ordered:
        places.append(max(up.at(ends[place]), places[-1] + LINE if places else -1e9))
    lowest = up.at(0.0) + 8
    for at in reversed(range(len(places))):  # move up what would be below the panel
        places[at] = min(places[at], lowest)
        lowest = places[at] - LINE
    for place, y in zip(ordered, places, strict=True):
        canvas.dot(x, y, _style(place)[0], size=6)
        canvas.text(x + 10, y, percent(ends[place]), size=SMALL, colour=INK)
