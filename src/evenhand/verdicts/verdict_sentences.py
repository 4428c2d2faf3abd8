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
from evenhand.procedure.outcome_order import depends_on_order
from evenhand.procedure.spec import proves
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


def sentences(verdict: Verdict) -> list[str]:
    """Return the verdict in sentences, the most important first."""
    said = [headline(verdict), FIXED if verdict.fixed else ""]
    if verdict.decided and not verdict.screens and verdict.answer is None:
        said += _blame(verdict)
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
    said.append(_order(verdict))
    return [sentence for sentence in said if sentence]


def _order(verdict: Verdict) -> str:
    """Return the condition on the order of rows, for families whose evidence depends on it."""
    matters = depends_on_order(verdict.problem, verdict.procedure) and not (verdict.fixed or verdict.exact)
    if not matters or not verdict.rows:
        return ""
    return (
        f"The evidence of {verdict.problem.family.name} outcomes depends on their order within each cell: it "
        "holds if the rows are in the order in which they were observed."
    )


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


def _blame(verdict: Verdict) -> list[str]:
    """Return the groups in which every policy falls short, and the largest floor that is certified."""
    said = []
    for policy in verdict.policies:
        failed = [c.group for c in verdict.cells if c.policy == policy.policy and c.verdict == "failed"]
        if failed:
            said.append(f"{policy.policy} falls short in {listed(failed)}.")
    if verdict.floor_met is not None:
        name, floor = verdict.floor_met
        said.append(f"The largest floor certified for someone in every group is {floor:.4g}, by {name}.")
    return said
