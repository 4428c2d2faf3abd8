"""(c) Hard floors against soft penalties.

Fig:T_star_vs_gamma, table:extension_comparison, fig:weights_extension.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from evenhand.paper import contestants, instances, published
from evenhand.paper.contestants import Setting
from evenhand.paper.curves import Axes, Point, curves
from evenhand.paper.heat import allocation_pictures

from evenhand.report.sections import Picture, Section, Strong, table
from evenhand.sim.runs import Runs
from evenhand.theory.plan import plan

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
    names = list(found["hard"])
    times = {gamma: plan(*instances.hard_and_soft(gamma)) for gamma in published.HARD_AND_SOFT}
    rows, right = [], []
    for gamma, (answer, samples, error, _, correct) in published.HARD_AND_SOFT.items():
        runs = found[_label(gamma)]
        ratio = runs[contestants.DEFAULT].samples.mean() / samples
        rows.append(
            [
                _label(gamma),
                answer,
                f"{samples:,} ± {error}",
                *(contestants.mean_and_error(runs[n]) for n in names),
                f"{ratio:.2f}",
            ]
        )
        right.append([_label(gamma), f"{correct:.3f}", *(contestants.share(runs[n].correct) for n in names)])
    printed = [
        [_label(gamma), published.SOFT_TIMES.get(gamma), times[gamma].time_low, times[gamma].time_high]
        for gamma in times
    ]
    problem, means = instances.hard_and_soft(None)
    soft_problem, _ = instances.hard_and_soft(10.0)
    return Section(
        "runs",
        "(c) Hard floors and soft penalties",
        (
            "With hard floors evenhand needs ",
            Strong(
                f"{found['hard'][contestants.DEFAULT].samples.mean() / published.HARD_AND_SOFT[None][1]:.0%}"
            ),
            " of the published samples at the same threshold.",
        ),
        pictures=(
            _curve(times[None].time_low),
            *allocation_pictures(
                problem, means, {n: found["hard"][n] for n in names[2:]}, "with hard floors"
            ),
            *allocation_pictures(
                soft_problem, means, {n: found["gamma = 10"][n] for n in names[2:]}, "with gamma = 10"
            ),
        ),
        tables=(
            table(
                "Mean samples ± standard error at risk 0.2",
                ["requirement", "answer", "published", *names, "evenhand / published"],
                rows,
            ),
            table("Share correct with its exact 95% interval", ["requirement", "published", *names], right),
            table(
                "T*: published and certified",
                ["requirement", "published", "certified low", "certified high"],
                printed,
            ),
        ),
        numbers={
            label: {n: contestants.numbers(r) for n, r in runs.items()} for label, runs in found.items()
        },
    )


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
