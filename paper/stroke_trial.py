"""(ist) The International Stroke Trial.

Reproduces table:ist_means, table:ist_cells_appendix, table:ist_pcs and fig:ist_allocation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from evenhand.paper import instances, methods, published, trial_data
from evenhand.paper.allocation_heat_maps import allocation_pictures
from evenhand.paper.methods import CONVERGING, DEFAULT, LITERAL, POLICY_LEVEL, UNIFORM, Setting

from evenhand.reports.captioned_figures import success_picture
from evenhand.reports.figure_rows import Success
from evenhand.reports.page_parts import Field, Section, Strong, Table, table
from evenhand.simulation.runs import Runs
from evenhand.theory.plan import plan

BUDGET = 6_000
INITIAL = 20
STEPS = 5


def section(setting: Setting, on_done: Callable[[str], None]) -> Section:
    """Run a budget of 6,000 patients, drawn with replacement from the trial's cells."""
    problem, means = instances.stroke_trial()
    procedures = methods.fixed_budget(BUDGET, batch=1, steps=1, initial=INITIAL)
    checkpoints = list(published.STROKE_TRIAL)
    found = methods.run(problem, means, procedures, setting, partial(_named, on_done), checkpoints)
    planned = plan(problem, means)
    order = (LITERAL, CONVERGING, POLICY_LEVEL, UNIFORM, DEFAULT)
    curve = [Success(n, at, *found[n].at_checkpoint(j)) for n in order for j, at in enumerate(checkpoints)]
    rebuilt = () if setting.trial is None else (trial_data.answers(setting.trial),)
    said = () if setting.trial is None else ((trial_data.comparison(setting.trial),),)
    final = found[DEFAULT].at_checkpoint(len(checkpoints) - 1)
    return Section(
        "runs",
        "(ist) The International Stroke Trial",
        (
            "After 6,000 patients evenhand is right in ",
            Strong(f"{final.rate:.1%}"),
            f" of runs; the paper prints {published.STROKE_TRIAL[BUDGET][0]:.1%} for its rule.",
        ),
        notes=((f"T* is {planned.time_low:,.0f}, above the budget, so every rule is often wrong.",), *said),
        pictures=(
            success_picture(curve, "Share correct by the number of patients"),
            *allocation_pictures(problem, means, {n: found[n] for n in order}, "in the stroke trial"),
        ),
        tables=(
            _cells(),
            *rebuilt,
            _rates({n: found[n] for n in order}),
        ),
        numbers={"time": [planned.time_low, planned.time_high]}
        | {name: methods.numbers(runs) for name, runs in found.items()},
    )


def _rates(found: dict[str, Runs]) -> Table:
    """Return a row per number of patients: the published rates, and those of the runs."""
    rows: list[list[Field]] = [
        [
            at,
            *printed,
            *(methods.share(runs.rows.checkpoints[:, number] == runs.rows.truth) for runs in found.values()),
        ]
        for number, (at, printed) in enumerate(published.STROKE_TRIAL.items())
    ]
    columns = ["patients", "T-a-S-CS, published", "T-a-S, published", "uniform, published"]
    title = "Share correct, with its exact 95% interval"
    return table(title, [*columns, *methods.headings(found)], rows)


def _cells() -> Table:
    problem, means = instances.stroke_trial()
    feasible, overall = problem.feasible(means), problem.scores(means)
    rows = [
        [
            name,
            *(f"{well}/{n} = {well / n:.4f}" for n, well in instances.STROKE_COUNTS[name]),
            float(overall[k]),
            "meets" if feasible[k] else "fails",
        ]
        for k, name in enumerate(problem.policies)
    ]
    return table(
        "Patients without death, another stroke or a bleed in 14 days",
        ["policy", *problem.group_names, "overall", "verdict"],
        rows,
    )


def _named(on_done: Callable[[str], None], name: str) -> None:
    on_done(f"(ist) {name}")
