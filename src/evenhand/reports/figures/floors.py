"""The main figure: every policy in every group against its bounds, with its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from evenhand.model.result_rows import CellRow, PolicyRow, RelativeBound
from evenhand.reports.figure_rows import FAILED, MET, RequirementMark, in_order
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
    line_height,
    number,
    text_width,
    wrapped,
)

ROW, GAP, TOP, FOOT, LEGEND_LINE = 24.0, 14.0, 58.0, 44.0, 20.0
COLLAPSED_FROM = 25  # cells: refuted policies then take one line each
POLICY_WORDS = {MET: "meets", FAILED: "fails", "undecided": "undecided"}


class _Margins(NamedTuple):
    """The margins left and right of the plot, and whether it is wide."""

    left: float
    right: float
    wide: bool  # names beside the plot, verdicts in words; otherwise names above, symbols alone


class _Row(NamedTuple):
    """One row of a block: its text at the left, and its height."""

    lines: list[str]
    height: float


class _Block(NamedTuple):
    """One policy: rows for its name, its groups, and its requirements across groups."""

    standing: PolicyRow
    cells: list[CellRow]
    marks: list[RequirementMark]
    head: list[str]  # the name in lines
    above: float  # height of the name where it stands above the plot; 0 beside it
    rows: list[_Row]  # overall, then the groups, then the marks
    collapsed: bool

    @property
    def height(self) -> float:
        return self.above + sum(row.height for row in self.rows) + GAP


def floors(
    estimates: Sequence[CellRow],
    standings: Sequence[PolicyRow],
    width: int = WIDE,
    marks: Sequence[RequirementMark] = (),
    indifference: float = 0.0,
) -> Canvas:
    """Draw a block per policy, best first: a diamond for its overall mean, a dot and interval per group.

    Where a bound is relative to a control, a band shows the control's interval in the group, and a line from
    the control's mean to the bound shows the margin. `marks` are requirements across groups. With an
    indifference a band behind the overall means shows what is within it of the best. In a large figure a
    policy that fails takes one line.
    """
    standings = sorted(standings, key=lambda s: s.place)
    estimates = in_order(estimates, standings)
    wide = width >= 560
    page = _Margins(
        left=_names_width(estimates, standings, wide, bool(marks)),
        right=width - (164.0 if wide else 34.0),
        wide=wide,
    )
    blocks = _blocks(estimates, standings, marks, page, width)
    controls, common = _controls(estimates), _common_bounds(estimates)
    control = next((cell.policy for cell in controls.values()), None)
    within = f"within {indifference:g} of the best" if indifference > 0.0 else ""
    # a narrow figure has a second line in its legend, above the words of a common bound
    top = TOP + (LEGEND_LINE if not wide and common and (within or _across(control, marks)) else 0.0)
    canvas = Canvas(width, top + sum(block.height for block in blocks) + FOOT)
    close = _within(standings, indifference)
    scale = _scale(estimates, standings, page, close)
    bottom = canvas.height - FOOT
    _axis(canvas, scale, top, bottom, 7 if wide else 4)
    tops = _shade_leader(canvas, blocks, top)
    for label, bound in common:
        canvas.line([scale.at(bound)] * 2, [top - 4, bottom], ORANGE, 2.0)
        canvas.text(scale.at(bound), top - 14, f"{label} {number(bound)}", size=SMALL, anchor="center")
    for y, block in zip(tops, blocks, strict=True):
        if close is not None:
            _shade_close(canvas, scale, y, block, close)
        _draw_block(canvas, scale, page, y, block, controls, bounds_differ=not common)
    _legend(
        canvas,
        any(e.bounded for e in estimates),
        not all(e.known for e in estimates),
        control,
        marks,
        within if close is not None else "",
    )
    return canvas


def _blocks(
    estimates: Sequence[CellRow],
    standings: Sequence[PolicyRow],
    marks: Sequence[RequirementMark],
    page: _Margins,
    width: float,
) -> list[_Block]:
    """Return the layout of every policy."""
    collapse = len(estimates) >= COLLAPSED_FROM
    cells: dict[str, list[CellRow]] = {}
    for cell in estimates:
        cells.setdefault(cell.policy, []).append(cell)
    return [
        _block_of(
            s, cells.get(s.policy, []), [m for m in marks if m.policy == s.policy], page, width, collapse
        )
        for s in standings
    ]


def _shade_leader(canvas: Canvas, blocks: list[_Block], y: float) -> list[float]:
    """Draw a band behind the block of the leader; return where the text of every block begins."""
    tops = []
    for block in blocks:
        if block.standing.leads:
            canvas.box(0, y, canvas.width, block.height, BAND)
        tops.append(y + GAP / 2)
        y += block.height
    return tops


def _shade_close(canvas: Canvas, scale: Scale, y: float, block: _Block, close: tuple[float, float]) -> None:
    """Draw a band behind an overall mean, over what is within the indifference of the best."""
    left, right = scale.clipped(close[0]), scale.clipped(close[1])
    height = block.rows[0].height - 6
    canvas.box(left, y + block.above + 3, max(right - left, 2.0), height, BLUE, alpha=0.2)


def _block_of(
    standing: PolicyRow,
    cells: list[CellRow],
    marks: list[RequirementMark],
    page: _Margins,
    width: float,
    collapse: bool,
) -> _Block:
    """Return the layout of one policy: every name in as many lines as it needs."""
    collapsed = collapse and standing.verdict == FAILED
    room = page.left - 14 if page.wide else width - 120
    head = wrapped(standing.policy, room, TEXT, standing.leads)
    rows = [_row(head, TEXT) if page.wide else _row(["overall"], SMALL)]
    if not collapsed:
        counted = next((mark.counted for mark in marks if mark.counted is not None), ())
        names = [f"{c.group} (counts)" if c.group in counted else c.group for c in cells]
        rows += [_row(wrapped(name, page.left - 24, SMALL), SMALL) for name in names]
        rows += [_row(wrapped(mark.words, page.left - 24, SMALL), SMALL) for mark in marks]
    above = 0.0 if page.wide else _row(head, TEXT).height
    return _Block(standing, cells, [] if collapsed else marks, head, above, rows, collapsed)


def _row(lines: list[str], size: float) -> _Row:
    return _Row(lines, max(ROW, len(lines) * line_height(size) + 6))


def _controls(estimates: Sequence[CellRow]) -> dict[str, CellRow]:
    """Return the control's cell of each group with a bound relative to it."""
    named = {(bound.control, e.group) for e in estimates for bound in e.relative if bound is not None}
    return {e.group: e for e in estimates if (e.policy, e.group) in named}


