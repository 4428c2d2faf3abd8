"""Figures with their sentence and table, made from rows; saved as SVG, PNG and CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from evenhand.model.phrases import requirement_words
from evenhand.model.result_rows import CellRow, PolicyRow
from evenhand.reports.figure_rows import Duration, Evidence, Share, Success, in_order
from evenhand.reports.figures.allocation import allocation
from evenhand.reports.figures.calibration import calibration
from evenhand.reports.figures.canvas import WIDE, number, percent, png, svg
from evenhand.reports.figures.duration import duration
from evenhand.reports.figures.evidence import evidence
from evenhand.reports.figures.floors import floors
from evenhand.reports.figures.success import success
from evenhand.reports.page_parts import Field, Picture, Table, table
from evenhand.simulation.calibrate import Calibration

# characters that begin a formula in a spreadsheet
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\0")


def save_picture(picture: Picture, folder: Path, name: str) -> list[Path]:
    """Write the figure as name.svg and name.png and its table as name.csv; return the paths."""
    canvas = picture.draw(WIDE)
    drawn, painted, tabled = (folder / f"{name}{suffix}" for suffix in (".svg", ".png", ".csv"))
    drawn.write_text(svg(canvas, name), encoding="utf-8")
    painted.write_bytes(png(canvas))
    write_csv(picture.table, tabled)
    return [drawn, painted, tabled]


def write_csv(table: Table, path: Path) -> None:
    """Write a table for spreadsheets; text that looks like a formula is marked as text."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table.columns)
        writer.writerows([[_safe(value) for value in row] for row in table.rows])


def _safe(value: Field) -> Field:
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return value


EVIDENCE_ROWS = 24  # rows of the table; the figure has every row


def floors_picture(
    estimates: Sequence[CellRow], standings: Sequence[PolicyRow], what: str = "Every group against its bound"
) -> Picture:
    """Return the figure of estimates with intervals against floors and caps."""
    ordered = in_order(estimates, standings)
    bounded = [name for name in ("floor", "cap") if any(getattr(e, name) is not None for e in ordered)]
    known = all(e.known for e in ordered)
    columns = ["policy", "group", *([] if known else ["n"]), "mean", *([] if known else ["low", "high"])]
    relative = any(bound is not None for e in ordered for bound in e.relative)
    columns += [*bounded, *(["requirement"] if relative else []), "verdict"]
    rows: list[list[Field]] = [
        [requirement_words(e) if name == "requirement" else getattr(e, name) for name in columns]
        for e in ordered
    ]
    said = [
        f"{sum(e.verdict == verdict for e in ordered)} {verdict}"
        for verdict in ("met", "failed", "undecided")
    ]
    control = next((bound.control for e in ordered for bound in e.relative if bound is not None), None)
    band = "" if control is None else f" A band shows the interval of {control} in the group."
    says = f"Of {len(ordered)} cells: {', '.join(said)}.{band}"
    return Picture(
        "floors", what, says, partial(floors, ordered, standings),
        table("Mean and verdict of every cell" if known else "Estimate, interval and verdict of every cell",
              ["samples" if name == "n" else name for name in columns], rows),
    )  # fmt: skip


def allocation_picture(
    shares: Sequence[Share],
    standings: Sequence[PolicyRow],
    what: str = "Where samples go",
    aim: str = "the share intended",
) -> Picture:
    """Return the heat map of shares of samples; `aim` describes the second share of a cell."""
    ordered = in_order(shares, standings)
    most = max(ordered, key=lambda s: s.share)
    extra = [name for name in ("intended", "n") if any(getattr(s, name) is not None for s in ordered)]
    titles = {"intended": f"share: {aim}", "n": "samples"}
    rows = [[s.policy, s.group, s.share, *(getattr(s, name) for name in extra)] for s in ordered]
    says = f"The largest share, {percent(most.share)}, is that of {most.policy} in {most.group}."
    if most.share == 0.0:
        says = "There are no samples yet."
    elif sum(percent(s.share) == percent(most.share) for s in ordered) > 1:
        says = f"The largest share of a cell is {percent(most.share)}."
    return Picture(
        "allocation", what, says, partial(allocation, ordered, standings, aim=aim),
        table("Share of samples of every cell",
              ["policy", "group", "share", *(titles[name] for name in extra)], rows),
    )  # fmt: skip


def evidence_picture(rows: Sequence[Evidence], what: str = "Evidence over time") -> Picture:
    """Return the figure of the evidence of the weakest comparison against its threshold."""
    last = rows[-1]
    says = (
        f"After {last.samples:,} samples the evidence is {number(last.evidence, 2)} of "
        f"{number(last.needed, 2)} nats; the hardest comparison is: {last.weakest}."
    )
    step = max(1, -(-len(rows) // EVIDENCE_ROWS))
    shown = [*rows[:-1:step], last]
    return Picture(
        "evidence", what, says, partial(evidence, rows),
        table("Evidence of the weakest comparison, in nats",
              ["samples", "evidence", "needed", "weakest comparison"],
              [[r.samples, r.evidence, r.needed, r.weakest] for r in shown]),
    )  # fmt: skip


def duration_picture(rows: Sequence[Duration], what: str = "How long it takes") -> Picture:
    """Return the figure of the distribution of samples to a decision."""
    chances = [chance for chance, _ in rows[0].quantiles]
    return Picture(
        "duration", what, _medians(rows), partial(duration, rows),
        table("Samples by which so many of the runs are done",
              ["procedure", *(f"{chance:.0%}" for chance in chances), "reached the cap", "nobody below"],
              [[row.name, *(q for _, q in row.quantiles), row.unfinished, row.bound] for row in rows]),
    )  # fmt: skip


def success_picture(rows: Sequence[Success], what: str = "How often the answer is right") -> Picture:
    """Return the figure of success curves over samples."""
    ends = {row.name: row for row in sorted(rows, key=lambda row: row.samples)}
    says = ", ".join(
        f"{name}: {percent(row.rate)} right after {row.samples:,} samples" for name, row in ends.items()
    )
    return Picture(
        "success", what, f"{says}.", partial(success, rows),
        table("Share of runs with the right answer, and its interval",
              ["procedure", "samples", "right", "low", "high"],
              [[r.name, r.samples, r.rate, r.low, r.high] for r in rows]),
    )  # fmt: skip


def calibration_picture(found: Calibration, what: str = "How often each scenario errs") -> Picture:
    """Return the figure of the error of every scenario against the risk."""
    worst = found.worst
    says = (
        f"The worst scenario, {worst.name}, errs in {percent(worst.error.rate)} of the runs; the risk is "
        f"{percent(found.delta)}."
    )
    rows: list[list[Field]] = [
        [s.name, s.error.rate, s.error.low, s.error.high, s.needs] for s in found.scenarios
    ]
    return Picture(
        "calibration", what, says, partial(calibration, found),
        table("Error of every scenario", ["scenario", "error", "low", "high", "needs"], rows),
    )  # fmt: skip


def _medians(rows: Sequence[Duration]) -> str:
    """Return by when half of the runs have ended: each by its name, many as a range."""
    if len(rows) <= 3:
        halves = [f"{row.name}: half of the runs end by {number(_median(row))}" for row in rows]
        return f"{', '.join(halves)}."
    low, high = min(map(_median, rows)), max(map(_median, rows))
    return f"Half of the runs end by {number(low)} at the fastest and by {number(high)} at the slowest."


def _median(row: Duration) -> float:
    return next((samples for chance, samples in row.quantiles if chance >= 0.5), row.quantiles[-1][1])
