"""(a') T* and samples against the feasibility gap: table:exp_b_results, fig:exp_b_tracking."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from evenhand.paper import instances, methods, published
from evenhand.paper.line_chart import Axes, Point, curves
from evenhand.paper.methods import Setting

from evenhand.reports.page_parts import Picture, Section, Strong, Table, table
from evenhand.theory.plan import plan

STEPS = len(published.FEASIBILITY_GAP) * 4


def section(setting: Setting, on_done: Callable[[str], None]) -> Section:
    """Run five gaps at risk 0.01."""
    nats = math.log(1 / published.GAP_DELTA)
    rows, points, numbers = [], [], {}
    names: list[str] = []
    for gap, (time, ratio, error) in published.FEASIBILITY_GAP.items():
        problem, means = instances.scaling(gap)
        planned = plan(problem, means)
        found = methods.run(
            problem,
            means,
            methods.fixed_confidence(published.GAP_DELTA),
            setting,
            lambda name, gap=gap: on_done(f"(a') gap {gap:g}: {name}"),  # type: ignore[misc]
        )
        names = methods.headings(found)
        points.append(Point("published", planned.time_low, ratio, ratio - 2 * error, ratio + 2 * error))
        points += [
            Point(name, planned.time_low, float(runs.samples.mean()) / nats) for name, runs in found.items()
        ]
        ratios = [f"{float(runs.samples.mean()) / nats:.1f}" for runs in found.values()]
        rows.append([f"{gap:g}", f"{time}", f"{planned.time_high:.2f}", f"{ratio} ± {error}", *ratios])
        numbers[f"{gap:g}"] = {"time": [planned.time_low, planned.time_high]} | {
            name: methods.numbers(runs) for name, runs in found.items()
        }
    behind = table(
        "Samples / ln(1/risk) at risk 0.01",
        ["gap", "T* published", "T* certified", "published", *names],
        rows,
    )
    return Section(
        "runs",
        "(a') Sensitivity to the feasibility gap",
        ("Harder instances need more samples with every rule: the samples grow with ", Strong("T*"), "."),
        pictures=(_picture(points, behind),),
        tables=(behind,),
        numbers=numbers,
    )


def _picture(points: list[Point], behind: Table) -> Picture:
    """Return the figure of samples per nat against T*."""
    axes = Axes(
        "T*",
        "samples per nat of ln(1/risk)",
        log_across=True,
        log_up=True,
        marks=(("samples per nat = T*", None),),
    )
    says = "Points above the line need more than T* per nat."
    return Picture("gap-tracking", "Samples against T*", says, partial(curves, points, axes), behind)
