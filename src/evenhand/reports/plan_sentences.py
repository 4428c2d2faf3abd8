"""Sentences that describe a plan, for the terminal and the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evenhand.study import Study
from evenhand.theory.plan import Bound, Plan

MAX_NAMED = 6  # a sentence names at most this many policies and counts the rest

KINDS_OF_ALTERNATIVE = {
    "leave": "that {policy} misses {what}{where}",
    "beat": "that {policy} meets its requirement and is better",
    "enter": "that {policy} meets its requirement after all",
}


def requirement(plan: Plan) -> str:
    """Return the requirement on the outcome and on every guard-rail, as part of a sentence."""
    return f"the requirement (every policy must {plan.problem.describe_requirement()})"


def headline(plan: Plan) -> str:
    """Return the result in one sentence."""
    asked, many = requirement(plan), len(plan.problem.policies)
    if not plan.feasible:
        return f"None of the policies meets {asked}."
    if plan.problem.goal == "screen":
        verb = "meets" if len(plan.feasible) == 1 else "meet"
        return f"{listed(plan.feasible)} {verb} {asked}{_but(plan.failed)}."
    if len(plan.feasible) == 1:
        return f"{plan.answer} would be chosen: it is the only one that meets {asked}."
    if len(plan.feasible) < many:
        among = f"the {len(plan.feasible)} that meet {asked}"
        return f"{plan.answer} would be chosen: it has the best overall mean of {among}."
    return f"{plan.answer} would be chosen: it has the best overall mean."


def acceptable(plan: Plan) -> Iterator[str]:
    """Yield sentences on the acceptable answers and the one that is easiest to certify."""
    if plan.indifference == 0.0 and not plan.tolerance:
        return
    close = f"within {plan.indifference:g} of the best" if plan.indifference else "the best"
    loose = ", its own bounds loosened by the tolerance," if plan.tolerance else ""
    names = [name or '"none"' for name in plan.acceptable]
    verb = "is acceptable" if len(names) == 1 else "are acceptable"
    yield f"{listed(names)} {verb}: {close}{loose} is accepted."
    if len(names) > 1:
        easiest = plan.easiest or '"none"'
        yield f"{easiest} is the easiest to certify; the allocation is for this answer."


def bounds(plan: Plan, delta: float) -> Iterator[str]:
    """Yield the lower bound on the number of samples and, if samples have costs, on the cost."""
    least = count(plan.samples_at_least(delta))
    if plan.time_high == 0.0:
        screening = plan.problem.goal == "screen"
        answer = plan.easiest or '"none"'
        what = "the classes are the same" if screening else f"{answer} is acceptable"
        yield f"No samples are needed: {what} whatever the means are."
        return
    yield (
        f"Any procedure with a risk of {delta:g} needs at least {least} samples on average "
        f"(T*, samples per unit of evidence, lies in [{plan.time_low:.7g}, {plan.time_high:.7g}])."
    )
    cost, least_cost = plan.cost, plan.cost_at_least(delta)
    if cost is not None and least_cost is not None:
        yield (
            f"Any such procedure costs at least {count(least_cost)} on average ({cost.low:.7g} to "
            f"{cost.high:.7g} per unit of evidence). The allocation is the one with the lowest cost."
        )


def shared_items(study: Study) -> Iterator[str]:
    """Yield what the bound is about, where several policies answer each item."""
    if study.procedure.items is not None:
        yield (
            "The bound is for samples with an item of their own. In this study several policies answer each "
            "item, which takes fewer labels the more often they agree: `evenhand simulate` says how many."
        )


def suggestion(plan: Plan, delta: float) -> Iterator[str]:
    """Yield the proposed indifference and what it saves at this risk, if two policies are nearly tied."""
    if plan.proposal is not None:
        names, eps = listed(plan.proposal.acceptable, "or"), plan.proposal.indifference
        yield (
            f"Would you take {names}? With indifference = {eps:g} in [procedure], T* falls from "
            f"{count(plan.time_low)} to {count(plan.proposal.time_high)}, and the least number of samples on "
            f"average from {count(plan.samples_at_least(delta))} to "
            f"{count(plan.proposal.samples_at_least(delta))}."
        )


def binding(bound: Bound) -> str:
    """Return the alternative that a binding comparison must rule out."""
    what = "its requirement" if bound.metric is None else f"its guard-rail {bound.metric}"
    what += f" against {bound.relative_to}" if bound.relative_to else ""
    where = f" in {bound.group}" if bound.group else ""
    return KINDS_OF_ALTERNATIVE[bound.piece].format(policy=bound.policy, what=what, where=where)


def listed(names: Sequence[str], joined: str = "and") -> str:
    """Return the names as a list in a sentence; of many names, the first few."""
    shown = list(names[:MAX_NAMED])
    more = len(names) - len(shown)
    if more:
        return f"{', '.join(shown)} and {more} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} {joined} {shown[-1]}"


def count(number: float) -> str:
    """Return a number of samples as text, such as 19,301."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _but(failed: Sequence[str]) -> str:
    if not failed:
        return ""
    return f", {listed(failed)} {'does' if len(failed) == 1 else 'do'} not"
