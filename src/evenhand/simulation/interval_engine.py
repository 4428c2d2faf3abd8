"""The compiled loop of runs in intervals: shares, units, counts and evidence at interval ends.

An interval has a fixed number of units. Each belongs to a group at random and gets a policy by the shares. An
interval is counted when `lag` further ones have ended; an outcome that is not known by then is never counted.
The shares of the next interval follow from the counts so far exactly as in a live experiment: with the same
counts a live experiment publishes the same shares and stops at the same time.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import Axes, kernel
from evenhand.errors import BadInput
from evenhand.model.region import PerCell, PerGroup
from evenhand.procedure.decide import check
from evenhand.procedure.evidence.pair_bets import add_ones_to_pairs, squares_row
from evenhand.procedure.interval_steps import add_guardrail_sums, add_sums, pick_virtually, picks_in_a_group
from evenhand.procedure.randomness import ARRIVALS, uniform
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import (
    ASKED,
    DECISIONS,
    EMPTY,
    SHORT,
    STARTED,
    TOLD,
    State,
    Work,
    mark_outcomes_changed,
    new_state,
    new_work,
)
from evenhand.simulation.buffers import Checkpoints, Rows, RunBuffers
from evenhand.simulation.engine import (
    begin,
    copy_tables,
    finish,
    is_running,
    note_checkpoints,
    note_peak,
)
from evenhand.simulation.streams import (
    COIN,
    ENDS,
    Source,
    arrival,
    is_lost,
    lag,
    outcome,
    rail_outcome,
)
from evenhand.study import Study

Array = NDArray[np.float64]


class IntervalPlan(NamedTuple):
    """The settings of intervals, for the kernels."""

    arrivals: PerGroup  # share of each group among the units
    volumes: PerGroup  # expected units of each group in an interval
    units: int  # units of an interval
    floor: float  # least share of a policy
    picks: int  # virtual picks in every group
    lag: int  # intervals that end between the end of one and its counting


class OpenCounts(NamedTuple):
    """Sums of intervals that are not counted yet, each in the slot of its number; and scratch."""

    shares: Annotated[Array, Axes("intervals", "L", "K")]  # of the policies
    n: Annotated[Array, Axes("intervals", "L", "K")]
    s: Annotated[Array, Axes("intervals", "L", "K")]
    ss: Annotated[Array, Axes("intervals", "L", "K")]
    rail_n: Annotated[Array, Axes("intervals", "M", "L", "K")]
    rail_s: Annotated[Array, Axes("intervals", "M", "L", "K")]
    rail_ss: Annotated[Array, Axes("intervals", "M", "L", "K")]
    picked: PerCell
    each: PerGroup
    estimate: PerCell  # before an interval, for linear bets


class VirtualBuffers(NamedTuple):
    """The state on which the rule picks virtually."""

    state: State
    work: Work


def plan_of_intervals(study: Study, spec: Spec, source: Source) -> IntervalPlan | None:
    """Return the settings of intervals, None where the study has none; refuse what cannot be simulated."""
    settings = study.procedure.interval
    if settings is None:
        return None
    volumes = settings.volumes(study.problem)
    units = max(round(float(volumes.sum())), 1)
    if source.lag_least >= (settings.lag + 1) * units:
        raise BadInput(
            f"outcomes come {source.lag_least:,} units later, after their interval of {units:,} units is "
            "counted; give interval a longer delay."
        )
    if spec.linear_bets and source.law not in (COIN, ENDS):
        raise BadInput(
            "linear bets in intervals are simulated for outcomes at the ends of their range, which are given "
            "by means; leave evidence out, or give means of bernoulli or bounded outcomes."
        )
    picks = picks_in_a_group(spec)
    return IntervalPlan(volumes / volumes.sum(), volumes, units, settings.floor, picks, settings.lag)


def new_open_counts(spec: Spec, plan: IntervalPlan) -> OpenCounts:
    """Return empty sums of the intervals that may be open at once."""
    slots, shape = plan.lag + 2, spec.phi.shape
    shares, n, s, ss = (np.zeros((slots, *shape)) for _ in range(4))
    rail_n, rail_s, rail_ss = (np.zeros((slots, *spec.guardrails.phi.shape)) for _ in range(3))
    scratch = np.zeros(shape), np.zeros(shape[0]), np.zeros(shape)
    return OpenCounts(shares, n, s, ss, rail_n, rail_s, rail_ss, *scratch)


def new_virtual_buffers(spec: Spec) -> VirtualBuffers:
    """Return the arrays for virtual picks."""
    return VirtualBuffers(new_state(spec), new_work(spec))


@kernel
def run_interval_block(
    spec: Spec,
    plan: IntervalPlan,
    source: Source,
    seed: int,
    first: int,
    buffers: RunBuffers,
    opened: OpenCounts,
    virtual: VirtualBuffers,
    checkpoints: Checkpoints,
    rows: Rows,
) -> None:
    """Run replications first, first + 1, ... until the rows are full."""
    for row in range(rows.samples.shape[0]):
        mean = source.means[row if source.means.shape[0] > 1 else 0]
        truth = begin(spec, source, mean, buffers)
        number = 1
        _publish(spec, plan, seed, first + row, buffers, opened, virtual, number)
        while is_running(spec, buffers.state):
            _serve(spec, plan, source, mean, seed, first + row, buffers, opened, number)
            if number > plan.lag:
                _close(spec, buffers, opened, (number - plan.lag) % opened.n.shape[0], truth)
                note_checkpoints(spec, buffers, checkpoints, rows, row)
            if is_running(spec, buffers.state):
                number += 1
                _publish(spec, plan, seed, first + row, buffers, opened, virtual, number)
        finish(spec, buffers, truth, rows, row)


@kernel
def _serve(
    spec: Spec,
    plan: IntervalPlan,
    source: Source,
    mean: Array,
    seed: int,
    replication: int,
    buffers: RunBuffers,
    opened: OpenCounts,
    number: int,
) -> None:
    """Assign the units of an interval, and add the outcomes that are known when it is counted."""
    state, pending, slot = buffers.state, buffers.pending, number % opened.n.shape[0]
    counted = (number + plan.lag) * plan.units
    for _ in range(plan.units):
        unit = state.clock[ASKED]
        state.clock[ASKED] += 1
        g = arrival(plan.arrivals, unit, seed, replication)
        k = _assigned(opened.shares[slot, g], uniform(seed, unit, 1, replication, ARRIVALS))
        draw = pending.drawn[g, k]
        pending.drawn[g, k] += 1
        if is_lost(source, unit, seed, replication) or unit + lag(source, unit, seed, replication) >= counted:
            continue
        x = (outcome(source, mean, k, g, draw, seed, replication) - source.low) / source.width
        opened.n[slot, g, k] += 1.0
        opened.s[slot, g, k] += x
        opened.ss[slot, g, k] += x * x
        if spec.guardrails.present:
            for j in range(spec.guardrails.code.shape[0]):
                seen = rail_outcome(source, j, k, g, draw, seed, replication)
                unit = (seen - source.rail_low[j]) / source.rail_width[j]
                opened.rail_n[slot, j, g, k] += 1.0
                opened.rail_s[slot, j, g, k] += unit
                opened.rail_ss[slot, j, g, k] += unit * unit


@kernel
def _assigned(shares: Array, u: float) -> int:
    """Return the policy of a unit, by the shares of its group."""
    total = 0.0
    for k in range(shares.shape[0] - 1):
        total += shares[k]
        if u < total:
            return k
    return int(shares.shape[0]) - 1


@kernel
def _close(spec: Spec, buffers: RunBuffers, opened: OpenCounts, slot: int, truth: int) -> None:
    """Count an interval and check the stopping rule."""
    state, work = buffers.state, buffers.work
    groups, policies = spec.phi.shape
    if spec.linear_bets:
        _bet(spec, state, opened, slot)
    for k in range(policies):
        for g in range(groups):
            n = opened.n[slot, g, k]
            if n == 0.0:
                continue
            add_sums(spec, state, k, g, n, opened.s[slot, g, k], opened.ss[slot, g, k])
            if state.n[g, k] == 0.0:
                state.clock[EMPTY] -= 1
            state.n[g, k] += n
            state.s[g, k] += opened.s[slot, g, k]
            state.ss[g, k] += opened.ss[slot, g, k]
            state.clock[TOLD] += int(n)
            for j in range(opened.rail_n.shape[1]):
                rail_n, rail_s = opened.rail_n[slot, j, g, k], opened.rail_s[slot, j, g, k]
                add_guardrail_sums(spec, state, j, k, g, rail_n, rail_s, opened.rail_ss[slot, j, g, k])
                state.rail_n[j, g, k] += rail_n
                state.rail_s[j, g, k] += rail_s
            mark_outcomes_changed(work, k)
    if state.clock[EMPTY] == 0 or state.clock[TOLD] >= spec.cap:
        check(spec, state, work)
        if state.clock[EMPTY] == 0:
            note_peak(spec, state, buffers.pending, truth)


@kernel
def _bet(spec: Spec, state: State, opened: OpenCounts, slot: int) -> None:
    """Add an interval to the linear bets, with tilts from the outcomes before it."""
    groups, policies = spec.phi.shape
    for k in range(policies):
        for g in range(groups):
            n, ones = opened.n[slot, g, k], opened.s[slot, g, k]
            opened.estimate[g, k] = (0.5 + state.s[g, k]) / (state.n[g, k] + 1.0)
            if n > 0.0:
                add_ones_to_pairs(
                    state.bets, state.n, state.s, spec.shares, spec.bounded, k, g, ones, n - ones
                )
    for k in range(policies):
        for g in range(groups):
            n, s, at = opened.n[slot, g, k], opened.s[slot, g, k], opened.estimate[g, k]
            state.bets[squares_row(groups, g), k] += opened.ss[slot, g, k] - 2.0 * at * s + n * at * at


@kernel
def _publish(
    spec: Spec,
    plan: IntervalPlan,
    seed: int,
    replication: int,
    buffers: RunBuffers,
    opened: OpenCounts,
    virtual: VirtualBuffers,
    number: int,
) -> None:
    """Empty the slot of an interval, and derive its shares by virtual picks; open intervals are pending."""
    groups, policies = spec.phi.shape
    slots = opened.n.shape[0]
    slot = number % slots
    for g in range(groups):
        for k in range(policies):
            opened.n[slot, g, k], opened.s[slot, g, k], opened.ss[slot, g, k] = 0.0, 0.0, 0.0
            opened.picked[g, k] = 1.0
            for j in range(opened.rail_n.shape[1]):
                opened.rail_n[slot, j, g, k], opened.rail_s[slot, j, g, k] = 0.0, 0.0
                opened.rail_ss[slot, j, g, k] = 0.0
    if buffers.state.clock[EMPTY] == 0:
        _make_ready(spec, buffers, virtual)
        state = virtual.state
        for g in range(groups):
            opened.each[g] = plan.volumes[g] / plan.picks
            for k in range(policies):
                opened.picked[g, k] = 0.0
                for before in range(max(number - plan.lag, 1), number):
                    state.out[g, k] += plan.volumes[g] * opened.shares[before % slots, g, k]
        state.clock[DECISIONS] = (number - 1) * plan.picks * groups
        pick_virtually(spec, state, virtual.work, seed, replication, plan.picks, opened.each, opened.picked)
    for g in range(groups):
        total = 0.0
        for k in range(policies):
            total += opened.picked[g, k]
        for k in range(policies):
            opened.shares[slot, g, k] = (
                plan.floor + (1.0 - policies * plan.floor) * opened.picked[g, k] / total
            )


@kernel
def _make_ready(spec: Spec, buffers: RunBuffers, virtual: VirtualBuffers) -> None:
    """Set the virtual state to that of a procedure that has collected the counts itself."""
    state, counts = virtual.state, buffers.state
    copy_tables(spec, state, buffers.blank)
    for k in range(counts.n.shape[1]):
        mark_outcomes_changed(virtual.work, k)
    short = 0
    for g in range(counts.n.shape[0]):
        for k in range(counts.n.shape[1]):
            state.n[g, k], state.s[g, k] = counts.n[g, k], counts.s[g, k]
            short += int(max(spec.initial[g, k] - counts.n[g, k], 0.0))
    for r in range(counts.bets.shape[0]):
        for k in range(counts.bets.shape[1]):
            state.bets[r, k] = counts.bets[r, k]
    if spec.guardrails.present:
        for j in range(counts.rail_n.shape[0]):
            for g in range(counts.n.shape[0]):
                for k in range(counts.n.shape[1]):
                    state.rail_n[j, g, k] = counts.rail_n[j, g, k]
                    state.rail_s[j, g, k] = counts.rail_s[j, g, k]
        for j in range(counts.rail_bets.shape[0]):
            for r in range(counts.rail_bets.shape[1]):
                for k in range(counts.n.shape[1]):
                    state.rail_bets[j, r, k] = counts.rail_bets[j, r, k]
    state.clock[TOLD], state.clock[EMPTY] = counts.clock[TOLD], counts.clock[EMPTY]
    state.clock[STARTED], state.clock[SHORT] = spec.initial_total, short
