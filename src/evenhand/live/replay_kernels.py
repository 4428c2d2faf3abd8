"""Kernels of the fold: many events per call, with the same kernels as the simulator.

One call computes many rows, so replaying a long log costs little more than simulating it. A live ask or tell
is a call with one row, so replay and live run use the same code.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.region import PerCell
from evenhand.procedure.decide import check, is_due, next_cell
from evenhand.procedure.sampling.draw_cell import MAX_CELLS_WRITTEN
from evenhand.procedure.spec import ACTIVE, AGNOSTIC, Spec
from evenhand.procedure.state import (
    EMPTY,
    RUNNING,
    STOPPED,
    TOLD,
    State,
    Work,
    ask,
    ask_policy,
    drop,
    record,
    record_guardrails,
    remove_outcomes,
    return_policy,
)

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Digests = NDArray[np.uint64]

# columns of a row
WHAT, POLICY, GROUP, ARRIVED = range(4)
# kinds of rows
ASK_ANY, ASK_THIS, TELL, DROP, IMPORT, IMPORT_LAST = range(6)
STATE, CHANCE = range(2)  # columns of digests

_START = np.uint64(0x243F6A8885A308D3)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


class DrawTally(NamedTuple):
    """How often cells were drawn, and how often they were expected to be.

    (L, K); agnostic mode uses row 0.
    """

    drawn: PerCell
    expected: PerCell  # sum of the probabilities
    spread: PerCell  # sum of p (1 - p)


def new_draw_tally(spec: Spec) -> DrawTally:
    return DrawTally(*(np.zeros(spec.phi.shape) for _ in range(3)))


@kernel
def advance(
    spec: Spec, state: State, work: Work, tally: DrawTally, seed: int, rows: Ints, values: Array,
    digests: Digests, rails: Array,
) -> int:  # fmt: skip
    """Compute the rows in order; return how many were computed.

    Fewer than all: the stopping rule fired with the last one, or the next row has another cell than the rule;
    that row then holds the rule's cell. `values` holds outcomes on input and probabilities on output. `rails`
    holds the outcomes of the guard-rails, (rows, M), NaN where one is missing.
    """
    for i in range(rows.shape[0]):
        if state.clock[STOPPED] != RUNNING:
            return i
        what, k, g = rows[i, WHAT], rows[i, POLICY], rows[i, GROUP]
        if what in (ASK_ANY, ASK_THIS):
            if not _ask(spec, state, work, tally, seed, rows, values, digests, i):
                return i
        elif what == DROP:
            if spec.mode == AGNOSTIC:
                return_policy(spec, state, work, k)
            else:
                drop(spec, state, work, k, g)
        else:
            _record(spec, state, work, what, k, g, values[i], rails[i])
    return len(rows)


@kernel
def replace_outcomes(
    spec: Spec, state: State, work: Work, k: int, g: int, outcomes: Array, rails: Array
) -> None:
    """Fold a cell's outcomes again from the first, after a correction.

    Earlier asks stay as they were.
    """
    state.clock[TOLD] -= int(state.n[g, k])
    if state.n[g, k] > 0.0:
        state.clock[EMPTY] += 1
    remove_outcomes(state, k, g)
    for i in range(outcomes.shape[0]):
        record_guardrails(spec, state, k, g, rails[i])
        record(spec, state, work, k, g, outcomes[i], False)
    if state.clock[STOPPED] == RUNNING and _has_begun(spec, state):
        check(spec, state, work)


@kernel
def replace_all_outcomes(
    spec: Spec, state: State, work: Work, policies: Ints, groups: Ints, outcomes: Array, rails: Array
) -> None:
    """Fold the outcomes of all cells again, in their order, after a correction.

    For evidence that depends on the order across cells. Earlier asks stay as they were.
    """
    remove_all_outcomes(state)
    for i in range(outcomes.shape[0]):
        record_guardrails(spec, state, policies[i], groups[i], rails[i])
        record(spec, state, work, policies[i], groups[i], outcomes[i], False)
    if state.clock[STOPPED] == RUNNING and _has_begun(spec, state):
        check(spec, state, work)


@kernel
def remove_all_outcomes(state: State) -> None:
    """Remove the outcomes of all cells, and the bets on them."""
    for g in range(state.n.shape[0]):
        for k in range(state.n.shape[1]):
            state.clock[TOLD] -= int(state.n[g, k])
            if state.n[g, k] > 0.0:
                state.clock[EMPTY] += 1
            remove_outcomes(state, k, g)
    state.bets[:] = 0.0


@kernel
def _ask(
    spec: Spec,
    state: State,
    work: Work,
    tally: DrawTally,
    seed: int,
    rows: Ints,
    values: Array,
    digests: Digests,
    i: int,
) -> bool:
    digests[i, STATE] = digest_of_data(spec, state)
    k, g = next_cell(spec, state, work, seed, 0, rows[i, ARRIVED])
    digests[i, CHANCE] = digest_of_chance(spec, state, work)
    differs = rows[i, WHAT] == ASK_THIS and (rows[i, POLICY] != k or rows[i, GROUP] != g)
    rows[i, POLICY], rows[i, GROUP] = k, g
    if differs:
        return False
    values[i] = _count(spec, work, tally, k, g)
    if spec.mode == AGNOSTIC:
        ask_policy(spec, state, work, k)
    else:
        ask(state, work, k, g)
    return True


@kernel
def _record(spec: Spec, state: State, work: Work, what: int, k: int, g: int, x: float, rails: Array) -> None:
    told = what == TELL
    if told and spec.mode == AGNOSTIC:
        return_policy(spec, state, work, k)
        told = False
    record_guardrails(spec, state, k, g, rails)
    record(spec, state, work, k, g, x, told)
    if what == TELL:
        if is_due(spec, state):
            check(spec, state, work)
    elif what == IMPORT_LAST and (_has_begun(spec, state) or state.clock[TOLD] >= spec.cap):
        check(spec, state, work)  # an import is one unit: the rule is evaluated when it is complete


@kernel
def _has_begun(spec: Spec, state: State) -> bool:
    """Return whether every cell has an outcome and the initial samples are complete."""
    enough = spec.initial_total if spec.mode == ACTIVE else 0
    return bool(state.clock[EMPTY] == 0 and state.clock[TOLD] >= enough)


@kernel
def _count(spec: Spec, work: Work, tally: DrawTally, k: int, g: int) -> float:
    """Count a draw and its probabilities; return the probability of the drawn cell.

    NaN if there are more than `MAX_CELLS_WRITTEN` policies.
    """
    groups, policies = spec.phi.shape
    if policies > MAX_CELLS_WRITTEN:
        return np.nan
    row = max(g, 0)
    tally.drawn[row, k] += 1.0
    chance = 0.0
    for j in range(policies):
        together = 0.0
        for h in range(groups):
            p = work.probability[h, j]
            together += p
            if spec.mode != AGNOSTIC:
                tally.expected[h, j] += p
                tally.spread[h, j] += p * (1.0 - p)
                if j == k and h == g:
                    chance = p
        if spec.mode == AGNOSTIC:
            tally.expected[0, j] += together
            tally.spread[0, j] += together * (1.0 - together)
            if j == k:
                chance = together
    return chance


@kernel
def digest_of_data(spec: Spec, state: State) -> np.uint64:
    """Return a digest of outcomes and open tickets; equal on every machine."""
    h = _mix_in(_START, state.n)
    h = _mix_in(h, state.s)
    h = _mix_in(h, state.ss)
    if spec.guardrails.present:
        for j in range(spec.guardrails.code.shape[0]):
            h = _mix_in(h, state.rail_n[j])
            h = _mix_in(h, state.rail_s[j])
            h = _mix_in(h, state.rail_ss[j])
    return _mix_in(h, state.out)


@kernel
def digest_of_chance(spec: Spec, state: State, work: Work) -> np.uint64:
    """Return a digest of the rule's memory and probabilities; equal within one build."""
    h = _mix_in(_START, state.track)
    h = _mix_in(h, state.w)
    h = _mix_in(h, state.bets)
    h = _mix_in(h, state.theta)
    if spec.guardrails.present:
        for j in range(spec.guardrails.code.shape[0]):
            h = _mix_in(h, state.rail_bets[j])
            h = _mix_in(h, state.rail_theta[j])
    return _mix_in(h, work.probability) if spec.phi.shape[1] <= MAX_CELLS_WRITTEN else h


@kernel
def _mix_in(h: np.uint64, table: Array) -> np.uint64:
    words = table.view(np.uint64)
    for g in range(words.shape[0]):
        for k in range(words.shape[1]):
            h = (h ^ words[g, k]) * _MIX
            h ^= h >> _HALF
    return h
