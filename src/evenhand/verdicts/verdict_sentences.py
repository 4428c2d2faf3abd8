"""A verdict in sentences: the leader, what is certified, what is open, and the hardest comparison."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from evenhand.model.phrases import (
    bounds_sentence,
    classes_sentence,
    close_words,
    evidence_share,
    listed,
    missing_sentence,
    spent_sentence,
)
from evenhand.model.problem import Problem
from evenhand.model.region import BOX, QUOTA, RELATIVE, SPREAD
from evenhand.model.requirements import NoConstraint, Penalty
from evenhand.procedure.outcome_order import LINEAR, ORDER_FREE, depends_on_order
from evenhand.procedure.spec import MIXTURE, proves
from evenhand.procedure.state import NONE
from evenhand.theory.metrics import METRIC
from evenhand.verdicts.forecast_statement import NOT_ASKED

if TYPE_CHECKING:
    from evenhand.verdicts.judge import Verdict
    from evenhand.verdicts.what_if import Alternative

FIXED = (
    "This holds for one look at data whose size in every cell was fixed before any outcome was seen, "
    "whatever that size; it does not hold for data watched as they came."
)

PAIRS_ASSUME = (
    "This holds if it was decided who answers an item before any outcome on it was seen, and the rows name "
    "the items in the order in which they were drawn."
)

POOL_ASSUMES = (
    "This holds if the items were drawn from the pool at random, in the order in which the rows name them, "
    "and it was decided who answers an item before any outcome on it was seen."
)

ONE_LOOK = "Some items were not answered by every policy: this verdict holds for one look at the data."


def alternative_in_words(problem: Problem, leader: int, alternative: int) -> str:
    """Return the comparison with this code (`procedure.alternatives`) in words."""
    policies, groups = problem.policies, problem.group_names
    if alternative < len(policies):
        if leader == NONE or problem.goal == "screen":
            return f"whether {policies[alternative]} meets the requirement"
        return f"{policies[leader]} against {policies[alternative]}"
    metric, atom = divmod(alternative - len(policies), METRIC)
    name, kind = policies[leader], problem.standards[metric].region.kind
    if metric > 0:
        name = f"{name}: {problem.guardrails[metric - 1].name},"
        side, g = divmod(atom, len(groups))
        against = f" against {problem.control}" if side >= 2 else ""
        return f"{name} {'cap' if side % 2 else 'floor'}{against} in {groups[g]}"
    if kind in (BOX, RELATIVE) and atom < (2 if kind == BOX else 4) * len(groups):
        side, g = divmod(atom, len(groups))
        against = f" against {problem.control}" if side >= 2 else ""
        return f"{name}'s {'cap' if side % 2 else 'floor'}{against} in {groups[g]}"
    if kind == QUOTA and atom < len(groups):
        return f"{name}'s floor in {groups[atom]}"
    if kind == SPREAD and atom < len(groups) ** 2:
        worse, better = divmod(atom, len(groups))
        return f"{name}: {groups[worse]} beside {groups[better]}"
    return f"whether {name} meets the requirement"


def open_question(problem: Problem, leader: int, alternative: int) -> str:
    """Return the comparison with this code as a question that begins with "whether"."""
    policies, groups = problem.policies, problem.group_names
    if alternative < len(policies) and leader != NONE and problem.goal != "screen":
        meets = (
            "" if isinstance(problem.constraint, (NoConstraint, Penalty)) else "meets the requirement and "
        )
        return f"whether {policies[alternative]} {meets}is better than {policies[leader]}"
    metric, atom = divmod(max(alternative - len(policies), 0), METRIC)
    kind = problem.standards[metric].region.kind
    bounds = {BOX: 2, RELATIVE: 4, QUOTA: 1}.get(kind, 4 if metric else 0) * len(groups)
    if alternative >= len(policies) and atom < bounds:
        side, g = divmod(atom, len(groups))
        of = f" of {problem.guardrails[metric - 1].name}" if metric else ""
        against = f" against {problem.control}" if side >= 2 else ""
        verb = "keeps to its cap" if side % 2 else "reaches its floor"
        return f"whether {policies[leader]} {verb}{of}{against} in {groups[g]}"
    if alternative >= len(policies) and kind == SPREAD and atom < len(groups) ** 2:
        worse, better = divmod(atom, len(groups))
        return f"whether {policies[leader]} differs too much between {groups[worse]} and {groups[better]}"
    return alternative_in_words(problem, leader, alternative)


def sentences(verdict: Verdict) -> list[str]:
    """Return the verdict in sentences, the most important first."""
    said = [headline(verdict), FIXED if verdict.fixed else ""]
    if verdict.decided and not verdict.screens and verdict.answer is None:
        said += blame(verdict)
    elif not verdict.decided:
        said += [*_open_cells(verdict), _distance(verdict), _no_forecast(verdict)]
    said.append(spent_sentence(verdict.spent))
    empty = [cell for cell in verdict.cells if cell.n == 0]
    if empty:
        said.append(f"{len(empty)} of {len(verdict.cells)} cells hold no data and stay undecided.")
    if verdict.missing:
        said.append(
            f"{verdict.missing:,} of {verdict.rows:,} rows were left out because a value was missing."
        )
    said += [missing_sentence(rows) for rows in verdict.guardrails if rows.missing]
    said += [_order(verdict), _order_free(verdict), *_items(verdict)]
    return [sentence for sentence in said if sentence]


def _order(verdict: Verdict) -> str:
    """Return the condition on the order of rows, where the evidence depends on it."""
    matters = depends_on_order(verdict.problem, verdict.procedure) and not (verdict.fixed or verdict.exact)
    if not matters or not verdict.rows:
        return ""
    if verdict.method == LINEAR:
        return f"Policies are compared by {LINEAR}. This holds if {rows_in_order(verdict)}."
    return (
        f"The evidence of {verdict.problem.family.name} outcomes depends on their order within each cell: it "
        f"holds if {rows_in_order(verdict)}."
    )


def rows_in_order(verdict: Verdict) -> str:
    """Return the condition on the order of rows."""
    if isinstance(verdict.ordered, str):
        return f"the rows, sorted by {verdict.ordered!r}, are in the order in which they were observed"
    return "the rows are in the order in which they were observed"


def _order_free(verdict: Verdict) -> str:
    """Return that the order of outcomes was not used, where it is known, or evidence uses it by default."""
    expected = verdict.procedure.evidence == MIXTURE or bool(verdict.ordered)
    if not expected or verdict.method != ORDER_FREE or verdict.fixed or verdict.exact:
        return ""
    return "Policies are compared by the order-free rule: it does not use the order in which outcomes came."


def _items(verdict: Verdict) -> list[str]:
    """Return how items were used and what that assumes; nothing where the data name no items."""
    if verdict.items is None:
        return []
    repeated = f"{verdict.repeated:,} rows repeat an outcome of a policy on an item and count once."
    said = [repeated] if verdict.repeated else []
    if not verdict.shared_items and verdict.pool is None:
        return [*said, f"No item was answered by two policies; the {verdict.method} was used."]
    if verdict.pool is not None:
        return said + _pool(verdict)
    shared = f"{verdict.shared_items:,} of {verdict.items:,} items were answered by more than one policy"
    if verdict.problem.goal == "screen":
        return [*said, f"{shared}; every policy is judged by its own outcomes, by the {verdict.method}."]
    return [*said, f"{shared}; policies are compared by {verdict.method}.", PAIRS_ASSUME]


def _pool(verdict: Verdict) -> list[str]:
    """Return what a verdict about a pool states and assumes."""
    size = sum((verdict.pool or {}).values())
    about = (
        f"The verdict is about the pool of {size:,} items, of which {verdict.items:,} were answered; without "
        "the pool it would be about the population from which the items come."
    )
    if verdict.exact:
        return [about]
    said = [about]
    said.append(f"Policies are compared by {verdict.method}. {POOL_ASSUMES}")
    if holds_for_one_look(verdict):
        said.append(ONE_LOOK)
    return said


def holds_for_one_look(verdict: Verdict) -> bool:
    """Return whether a pool verdict holds once only: a policy did not answer all drawn items."""
    if verdict.pool is None or verdict.exact:
        return False
    return any(_answered(verdict, name) < (verdict.items or 0) for name in verdict.problem.policies)


def _answered(verdict: Verdict, policy: str) -> int:
    return sum(cell.n for cell in verdict.cells if cell.policy == policy)


def headline(verdict: Verdict) -> str:
    """Return the one sentence to act on."""
    if verdict.screens:
        found = classes_sentence(verdict.classes, _is_proved(verdict))
        return f"{found[:-1]} ({verdict.claim})." if verdict.decided else f"Undecided. {found}"
    if verdict.decided and verdict.answer is None:
        return f"None of the policies meets the requirement ({verdict.claim})."
    if verdict.decided:
        why = close_words(verdict.procedure.indifference, bool(verdict.procedure.tolerance))
        return f"{verdict.answer} is the answer ({verdict.claim}): it {why}."
    if verdict.leader is None:
        return "Undecided. By the estimates none of the policies meets the requirement."
    return f"Undecided. {verdict.leader} leads."


def _open_cells(verdict: Verdict) -> list[str]:
    """Return where the bounds of the leader are certified, refuted or open."""
    if verdict.leader is None:
        return []
    found = [bounds_sentence(verdict.cells, verdict.leader, _is_proved(verdict))]
    for rows in verdict.guardrails:
        said = bounds_sentence(rows.cells, verdict.leader, _is_proved(verdict))
        found += [f"{rows.name}: {said}"] if said else []
    return found


def _is_proved(verdict: Verdict) -> bool:
    return verdict.fixed or verdict.exact or proves(verdict.problem, verdict.procedure)


def _distance(verdict: Verdict) -> str:
    """Return the share of the evidence, the hardest comparison and the forecast."""
    share = evidence_share(verdict.evidence, verdict.needed)
    return f"{share}; the hardest comparison is {verdict.weakest}. {verdict.forecast.summary()}".strip()


def _no_forecast(verdict: Verdict) -> str:
    """Return why there is no forecast although one was asked for."""
    why = verdict.forecast.why_none
    return "" if not why or why == NOT_ASKED or verdict.fixed else verdict.forecast.chances()


def looser(verdict: Verdict) -> str:
    """Return a sentence with the risk at which these data would have decided; empty where there is none."""
    if verdict.decided or verdict.delta_needed is None:
        return ""
    return (
        f"At a risk of {verdict.delta_needed:.2g} these data would have decided. A risk is chosen before the "
        "data are seen: this is for orientation only."
    )


def under_other_bounds(verdict: Verdict) -> list[tuple[str, str]]:
    """Return ranges of bounds that lead to the same answer, each with that answer."""
    spans = []
    for answer, run in groupby(verdict.alternatives, key=_answer):
        bounds = [f"{other.bound:.4g}" for other in run]
        spans.append((bounds[0] if len(bounds) == 1 else f"{bounds[0]} to {bounds[-1]}", answer))
    return spans


def _answer(other: Alternative) -> str:
    return (other.answer or "none") if other.decided else "undecided"


def blame(verdict: Verdict) -> list[str]:
    """Return the groups in which every policy falls short, and the largest floor that is certified."""
    said = []
    for policy in verdict.policies:
        failed = [c.group for c in verdict.cells if c.policy == policy.policy and c.verdict == "failed"]
        if failed:
            said.append(f"{policy.policy} falls short in {listed(failed)}.")
    if verdict.floor_met is not None:
        name, floor = verdict.floor_met
        said.append(f"The largest floor certified in every group for one policy is {floor:.4g}, by {name}.")
    return said
