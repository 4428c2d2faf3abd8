"""The compiled simulation loop: one replication by its address, and blocks of them.

The loop contains no sampling or stopping rule: it gets cells from `decide`, draws their outcomes by address,
records them when they are due, and calls the check in `decide`. Nothing is allocated inside, and no state is
kept between replications, so any division into blocks gives the same rows.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.procedure.decide import check, is_due, next_cell
from evenhand.procedure.guardrails import best_of, is_classified, meets_all
from evenhand.procedure.spec import ACTIVE, AGNOSTIC, PROPORTIONAL, Spec
from evenhand.procedure.state import (
    ANSWER,
    ASKED,
    DECIDED,
    EMPTY,
    EVIDENCE,
    NEEDED,
    NONE,
    NOT_COMPUTED_TIMES,
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
    record_guardrail,
    return_policy,
)
from evenhand.simulation.buffers import (
    NEAR,
    PEAK,
    REACHED,
    SETTLED,
    SHARE_UNIT,
    Checkpoints,
    PendingSamples,
    Rows,
    RunBuffers,
    Trace,
)
from evenhand.simulation.streams import DATA, Source, arrival, is_lost, lag, outcome, rail_outcome
from evenhand.theory.inner import is_acceptable

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

NO_ANSWER_YET = -2  # at a checkpoint before every cell has an outcome


@kernel
def run_block(
    spec: Spec,
    source: Source,
    seed: int,
    first: int,
    buffers: RunBuffers,
    checkpoints: Checkpoints,
    rows: Rows,
    trace: Trace,
) -> None:
    """Run replications first, first + 1, ... until the rows are full."""
    for row in range(rows.samples.shape[0]):
        mean = source.means[row if source.means.shape[0] > 1 else 0]
        truth = begin(spec, source, mean, buffers)
        while is_running(spec, buffers.state):
            run_batch(spec, source, mean, seed, first + row, truth, buffers, checkpoints, rows, row, trace)
        finish(spec, buffers, truth, rows, row)


@kernel
def begin(spec: Spec, source: Source, mean: Array, buffers: RunBuffers) -> int:
    """Prepare a replication with these means; return the best answer."""
    _clear(spec, buffers)
    return _best_answer(spec, source, mean, buffers.pending.truth, buffers.pending.rail_truth)


@kernel
def is_running(spec: Spec, state: State) -> bool:
    """Return whether the replication has neither stopped nor reached its maximum of samples."""
    return state.clock[STOPPED] == RUNNING and state.clock[TOLD] < spec.cap


@kernel
def run_batch(
    spec: Spec,
    source: Source,
    mean: Array,
    seed: int,
    replication: int,
    truth: int,
    buffers: RunBuffers,
    checkpoints: Checkpoints,
    rows: Rows,
    row: int,
    trace: Trace,
) -> None:
    """Request a batch of samples, and settle those that are due."""
    state, work, pending = buffers.state, buffers.work, buffers.pending
    for _ in range(_batch(spec, state)):
        came = _arrived(spec, state, seed, replication)
        known = came if spec.mode == PROPORTIONAL else -1
        k, g = next_cell(spec, state, work, seed, replication, known)
        _request_sample(
            spec, source, mean, seed, replication, buffers, k, came if spec.mode == AGNOSTIC else g
        )
    slot = _next_due(pending, state.clock[ASKED])
    while slot >= 0:
        if _settle(spec, source, buffers, slot):
            if is_due(spec, state):
                check(spec, state, work)
                if state.clock[EMPTY] == 0:
                    note_peak(spec, state, pending, truth)
            _note_sample(trace, state, pending, slot)
            _note_checkpoint(spec, buffers, checkpoints, rows.checkpoints[row])
        if not is_running(spec, state):
            break
        slot = _next_due(pending, state.clock[ASKED])


@kernel
def _batch(spec: Spec, state: State) -> int:
    """Return the number of samples before the next check; initial samples come one by one."""
    if spec.mode == ACTIVE and state.clock[STARTED] < spec.initial_total:
        return 1
    return spec.batch


@kernel
def _arrived(spec: Spec, state: State, seed: int, replication: int) -> int:
    """Return the group that arrives, or -1 where groups are chosen."""
    return arrival(spec.arrivals, state.clock[ASKED], seed, replication) if spec.mode != ACTIVE else -1


@kernel
def _request_sample(
    spec: Spec, source: Source, mean: Array, seed: int, replication: int, buffers: RunBuffers, k: int, g: int
) -> None:
    """Request one sample, draw its outcome, and store it until it is due."""
    state, pending = buffers.state, buffers.pending
    number = state.clock[ASKED]
    if spec.mode == AGNOSTIC:
        ask_policy(spec, state, buffers.work, k)
    else:
        ask(state, buffers.work, k, g)
    size = pending.after.shape[0]
    slot, due = number % size, (number + lag(source, number, seed, replication)) % size
    pending.policy[slot], pending.group[slot] = k, g
    pending.outcome[slot] = outcome(source, mean, k, g, pending.drawn[g, k], seed, replication)
    if spec.guardrails.present:
        for j in range(spec.guardrails.code.shape[0]):
            pending.rail_outcome[slot, j] = rail_outcome(
                source, j, k, g, pending.drawn[g, k], seed, replication
            )
    pending.lost[slot] = is_lost(source, number, seed, replication)
    pending.drawn[g, k] += 1
    pending.after[slot] = -1
    if pending.first[due] < 0:
        pending.first[due] = slot
    else:
        pending.after[pending.last[due]] = slot
    pending.last[due] = slot


@kernel
def _next_due(pending: PendingSamples, asked: int) -> int:
    """Return the next due sample, by due time and then by request; -1 for none."""
    while pending.clock[SETTLED] < asked:
        due = pending.clock[SETTLED] % pending.first.shape[0]
        slot = pending.first[due]
        if slot >= 0:
            pending.first[due] = pending.after[slot]
            return int(slot)
        pending.clock[SETTLED] += 1
    return -1


@kernel
def _settle(spec: Spec, source: Source, buffers: RunBuffers, slot: int) -> bool:
    """Settle a sample: its outcome is recorded (True), or it is lost (False)."""
    state, work, pending = buffers.state, buffers.work, buffers.pending
    k, g = pending.policy[slot], pending.group[slot]
    if spec.mode == AGNOSTIC:
        return_policy(spec, state, work, k)
    if pending.lost[slot]:
        if spec.mode != AGNOSTIC:
            drop(spec, state, work, k, g)
        return False
    if spec.guardrails.present:
        for j in range(spec.guardrails.code.shape[0]):
            seen = (pending.rail_outcome[slot, j] - source.rail_low[j]) / source.rail_width[j]
            if source.law != DATA or not math.isnan(seen):  # some may be missing in a file of outcomes
                record_guardrail(spec, state, j, k, g, seen)
    unit = (pending.outcome[slot] - source.low) / source.width
    record(spec, state, work, k, g, unit, spec.mode != AGNOSTIC)
    return True


@kernel
def note_peak(spec: Spec, state: State, pending: PendingSamples, truth: int) -> None:
    """Record the largest margin of the evidence over the threshold, and that of wrong answers."""
    margin = state.level[EVIDENCE] - state.level[NEEDED]
    if margin > pending.peak[PEAK]:
        pending.peak[PEAK] = margin
        if spec.screens:
            _note_means(spec, state, pending)
        if not _is_right(spec, pending, truth, state.clock[ANSWER]):
            pending.peak[NEAR] = margin


@kernel
def _note_sample(trace: Trace, state: State, pending: PendingSamples, slot: int) -> None:
    told = state.clock[TOLD]
    if trace.policy.shape[0] == 0 or told % trace.every != 0:
        return
    row = told // trace.every - 1
    trace.policy[row], trace.group[row] = pending.policy[slot], pending.group[slot]
    trace.outcome[row] = pending.outcome[slot]
    trace.evidence[row], trace.needed[row] = state.level[EVIDENCE], state.level[NEEDED]
    trace.weakest[row], trace.answer[row] = int(state.level[WEAKEST]), state.clock[ANSWER]


@kernel
def _note_checkpoint(spec: Spec, buffers: RunBuffers, checkpoints: Ints, at: Ints) -> None:
    """Record the best feasible estimate if a checkpoint is reached."""
    state, pending = buffers.state, buffers.pending
    reached = pending.clock[REACHED]
    if reached >= checkpoints.shape[0] or state.clock[TOLD] != checkpoints[reached]:
        return
    pending.clock[REACHED] += 1
    at[reached] = answer_now(spec, buffers)


@kernel
def note_checkpoints(spec: Spec, buffers: RunBuffers, checkpoints: Checkpoints, rows: Rows, row: int) -> None:
    """Record the best feasible estimate for every checkpoint that several samples at once have passed."""
    pending = buffers.pending
    while (
        pending.clock[REACHED] < checkpoints.shape[0]
        and buffers.state.clock[TOLD] >= checkpoints[pending.clock[REACHED]]
    ):
        rows.checkpoints[row, pending.clock[REACHED]] = answer_now(spec, buffers)
        pending.clock[REACHED] += 1


@kernel
def answer_now(spec: Spec, buffers: RunBuffers) -> int:
    """Return the best feasible estimate; NONE where policies are screened and all classes are right."""
    state, pending = buffers.state, buffers.pending
    if state.clock[EMPTY] > 0:
        return NO_ANSWER_YET
    _note_means(spec, state, pending)
    if spec.screens:  # the policies that were classified right, and no others
        return NONE if _is_classified(spec, pending) else NO_ANSWER_YET
    return best_of(spec, pending.mean, pending.rail_mean)


@kernel
def _note_means(spec: Spec, state: State, pending: PendingSamples) -> None:
    for g in range(state.n.shape[0]):
        for k in range(state.n.shape[1]):
            pending.mean[g, k] = state.s[g, k] / state.n[g, k]
            if spec.guardrails.present:
                for j in range(spec.guardrails.code.shape[0]):
                    pending.rail_mean[j, g, k] = state.rail_s[j, g, k] / max(state.rail_n[j, g, k], 1.0)


@kernel
def finish(spec: Spec, buffers: RunBuffers, truth: int, rows: Rows, row: int) -> None:
    """Write the result of the replication; checkpoints it did not reach keep its answer."""
    state, pending = buffers.state, buffers.pending
    if spec.screens:
        _screened(spec, buffers, truth, rows, row)
    while pending.clock[REACHED] < rows.checkpoints.shape[1]:
        rows.checkpoints[row, pending.clock[REACHED]] = state.clock[ANSWER]
        pending.clock[REACHED] += 1
    for j in range(rows.checkpoints.shape[1] if not spec.screens else 0):
        rows.right_at[row, j] = _is_right(spec, pending, truth, rows.checkpoints[row, j])
    rows.samples[row], rows.asked[row] = state.clock[TOLD], state.clock[ASKED]
    rows.stopped[row] = state.clock[STOPPED] == DECIDED
    rows.answer[row], rows.truth[row] = state.clock[ANSWER], truth
    rows.right[row] = _is_right(spec, pending, truth, state.clock[ANSWER])
    rows.evidence[row], rows.near[row] = state.level[EVIDENCE], pending.peak[NEAR]
    if state.level[NOT_COMPUTED_TIMES] > 0.0:
        rows.evidence[row] = math.nan  # reported by `shards`
    rows.cost[row] = 0.0
    for g in range(state.n.shape[0]):
        for k in range(state.n.shape[1]):
            rows.cost[row] += spec.costs[g, k] * state.n[g, k]
            rows.shares[g, k] += int(state.n[g, k] / state.clock[TOLD] / SHARE_UNIT + 0.5)


@kernel
def _screened(spec: Spec, buffers: RunBuffers, truth: int, rows: Rows, row: int) -> None:
    """Record how the replication classified the policies, at the end and at its checkpoints."""
    state, pending = buffers.state, buffers.pending
    right = state.clock[EMPTY] == 0
    if right:
        _note_means(spec, state, pending)
        right = _is_classified(spec, pending)
        for k in range(state.n.shape[1]):
            rows.allowed[k] += meets_all(spec, spec.region, k, pending.mean, pending.rail_mean)
    for j in range(rows.checkpoints.shape[1]):
        passed = j < pending.clock[REACHED]
        rows.right_at[row, j] = rows.checkpoints[row, j] == NONE if passed else right


@kernel
def _is_right(spec: Spec, pending: PendingSamples, truth: int, answer: int) -> bool:
    """Return whether the answer is acceptable; in screening, whether every class by pending.mean is right."""
    if spec.screens:
        return _is_classified(spec, pending)
    if not spec.several or answer < 0:
        return answer == truth
    if not meets_all(spec, spec.kept, answer, pending.truth, pending.rail_truth):
        return False
    return is_acceptable(spec.region, spec.kept, spec.shares, spec.indifference, answer, truth, pending.truth)


@kernel
def _is_classified(spec: Spec, pending: PendingSamples) -> bool:
    return is_classified(spec, pending.mean, pending.rail_mean, pending.truth, pending.rail_truth)


@kernel
def _best_answer(spec: Spec, source: Source, mean: Array, unit: Array, rails: Array) -> int:
    for g in range(mean.shape[0]):
        for k in range(mean.shape[1]):
            unit[g, k] = (mean[g, k] - source.low) / source.width
            if spec.guardrails.present:
                for j in range(spec.guardrails.code.shape[0]):
                    rails[j, g, k] = (source.rail_means[j, g, k] - source.rail_low[j]) / source.rail_width[j]
    if spec.screens:
        for k in range(mean.shape[1]):
            if meets_all(spec, spec.region, k, unit, rails):
                return k
        return NONE
    return best_of(spec, unit, rails)


@kernel
def _clear(spec: Spec, buffers: RunBuffers) -> None:
    """Reset the state for a new replication.

    Cached results in Work have stamps with counts that never recur.
    """
    pending = buffers.pending
    copy_tables(spec, buffers.state, buffers.blank)
    for k in range(buffers.work.sample_changes.shape[0]):
        buffers.work.sample_changes[k] += 1
        buffers.work.outcome_changes[k] += 1
    buffers.work.changes[:] += 1
    pending.first[:] = -1
    pending.drawn[:] = 0
    pending.clock[:] = 0
    pending.peak[:] = -math.inf


@kernel
def copy_tables(spec: Spec, state: State, blank: State) -> None:
    """Make a state equal to another one."""
    _copy_table(state.n, blank.n)
    _copy_table(state.s, blank.s)
    _copy_table(state.ss, blank.ss)
    _copy_table(state.out, blank.out)
    _copy_table(state.track, blank.track)
    _copy_table(state.w, blank.w)
    _copy_table(state.bets, blank.bets)
    _copy_table(state.theta, blank.theta)
    if spec.guardrails.present:
        for j in range(spec.guardrails.code.shape[0]):
            _copy_table(state.rail_n[j], blank.rail_n[j])
            _copy_table(state.rail_s[j], blank.rail_s[j])
            _copy_table(state.rail_ss[j], blank.rail_ss[j])
            _copy_table(state.rail_bets[j], blank.rail_bets[j])
            _copy_table(state.rail_theta[j], blank.rail_theta[j])
    for i in range(state.clock.shape[0]):
        state.clock[i] = blank.clock[i]
    for i in range(state.level.shape[0]):
        state.level[i] = blank.level[i]


@kernel
def _copy_table(to: Array, table: Array) -> None:
    for g in range(table.shape[0]):
        for k in range(table.shape[1]):
            to[g, k] = table[g, k]
