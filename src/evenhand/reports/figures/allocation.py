"""The heat map of shares of samples, with the intended share of every cell."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib import colormaps
from matplotlib.colors import to_hex

from evenhand.model.result_rows import PolicyRow
from evenhand.reports.figure_rows import Share, in_order
from evenhand.reports.figures.canvas import GREY, SMALL, TEXT, WIDE, Canvas, percent, shortened, text_width

TOP, ROW, FOOT = 40.0, 48.0, 34.0


def allocation(
    shares: Sequence[Share],
    standings: Sequence[PolicyRow] = (),
    width: int = WIDE,
    aim: str = "the share intended",
) -> Canvas:
    """Draw a row per policy, in the order of the floors figure, and a column per group."""
    shares = in_order(shares, standings)
    policies = list(dict.fromkeys(share.policy for share in shares))
    groups = list(dict.fromkeys(share.group for share in shares))
    leaders = {standing.policy for standing in standings if standing.leads}
    left = min(max(text_width(name, TEXT, name in leaders) for name in policies) + 24, 0.36 * width)
    cell = min((width - left - 4) / len(groups), 200.0)
    canvas = Canvas(width, TOP + ROW * len(policies) + FOOT)
    for column, group in enumerate(groups):
        canvas.text(
            left + (column + 0.5) * cell,
            TOP - 14,
            group,
            colour=GREY,
            size=SMALL,
            anchor="center",
            room=cell - 6,
        )
    for row, policy in enumerate(policies):
        canvas.text(8, TOP + (row + 0.5) * ROW, policy, bold=policy in leaders, room=left - 18)
    most = max(max(s.share, s.intended or 0.0) for s in shares) or 1.0
    for share in shares:
        x, y = left + groups.index(share.group) * cell, TOP + policies.index(share.policy) * ROW
        _cell(canvas, share, x, y, cell, most)
    intended = any(share.intended is not None for share in shares)
    note = f"share of samples; aim: {aim}" if intended else "share of samples"
    canvas.text(8, canvas.height - 14, note, colour=GREY, size=SMALL)
    return canvas


def _cell(canvas: Canvas, share: Share, x: float, y: float, width: float, most: float) -> None:
    # from dark blue (little) to yellow (much); the darkest end stays visible on a dark page
    red, green, blue, _ = colormaps["cividis"](0.06 + 0.94 * share.share / most)
    canvas.box(x + 1.5, y + 1.5, width - 3, ROW - 3, to_hex((red, green, blue)))
    ink = _black_or_white(red, green, blue)
    middle = y + ROW / 2
    if width < 30:
        return  # too narrow for text; the table has the numbers
    if share.intended is None:
        canvas.text(x + width / 2, middle, percent(share.share), colour=ink, anchor="center", bold=True)
        return
    canvas.text(x + width / 2, middle - 8, percent(share.share), colour=ink, anchor="center", bold=True)
    aim = shortened(f"aim {percent(share.intended)}", width - 4, SMALL)
    canvas.text(x + width / 2, middle + 11, aim, colour=ink, size=SMALL, anchor="center")


def _black_or_white(*colour: float) -> str:
    """Return white or black, whichever has the higher contrast to this colour (at least 4.5 to 1)."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour)
    return "#ffffff" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.179 else "#000000"
