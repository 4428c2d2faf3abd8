"""The heat map of shares of samples, with the intended share of every cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib import colormaps
from matplotlib.colors import to_hex

from evenhand.model.result_rows import PolicyRow
from evenhand.reports.figure_rows import Share, in_order
from evenhand.reports.figures.canvas import (
    GREY,
    SMALL,
    TEXT,
    WIDE,
    Canvas,
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
        """Return the height of a policy's row of cells, with the name where it stands above."""
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
