"""The section about a plan: the answer, the lower bound on samples, and the allocation."""

from __future__ import annotations

import shlex

from evenhand.procedure.spec import Procedure
from evenhand.reports import plan_sentences as said
from evenhand.reports.captioned_figures import allocation_picture, assumed_guardrail_pictures, floors_picture
from evenhand.reports.figure_rows import plain, shares, true_estimates, true_standings
from evenhand.reports.page_parts import Field, Section, Strong, Table, Words, names, table
from evenhand.reports.requirement_marks import requirement_marks
from evenhand.study import Study, Truth
from evenhand.study.planned_intervals import plan_table, planned_intervals
from evenhand.theory.plan import Plan


def plan_section(plan: Plan, study: Study | None = None) -> tuple[Section, Study]:
    """Return the section about a plan, and its study (one made from the plan where none is given)."""
    study = study or _study(plan)
    standings = true_standings(plan.problem, plan.means, plan.answer, plan.guardrails)
    estimates = true_estimates(plan.problem, plan.means, standings)
    where = shares(plan.problem, plan.allocation)
    delta = study.procedure.delta
    least = plan.samples_at_least(delta)
    section = Section(
        kind="plan",
        title="The plan",
        lead=_lead(plan, delta, least),
        notes=(*_notes(plan, delta), *_intervals(study, plan, delta), *_items(study)),
        pictures=(
            floors_picture(
                estimates,
                standings,
                "The means the plan assumes",
                requirement_marks(plan.problem, estimates),
                plan.indifference,
            ),
            *assumed_guardrail_pictures(plan.problem, plan.guardrails, standings, "The means it assumes"),
            allocation_picture(where, standings, "Where the samples should go"),
        ),
        tables=(_binding(plan),) if plan.binding else (),
        numbers=plan_table(study, plan, delta)
        | {"estimates": plain(estimates), "standings": plain(standings), "shares": plain(where)},
        highlights=_highlights(plan, delta, least),
        code=f"evenhand plan {shlex.quote(study.file or 'study.toml')}",
    )
    return section, study


def _intervals(study: Study, plan: Plan, delta: float) -> tuple[Words, ...]:
    """Return what intervals cost; nothing where the study has none."""
    found = planned_intervals(study, plan, delta)
    return () if found is None else ((found.sentence(),),)


def _items(study: Study) -> tuple[Words, ...]:
    return tuple((sentence,) for sentence in said.shared_items(study))


def _study(plan: Plan) -> Study:
    means = tuple(map(tuple, plan.means.tolist()))
    rails = {name: tuple(map(tuple, table.tolist())) for name, table in plan.guardrails.items()}
    procedure = Procedure(indifference=plan.indifference, tolerance=plan.tolerance)
    return Study(plan.problem, procedure, Truth(means=means, guardrails=rails or None))


def _highlights(plan: Plan, delta: float, least: float) -> tuple[tuple[str, str], ...]:
    screening = plan.problem.goal == "screen"
    price = plan.cost_at_least(delta)
    return (
        ("allowed", str(len(plan.feasible))) if screening else ("answer", plan.answer or "none"),
        ("at least, on average", f"{least:,.0f} samples"),
        *((("at least, in cost", f"{price:,.0f}"),) if price is not None else ()),
        ("characteristic time", f"{plan.time_low:,.5g}"),
        ("risk", f"{100 * delta:g}%"),
    )


def _lead(plan: Plan, delta: float, least: float) -> Words:
    cost: Words = (
        " Any procedure with risk ", Strong(f"{100 * delta:g}%"), " needs at least ", Strong(f"{least:,.0f}"),
        " samples on average to tell.",
    )  # fmt: skip
    if not plan.feasible:
        return ("At the assumed means ", Strong("none of the policies"), " meets the requirement.", *cost)
    if plan.answer is None:
        verb = " is allowed." if len(plan.feasible) == 1 else " are allowed."
        return ("At the assumed means ", *names(plan.feasible), verb, *cost)
    return ("At the assumed means ", Strong(plan.answer), " is the answer.", *cost)


def _notes(plan: Plan, delta: float) -> tuple[Words, ...]:
    notes: list[Words] = [
        ("This is a lower bound. The procedure of a study needs more; a simulation says how many.",)
    ]
    if plan.feasible:
        verb = "meets" if len(plan.feasible) == 1 else "meet"
        notes.append((*names(plan.feasible), f" {verb} the requirement."))
    if plan.why_none is not None:
        notes.append((plan.why_none.words,))
    notes += [(sentence,) for sentence in said.acceptable(plan)]
    width = (
        "exactly"
        if plan.time_high <= plan.time_low
        else f"between {plan.time_low:,.6g} and {plan.time_high:,.6g}"
    )
    notes.append((f"The characteristic time lies {width}, with a certificate for both ends.",))
    notes += [(sentence,) for sentence in list(said.bounds(plan, delta))[1:]]
    notes += [(warning,) for warning in plan.warnings]
    return (*notes, *((text,) for text in said.suggestion(plan, delta)))


def _binding(plan: Plan) -> Table:
    rows: list[list[Field]] = [[bound.policy, said.binding(bound), bound.share] for bound in plan.binding]
    return table(
        "What makes it hard: the comparisons that bind", ["policy", "what has to be ruled out", "share"], rows
    )
