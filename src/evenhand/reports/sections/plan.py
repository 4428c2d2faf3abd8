"""A plan as a section: who would win, what it must cost, where the samples should go."""

from __future__ import annotations

from evenhand.procedure.spec import Procedure
from evenhand.reports.captioned_figures import allocation_picture, floors_picture
from evenhand.reports.page_parts import Field, Section, Strong, Table, Words, names, table
from evenhand.reports.rows import plain
from evenhand.reports.sections.common import shares, true_estimates, true_standings
from evenhand.study import Study, Truth
from evenhand.theory.plan import Plan

PIECES = {
    "leave": "the answer might miss its requirement",
    "beat": "might meet the requirement and be better",
    "enter": "might meet the requirement after all",
}


def plan_section(plan: Plan, study: Study | None = None) -> tuple[Section, Study]:
    """The plan, with the study it belongs to (one of the plan's own problem where none is given)."""
    means = tuple(map(tuple, plan.means.tolist()))
    study = study or Study(plan.problem, Procedure(), Truth(means=means))
    standings = true_standings(plan.problem, plan.means, plan.answer)
    estimates = true_estimates(plan.problem, plan.means, standings)
    where = shares(plan.problem, plan.allocation)
    delta = study.procedure.delta
    least = plan.samples_at_least(delta)
    section = Section(
        kind="plan",
        title="The plan",
        lead=_lead(plan, delta, least),
        notes=_notes(plan),
        pictures=(
            floors_picture(estimates, standings, "The means the plan assumes"),
            allocation_picture(where, standings, "Where the samples should go"),
        ),
        tables=(_binding(plan),) if plan.binding else (),
        numbers=plan.to_dict(delta)
        | {"estimates": plain(estimates), "standings": plain(standings), "shares": plain(where)},
        highlights=(
            ("answer", plan.answer or "none"),
            ("at least, on average", f"{least:,.0f} samples"),
            ("characteristic time", f"{plan.time_low:,.5g}"),
            ("risk", f"{100 * delta:g}%"),
        ),
        code="evenhand plan study.toml",
    )
    return section, study


def _lead(plan: Plan, delta: float, least: float) -> Words:
    cost: Words = (
        " Any procedure with risk ", Strong(f"{100 * delta:g}%"), " needs at least ", Strong(f"{least:,.0f}"),
        " samples on average to tell.",
    )  # fmt: skip
    if plan.answer is None:
        return ("At the assumed means ", Strong("none of the policies"), " meets the requirement.", *cost)
    return ("At the assumed means ", Strong(plan.answer), " is the answer.", *cost)


def _notes(plan: Plan) -> tuple[Words, ...]:
    notes: list[Words] = []
    if plan.feasible:
        verb = "meets" if len(plan.feasible) == 1 else "meet"
        notes.append((*names(plan.feasible), f" {verb} the requirement."))
    if plan.why_none is not None:
        notes.append((plan.why_none.words,))
    width = (
        "exactly"
        if plan.time_high <= plan.time_low
        else f"between {plan.time_low:,.6g} and {plan.time_high:,.6g}"
    )
    notes.append((f"The characteristic time lies {width}, with a certificate for both ends.",))
    return (*notes, *((warning,) for warning in plan.warnings))


def _binding(plan: Plan) -> Table:
    rows: list[list[Field]] = [
        [bound.policy, PIECES[bound.piece] + (f" in {bound.group}" if bound.group else ""), bound.share]
        for bound in plan.binding
    ]
    return table(
        "What makes it hard: the comparisons that bind", ["policy", "what has to be ruled out", "share"], rows
    )
