"""The certified rule on items that several policies answered: comparisons by linear bets on pairs.

Outcomes of different policies on one item are dependent, so the e-values of two policies must not be
multiplied. "i is ahead of k" is shown by linear bets on the differences on their shared items
(`procedure.evidence.linear_bets`); a comparison of policies without a shared item, and every condition on one
policy alone, keep their evidence. It holds if who answers an item is decided before any outcome on it is
seen, and the items come in the order in which they were drawn.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput, NotComputed
from evenhand.model.problem import Problem
from evenhand.model.region import BOX, RELATIVE
from evenhand.procedure.estimates import refresh
from evenhand.procedure.evidence import certified
from evenhand.procedure.evidence.by_family import threshold
from evenhand.procedure.evidence.cell_bets import PoolBets
from evenhand.procedure.evidence.item_evidence import least_over
from evenhand.procedure.evidence.linear_bets import new_block, record_pair
from evenhand.procedure.evidence.linear_minimum import Null, scratch
from evenhand.procedure.guardrail_rows import guardrail_problem
from evenhand.procedure.intervals import FAILED, MET, UNDECIDED, own_bounds
from evenhand.procedure.item_settings import PAIRED_FAMILIES, has_relative_guardrails, why_not_paired
from evenhand.procedure.log_space import NOT_COMPUTED, NOTHING
from evenhand.procedure.outcome_order import new_order, note_order, refuse_sorted
from evenhand.procedure.spec import Procedure, Spec
from evenhand.procedure.state import NONE, State, Work, new_work
from evenhand.verdicts.apply_rule import (
    LEAST,
    UNSOLVED,
    CellVerdicts,
    RuleResult,
    judge_cells,
    leader_with_data,
)
from evenhand.verdicts.bounded_cells import BoundedCells, PoolCells, sums_of
from evenhand.verdicts.item_guardrails import (
    bounds_of_guardrails,
    conditions_of_all,
    pool_guardrails,
)
from evenhand.verdicts.items import Items
from evenhand.verdicts.pools import ahead_in_pool, pool_bets

Array = NDArray[np.float64]

POOLED = "paired linear bets without replacement"


def needs_pairs(problem: Problem, items: Items | None) -> bool:
    """Return whether the verdict compares policies that share items."""
    beside = problem.standard.region.kind == RELATIVE or has_relative_guardrails(problem)
    compares = problem.goal != "screen" or beside
    return items is not None and compares and items.shared > 0


def refuse_what_cannot_be_paired(
    problem: Problem, procedure: Procedure, fixed: bool, pooled: bool = False
) -> None:
    """Refuse shared items, or a pool, where the evidence would not be valid, in one sentence."""
    task = "to judge a pool" if pooled else "several policies answered the same items, and to compare them"
    why = why_not_paired(problem, procedure)
    if not why and pooled and (other := _not_in_pools(problem)):
        why = f"outcomes of guard-rails must be bernoulli, binomial or bounded too; one is {other}"
    elif not why and fixed:
        why = "the data must be judged without the option for a fixed sample"
    if why:
        raise BadInput(f"{task} {why}; the evidence would not be valid otherwise.")


def _not_in_pools(problem: Problem) -> str | None:
    """Return the family of a guard-rail whose outcomes have no known range, or None."""
    families = [rail.family.name for rail in problem.guardrails]
    return next((name for name in families if name not in PAIRED_FAMILIES), None)


def refuse_sorted_items(problem: Problem, items: Items, pooled: bool) -> None:
    """Refuse items in an order in which the outcomes of some cell are sorted: bets use the order.

    In a pool those of guard-rails are bets too.
    """
    _refuse_sorted(problem, items)
    for j in range(len(problem.guardrails) if pooled else 0):
        _refuse_sorted(guardrail_problem(problem, j), items.of_guardrail(j))


def _refuse_sorted(problem: Problem, items: Items) -> None:
    order = new_order((len(problem.groups), len(problem.policies)))
    note_order(order, *items.in_order())
    refuse_sorted(
        problem, order, "linear bets", "give the items in the order in which they were drawn, or in a random "
        "order if this is the only look at them",
    )  # fmt: skip


class Comparisons:
    """The evidence that one policy is ahead of another, computed when it is first needed."""

    by_counts = False  # whether single cells are judged by their counts alone

    def __init__(self, spec: Spec, state: State, items: Items, pool: Array | None = None) -> None:
        self.spec, self.state, self.items, self.pool = spec, state, items, pool
        self.work = _estimated(spec, state)
        self.known: dict[tuple[int, int], float] = {}
        self.scratch = scratch(spec.shares.size)
        self.rail_cells: tuple[PoolCells, ...] | None = None

    @cached_property
    def pool_bets(self) -> PoolBets:
        """Return the bets on every cell of the pool."""
        return pool_bets(np.array(self.pool), self.items)

    def guardrails(self, problem: Problem, spec: Spec) -> tuple[PoolCells, ...]:
        """Return the evidence of every cell of the pool, for each guard-rail."""
        if self.rail_cells is None:
            self.rail_cells = pool_guardrails(problem, spec, self)
        return self.rail_cells

    @cached_property
    def bounded_sums(self) -> Array:
        """Return the sums of the bets at a bound for every cell."""
        return sums_of(self.state.n.shape, *self.items.in_order())

    def ahead(self, i: int, k: int) -> float:
        """Return the ln e-value against {q.mu_k >= q.mu_i + indifference}."""
        if (i, k) not in self.known:
            self.known[i, k] = self._computed(i, k)
        return self.known[i, k]

    def _computed(self, i: int, k: int) -> float:
        if self.pool is not None:
            return ahead_in_pool(self.spec, self.pool, self.items, i, k)
        return self._by_pairs(i, k) if self.items.are_shared(i, k) else self._without_pairs(i, k)

    def _by_pairs(self, i: int, k: int) -> float:
        one, other = self.items.answers[i], self.items.answers[k]
        block, edges = new_block(self.spec.shares), 2 * self.spec.shares.size
        record_pair(block, self.items.group, one.items, one.outcomes, other.items, other.outcomes, False)
        null = Null(self.spec.shares, -self.spec.indifference, np.zeros(edges), np.zeros(edges))
        return float(least_over(block, null, math.inf, self.scratch))

    def _without_pairs(self, i: int, k: int) -> float:
        """Return the order-free evidence: two policies without a shared item are independent."""
        if np.any(self.state.n[:, [i, k]] == 0.0):
            return NOTHING
        found = float(certified.ahead(self.spec, self.state, self.work, i, k, math.inf))
        if found == NOT_COMPUTED:
            raise NotComputed(UNSOLVED)
        return found


class Conditions(NamedTuple):
    """Per policy: the evidence that it fails its requirement, and that it meets it, with the weakest atom."""

    fails: list[float]
    meets: list[tuple[float, int]]


def judge_items(
    problem: Problem, spec: Spec, state: State, compare: Comparisons
) -> tuple[CellVerdicts, RuleResult]:
    """Return the verdict of every cell and of the whole; `spec` may have another bound than `compare`."""
    bets = _cells_by_bets(problem, spec, state, compare)
    cells = judge_cells(spec, state) if bets is None else bets.cells()
    return cells, apply_rule_to_items(problem, spec, state, compare)


def apply_rule_to_items(problem: Problem, spec: Spec, state: State, compare: Comparisons) -> RuleResult:
    """Return the decision and the verdict of every policy; without intervals, which take most of the time."""
    conditions = own = _conditions(problem, spec, state, compare)
    if not np.array_equal(spec.kept.lo, spec.region.lo) or not np.array_equal(spec.kept.hi, spec.region.hi):
        bare = own_bounds(spec)  # verdicts are about the requirement itself, without the tolerance
        own = _conditions(problem, bare, state, compare)
    weight = _weight(spec, state, compare, conditions)
    verdicts = [
        FAILED if fails >= weight.needed else MET if meets >= weight.needed else UNDECIDED
        for fails, (meets, _) in zip(*own, strict=True)
    ]
    return weight._replace(policies=np.array(verdicts))


def settled_rivals(problem: Problem, spec: Spec, state: State, compare: Comparisons, leader: int) -> set[int]:
    """Return the policies that are shown to be no better than the leader, or to fail the requirement."""
    needed = float(threshold(spec))
    against = _conditions(problem, spec, state, compare).fails
    rivals = (k for k in range(len(against)) if k != leader)
    return {k for k in rivals if np.logaddexp(compare.ahead(leader, k), against[k]) >= needed}


def _cells_by_bets(problem: Problem, spec: Spec, state: State, compare: Comparisons) -> BoundedCells | None:
    """Return the evidence of cells by bets, where it is more than that of the counts; otherwise None."""
    if compare.by_counts:
        return None
    others = bounds_of_guardrails(problem)
    if compare.pool is not None:
        return PoolCells(spec, compare.pool_bets, others)
    if problem.family.name == "bounded" and spec.region.kind == BOX:
        return BoundedCells(spec, state.n, state.s, compare.bounded_sums, others)
    return None


def _conditions(problem: Problem, spec: Spec, state: State, compare: Comparisons) -> Conditions:
    """Return the evidence on every policy's own requirement, by bets or from its counts."""
    bets = _cells_by_bets(problem, spec, state, compare)
    if bets is not None and problem.guardrails:
        return Conditions(*conditions_of_all(problem, spec, state, compare, bets))
    if bets is not None:
        return Conditions(*bets.conditions())
    is_same = spec is compare.spec and state is compare.state
    work, policies = compare.work if is_same else _estimated(spec, state), range(spec.phi.shape[1])
    known = [spec.region.kind == BOX or bool(np.all(state.n[:, k] > 0)) for k in policies]
    fails = [float(certified.fails(spec, state, work, k)) if known[k] else NOTHING for k in policies]
    meets = [certified.meets(spec, state, work, k) if known[k] else (NOTHING, 0) for k in policies]
    if NOT_COMPUTED in fails or any(value == NOT_COMPUTED for value, _ in meets):
        raise NotComputed(UNSOLVED)
    return Conditions(fails, [(float(value), int(which)) for value, which in meets])


