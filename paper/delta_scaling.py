"""(a) Samples against the risk: table:exp_a_results, fig:exp_a_scaling, fig:exp_a_heatmap."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from evenhand.paper import instances, methods, published
from evenhand.paper.allocation_heat_maps import allocation_pictures
from evenhand.paper.line_chart import Axes, Point, curves
from evenhand.paper.methods import Setting

from evenhand.reports.page_parts import Picture, Section, Strong, Table, table
from evenhand.simulation.runs import Runs, standard_error
from evenhand.theory.plan import plan

STEPS = len(published.DELTA_SCALING) * 4


def section(setting: Setting, on_done: Callable[[str], None]) -> Section:
    """Run ten risks with four procedures."""
    problem, means = instances.scaling()
    found: dict[float, dict[str, Runs]] = {}
    for delta in published.DELTA_SCALING:
        found[delta] = methods.run(
            problem,
            means,
            methods.fixed_confidence(delta),
            setting,
            partial(_named, on_done, delta),
        )
    planned = plan(problem, means)
    ratio = found[0.0005][methods.DEFAULT].samples.mean() / published.DELTA_SCALING[0.0005][0]
    return Section(
        "runs",
        "(a) Samples against the risk",
        (
            "At the same threshold evenhand needs ",
            Strong(f"{ratio:.0%}"),
            " of the published samples at risk 0.0005.",
        ),
        notes=(
            (f"T* is {planned.time_low:.3f}, certified; the paper prints {published.SCALING_TIME}.",),
            ("Only the certified column has a proof that its error is at most the risk.",),
        ),
        pictures=(
            *_panels(found, list(found[0.2]), planned.time_low),
            *allocation_pictures(problem, means, found[0.0005], "at risk 0.0005"),
        ),
        tables=_tables(found),
        numbers={
            "time": [planned.time_low, planned.time_high],
            "risks": {
                f"{d:g}": {n: methods.numbers(r) for n, r in runs.items()} for d, runs in found.items()
            },
        },
    )


def _tables(found: dict[float, dict[str, Runs]]) -> tuple[Table, ...]:
    """Return the tables of samples and share correct, one row per risk."""
    names, heads = list(found[0.2]), methods.headings(found[0.2])
    rows, right = [], []
    for delta, (samples, error, _, correct) in published.DELTA_SCALING.items():
        runs, label = found[delta], f"{delta:g}"
        means = [methods.mean_and_error(runs[n]) for n in names]
        ours = runs[methods.DEFAULT]
        ratio = methods.against(ours.samples, samples, error)
        rows.append([label, f"{samples} ± {error}", *means, ratio])
        shares = [methods.share(runs[n].correct) for n in names]
        printed = f"{correct:.4f}"
        less = methods.less_right(int((~ours.correct).sum()), ours.replications, printed)
        right.append([label, printed, *shares, f"{less:.3f}"])
    return (
        table("Mean samples ± standard error", ["risk", "published", *heads, "evenhand / published"], rows),
        table(
            methods.RIGHT,
            ["risk", "published", *heads, methods.LESS_RIGHT],
            right,
        ),
    )


def _named(on_done: Callable[[str], None], delta: float, name: str) -> None:
    on_done(f"(a) risk {delta:g}: {name}")


def _panels(found: dict[float, dict[str, Runs]], names: list[str], time: float) -> tuple[Picture, ...]:
    """Return both panels of fig:exp_a_scaling."""
    points = [
        Point("published", d, p[0], p[0] - 2 * p[1], p[0] + 2 * p[1])
        for d, p in published.DELTA_SCALING.items()
    ]
    for name in names:
        for delta, runs in found.items():
            mean = float(runs[name].samples.mean())
            error = standard_error(runs[name].samples)
            points.append(Point(name, delta, mean, mean - 2 * error, mean + 2 * error))
    nats = [Point(p.series, p.x, p.y / _nats(p.x)) for p in points]
    lines = [Point(p.series, _nats(p.x), p.y, p.low, p.high) for p in points]
    left = Axes(
        "risk",
        "samples per nat of ln(1/risk)",
        log_across=True,
        log_up=True,
        marks=((f"T* = {time:.2f}", time),),
    )
    right = Axes("ln(1/risk)", "samples")
    rows = [[p.series, p.x, p.y, p.y / _nats(p.x)] for p in points]
    behind = table("Points of both panels", ["series", "risk", "samples", "samples / ln(1/risk)"], rows)
    return (
        Picture(
            "scaling-ratio",
            "Samples per nat",
            "All curves approach T* as the risk decreases.",
            partial(curves, nats, left),
            behind,
        ),
        Picture(
            "scaling-line",
            "Samples against ln(1/risk)",
            "The number of samples is proportional to ln(1/risk).",
            partial(curves, lines, right),
            behind,
        ),
    )


def _nats(delta: float) -> float:
    return math.log(1.0 / delta)