def _draw_block(
    canvas: Canvas,
    scale: Scale,
    page: _Margins,
    y: float,
    block: _Block,
    controls: dict[str, CellRow],
    bounds_differ: bool,
) -> None:
    """Draw one policy: its name and overall mean, then its groups."""
    standing = block.standing
    faded = standing.verdict == FAILED
    ink, alpha = (GREY, 0.6) if faded else (INK, 1.0)
    words = POLICY_WORDS[standing.verdict]
    overall = block.rows[0]
    middle = y + (block.above or overall.height) / 2
    canvas.paragraph(8, middle, block.head, colour=ink, bold=standing.leads)
    if page.wide:
        canvas.text(page.right + 40, middle, words, colour=ink, bold=standing.leads, size=SMALL)
    else:
        canvas.text(canvas.width - 8, middle, words, colour=ink, size=SMALL, anchor="right")
        y, middle = y + block.above, y + block.above + overall.height / 2
        canvas.text(16, middle, "overall", colour=_small_ink(standing), size=SMALL)
    if standing.mean is not None:
        canvas.diamond(scale.clipped(standing.mean), middle, BLUE if standing.leads else ink, alpha=alpha)
    if block.collapsed:
        _draw_collapsed(canvas, scale, page, middle, block)
        return
    _draw_marks(canvas, scale, y, block)
    y += overall.height
    for cell, row in zip(block.cells, block.rows[1:], strict=False):
        for bound in cell.relative:
            if bound is not None and cell.group in controls:
                _margin(canvas, scale, y, row.height, bound, controls[cell.group])
        canvas.paragraph(16, y + row.height / 2, row.lines, colour=_small_ink(standing), size=SMALL)
        _cell(canvas, scale, page, y + row.height / 2, cell, alpha, bounds_differ)
        y += row.height
    for row in block.rows[1 + len(block.cells) :]:
        canvas.paragraph(16, y + row.height / 2, row.lines, size=SMALL)
        y += row.height


