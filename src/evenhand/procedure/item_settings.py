"""Which problems and procedures can have shared items."""

from __future__ import annotations

from evenhand.errors import BadInput
from evenhand.model.problem import Problem
from evenhand.model.region import PENALTY, RELATIVE
from evenhand.procedure.evidence.item_bets import item_rows
from evenhand.procedure.spec import MOST_BETS, SAMPLING, TS_IDS, UNIFORM, Procedure

PAIRED_FAMILIES = ("bernoulli", "binomial", "bounded")
MOST_IN_INTERVALS = 12  # policies: their pairs grow with the square
GROUP_RULES = (SAMPLING[TS_IDS], SAMPLING[UNIFORM])  # the default serves as the name of the rule for groups


def has_relative_guardrails(problem: Problem) -> bool:
    """Return whether a guard-rail compares policies with the control."""
    return any(standard.region.kind == RELATIVE for standard in problem.standards[1:])


def why_not_paired(problem: Problem, procedure: Procedure) -> str:
    """Return why policies cannot be compared on shared items, or an empty text."""
    if problem.family.name not in PAIRED_FAMILIES:
        first, last = ", ".join(PAIRED_FAMILIES[:-1]), PAIRED_FAMILIES[-1]
        return f"outcomes must be {first} or {last}; they are {problem.family.name}"
    if problem.standard.region.kind in (PENALTY, RELATIVE):
        return f"the requirement must hold for each policy alone; it is {problem.constraint.describe()!r}"
    if has_relative_guardrails(problem):
        return "the bounds of guard-rails must hold for each policy alone; one is relative to a control"
    if procedure.stopping_name != "certified":
        return f"the stopping rule must be certified; it is {procedure.stopping_name}"
    return ""


def check_shared_items(problem: Problem, procedure: Procedure) -> None:
    """Refuse shared items that do not go together with the problem or the rest of the procedure."""
    if procedure.items is None:
        return
    why = why_not_paired(problem, procedure) or _why_not_collected(problem, procedure)
    if why:
        raise BadInput(f"with items = 'shared' {why}.")


def _why_not_collected(problem: Problem, procedure: Procedure) -> str:
    """Return why items cannot be drawn and answered one by one, or an empty text."""
    policies, groups = problem.shape
    if problem.mode == "agnostic":
        return "the group of an item must be known when it is asked for; the mode is 'agnostic'"
    if problem.guardrails:
        return "an item has one outcome per policy; leave the guard-rails out, or judge the data with them"
    if problem.max_policies is not None:
        return "policies cannot join or leave; leave max_policies out"
    if procedure.sampling_name not in GROUP_RULES:
        return (
            "only the group of an item is chosen, by 'ts-ids' (for the weakest comparison) or 'uniform'; "
            f"the sampling is {procedure.sampling_name!r}"
        )
    for name in ("evidence", "futility"):
        if getattr(procedure, name) is not None:
            return f"there is no {name}; leave it out"
    if procedure.interval is not None and policies > MOST_IN_INTERVALS:
        return (
            f"at most {MOST_IN_INTERVALS} policies can be compared in intervals, because their pairs are "
            f"summed; {policies} are given"
        )
    if item_rows(groups, policies, problem.family.name == "bounded") * policies > MOST_BETS:
        return (
            f"the bets on all pairs need too much memory; {policies} policies and {groups} groups are given, "
            "use fewer"
        )
    return ""
