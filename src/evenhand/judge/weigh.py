"""The stopping rule on data as they are: who leads, how strong the evidence is, who meets and who fails."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand._kernel import kernel
from evenhand.judge.cells import FAILED, MET, UNDECIDED
from evenhand.model.region import BOX, PENALTY, ROUNDING
from evenhand.procedure.decide import check
from evenhand.procedure.estimates import refresh
from evenhand.procedure.pieces import weakest_by_evidence
from evenhand.procedure.spec import BUDGET, CALIBRATED, CERTIFIED, KAUFMANN_KOOLEN, Spec
from evenhand.procedure.state import (
    ANSWER,
    DECIDED,
    EMPTY,
    EVIDENCE,
    NEEDED,
    NONE,
    STOPPED,
    TOLD,
    WEAKEST,
    State,
    Work,
    new_work,
)  # fmt: skip
from evenhand.procedure.stopping import evidence
from evenhand.procedure.stopping.kaufmann_koolen import piece_threshold
from evenhand.theory import inner

Ints = NDArray[np.int64]


class Weight(NamedTuple):
    """What the stopping rule makes of the data."""

    leader: int  # or NONE
    decided: bool
    evidence: float
    needed: float
    piece: int  # the weakest comparison, as `procedure.pieces` codes it
    policies: Ints  # MET, FAILED or UNDECIDED for each policy's whole requirement


def weigh(spec: Spec, state: State) -> Weight:
    """The rule's own words where every cell has data; the part that still holds where some have none."""
    work = new_work(spec)
    if state.clock[EMPTY] > 0:
        leader, value, piece = _with_gaps(spec, state, work)
        needed = float(evidence.threshold(spec))
        decided = spec.stopping == CERTIFIED and value >= needed
    else:
        check(spec, state, work)
        leader, value = int(state.clock[ANSWER]), float(state.level[EVIDENCE])
        needed, piece = float(state.level[NEEDED]), int(state.level[WEAKEST])
        decided = state.clock[STOPPED] == DECIDED
        if spec.stopping == BUDGET:
            # the budget asks for no evidence; the certified line tells how much there is
            needed = float(evidence.threshold(spec))
            value, piece = weakest_by_evidence(spec, state, work, leader)
    policies = np.array([_stands(spec, state, work, k) for k in range(spec.phi.shape[1])], dtype=np.int64)
    return Weight(leader, bool(decided), float(value), needed, int(piece), policies)


def _with_gaps(spec: Spec, state: State, work: Work) -> tuple[int, float, int]:
    """Some cells are empty: only policies with data everywhere can be shown to be ahead, any to fail.

    Every number used is the logarithm of a valid e-value, so whatever passes the threshold is certified.
    """
    refresh(spec, state, work, False)
    policies = spec.phi.shape[1]
    whole = np.all(state.n > 0, axis=0).tolist()
    able = [k for k in range(policies) if whole[k] and work.margin[k] >= -ROUNDING]
    leader = max(able, key=lambda k: float(work.score[k]), default=NONE)
    value, piece = math.inf, 0
    for k in range(policies):
        if k == leader:
            continue
        fails = evidence.fails(spec, state, work, k) if whole[k] or spec.region.kind == BOX else -math.inf
        ahead = -math.inf
        if leader != NONE and whole[k]:
            ahead = evidence.ahead(spec, state, work, leader, k)
        if np.logaddexp(ahead, fails) < value:
            value, piece = float(np.logaddexp(ahead, fails)), k
    if leader != NONE and spec.region.kind != PENALTY:
        met, which = evidence.meets(spec, state, work, leader)
        if met < value:
            value, piece = met, policies + which
    return leader, value, piece


@kernel
def _stands(spec: Spec, state: State, work: Work, k: int) -> int:
    """Does policy k meet its whole requirement by the stopping rule's own evidence?"""
    if spec.region.kind != BOX:
        for g in range(spec.phi.shape[0]):
            if state.n[g, k] == 0.0:
                return UNDECIDED
    if spec.stopping == CERTIFIED or spec.stopping == BUDGET:
        needed = evidence.threshold(spec)
        if evidence.fails(spec, state, work, k) >= needed:
            return FAILED
        met, _ = evidence.meets(spec, state, work, k)
        return MET if met >= needed else UNDECIDED
    needed = _likelihood_level(spec, state, k)
    if work.margin[k] >= -ROUNDING:
        _, lower, _ = inner.leave(spec.code, spec.region, k, work.v, work.mean, work.lam_k, work.scratch)
        return MET if lower >= needed else UNDECIDED
    _, lower = inner.enter(spec.code, spec.region, k, work.v, work.mean, work.lam_k, work.scratch)
    return FAILED if lower >= needed else UNDECIDED


@kernel
def _likelihood_level(spec: Spec, state: State, k: int) -> float:
    if spec.stopping == KAUFMANN_KOOLEN:
        return piece_threshold(spec, state, k, NONE)
    patience = math.log1p(math.log(float(max(state.clock[TOLD], 1))))
    return spec.level + patience if spec.stopping == CALIBRATED else patience - math.log(spec.delta)