def _small_ink(standing: PolicyRow) -> str:
    """Return the colour of small text: grey has too little contrast on the band of the leader."""
    return INK if standing.leads else GREY


def _draw_collapsed(canvas: Canvas, scale: Scale, page: _Margins, y: float, block: _Block) -> None:
    """Draw a refuted policy in one line: a cross at the mean of every group in which it fails."""
    failed = [cell for cell in block.cells if cell.verdict == FAILED]
    for cell in failed:
        if cell.mean is not None:
            canvas.cross(scale.clipped(cell.mean), y, VERDICT_COLOUR[FAILED])
    if page.wide:
        some = 0 < len(failed) < len(block.cells)
        x = page.right + 40 + text_width("fails ", SMALL)
        if some:
            canvas.text(x, y, f"in {len(failed)} of {len(block.cells)}", colour=GREY, size=SMALL)
        total = sum(cell.n for cell in block.cells)
        canvas.text(canvas.width - 8, y, f"{total:,}", colour=GREY, size=SMALL, anchor="right")


def _draw_marks(canvas: Canvas, scale: Scale, y: float, block: _Block) -> None:
    """Draw the requirements across groups: the range allowed, the range found, the distances."""
    top = y + block.rows[0].height
    bottom = top + sum(row.height for row in block.rows[1 : 1 + len(block.cells)])
    place = bottom
    for mark, row in zip(block.marks, block.rows[1 + len(block.cells) :], strict=True):
        middle = place + row.height / 2
        if mark.limit is not None and mark.largest is not None and mark.smallest is not None:
            left, right = scale.clipped(mark.limit), scale.clipped(mark.largest)
            canvas.box(left, top, right - left, place + row.height - top, ORANGE, alpha=0.16)
            if scale.low <= mark.limit <= scale.high:
                canvas.line([left, left], [top, place + row.height], ORANGE, 2.0)
            ends = [scale.clipped(mark.smallest), right]
            colour = VERDICT_COLOUR[block.standing.verdict]
            canvas.line(ends, [middle, middle], colour, 2.2)
            for end in ends:
                canvas.line([end, end], [middle - 5, middle + 5], colour, 2.2)
        if mark.centre is not None:
            centre, at = scale.clipped(mark.centre), top
            canvas.line([centre, centre], [top, place + row.height], ORANGE, 2.0)
            for cell, line in zip(block.cells, block.rows[1:], strict=False):
                if cell.mean is not None:
                    foot = at + line.height - 4
                    canvas.line([centre, scale.clipped(cell.mean)], [foot, foot], ORANGE, 1.6)
                at += line.height
        place += row.height


def _margin(
    canvas: Canvas, scale: Scale, y: float, height: float, bound: RelativeBound, control: CellRow
) -> None:
    """Draw the control's interval as a band, and a line from its mean to the bound relative to it."""
    low = scale.clipped(scale.low if control.low is None else control.low)
    high = scale.clipped(scale.high if control.high is None else control.high)
    if low < high and control.mean is not None:
        canvas.box(low, y + 3, high - low, height - 6, GREY, alpha=0.22)
    if bound.value is None or control.mean is None or not scale.low <= bound.value <= scale.high:
        return
    at, foot = scale.at(bound.value), y + height - 3
    canvas.line([scale.clipped(control.mean), at], [foot, foot], ORANGE, 1.4)
    canvas.line([at, at], [y + 2, y + height - 2], ORANGE, 2.4)


