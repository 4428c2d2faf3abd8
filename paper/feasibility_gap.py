"""(a') How the feasibility gap moves T* and the samples: table:exp_b_results, fig:exp_b_tracking."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from evenhand.paper import contestants, instances, published
from evenhand.paper.contestants import Setting
from evenhand.paper.curves import Axes, Point, curves

from evenhand.reports.page_parts import Picture, Section, Strong, table
from evenhand.theory.plan import plan

STEPS = len(published.FEASIBILITY_GAP) * 4


def section(setting: Setting, tick: Callable[[str], None]) -> Section:
    """Five gaps at risk .01."""
    nats = math.log(1 / published.GAP_DELTA)
    rows, points, numbers = [], [], {}
    names: list[str] = []
    for gap, (time, ratio, error) in published.FEASIBILITY_GAP.items():
        problem, means = instances.scaling(gap)
        planned = plan(problem, means)
        found = contestants.run(
            problem,
            means,
            contestants.fixed_confidence(published.GAP_DELTA),
            setting,
            lambda name, gap=gap: tick(f"(a') gap {gap:g}: {name}"),  # type: ignore[misc]
        )
        names = contestants.headings(found)
        points.append(Point("published", planned.time_low, ratio, ratio - 2 * error, ratio + 2 * error))
        points += [
            Point(name, planned.time_low, float(runs.samples.mean()) / nats) for name, runs in found.items()
        ]
        ratios = [f"{float(runs.samples.mean()) / nats:.1f}" for runs in found.values()]
        rows.append([f"{gap:g}", f"{time}", f"{planned.time_high:.2f}", f"{ratio} ± {error}", *ratios])
        numbers[f"{gap:g}"] = {"time": [planned.time_low, planned.time_high]} | {
            name: contestants.numbers(runs) for name, runs in found.items()
        }
    axes = Axes(
        "T*",
        "samples per nat of ln(1/risk)",
        log_across=True,
        log_up=True,
        marks=(("samples per nat = T*", None),),
    )
    behind = table(
        "Samples / ln(1/risk) at risk 0.01",
        ["gap", "T* published", "T* certified", "published", *names],
        rows,
    )
    return Section(
        "runs",
        "(a') Sensitivity to the feasibility gap",
        ("The harder the instance, the longer every rule takes: samples follow ", Strong("T*"), "."),
        pictures=(
            Picture(
                "gap-tracking",
                "Samples follow T*",
                "Points above the line need more than T* per nat.",
                partial(curves, points, axes),
                behind,
            ),
        ),
        tables=(behind,),
        numbers=numbers,
    )
