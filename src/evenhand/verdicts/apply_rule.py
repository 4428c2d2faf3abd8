"""Apply the stopping rule to data: leader, evidence, verdicts, and rows for results."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import NotComputed
from evenhand.model.problem import Problem
from evenhand.model.region import BOX, RELATIVE
from evenhand.model.result_rows import CellRow, PolicyRow
from evenhand.procedure import intervals
from evenhand.procedure.alternatives import weakest_by_evidence
from evenhand.procedure.classification import weakest_classification
from evenhand.procedure.decide import check
from evenhand.procedure.estimates import refresh
from evenhand.procedure.evidence import certified
from evenhand.procedure.evidence.by_family import threshold
from evenhand.procedure.guardrails import has_conditions
from evenhand.procedure.intervals import (
    NOT_KNOWN,
    every_interval,
    judge_every_cell,
    judge_every_policy,
    own_bounds,
    reconciled,
    requirement_kind,
)
from evenhand.procedure.log_space import NOT_COMPUTED
from evenhand.procedure.spec import BUDGET, CERTIFIED, Spec
from evenhand.procedure.state import (
    ANSWER,
    DECIDED,
    EMPTY,
    EVIDENCE,
    NEEDED,
    NONE,
    RUNNING,
    STOPPED,
    TOLD,
    WEAKEST,
    State,
    Work,
    new_work,
)

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


UNSOLVED = (
    "the evidence in these data could not be computed; that is a fault of the program, not a lack of "
    "evidence. Nothing was decided. Please report it with the study and the counts of every cell."
)
LEAST = -1e3  # printed in place of minus infinity


class CellVerdicts(NamedTuple):
    """Per cell, (L, K), in unit scale: the interval, and MET, FAILED or UNDECIDED."""

    low: Array
    high: Array
    verdict: Ints


class RuleResult(NamedTuple):
    """The result of the stopping rule on the data."""

    leader: int  # or NONE; NONE where every policy is classified and none is chosen
    decided: bool
    evidence: float
    needed: float
    alternative: (
        int  # the code of the weakest comparison, see `procedure.alternatives`; or the least known policy
    )
    policies: Ints  # MET, FAILED or UNDECIDED for each policy's whole requirement


def judge_cells(spec: Spec, state: State) -> CellVerdicts:
    """Return the interval and the verdict of every cell."""
    found, work = new_cells(spec), new_work(spec)
    refresh(spec, state, work, False)
    every_interval(spec, state, found.low, found.high)
    judge_every_cell(spec, state, work, found.verdict)
    return found


def new_cells(spec: Spec) -> CellVerdicts:
    """Return empty tables for all cells."""
    shape = spec.phi.shape
    return CellVerdicts(np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=np.int64))


def apply_stopping_rule(spec: Spec, state: State) -> RuleResult:
    """Return the result of the stopping rule; of the part that still holds where some cells are empty."""
    work = new_work(spec)
    if state.clock[EMPTY] > 0:
        leader, value, alternative = _with_gaps(spec, state, work)
        needed = float(threshold(spec))
        decided = spec.stopping == CERTIFIED and value >= needed
    else:
        check(spec, state, work)
        leader, value = int(state.clock[ANSWER]), float(state.level[EVIDENCE])
        needed, alternative = float(state.level[NEEDED]), int(state.level[WEAKEST])
        decided = state.clock[STOPPED] == DECIDED
        if spec.stopping == BUDGET:
            # a budget needs no evidence; the evidence of the certified rule is shown instead
            needed = float(threshold(spec))
            value, alternative = _certified_evidence(spec, state, work, leader)
    policies = np.zeros(spec.phi.shape[1], dtype=np.int64)
    judge_every_policy(own_bounds(spec), state, work, policies)
    if value == NOT_COMPUTED or np.any(policies == NOT_KNOWN):
        raise NotComputed(UNSOLVED)
    chosen = NONE if spec.screens else leader
    return RuleResult(chosen, bool(decided), float(value), needed, int(alternative), policies)


def _certified_evidence(spec: Spec, state: State, work: Work, leader: int) -> tuple[float, int]:
    """Return the evidence of the weakest comparison by the certified rule, and which it is."""
    if spec.screens:
        value, _, policy = weakest_classification(spec, state, work)
        return float(value), int(policy)
    value, alternative = weakest_by_evidence(spec, state, work, leader)
    return float(value), int(alternative)


def _with_gaps(spec: Spec, state: State, work: Work) -> tuple[int, float, int]:
    """Return leader, evidence and weakest comparison where some cells are empty.

    Only policies with data in every group can be certified to be ahead; any policy can be certified to fail.
    Every number used is the logarithm of a valid e-value, so whatever passes the threshold is certified.
    """
    refresh(spec, state, work, False)
    whole = policies_with_data(spec, state)
    leader = leader_with_data(work, whole)
    if spec.screens:
        return NONE, *_least_known(spec, state, work, whole)
    found = (leader, *_against_all(spec, state, work, whole, leader))
    for i in other_answers(spec, work, whole, leader):
        other = (i, *_against_all(spec, state, work, whole, i))
        found = max(found, other, key=lambda answer: answer[1])
    return found


def other_answers(spec: Spec, work: Work, whole: list[bool], leader: int) -> list[int]:
    """Return the further answers that are acceptable by the estimates, with data in every group."""
    if not spec.several:
        return []
    least = -math.inf if leader == NONE else float(work.score[leader]) - spec.indifference
    return [
        i
        for i in range(len(whole))
        if i != leader and whole[i] and work.kept_margin[i] >= 0.0 and work.score[i] >= least
    ]


def policies_with_data(spec: Spec, state: State) -> list[bool]:
    """Return which policies have data in every cell that their requirement and overall mean depend on."""
    whole = np.all(state.n > 0, axis=0)
    if spec.region.kind == RELATIVE:
        whole &= whole[spec.region.control]
    return [bool(flag) for flag in whole]


def _least_known(spec: Spec, state: State, work: Work, whole: list[bool]) -> tuple[float, int]:
    """Return the evidence for the classification of the policy with the least, and which policy."""
    found = []
    for k, complete in enumerate(whole):
        if complete and work.margin[k] >= 0.0:
            found.append((float(certified.meets(spec, state, work, k)[0]), k))
        else:
            found.append((max(_fails(spec, state, work, whole, k), LEAST), k))
    return min(found)


def _fails(spec: Spec, state: State, work: Work, whole: list[bool], k: int) -> float:
    """Return the evidence that k fails; without data in every group only that of its own bounds."""
    if whole[k] or spec.region.kind in (BOX, RELATIVE):
        return float(certified.fails(spec, state, work, k))
    return -math.inf


def _against_all(spec: Spec, state: State, work: Work, whole: list[bool], leader: int) -> tuple[float, int]:
    """Return the least evidence against an alternative to this answer, and which it is."""
    value, alternative = math.inf, 0
    for k in range(len(whole)):
        if k == leader:
            continue
        fails = _fails(spec, state, work, whole, k)
        ahead = (
            certified.ahead(spec, state, work, leader, k, math.inf)
            if leader != NONE and whole[k]
            else -math.inf
        )
        if whole[k] and NOT_COMPUTED in (fails, ahead if leader != NONE else fails):
            raise NotComputed(UNSOLVED)
        against = max(float(np.logaddexp(ahead, fails)), LEAST)
        if against < value:
            value, alternative = against, k
    if leader != NONE and has_conditions(spec):
        met, which = certified.meets(spec, state, work, leader)
        if met < value:
            value, alternative = float(met), len(whole) + int(which)
    return value, alternative


def leader_with_data(work: Work, whole: list[bool]) -> int:
    """Return the best policy, by the estimates, of those with data in every group; or NONE.

    Where a cell has no data its estimate is a default in the unit of outcomes, not a measurement.
    """
    able = [k for k in range(len(whole)) if whole[k] and work.margin[k] >= 0.0]
    return max(able, key=lambda k: float(work.score[k]), default=NONE)


def copied(state: State) -> State:
    """Return a copy of a state, for a rule that changes the state it checks."""
    tables: list[Any] = [np.array(part) for part in state]
    copy = State(*tables)
    copy.clock[TOLD], copy.clock[STOPPED] = int(copy.n.sum()), RUNNING
    return copy


def result_rows(
    problem: Problem, spec: Spec, state: State, cells: CellVerdicts, rule_result: RuleResult
) -> tuple[tuple[CellRow, ...], tuple[PolicyRow, ...]]:
    """Return a row for each cell and one for each policy."""
    of_cells, of_policies = reconciled(requirement_kind(spec), cells.verdict, rule_result.policies)
    return (
        intervals.cell_rows(problem, spec, state, of_cells, cells.low, cells.high),
        intervals.policy_rows(problem, spec, state, of_policies, rule_result.leader),
    )


def coverage(spec: Spec) -> float:
    """Return the coverage of the intervals (see `procedure.intervals`): nominal unless certified."""
    each = math.exp(-threshold(spec))  # the probability that an end at the threshold ever misses
    bounds = (np.isfinite(spec.region.lo).sum(axis=0) + np.isfinite(spec.region.hi).sum(axis=0)).min()
    one_sided = np.isfinite(spec.region.lo).all() != np.isfinite(spec.region.hi).all()
    return float(1.0 - each * (1.0 + 1.0 / bounds if one_sided and bounds else 2.0))