def _cell(
    canvas: Canvas, scale: Scale, page: _Margins, y: float, cell: CellRow, alpha: float, bounds_differ: bool
) -> None:
    """Draw one group: its interval, dot, verdict and number of samples."""
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
            canvas.text(canvas.width - 8, y, f"{cell.n:,}", colour=INK, size=SMALL, anchor="right")


def _names_width(
    estimates: Sequence[CellRow], standings: Sequence[PolicyRow], wide: bool, marked: bool
) -> float:
    """Return the width of the names at the left, within limits."""
    groups = max((text_width(e.group, SMALL) + 16 for e in estimates), default=0.0)
    if not wide:
        return min(max(groups, 100.0 if marked else 60.0), 120.0) + 12
    names = max(text_width(s.policy, TEXT, s.leads) for s in standings)
    return min(max(groups, names + 8, 180.0 if marked else 90.0), 220.0) + 16


def _within(standings: Sequence[PolicyRow], indifference: float) -> tuple[float, float] | None:
    """Return the overall means within the indifference of the best, by the estimates; None without one."""
    means = [s.mean for s in standings if s.mean is not None and s.verdict != FAILED]
    return (max(means) - indifference, max(means)) if indifference > 0.0 and means else None


def _scale(
    estimates: Sequence[CellRow],
    standings: Sequence[PolicyRow],
    page: _Margins,
    close: tuple[float, float] | None,
) -> Scale:
    """Return a scale for every mean and bound; very wide intervals are cut at the edge."""
    core = [x for e in estimates for x in (e.mean, e.floor, e.cap) if x is not None]
    core += [bound.value for e in estimates for bound in e.relative if bound and bound.value is not None]
    core += [s.mean for s in standings if s.mean is not None]
    core += [close[0]] if close is not None else []
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


def _axis(canvas: Canvas, scale: Scale, top: float, bottom: float, at_most: int) -> None:
    for value, label in scale.ticks(at_most):
        x = scale.at(value)
        canvas.line([x, x], [top, bottom], RULE, 0.8)
        canvas.text(x, bottom + 14, label, colour=GREY, size=SMALL, anchor="center")
    canvas.text(
        (scale.start + scale.end) / 2, bottom + 32, "mean outcome", colour=GREY, size=SMALL, anchor="center"
    )


def _legend(
    canvas: Canvas,
    bounded: bool,
    sampled: bool,
    control: str | None = None,
    marks: Sequence[RequirementMark] = (),
    within: str = "",
) -> None:
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
    bands = [(_across(control, marks), *((GREY, 0.22) if control is not None else (ORANGE, 0.3)))]
    line = y
    for words, colour, alpha in (*bands, (within, BLUE, 0.2)):
        if not words or (line > y and x > canvas.width - text_width(words, SMALL) - 30):
            continue  # the caption says it too
        if line == y and (canvas.width < 560 or x + text_width(words, SMALL) > canvas.width - 100):
            x, line = 12.0, y + 20.0  # a narrow figure has no room beside the others
        canvas.box(x - 6, line - 6, 16, 12, colour, alpha)
        canvas.paragraph(x + 16, line, wrapped(words, canvas.width - x - 30, SMALL), colour=GREY, size=SMALL)
        x += text_width(words, SMALL) + 44
    if sampled and canvas.width >= 560:
        canvas.text(canvas.width - 8, y, "samples", colour=GREY, size=SMALL, anchor="right")


def _across(control: str | None, marks: Sequence[RequirementMark]) -> str:
    """Return what the band means: the control's interval, or the range that is allowed."""
    if control is not None:
        return f"interval of {control}"
    if any(mark.limit is not None for mark in marks):
        return "range allowed for the groups"
    return "distance to the average" if any(mark.centre is not None for mark in marks) else ""
