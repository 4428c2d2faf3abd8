"""(c) Hard floors and penalties.

Reproduces fig:T_star_vs_gamma, table:extension_comparison and fig:weights_extension.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from evenhand.paper import instances, methods, published
from evenhand.paper.allocation_heat_maps import allocation_pictures
from evenhand.paper.line_chart import Axes, Point, curves
from evenhand.paper.methods import Setting

from evenhand.reports.page_parts import Picture, Section, Strong, Table, table
from evenhand.simulation.runs import Runs
from evenhand.theory.plan import Plan, plan

STEPS = len(published.HARD_AND_SOFT) * 4
SWITCH = 3.0  # at this gamma the penalised means of a4 and a1 are equal, so T* is infinite
GAMMAS = (*np.geomspace(0.05, 2.5, 12), *np.geomspace(3.5, 1000.0, 14))


def section(setting: Setting, on_done: Callable[[str], None]) -> Section:
    """Compute T* as a function of gamma and run the table at risk 0.2."""
    found: dict[str, dict[str, Runs]] = {}
    for gamma in published.HARD_AND_SOFT:
        problem, means = instances.hard_and_soft(gamma)
        found[_label(gamma)] = methods.run(
            problem,
            means,
            methods.fixed_confidence(published.HARD_AND_SOFT_DELTA),
            setting,
            lambda name, gamma=gamma: on_done(f"(c) {_label(gamma)}: {name}"),  # type: ignore[misc]
        )
    times = {gamma: plan(*instances.hard_and_soft(gamma)) for gamma in published.HARD_AND_SOFT}
    ours = found["hard"][methods.DEFAULT].samples.mean() / published.HARD_AND_SOFT[None][1]
    return Section(
        "runs",
        "(c) Hard floors and soft penalties",
        (
            "With hard floors evenhand needs ",
            Strong(f"{ours:.0%}"),
            " of the published samples at the same threshold.",
        ),
        pictures=(
            _curve(times[None].time_low),
            *_allocations(None, found["hard"], "with hard floors"),
            *_allocations(10.0, found["gamma = 10"], "with gamma = 10"),
        ),
        tables=(*_run_tables(found), _time_table(times)),
        numbers={label: {n: methods.numbers(r) for n, r in runs.items()} for label, runs in found.items()},
    )


def _allocations(gamma: float | None, runs: dict[str, Runs], where: str) -> tuple[Picture, ...]:
    """Return the allocation figures of evenhand's procedures."""
    problem, means = instances.hard_and_soft(gamma)
    ours = {name: runs[name] for name in (methods.DEFAULT, methods.CERTIFIED)}
    return allocation_pictures(problem, means, ours, where)


def _run_tables(found: dict[str, dict[str, Runs]]) -> tuple[Table, ...]:
    """Return the tables of samples and share correct, one row per requirement."""
    names, shown = list(found["hard"]), methods.headings(found["hard"])
    rows, right = [], []
    for gamma, (answer, samples, error, _, correct) in published.HARD_AND_SOFT.items():
        label, runs = _label(gamma), found[_label(gamma)]
        means = [methods.mean_and_error(runs[n]) for n in names]
        ours = runs[methods.DEFAULT]
        ratio = methods.against(ours.samples, samples, error)
        rows.append([label, answer, f"{samples:,} ± {error}", *means, ratio])
        shares = [methods.share(runs[n].correct) for n in names]
        printed = f"{correct:.3f}"
        less = methods.less_right(int((~ours.correct).sum()), ours.replications, printed)
        right.append([label, printed, *shares, f"{less:.3f}"])
    heads = ["requirement", "answer", "published", *shown, "evenhand / published"]
    return (
        table("Mean samples ± standard error at risk 0.2", heads, rows),
        table(
            methods.RIGHT,
            ["requirement", "published", *shown, methods.LESS_RIGHT],
            right,
        ),
    )


def _time_table(times: dict[float | None, Plan]) -> Table:
    rows = [
        [_label(gamma), published.SOFT_TIMES.get(gamma), found.time_low, found.time_high]
        for gamma, found in times.items()
    ]
    heads = ["requirement", "published", "certified low", "certified high"]
    return table("T*: published and certified", heads, rows)


def _curve(hard: float) -> Picture:
    """Return fig:T_star_vs_gamma."""
    points = []
    for gamma in map(float, GAMMAS):
        side = "a4 is best" if gamma < SWITCH else "a1 is best"
        points.append(Point(side, gamma, plan(*instances.hard_and_soft(gamma), gap=1e-4).time_high))
    axes = Axes(
        "penalty gamma", "T*", log_across=True, log_up=True, marks=((f"hard floors: T* = {hard:.1f}", hard),)
    )
    behind = table("T* against gamma", ["answer", "gamma", "T*"], [[p.series, p.x, p.y] for p in points])
    caption = "At gamma = 3 the penalised means of a4 and a1 are equal and no number of samples decides."
    return Picture("time-gamma", "T* against the penalty", caption, partial(curves, points, axes), behind)


def _label(gamma: float | None) -> str:
    return "hard" if gamma is None else f"gamma = {gamma:g}"
