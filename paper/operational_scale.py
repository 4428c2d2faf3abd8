"""(b) Fifty and a hundred policies on a fixed budget: table:part_b_pcs, fig:part_b_pcs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from evenhand.paper import contestants, instances, published
from evenhand.paper.contestants import DEFAULT, MATCHED, Setting

from evenhand.model.families import Bernoulli, Gaussian
from evenhand.procedure.spec import Procedure
from evenhand.reports.captioned_figures import success_picture
from evenhand.reports.page_parts import Section, Strong, table
from evenhand.reports.rows import Success
from evenhand.simulation.outcome_laws import Drawn
from evenhand.simulation.runs import Runs

BATCH, SUBGRADIENT_STEPS, INITIAL = 10, 3, 2
CHECKPOINTS = 6
STEPS = len(published.OPERATIONAL_SCALE) * 6
MIX = (
    "The paper does not say how many policies come from each of its three ranges; here a third each, "
    "drawn anew for every replication, so the published shares are not directly comparable."
)


def section(setting: Setting, tick: Callable[[str], None]) -> Section:
    """Both sizes; outcomes are 0 or 1 and the paper's model is Gaussian with variance 1."""
    pictures, rows, numbers = [], [], {}
    names: list[str] = []
    for policies, (samples, ours, baseline) in published.OPERATIONAL_SCALE.items():
        found = _run(policies, samples, setting, tick)
        names = contestants.headings(found)
        curve = [
            Success(name, at, *runs.at_checkpoint(number))
            for name, runs in found.items()
            for number, at in enumerate(runs.checkpoints)
        ]
        drawn = success_picture(curve, f"Share correct with {policies} policies")
        pictures.append(replace(drawn, name=f"success-{policies}"))
        rows.append(
            [policies, samples, ours, baseline, *(contestants.share(r.correct) for r in found.values())]
        )
        numbers[str(policies)] = {name: contestants.numbers(runs) for name, runs in found.items()}
    return Section(
        "runs",
        "(b) Fifty and a hundred policies",
        (
            "With the budget of the paper, ",
            Strong("evenhand"),
            " beside Algorithm 1 and the policy-level baseline.",
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
    """The contestants with this budget."""
    return contestants.fixed_budget(samples, BATCH, SUBGRADIENT_STEPS, INITIAL)


def _run(policies: int, samples: int, setting: Setting, tick: Callable[[str], None]) -> dict[str, Runs]:
    means = instances.OperationalMeans(policies)
    checkpoints = [samples * step // CHECKPOINTS for step in range(1, CHECKPOINTS + 1)]
    all_of_them = procedures(samples)
    say = partial(_named, tick, policies)
    found = contestants.run(
        instances.operational_scale(policies, Gaussian(1.0)),
        Drawn(means, outcomes="bernoulli"),
        all_of_them,
        setting,
        say,
        checkpoints,
    )
    matched = instances.operational_scale(policies, Bernoulli())
    own = {MATCHED: all_of_them[DEFAULT]}
    return found | contestants.run(matched, Drawn(means), own, setting, say, checkpoints)


def _named(tick: Callable[[str], None], policies: int, name: str) -> None:
    tick(f"(b) {policies} policies: {name}")
