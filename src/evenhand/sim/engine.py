"""The compiled loop: one replication from (seed, replication) to its row of the summary, and blocks of them.

The loop knows nothing of sampling or stopping rules: it asks `decide` for cells, draws their outcomes by
address, tells them when they are due, and lets `decide` look. Nothing is allocated inside, and nothing is
carried from one replication to the next, so any cut into blocks gives the same rows.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand._kernel import kernel
from evenhand.procedure.decide import check, is_due, next_cell
from evenhand.procedure.spec import ACTIVE, AGNOSTIC, PROPORTIONAL, Spec
from evenhand.procedure.state import (
    ANSWER,
    ASKED,
    DECIDED,
    EMPTY,
    EVIDENCE,
    NEEDED,
    RUNNING,
    STARTED,
    STOPPED,
    TOLD,
    WEAKEST,
    State,
    ask,
    ask_policy,
    drop,
    record,
    return_policy,
)
from evenhand.sim.body import NEAR, PEAK, REACHED, SETTLED, SHARE_UNIT, Body, Rows, Trace
from evenhand.sim.streams import Source, arrival, is_lost, lag, outcome
from evenhand.theory.inner import best

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

NO_ANSWER_YET = -2  # at a checkpoint that comes before every cell has an outcome


@kernel
def run_block(
    spec: Spec, source: Source, seed: int, first: int, body: Body, checkpoints: Ints, rows: Rows, trace: Trace
) -> None:
    """Replications first, first + 1, ... until the rows are full."""
    for row in range(rows.samples.shape[0]):
        mean = source.means[row if source.means.shape[0] > 1 else 0]
        _clear(body)
        _replicate(spec, source, mean, seed, first + row, body, checkpoints, rows, row, trace)


@kernel
def _replicate(
    spec: Spec, source: Source, mean: Array, seed: int, replication: int, body: Body, checkpoints: Ints,
    rows: Rows, row: int, trace: Trace,
) -> None:  # fmt: skip
    """One replication, from nothing told to its row."""
    state, desk = body.state, body.desk
    truth = _right_answer(spec, source, mean, desk.mean)
    at = rows.checkpoints[row]
    while state.clock[STOPPED] == RUNNING and state.clock[TOLD] < spec.cap:
        for _ in range(_batch(spec, state)):
            _ask(spec, source, mean, seed, replication, body)
        _tell_what_is_due(spec, source, body, truth, checkpoints, at, trace)
    while desk.clock[REACHED] < checkpoints.shape[0]:
        at[desk.clock[REACHED]] = state.clock[ANSWER]
        desk.clock[REACHED] += 1
    rows.samples[row], rows.asked[row] = state.clock[TOLD], state.clock[ASKED]
    rows.stopped[row] = state.clock[STOPPED] == DECIDED
    rows.answer[row], rows.truth[row] = state.clock[ANSWER], truth
    rows.evidence[row], rows.near[row] = state.level[EVIDENCE], desk.peak[NEAR]
    for g in range(state.n.shape[0]):
        for k in range(state.n.shape[1]):
            rows.shares[g, k] += int(state.n[g, k] / state.clock[TOLD] / SHARE_UNIT + 0.5)


@kernel
def _batch(spec: Spec, state: State) -> int:
    """How many samples are asked before the next look; the initial ones need none and come one by one."""
    if spec.mode == ACTIVE and state.clock[STARTED] < spec.initial * spec.phi.size:
        return 1
    return spec.batch


@kernel
def _ask(spec: Spec, source: Source, mean: Array, seed: int, replication: int, body: Body) -> None:
    """Hand out one sample, draw what will come of it, and put it on the desk until it is due."""
    state, work, desk = body.state, body.work, body.desk
    number = state.clock[ASKED]
    came = arrival(spec.arrivals, number, seed, replication) if spec.mode != ACTIVE else -1
    k, g = next_cell(spec, state, work, seed, replication, came if spec.mode == PROPORTIONAL else -1)
    if spec.mode == AGNOSTIC:
        g = came
        ask_policy(spec, state, work, k)
    else:
        ask(state, work, k, g)
    size = desk.after.shape[0]
    slot, due = number % size, (number + lag(source, number, seed, replication)) % size
    desk.policy[slot], desk.group[slot] = k, g
    desk.outcome[slot] = outcome(source, mean, k, g, desk.drawn[g, k], seed, replication)
    desk.lost[slot] = is_lost(source, number, seed, replication)
    desk.drawn[g, k] += 1
    desk.after[slot] = -1
    if desk.first[due] < 0:
        desk.first[due] = slot
    else:
        desk.after[desk.last[due]] = slot
    desk.last[due] = slot


@kernel
def _tell_what_is_due(
    spec: Spec, source: Source, body: Body, truth: int, checkpoints: Ints, at: Ints, trace: Trace
) -> None:
    """Tell every sample due by now, in the order of due time and then of asking, until the rule stops."""
    state, desk = body.state, body.desk
    while desk.clock[SETTLED] < state.clock[ASKED]:
        due = desk.clock[SETTLED] % desk.first.shape[0]
        slot = desk.first[due]
        while slot >= 0:
            if desk.lost[slot]:
                _lose(spec, body, slot)
            else:
                _tell(spec, source, body, slot, truth, trace)
                _note_checkpoint(spec, body, checkpoints, at)
            if state.clock[STOPPED] != RUNNING or state.clock[TOLD] >= spec.cap:
                return
            slot = desk.after[slot]
        desk.first[due] = -1
        desk.clock[SETTLED] += 1


@kernel
def _tell(spec: Spec, source: Source, body: Body, slot: int, truth: int, trace: Trace) -> None:
    """One outcome becomes known, and the stopping rule looks if it is due to."""
    state, work, desk = body.state, body.work, body.desk
    k, g = desk.policy[slot], desk.group[slot]
    unit = (desk.outcome[slot] - source.low) / source.width
    if spec.mode == AGNOSTIC:
        return_policy(spec, state, work, k)
        record(spec, state, work, k, g, unit, False)
    else:
        record(spec, state, work, k, g, unit, True)
    if is_due(spec, state):
        check(spec, state, work)
        margin = state.level[EVIDENCE] - state.level[NEEDED]
        if margin > desk.peak[PEAK]:
            desk.peak[PEAK] = margin
            if state.clock[ANSWER] != truth:
                desk.peak[NEAR] = margin
    told = state.clock[TOLD]
    if trace.policy.shape[0] > 0 and told % trace.every == 0:
        _note(trace, told // trace.every - 1, state, k, g, desk.outcome[slot])


@kernel
def _lose(spec: Spec, body: Body, slot: int) -> None:
    """One outcome will never be known."""
    if spec.mode == AGNOSTIC:
        return_policy(spec, body.state, body.work, body.desk.policy[slot])
    else:
        drop(spec, body.state, body.work, body.desk.policy[slot], body.desk.group[slot])


@kernel
def _note(trace: Trace, row: int, state: State, k: int, g: int, x: float) -> None:
    trace.policy[row], trace.group[row], trace.outcome[row] = k, g, x
    trace.evidence[row], trace.needed[row] = state.level[EVIDENCE], state.level[NEEDED]
    trace.weakest[row], trace.answer[row] = int(state.level[WEAKEST]), state.clock[ANSWER]


@kernel
def _note_checkpoint(spec: Spec, body: Body, checkpoints: Ints, at: Ints) -> None:
    """Write down the best feasible estimate if so many samples have been told."""
    state, desk = body.state, body.desk
    reached = desk.clock[REACHED]
    if reached >= checkpoints.shape[0] or state.clock[TOLD] != checkpoints[reached]:
        return
    desk.clock[REACHED] += 1
    if state.clock[EMPTY] > 0:
        at[reached] = NO_ANSWER_YET
        return
    for g in range(state.n.shape[0]):
        for k in range(state.n.shape[1]):
            desk.mean[g, k] = state.s[g, k] / state.n[g, k]
    at[reached] = best(spec.region, spec.shares, desk.mean)


@kernel
def _right_answer(spec: Spec, source: Source, mean: Array, unit: Array) -> int:
    for g in range(mean.shape[0]):
        for k in range(mean.shape[1]):
            unit[g, k] = (mean[g, k] - source.low) / source.width
    return best(spec.region, spec.shares, unit)


@kernel
def _clear(body: Body) -> None:
    """Forget the last replication. Whatever Work remembers is stamped with counts that never come again."""
    state, blank, desk = body.state, body.blank, body.desk
    _copy_table(state.n, blank.n)
    _copy_table(state.s, blank.s)
    _copy_table(state.ss, blank.ss)
    _copy_table(state.out, blank.out)
    _copy_table(state.track, blank.track)
    _copy_table(state.w, blank.w)
    _copy_table(state.bets, blank.bets)
    _copy_table(state.theta, blank.theta)
    for i in range(state.clock.shape[0]):
        state.clock[i] = blank.clock[i]
    for i in range(state.level.shape[0]):
        state.level[i] = blank.level[i]
    for k in range(body.work.touched.shape[0]):
        body.work.touched[k] += 1
    desk.first[:] = -1
    desk.drawn[:] = 0
    desk.clock[:] = 0
    desk.peak[:] = -math.inf


@kernel
def _copy_table(to: Array, table: Array) -> None:
    for g in range(table.shape[0]):
        for k in range(table.shape[1]):
            to[g, k] = table[g, k]
