"""`evenhand plan`: answer, lower bound on samples and optimal allocation for given means."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evenhand.cli.figure_output import draw_plan, figure_path
from evenhand.cli.options import json_option, print_json, study_argument

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from evenhand.evaluation.item_plan import ItemPlan
    from evenhand.study import Study
    from evenhand.theory.boundary_distance import WhyNone
    from evenhand.theory.plan import Plan
    from evenhand.theory.sensitivity import Sensitivity


@click.command("plan")
@study_argument
@click.option("--delta", type=float, help="Risk of a wrong answer; default: the study's.")
@click.option("--gap", type=float, default=1e-6, show_default=True, help="Relative accuracy of T*.")
@click.option("--sensitivity", is_flag=True, help="Also show the plan for other requirements and risks.")
@click.option(
    "--figure", type=click.Path(), help="Write the heat map of the allocation to FILE.svg or FILE.png."
)
@click.option("--agreement", type=float, metavar="SHARE",
              help="Also forecast an evaluation in which all policies answer the same items, and two of them "
              "agree on this share: labels, calls and, with the prices of [evaluate], money.")  # fmt: skip
@json_option
def plan_command(
    study: str, delta: float | None, gap: float, sensitivity: bool, figure: str | None,
    agreement: float | None, as_json: bool,
) -> None:  # fmt: skip
    """Compute the answer, the samples needed and where to sample, for assumed means.

    Assumes that the means in the study's [truth] are true. Prints the answer, the lower bound on the number
    of samples of any procedure, the optimal allocation and the hardest comparisons.
    """
    from evenhand.reports import plan_sentences
    from evenhand.study import load
    from evenhand.study.planned_intervals import plan_table, planned_intervals
    from evenhand.theory.answers import risk_in_nats
    from evenhand.theory.plan import plan

    loaded = load(study)
    risk = loaded.procedure.delta if delta is None else delta
    risk_in_nats(risk)  # refuse an invalid risk before the slow part
    target = None if figure is None else figure_path(figure)
    found = plan(loaded, gap=gap)
    moved = None
    if sensitivity:
        from evenhand.theory.sensitivity import sensitivity as sensitivity_of

        moved = sensitivity_of(found)
    if target is not None:
        draw_plan(found, target)
    if agreement is None and loaded.procedure.items is not None and loaded.truth is not None:
        agreement = loaded.truth.agreement
    items = None if agreement is None else _item_plan(study, loaded, found, risk, agreement)
    if as_json:
        result = plan_table(loaded, found, risk)
        if items is not None:
            result["shared_items"] = items.to_dict()
        if moved is not None:
            result["sensitivity"] = moved.to_dict()
        print_json(result)
        return
    intervals = planned_intervals(loaded, found, risk)
    more = [*([] if intervals is None else [intervals.sentence()]), *plan_sentences.shared_items(loaded)]
    _print(found, risk, moved, study, target, more + ([] if items is None else items.words()))


def _item_plan(study: str, loaded: Study, found: Plan, delta: float, agreement: float) -> ItemPlan:
    """Return the forecast for shared items, with the prices of the [evaluate] table, if there is one."""
    from evenhand.evaluation.item_plan import forecast_items

    table = tomllib.loads(Path(study).read_text(encoding="utf-8-sig")).get("evaluate", {})
    return forecast_items(
        found, replace(loaded.procedure, delta=delta, items=None), agreement, price=table.get("price"),
        label_price=table.get("label_price"),
    )  # fmt: skip


def _print(
    found: Plan, delta: float, moved: Sensitivity | None, study: str, target: Path | None, more: list[str]
) -> None:
    from evenhand.cli.terminal import console, heat_map, print_sentence, section
    from evenhand.reports import plan_sentences

    out = console()
    print_sentence(out, plan_sentences.headline(found))
    if found.why_none is not None:
        print_sentence(out, _failing_groups(found.why_none))
        print_sentence(out, found.why_none.words)
    for sentence in (*plan_sentences.acceptable(found), *plan_sentences.bounds(found, delta), *more):
        print_sentence(out, sentence)
    for note in (*found.warnings, *plan_sentences.suggestion(found, delta)):
        print_sentence(out, f"Note: {note}", style="#E69F00")
    order = (-found.problem.scores(found.means)).argsort(kind="stable")
    policies, groups = [found.problem.policies[k] for k in order], found.problem.group_names
    _print_means(out, found, order.tolist())
    section(out, "Where samples go", heat_map(policies, groups, found.allocation[order], found.easiest))
    _print_binding(out, found)
    if moved is not None:
        _print_sensitivity(out, moved)
    out.print()
    if target is not None:
        print_sentence(out, f"Written: {target}")
    print_sentence(out, "The bound is for any procedure; yours needs more. A simulation estimates how many:")
    print_sentence(out, f"Next: evenhand simulate {study} --replications 1000 --seed 1")


def _failing_groups(none: WhyNone) -> str:
    """Return a sentence with the group in which each policy fails most clearly."""
    from evenhand.reports.plan_sentences import MAX_NAMED

    groups = {blame.group for blame in none.policies}
    if len(groups) == 1 and not any(blame.metric for blame in none.policies):
        return f"All fail most clearly in {groups.pop()}."
    named = [
        f"{blame.policy} in {blame.group}" + (f" ({blame.metric})" if blame.metric else "")
        for blame in none.policies[:MAX_NAMED]
    ]
    more = len(none.policies) - len(named)
    return f"They fail most clearly: {', '.join(named)}{f' and {more} more' if more else ''}."


def _print_means(out: Console, found: Plan, order: list[int]) -> None:
    from evenhand.cli.terminal import section, table, verdict

    problem = found.problem
    scores = problem.scores(found.means)
    rows: list[list[str | Text]] = []
    for k in order:
        word = "met" if problem.policies[k] in found.feasible else "failed"
        means = [f"{mean:.4g}" for mean in found.means[k]]
        rows.append([problem.policies[k], *means, f"{scores[k]:.4g}", verdict(word)])
    section(out, "Assumed means", table(["", *problem.group_names, "overall", "requirement"], rows))
    for name, means_of_rail in found.guardrails.items():
        lines = [[problem.policies[k], *(f"{mean:.4g}" for mean in means_of_rail[k])] for k in order]
        section(out, f"Assumed means of {name}", table(["", *problem.group_names], lines))


def _print_binding(out: Console, found: Plan) -> None:
    from evenhand.cli.terminal import percent, section, table
    from evenhand.reports.plan_sentences import binding

    rows = [[binding(bound), percent(bound.share)] for bound in found.binding[:8]]
    if rows:
        section(out, "Hardest alternatives to rule out", table(["", "share"], rows))


def _print_sensitivity(out: Console, moved: Sensitivity) -> None:
    from evenhand.cli.terminal import count, section, table

    rows = [
        [
            f"{shift.change:+.3g}",
            shift.answer or "none",
            "never decided" if shift.time_low is None else count(shift.time_low),
        ]
        for shift in moved.shifts
    ]
    if rows:
        section(out, "If the requirement is tighter (+) or looser (-)", table(["by", "answer", "T*"], rows))
    risks = [[f"{delta:g}", count(samples)] for delta, samples in moved.samples.items()]
    section(out, "Lower bound on samples, by risk", table(["risk", "samples"], risks))
    if moved.costs:
        costs = [[f"{delta:g}", count(cost)] for delta, cost in moved.costs.items()]
        section(out, "Lower bound on cost, by risk", table(["risk", "cost"], costs))
