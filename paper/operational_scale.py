"""(b) Fifty and a hundred policies on a fixed budget: table:part_b_pcs, fig:part_b_pcs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from evenhand.paper import instances, methods, published
from evenhand.paper.methods import DEFAULT, MATCHED, Setting

from evenhand.model.families import Bernoulli, Gaussian
from evenhand.procedure.spec import Procedure
from evenhand.reports.captioned_figures import success_picture
from evenhand.reports.figure_rows import Success
from evenhand.reports.page_parts import Section, Strong, table
from evenhand.simulation.outcome_laws import DrawnTruth
from evenhand.simulation.runs import Runs

BATCH, SUBGRADIENT_STEPS, INITIAL = 10, 3, 2
CHECKPOINTS = 6
STEPS = len(published.OPERATIONAL_SCALE) * 6
MIX = (
    "The paper does not say how many policies come from each of its three ranges. Here it is a third each, "
    "drawn again for every replication, so the published shares are not directly comparable."
)


def section(setting: Setting, on_done: Callable[[str], None]) -> Section:
    """Run both sizes; outcomes are 0 or 1, and the paper's model is Gaussian with variance 1."""
    pictures, rows, numbers = [], [], {}
    names: list[str] = []
    for policies, (samples, ours, baseline) in published.OPERATIONAL_SCALE.items():
        found = _run(policies, samples, setting, on_done)
        names = methods.headings(found)
        curve = [
            Success(name, at, *runs.at_checkpoint(number))
            for name, runs in found.items()
            for number, at in enumerate(runs.checkpoints)
        ]
        drawn = success_picture(curve, f"Share correct with {policies} policies")
        pictures.append(replace(drawn, name=f"success-{policies}"))
        rows.append(
            [
                policies,
                samples,
                ours,
                baseline,
                *(methods.share(r.correct) for r in found.values()),
            ]
        )
        numbers[str(policies)] = {name: methods.numbers(runs) for name, runs in found.items()}
    return Section(
        "runs",
        "(b) Fifty and a hundred policies",
        (
            "With the budget of the paper, ",
            Strong("evenhand"),
            " is compared with Algorithm 1 and the policy-level baseline.",
        ),
        notes=((MIX,),),
        pictures=tuple(pictures),
        tables=(
            table(
                "Share correct at the end of the budget, with its exact 95% interval",
                ["policies", "samples", "T-a-S-CS, published", "T-a-S, published", *names],
                rows,
            ),
        ),
        numbers=numbers,
    )


def procedures(samples: int) -> dict[str, Procedure]:
    """Return the procedures with this budget."""
    return methods.fixed_budget(samples, BATCH, SUBGRADIENT_STEPS, INITIAL)


def _run(policies: int, samples: int, setting: Setting, on_done: Callable[[str], None]) -> dict[str, Runs]:
    means = instances.OperationalMeans(policies)
    checkpoints = [samples * step // CHECKPOINTS for step in range(1, CHECKPOINTS + 1)]
    all_of_them = procedures(samples)
    run_done = partial(_named, on_done, policies)
    found = methods.run(
        instances.operational_scale(policies, Gaussian(1.0)),
        DrawnTruth(means, outcomes="bernoulli"),
        all_of_them,
        setting,
        run_done,
        checkpoints,
    )
    matched = instances.operational_scale(policies, Bernoulli())
    own = {MATCHED: all_of_them[DEFAULT]}
    return found | methods.run(matched, DrawnTruth(means), own, setting, run_done, checkpoints)


def _named(on_done: Callable[[str], None], policies: int, name: str) -> None:
    on_done(f"(b) {policies} policies: {name}")
