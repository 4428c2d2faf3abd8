"""Shares of samples: the heat map with the intended shares, and published shares by interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib import colormaps
from matplotlib.colors import to_hex

from evenhand.model.result_rows import PolicyRow
from evenhand.reports.figure_rows import IntervalShares, Share, in_order
from evenhand.reports.figures.canvas import (
    DASHES,
    GREY,
    INK,
    RULE,
    SERIES,
    SMALL,
    TEXT,
    WIDE,
    Canvas,
    Scale,
    line_height,
    percent,
    text_width,
    wrapped,
)

TOP, ROW, FOOT = 12.0, 48.0, 34.0
LEAST = 70.0  # width of a cell that has room for "aim <0.1%"


class _Layout(NamedTuple):
    """Where names and cells are: several panels below each other where the groups do not fit side by side."""

    left: float  # of the cells; 0 where the names of policies stand above them
    cell: float  # width
    panels: list[list[str]]  # groups
    names: dict[str, list[str]]  # of policies, in lines

    def row(self, policy: str) -> float:
        """Return the height of a policy's row of cells, with the name where it is above."""
        name = len(self.names[policy]) * line_height(TEXT) + 8
        return ROW + name if self.left == 0 else max(ROW, name)


def allocation(
    shares: Sequence[Share],
    standings: Sequence[PolicyRow] = (),
    width: int = WIDE,
    aim: str = "the share intended",
) -> Canvas:
    """Draw a row per policy, in the order of the floors figure, and a column per group."""
    shares = in_order(shares, standings)
    leaders = {standing.policy for standing in standings if standing.leads}
    layout = _layout(shares, leaders, width)
    heads = [[wrapped(group, layout.cell - 6, SMALL) for group in panel] for panel in layout.panels]
    rows = sum(layout.row(policy) for policy in layout.names)
    tops = [max(map(len, head)) * line_height(SMALL) + 10 for head in heads]
    intended = any(share.intended is not None for share in shares)
    note = wrapped(f"share of samples; aim: {aim}" if intended else "share of samples", width - 16, SMALL)
    canvas = Canvas(width, TOP + sum(tops) + rows * len(tops) + FOOT + (len(note) - 1) * line_height(SMALL))
    most = max(max(s.share, s.intended or 0.0) for s in shares) or 1.0
    found = {(share.policy, share.group): share for share in shares}
    y = TOP
    for groups, head, top in zip(layout.panels, heads, tops, strict=True):
        for column, lines in enumerate(head):
            x = layout.left + (column + 0.5) * layout.cell
            canvas.paragraph(x, y + top / 2, lines, colour=GREY, size=SMALL, anchor="center")
        y += top
        for policy, lines in layout.names.items():
            height = layout.row(policy)
            above = height - ROW if layout.left == 0 else 0.0
            canvas.paragraph(8, y + (above or height) / 2, lines, bold=policy in leaders)
            for column, group in enumerate(groups):
                x = layout.left + column * layout.cell
                _cell(canvas, found[policy, group], x, y + above, layout.cell, height - above, most)
            y += height
    canvas.paragraph(
        8, canvas.height - 14 - (len(note) - 1) * line_height(SMALL) / 2, note, colour=GREY, size=SMALL
    )
    return canvas


def _layout(shares: Sequence[Share], leaders: set[str], width: int) -> _Layout:
    """Return a layout in which every cell has room for its numbers and every name is whole."""
    policies = list(dict.fromkeys(share.policy for share in shares))
    groups = list(dict.fromkeys(share.group for share in shares))
    longest = max(text_width(name, TEXT, name in leaders) for name in policies) + 24
    left = min(longest, 0.36 * width)
    beside = (width - left - 4) / len(groups) >= LEAST or (longest <= left and width >= 560)
    if not beside:
        left = 0.0
    side_by_side = max(int((width - left - 4) // LEAST), 1)
    count = -(-len(groups) // side_by_side)  # panels of about equal size
    size = -(-len(groups) // count)
    panels = [groups[start : start + size] for start in range(0, len(groups), size)]
    room = left - 18 if left else width - 16
    names = {name: wrapped(name, room, TEXT, name in leaders) for name in policies}
    return _Layout(left, min((width - left - 4) / size, 200.0), panels, names)


def _cell(canvas: Canvas, share: Share, x: float, y: float, width: float, height: float, most: float) -> None:
    # from dark blue (little) to yellow (much); the darkest end stays visible on a dark page
    red, green, blue, _ = colormaps["cividis"](0.06 + 0.94 * share.share / most)
    canvas.box(x + 1.5, y + 1.5, width - 3, height - 3, to_hex((red, green, blue)))
    ink = black_or_white(red, green, blue)
    middle = y + height / 2
    if share.intended is None:
        canvas.text(x + width / 2, middle, percent(share.share), colour=ink, anchor="center", bold=True)
        return
    canvas.text(x + width / 2, middle - 8, percent(share.share), colour=ink, anchor="center", bold=True)
    aim = f"aim {percent(share.intended)}"
    canvas.text(x + width / 2, middle + 11, aim, colour=ink, size=SMALL, anchor="center")


def black_or_white(*colour: float) -> str:
    """Return white or black, whichever has the higher contrast to this colour (at least 4.5 to 1)."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour)
    return "#ffffff" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.179 else "#000000"


ABOVE, BELOW, LEFT, RIGHT, GAP, PANEL, LINE = 10.0, 40.0, 46.0, 72.0, 40.0, 104.0, 14.0
LEGEND_MARK = 34.0  # width of a line in the legend, with the space after it
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
    legend = [wrapped(name, width - LEGEND_MARK - 16, SMALL) for name in (*named, OTHERS)]
    legend = legend if len(policies) > len(named) else legend[:-1]
    height = sum(len(lines) * line_height(SMALL) for lines in legend) + 12
    begin = ABOVE + height
    canvas = Canvas(width, begin + BELOW + len(shown) * (PANEL + GAP))
    _legend(canvas, legend)
    across = Scale(rows[0].interval, max(rows[-1].interval, rows[0].interval + 1), LEFT, width - RIGHT)
    for place, group in enumerate(shown):
        top = begin + place * (PANEL + GAP)
        canvas.text(8, top + 6, group, bold=True, size=SMALL, room=width - 16)
        _panel(canvas, rows, policies, group, across, top + 26)
    bottom = begin + len(shown) * (PANEL + GAP)
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
    y = ABOVE
    for place, lines in enumerate(names):
        colour, dashes = _style(place)
        at = y + line_height(SMALL) / 2
        canvas.line([8, 8 + LEGEND_MARK - 10], [at, at], colour, 2.0, dashes)
        for words in lines:
            canvas.text(8 + LEGEND_MARK, y + line_height(SMALL) / 2, words, size=SMALL)
            y += line_height(SMALL)


def _panel(
    canvas: Canvas, rows: Sequence[IntervalShares], policies: Sequence[str], group: str, across: Scale,
    top: float,
) -> None:  # fmt: skip
    """Draw the lines of one group."""
    up, end = Scale(0.0, 1.0, top + PANEL - 6, top), canvas.width - RIGHT
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
    """Write the current shares at the ends of the lines, without overlap."""
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
