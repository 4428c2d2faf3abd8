"""Figures with their sentence and table, made from rows; saved as SVG, PNG and CSV."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from evenhand.files import escaped
from evenhand.model.phrases import requirement_words
from evenhand.model.problem import Problem
from evenhand.model.result_rows import CellRow, PolicyRow
from evenhand.reports.figure_rows import (
    Duration,
    Evidence,
    IntervalShares,
    RequirementMark,
    Share,
    Success,
    drawn_cells,
    drawn_estimates,
    in_order,
    standings_by,
    true_estimates,
)
from evenhand.reports.figures.allocation import allocation, shares_over_time
from evenhand.reports.figures.canvas import WIDE, number, percent, png, svg
from evenhand.reports.figures.evidence import evidence
from evenhand.reports.figures.floors import floors
from evenhand.reports.figures.scan import answers_given, box_calibration_figure, scan_figure
from evenhand.reports.figures.simulation import calibration, duration, success
from evenhand.reports.page_parts import GUARDRAIL, Field, Picture, Table, table
from evenhand.simulation.box_calibration import BoxCalibration
from evenhand.simulation.calibrate import Calibration
from evenhand.simulation.scan import Scan


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
        writer.writerows([[escaped(value) for value in row] for row in table.rows])


EVIDENCE_ROWS = 24  # rows of the table; the figure has every row


def floors_picture(
    estimates: Sequence[CellRow],
    standings: Sequence[PolicyRow],
    what: str = "Every group against its bound",
    marks: Sequence[RequirementMark] = (),
    indifference: float = 0.0,
) -> Picture:
    """Return the figure of estimates with intervals against floors, caps and requirements across groups."""
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
    leaders = [standing.policy for standing in standings if standing.leads]
    found = [f" {mark.policy}: {mark.words}." for mark in marks if mark.policy in leaders]
    close = f" Overall means within {indifference:g} of the best are marked." if indifference else ""
    drawn = drawn_estimates(ordered, standings)
    says = f"Of {len(ordered):,} cells: {', '.join(said)}.{band}{close}{''.join(found)}{drawn.note}"
    if not (bounded or relative or marks) and all(e.verdict == "met" for e in ordered):
        what = "The means of every group"
        says = f"This outcome has no bound.{close}{drawn.note}"
    draw = partial(
        floors, drawn.of(ordered), [row for row in standings if row.policy in drawn.policies],
        marks=[mark for mark in marks if mark.policy in drawn.policies], indifference=indifference,
    )  # fmt: skip
    return Picture(
        "floors", what, says, draw,
        table("Mean and verdict of every cell" if known else "Estimate, interval and verdict of every cell",
              ["samples" if name == "n" else name for name in columns], rows),
    )  # fmt: skip


def assumed_guardrail_pictures(
    problem: Problem, means: Mapping[str, Any] | None, standings: Sequence[PolicyRow], title: str
) -> list[Picture]:
    """Return the figures of assumed means of every guard-rail against their bounds."""
    found = []
    for j, (name, means_of) in enumerate((means or {}).items(), start=1):
        estimates = true_estimates(problem, means_of, standings, j)
        own = standings_by(problem, standings, estimates)
        picture = floors_picture(estimates, own, f"{title} of {name}")
        found.append(replace(picture, name=f"{GUARDRAIL}{j}"))
    return found


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
    policies = list(dict.fromkeys(s.policy for s in ordered))
    by_group: dict[str, float] = {}
    for s in ordered:
        by_group[s.group] = by_group.get(s.group, 0.0) + s.share
    drawn = drawn_cells(
        policies, sorted(by_group, key=lambda group: -by_group[group]), "those with the most samples"
    )
    return Picture(
        "allocation", what, says + drawn.note, partial(allocation, drawn.of(ordered), standings, aim=aim),
        table("Share of samples of every cell",
              ["policy", "group", "share", *(titles[name] for name in extra)], rows),
    )  # fmt: skip


SHARES_POINTS = 120  # intervals in the figure of shares


def shares_picture(
    rows: Sequence[IntervalShares], standings: Sequence[PolicyRow], what: str = "Shares by interval"
) -> Picture:
    """Return the figure of the published shares of every interval."""
    last = rows[-1]
    every = -(-len(rows) // SHARES_POINTS)
    drawn = [*rows[:-1][::every], last]
    rank = {standing.policy: 0 if standing.leads else standing.place for standing in standings}
    named = dict.fromkeys(policy for row in rows for shares in row.shares.values() for policy in shares)
    policies = sorted(named, key=lambda policy: rank.get(policy, len(rank) + 1))
    most = max(
        ((share, policy, group) for group, row in last.shares.items() for policy, share in row.items()),
        key=lambda found: found[0],
    )
    says = (
        f"The shares of interval {last.interval}: the largest, {percent(most[0])}, is that of {most[1]} in "
        f"{most[2]}."
    )
    table_rows: list[list[Field]] = []
    for group in last.shares:
        for policy in policies:
            known = [row.shares[group][policy] for row in rows if policy in row.shares[group]]
            table_rows.append([policy, group, last.shares[group].get(policy), min(known), max(known)])
    return Picture(
        "shares", what, says, partial(shares_over_time, drawn, policies, list(last.shares)),
        table("Published shares", ["policy", "group", "share now", "smallest", "largest"], table_rows),
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
        table("Samples by which this share of the runs is done",
              ["procedure", *(f"{chance:.0%}" for chance in chances), "reached the cap", "none below"],
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


def scan_picture(found: Scan, what: str = "Operating characteristics") -> Picture:
    """Return the figure of error, power, samples and answers over a box of means."""
    worst = found.worst()
    says = (
        f"Among {len(found.points):,} points of the box the largest share of wrong answers is "
        f"{percent(worst.error.rate)}; the risk is {percent(found.study.procedure.delta)}."
    )
    return Picture("scan", what, says, partial(scan_figure, found), scan_table(found))


def scan_table(found: Scan) -> Table:
    """Return a row per point: its means, right answer, chances with intervals and samples."""
    names = answers_given(found)
    columns = [
        *(one.label for one in found.box), "right answer", "error", "error, low", "error, high",
        "share right", "share undecided", "samples", "samples, standard error",
        *(f"share answering {name}" for name in names),
    ]  # fmt: skip
    rows: list[list[Field]] = [
        [*p.means, p.answer or "none", *p.error, p.power.rate, p.undecided.rate, p.samples.mean, p.samples.se,
         *(p.answers[name].rate for name in names)]
        for p in found.points
    ]  # fmt: skip
    return table("Every point of the box", columns, rows)


def box_calibration_picture(found: BoxCalibration, what: str = "What each part of the box needs") -> Picture:
    """Return the figure of the threshold that every part needs, over the first mean that varies."""
    place = next((i for i, one in enumerate(found.box) if one.low < one.high), 0)
    needs = [(tile.low[place], tile.high[place], tile.needs) for tile in found.tiles]
    says = f"The {len(needs):,} parts of the box need thresholds of up to {number(found.threshold, 2)}."
    return Picture(
        "box", what, says, partial(box_calibration_figure, found.threshold, needs, found.box[place].label),
        box_calibration_table(found),
    )  # fmt: skip


def box_calibration_table(found: BoxCalibration) -> Table:
    """Return a row per part of the box, those that need most first."""
    ends = [f"{one.label}, {end}" for one in found.box for end in ("from", "to")]
    rows: list[list[Field]] = [
        [*(x for pair in zip(tile.low, tile.high, strict=True) for x in pair), tile.answer or "none",
         tile.allowed, *tile.error, tile.needs]
        for tile in sorted(found.tiles, key=lambda tile: -tile.needs)
    ]  # fmt: skip
    columns = [*ends, "right answer", "error allowed", "error", "error, low", "error, high", "needs"]
    return table("Every part of the box, and the threshold it needs by itself", columns, rows)


def _medians(rows: Sequence[Duration]) -> str:
    """Return by when half of the runs have ended: each by its name, many as a range."""
    if len(rows) <= 3:
        halves = [f"{row.name}: half of the runs end by {number(_median(row))}" for row in rows]
        return f"{', '.join(halves)}."
    low, high = min(map(_median, rows)), max(map(_median, rows))
    return f"Half of the runs end by {number(low)} at the fastest and by {number(high)} at the slowest."


def _median(row: Duration) -> float:
    return next((samples for chance, samples in row.quantiles if chance >= 0.5), row.quantiles[-1][1])
