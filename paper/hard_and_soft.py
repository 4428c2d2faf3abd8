"""(c) Hard floors and penalties: fig:T_star_vs_gamma, table:extension_comparison, fig:weights_extension."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from evenhand.paper import contestants, instances, published
from evenhand.paper.contestants import Setting
from evenhand.paper.curves import Axes, Point, curves
from evenhand.paper.heat import allocation_pictures

from evenhand.reports.page_parts import Picture, Section, Strong, Table, table
from evenhand.simulation.runs import Runs
from evenhand.theory.plan import Plan, plan

STEPS = len(published.HARD_AND_SOFT) * 4
SWITCH = 3.0  # where the penalised means of a4 and a1 meet, so that T* is infinite
GAMMAS = (*np.geomspace(0.05, 2.5, 12), *np.geomspace(3.5, 1000.0, 14))


def section(setting: Setting, tick: Callable[[str], None]) -> Section:
    """T* along gamma, then the table at risk .2."""
    found: dict[str, dict[str, Runs]] = {}
    for gamma in published.HARD_AND_SOFT:
        problem, means = instances.hard_and_soft(gamma)
        found[_label(gamma)] = contestants.run(
            problem,
            means,
            contestants.fixed_confidence(published.HARD_AND_SOFT_DELTA),
            setting,
            lambda name, gamma=gamma: tick(f"(c) {_label(gamma)}: {name}"),  # type: ignore[misc]
        )
    times = {gamma: plan(*instances.hard_and_soft(gamma)) for gamma in published.HARD_AND_SOFT}
    ours = found["hard"][contestants.DEFAULT].samples.mean() / published.HARD_AND_SOFT[None][1]
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
        numbers={
            label: {n: contestants.numbers(r) for n, r in runs.items()} for label, runs in found.items()
        },
    )


def _allocations(gamma: float | None, runs: dict[str, Runs], where: str) -> tuple[Picture, ...]:
    """Where evenhand's own samples went."""
    problem, means = instances.hard_and_soft(gamma)
    ours = {name: runs[name] for name in (contestants.DEFAULT, contestants.CERTIFIED)}
    return allocation_pictures(problem, means, ours, where)


def _run_tables(found: dict[str, dict[str, Runs]]) -> tuple[Table, ...]:
    """Samples and share correct, a row per requirement."""
    names, shown = list(found["hard"]), contestants.headings(found["hard"])
    rows, right = [], []
    for gamma, (answer, samples, error, _, correct) in published.HARD_AND_SOFT.items():
        label, runs = _label(gamma), found[_label(gamma)]
        means = [contestants.mean_and_error(runs[n]) for n in names]
        ours = runs[contestants.DEFAULT]
        ratio = contestants.against(ours.samples, samples, error)
        rows.append([label, answer, f"{samples:,} ± {error}", *means, ratio])
        shares = [contestants.share(runs[n].correct) for n in names]
        printed = f"{correct:.3f}"
        less = contestants.less_right(int((~ours.correct).sum()), ours.replications, printed)
        right.append([label, printed, *shares, f"{less:.3f}"])
    heads = ["requirement", "answer", "published", *shown, "evenhand / published"]
    return (
        table("Mean samples ± standard error at risk 0.2", heads, rows),
        table(
            contestants.RIGHT,
            ["requirement", "published", *shown, contestants.LESS_RIGHT],
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
    """fig:T_star_vs_gamma."""
    points = []
    for gamma in map(float, GAMMAS):
        side = "a4 is best" if gamma < SWITCH else "a1 is best"
        points.append(Point(side, gamma, plan(*instances.hard_and_soft(gamma), gap=1e-4).time_high))
    axes = Axes(
        "penalty gamma", "T*", log_across=True, log_up=True, marks=((f"hard floors: T* = {hard:.1f}", hard),)
    )
    behind = table("T* along gamma", ["answer", "gamma", "T*"], [[p.series, p.x, p.y] for p in points])
    says = "At gamma = 3 the penalised means of a4 and a1 meet and no number of samples decides."
    return Picture("time-gamma", "T* against the penalty", says, partial(curves, points, axes), behind)


def _label(gamma: float | None) -> str:
    return "hard" if gamma is None else f"gamma = {gamma:g}"