def _estimated(spec: Spec, state: State) -> Work:
    """Return scratch with the estimates of this state."""
    work = new_work(spec)
    refresh(spec, state, work, False)
    return work


def _weight(spec: Spec, state: State, compare: Comparisons, conditions: Conditions) -> RuleResult:
    """Return the decision, without the verdicts of policies.

    Where the leader is not certified, every policy that is shown to meet its bounds is tried.
    """
    needed, policies = float(threshold(spec)), spec.phi.shape[1]
    work = compare.work if spec is compare.spec else _estimated(spec, state)
    leader = leader_with_data(work, np.all(state.n > 0, axis=0).tolist())
    order = np.argsort(-work.score).tolist()  # strong rivals first: one that is not refuted is enough
    value, alternative = _evidence_for(leader, compare, conditions, order, -math.inf)
    for i in order:
        if value >= needed:
            break
        if i != leader and conditions.meets[i][0] >= needed:
            mine, weakest = _evidence_for(i, compare, conditions, order, needed)
            if mine >= needed:
                leader, value, alternative = i, mine, weakest
    return RuleResult(leader, value >= needed, value, needed, alternative, np.zeros(policies, dtype=np.int64))


def _evidence_for(
    i: int, compare: Comparisons, conditions: Conditions, order: list[int], least: float
) -> tuple[float, int]:
    """Return the evidence of the weakest alternative to the answer i, or to "none", and its code.

    Below `least` the first alternative that is found counts.
    """
    value, alternative = math.inf, 0
    if i != NONE:
        value, which = conditions.meets[i]
        alternative = len(order) + which
    for k in order:
        if k == i or value < least:
            continue
        against = conditions.fails[k]
        if i != NONE:
            against = float(np.logaddexp(compare.ahead(i, k), against))
        if max(against, LEAST) < value:
            value, alternative = max(against, LEAST), k
    return value, alternative
