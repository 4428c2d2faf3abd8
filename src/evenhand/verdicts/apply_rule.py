"""The stopping rule on data as they are: who leads, how strong the evidence is, who meets and who fails."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import NotComputed
from evenhand.model.region import BOX, PENALTY
from evenhand.procedure.alternatives import weakest_by_evidence
from evenhand.procedure.decide import check
from evenhand.procedure.estimates import refresh
from evenhand.procedure.evidence import certified
from evenhand.procedure.evidence.by_family import threshold
from evenhand.procedure.intervals import NOT_KNOWN, every_interval, judge_every_cell, judge_every_policy
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
LEAST = -1e3  # "nothing can be said": minus infinity is no number to print


class Cells(NamedTuple):
    """Per cell, (L, K), in unit scale: the interval, and MET, FAILED or UNDECIDED."""

    low: Array
    high: Array
    verdict: Ints


class Weight(NamedTuple):
    """What the stopping rule makes of the data."""

    leader: int  # or NONE
    decided: bool
    evidence: float
    needed: float
    piece: int  # the weakest comparison, as `procedure.pieces` codes it
    policies: Ints  # MET, FAILED or UNDECIDED for each policy's whole requirement


def judge_cells(spec: Spec, state: State) -> Cells:
    """Every cell's interval and verdict."""
    found = new_cells(spec)
    every_interval(spec, state, found.low, found.high)
    judge_every_cell(spec, state, found.verdict)
    return found


def new_cells(spec: Spec) -> Cells:
    """Room for every cell."""
    shape = spec.phi.shape
    return Cells(np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=np.int64))


def weigh(spec: Spec, state: State) -> Weight:
    """The rule's own words where every cell has data; the part that still holds where some have none."""
    work = new_work(spec)
    if state.clock[EMPTY] > 0:
        leader, value, piece = _with_gaps(spec, state, work)
        needed = float(threshold(spec))
        decided = spec.stopping == CERTIFIED and value >= needed
    else:
        check(spec, state, work)
        leader, value = int(state.clock[ANSWER]), float(state.level[EVIDENCE])
        needed, piece = float(state.level[NEEDED]), int(state.level[WEAKEST])
        decided = state.clock[STOPPED] == DECIDED
        if spec.stopping == BUDGET:
            # the budget asks for no evidence; the certified line tells how much there is
            needed = float(threshold(spec))
            value, piece = weakest_by_evidence(spec, state, work, leader)
    policies = np.zeros(spec.phi.shape[1], dtype=np.int64)
    judge_every_policy(spec, state, work, policies)
    if value == NOT_COMPUTED or np.any(policies == NOT_KNOWN):
        raise NotComputed(UNSOLVED)
    return Weight(leader, bool(decided), float(value), needed, int(piece), policies)


def _with_gaps(spec: Spec, state: State, work: Work) -> tuple[int, float, int]:
    """Some cells are empty: only policies with data everywhere can be shown to be ahead, any to fail.

    Every number used is the logarithm of a valid e-value, so whatever passes the threshold is certified.
    """
    refresh(spec, state, work, False)
    policies = spec.phi.shape[1]
    whole = np.all(state.n > 0, axis=0).tolist()
    leader = leader_with_data(work, whole)
    value, piece = math.inf, 0
    for k in range(policies):
        if k == leader:
            continue
        fails = certified.fails(spec, state, work, k) if whole[k] or spec.region.kind == BOX else -math.inf
        ahead = (
            certified.ahead(spec, state, work, leader, k, math.inf)
            if leader != NONE and whole[k]
            else -math.inf
        )
        if whole[k] and NOT_COMPUTED in (fails, ahead if leader != NONE else fails):
            raise NotComputed(UNSOLVED)
        against = max(float(np.logaddexp(ahead, fails)), LEAST)
        if against < value:
            value, piece = against, k
    if leader != NONE and spec.region.kind != PENALTY:
        met, which = certified.meets(spec, state, work, leader)
        if met < value:
            value, piece = met, policies + which
    return leader, value, piece


def leader_with_data(work: Work, whole: list[bool]) -> int:
    """The best by the estimates of the policies with data in every group, or NONE.

    Where a cell has no data its estimate is made up, and would bring in a unit of outcomes of its own.
    """
    able = [k for k in range(len(whole)) if whole[k] and work.margin[k] >= 0.0]
    return max(able, key=lambda k: float(work.score[k]), default=NONE)


def copied(state: State) -> State:
    """The same counts, for a rule to look at: looking leaves its marks on a state."""
    tables: list[Any] = [np.array(part) for part in state]
    copy = State(*tables)
    copy.clock[TOLD], copy.clock[STOPPED] = int(copy.n.sum()), RUNNING
    return copy
