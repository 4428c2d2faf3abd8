"""The main figure: every policy in every group against its bounds, with its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from evenhand.model.result_rows import CellRow, PolicyRow, RelativeBound
from evenhand.reports.figure_rows import FAILED, MET, in_order
from evenhand.reports.figures.canvas import (
    BAND,
    BLUE,
    GREY,
    INK,
    ORANGE,
    RULE,
    SMALL,
    TEXT,
    VERDICT_COLOUR,
    WIDE,
    Canvas,
    Scale,
    number,
    text_width,
)

ROW, GAP, TOP, FOOT = 24.0, 14.0, 58.0, 44.0
POLICY_WORDS = {MET: "meets", FAILED: "fails", "undecided": "undecided"}


class _Margins(NamedTuple):
    """The margins left and right of the plot, and whether it is wide."""

    left: float
    right: float
    wide: bool  # names beside the plot, verdicts in words; otherwise names above, symbols alone


def floors(estimates: Sequence[CellRow], standings: Sequence[PolicyRow], width: int = WIDE) -> Canvas:
    """Draw a block per policy, best first: a diamond for its overall mean, a dot and interval per group.

    Where a bound is relative to a control, a band shows the control's interval in the group, and a line from
    the control's mean to the bound shows the margin.
    """
    standings = sorted(standings, key=lambda s: s.place)
    estimates = in_order(estimates, standings)
    wide = width >= 560
    page = _Margins(
        left=_names_width(estimates, standings, wide), right=width - (164.0 if wide else 34.0), wide=wide
    )
    blocks = [[e for e in estimates if e.policy == s.policy] for s in standings]
    lines = sum(len(block) + (1 if wide else 2) for block in blocks)
    canvas = Canvas(width, TOP + lines * ROW + len(blocks) * GAP + FOOT)
    scale = _scale(estimates, standings, page)
    bottom = canvas.height - FOOT
    _axis(canvas, scale, bottom, 7 if wide else 4)
    common = _common_bounds(estimates)
    y = TOP
    bands = []
    for standing, block in zip(standings, blocks, strict=True):
        height = (len(block) + (1 if wide else 2)) * ROW + GAP
        if standing.leads:
            canvas.box(0, y, width, height, BAND)
        bands.append((y + GAP / 2, standing, block))
        y += height
    for label, bound in common:
        canvas.line([scale.at(bound)] * 2, [TOP - 4, bottom], ORANGE, 2.0)
        canvas.text(scale.at(bound), TOP - 14, f"{label} {number(bound)}", size=SMALL, anchor="center")
    controls = _controls(estimates)
    for y, standing, block in bands:
        _block(canvas, scale, page, y, standing, block, controls, bounds_differ=not common)
    control = next((cell.policy for cell in controls.values()), None)
    bounded = any(e.bounded for e in estimates)
    _legend(canvas, bounded, not all(e.known for e in estimates), control)
    return canvas


def _controls(estimates: Sequence[CellRow]) -> dict[str, CellRow]:
    """Return the control's cell of each group with a bound relative to it."""
    named = {(bound.control, e.group) for e in estimates for bound in e.relative if bound is not None}
    return {e.group: e for e in estimates if (e.policy, e.group) in named}


def _block(
    canvas: Canvas,
    scale: Scale,
    page: _Margins,
    y: float,
    standing: PolicyRow,
    block: Sequence[CellRow],
    controls: dict[str, CellRow],
    bounds_differ: bool,
) -> None:
    """Draw one policy: its name and overall mean, then its groups."""
    faded = standing.verdict == FAILED
    ink, alpha = (GREY, 0.6) if faded else (INK, 1.0)
    middle = y + ROW / 2
    room = page.left - 14 if page.wide else canvas.width - 120
    canvas.text(8, middle, standing.policy, colour=ink, bold=standing.leads, room=room)
    words = POLICY_WORDS[standing.verdict]
    if page.wide:
        canvas.text(page.right + 40, middle, words, colour=ink, bold=standing.leads, size=SMALL)
    else:
        canvas.text(canvas.width - 8, middle, words, colour=ink, size=SMALL, anchor="right")
        y, middle = y + ROW, middle + ROW
        canvas.text(16, middle, "overall", colour=GREY, size=SMALL)
    if standing.mean is not None:
        canvas.diamond(scale.clipped(standing.mean), middle, BLUE if standing.leads else ink, alpha=alpha)
    for estimate in block:
        y += ROW
        for bound in estimate.relative:
            if bound is not None and estimate.group in controls:
                _margin(canvas, scale, y, bound, controls[estimate.group])
        _cell(canvas, scale, page, y + ROW / 2, estimate, alpha, bounds_differ)


def _margin(canvas: Canvas, scale: Scale, y: float, bound: RelativeBound, control: CellRow) -> None:
    """Draw the control's interval as a band, and a line from its mean to the bound relative to it."""
    low = scale.clipped(scale.low if control.low is None else control.low)
    high = scale.clipped(scale.high if control.high is None else control.high)
    if low < high and control.mean is not None:
        canvas.box(low, y + 3, high - low, ROW - 6, GREY, alpha=0.22)
    if bound.value is None or control.mean is None or not scale.low <= bound.value <= scale.high:
        return
    at, foot = scale.at(bound.value), y + ROW - 3
    canvas.line([scale.clipped(control.mean), at], [foot, foot], ORANGE, 1.4)
    canvas.line([at, at], [y + 2, y + ROW - 2], ORANGE, 2.4)


def _cell(
    canvas: Canvas, scale: Scale, page: _Margins, y: float, cell: CellRow, alpha: float, bounds_differ: bool
) -> None:
    """Draw one group: its interval, dot, verdict and number of samples."""
    canvas.text(16, y, cell.group, colour=GREY, size=SMALL, room=page.left - 24)
    colour = VERDICT_COLOUR[cell.verdict]
    alpha = 1.0 if cell.verdict == FAILED else alpha  # the cell that makes the policy fail is not faded
    low = scale.low if cell.low is None else cell.low
    high = scale.high if cell.high is None else cell.high
    if cell.mean is not None and low < high and low <= scale.high and high >= scale.low:
        canvas.line([scale.clipped(low), scale.clipped(high)], [y, y], colour, 2.2, alpha=alpha)
        for end, beyond in ((low, low < scale.low), (high, high > scale.high)):
            if not beyond:
                canvas.line([scale.at(end)] * 2, [y - 4, y + 4], colour, 2.2, alpha=alpha)
    for bound in (cell.floor, cell.cap):
        if bounds_differ and bound is not None and scale.low <= bound <= scale.high:
            canvas.line([scale.at(bound)] * 2, [y - ROW / 2 + 2, y + ROW / 2 - 2], ORANGE, 2.4)
    if cell.mean is not None:
        canvas.verdict(scale.clipped(cell.mean), y, cell.verdict, alpha=alpha)
    canvas.verdict(page.right + 22, y, cell.verdict, alpha=alpha)
    if page.wide:
        canvas.text(page.right + 40, y, cell.verdict, colour=GREY if alpha < 1 else INK, size=SMALL)
        if not cell.known:
            canvas.text(canvas.width - 8, y, f"{cell.n:,}", colour=GREY, size=SMALL, anchor="right")


def _names_width(estimates: Sequence[CellRow], standings: Sequence[PolicyRow], wide: bool) -> float:
    """Return the width of the names at the left, within limits."""
    groups = max((text_width(e.group, SMALL) + 16 for e in estimates), default=0.0)
    if not wide:
        return min(max(groups, 60.0), 120.0) + 12
    names = max(text_width(s.policy, TEXT, s.leads) for s in standings)
    return min(max(groups, names + 8, 90.0), 220.0) + 16


def _scale(estimates: Sequence[CellRow], standings: Sequence[PolicyRow], page: _Margins) -> Scale:
    """Return a scale for every mean and bound; very wide intervals are cut at the edge."""
    core = [x for e in estimates for x in (e.mean, e.floor, e.cap) if x is not None]
    core += [bound.value for e in estimates for bound in e.relative if bound and bound.value is not None]
    core += [s.mean for s in standings if s.mean is not None]
    ends = [x for e in estimates for x in (e.low, e.high) if x is not None]
    if not core:
        core = ends or [0.0, 1.0]
    low, high = min(core), max(core)
    slack = 0.75 * (high - low) or max(0.5 * abs(high), 0.5)
    low, high = max(min([low, *ends]), low - slack), min(max([high, *ends]), high + slack)
    edge = 0.03 * (high - low)
    return Scale(low - edge, high + edge, page.left, page.right)


def _common_bounds(estimates: Sequence[CellRow]) -> list[tuple[str, float]]:
    """Return the floor and the cap that all cells have in common."""
    found = []
    for label, values in (("floor", {e.floor for e in estimates}), ("cap", {e.cap for e in estimates})):
        if len(values) == 1 and (bound := values.pop()) is not None:
            found.append((label, bound))
    return found


def _axis(canvas: Canvas, scale: Scale, bottom: float, at_most: int) -> None:
    for value, label in scale.ticks(at_most):
        x = scale.at(value)
        canvas.line([x, x], [TOP, bottom], RULE, 0.8)
        canvas.text(x, bottom + 14, label, colour=GREY, size=SMALL, anchor="center")
    canvas.text(
        (scale.start + scale.end) / 2, bottom + 32, "mean outcome", colour=GREY, size=SMALL, anchor="center"
    )


def _legend(canvas: Canvas, bounded: bool, sampled: bool, control: str | None = None) -> None:
    x, y = 12.0, 14.0
    for verdict in ("met", "failed", "undecided"):
        canvas.verdict(x, y, verdict)
        canvas.text(x + 10, y, verdict, colour=GREY, size=SMALL)
        x += text_width(verdict, SMALL) + 32
    canvas.diamond(x, y, INK)
    canvas.text(x + 10, y, "overall", colour=GREY, size=SMALL)
    x += text_width("overall", SMALL) + 32
    if bounded:
        canvas.line([x, x], [y - 7, y + 7], ORANGE, 2.0)
        canvas.text(x + 10, y, "bound", colour=GREY, size=SMALL)
        x += text_width("bound", SMALL) + 32
    if control is not None:
        wide = canvas.width >= 560
        at, line = (x, y) if wide else (12.0, y + 20.0)  # a narrow figure has no room beside the others
        canvas.box(at - 6, line - 6, 16, 12, GREY, alpha=0.22)
        room = canvas.width - at - (90 if wide else 30)
        canvas.text(at + 16, line, f"interval of {control}", colour=GREY, size=SMALL, room=room)
    if sampled and canvas.width >= 560:
        canvas.text(canvas.width - 8, y, "samples", colour=GREY, size=SMALL, anchor="right")
