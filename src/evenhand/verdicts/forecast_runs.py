"""Kernels that continue a run of the procedure from given outcomes, in blocks of samples.

One decision of the procedure assigns a block of about half a percent of the samples so far, and the
stopping rule is evaluated after each. That moves a stopping time by half a percent at most, and a run over
millions of samples takes about a thousand decisions. Random numbers come from their addresses.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.region import PerCell
from evenhand.model.unit_families import GAUSSIAN
from evenhand.procedure.decide import check, next_cell
from evenhand.procedure.evidence.pair_bets import record_block_of_bets, record_gaussian_bets
from evenhand.procedure.guardrail_spec import PerMetric, PerMetricCell
from evenhand.procedure.randomness import DELAYS, standard_normal, uniform
from evenhand.procedure.spec import ACTIVE, AGNOSTIC, PROPORTIONAL, Spec
from evenhand.procedure.state import (
    EMPTY,
    FIRST,
    RUNNING,
    SHIFTED,
    SQUARES,
    STOPPED,
    TOLD,
    State,
    Work,
    mark_outcomes_changed,
    record,
    record_guardrail,
)
from evenhand.simulation.streams import Source, arrival, binomial, rail_total, total

Array = NDArray[np.float64]

STRIDE = 200  # a block is this part of the samples so far
FIRST_FEW = 4.0  # the first outcomes of a cell, which are drawn one by one


@kernel
def stride_on(
    spec: Spec, source: Source, mean: PerCell, rails: PerMetricCell, present: PerMetric, state: State,
    work: Work, seed: int, replication: int,
) -> None:  # fmt: skip
    """Add blocks of samples until the rule stops or the cap is reached.

    `mean` and `rails` are the means of the outcome and of the guard-rails, `present` the shares of samples
    with an outcome of each guard-rail.
    """
    step = 0
    while state.clock[STOPPED] == RUNNING and state.clock[TOLD] < spec.cap:
        came = arrival(spec.arrivals, step, seed, replication) if spec.mode != ACTIVE else -1
        k, g = next_cell(spec, state, work, seed, replication, came if spec.mode == PROPORTIONAL else -1)
        if spec.mode == AGNOSTIC:
            g = came
        count = max(1, min(state.clock[TOLD] // STRIDE, spec.cap - state.clock[TOLD]))
        if state.n[g, k] < FIRST_FEW or _has_few_of_a_guardrail(spec, state, k, g):
            count = 1  # the first outcomes of a cell are kept one by one
        if spec.guardrails.present:
            for j in range(spec.guardrails.code.shape[0]):
                _record_guardrail_block(
                    spec, source, rails, present[j], state, j, k, g, count, step, seed, replication
                )
        x = total(source, mean, k, g, step, count, seed, replication)
        unit = (x - count * source.low) / source.width
        if count == 1:
            record(spec, state, work, k, g, unit, False)
        else:
            _record_block(spec, source, state, work, k, g, unit, count, seed, step, replication)
        step += 1
        if state.clock[EMPTY] == 0:
            check(spec, state, work)


@kernel
def _has_few_of_a_guardrail(spec: Spec, state: State, k: int, g: int) -> bool:
    """Return whether a cell has few outcomes of a guard-rail."""
    few = False
    if spec.guardrails.present:
        for j in range(spec.guardrails.code.shape[0]):
            few = few or state.rail_n[j, g, k] < FIRST_FEW
    return few


@kernel
def _record_guardrail_block(
    spec: Spec, source: Source, rails: Array, present: float, state: State, j: int, k: int, g: int,
    count: int, step: int, seed: int, replication: int,
) -> None:  # fmt: skip
    """Record the outcomes of guard-rail j of a block of samples; some may be missing, as before."""
    metrics, groups, policies = rails.shape
    cell = (j * policies + k) * groups + g
    if present < 1.0:
        u = uniform(seed, step, cell + (metrics + 1) * groups * policies, replication, DELAYS)
        count = int(binomial(count, present, u))
    if count == 0:
        return
    x = rail_total(source, rails, j, k, g, step, count, seed, replication)
    unit = (x - count * source.rail_low[j]) / source.rail_width[j]
    if count == 1:
        record_guardrail(spec, state, j, k, g, unit)
        return
    if spec.guardrails.has_unknown_variance and spec.guardrails.unknown_variance[j]:
        z = standard_normal(seed, step, cell + groups * policies, replication, DELAYS)
        _add_squares(state.rail_bets[j], source.rail_sd[j, g, k], k, g, unit, count, z)
    state.rail_n[j, g, k] += count
    state.rail_s[j, g, k] += unit


@kernel
def _add_squares(bets: Array, sd: float, k: int, g: int, unit: float, count: int, z: float) -> None:
    """Add a block's distances to the first outcome of its cell, and their squares.

    Its squared distances to its own mean are sd^2 times chi-squared, by Wilson and Hilferty's cube of `z`.
    """
    groups, own, degrees = bets.shape[0] // 5, unit / count, float(count - 1)
    cube = max(1.0 - 2.0 / (9.0 * degrees) + z * math.sqrt(2.0 / (9.0 * degrees)), 0.0) ** 3
    centred = sd * sd * degrees * cube
    away = own - bets[FIRST * groups + g, k]
    bets[SHIFTED * groups + g, k] += count * away
    bets[SQUARES * groups + g, k] += centred + count * away * away


@kernel
def _record_block(
    spec: Spec, source: Source, state: State, work: Work, k: int, g: int, unit: float, count: int, seed: int,
    step: int, replication: int,
) -> None:  # fmt: skip
    """Record a block of outcomes with this sum, as `state.record` does one by one."""
    if spec.unknown_variance:
        z = standard_normal(seed, step, k * state.n.shape[0] + g, replication, DELAYS)
        _add_squares(state.bets, source.sd[g, k], k, g, unit, count, z)
    if spec.linear_bets and spec.code == GAUSSIAN:
        record_gaussian_bets(state.bets, state.n, spec.phi, spec.shares, k, g, unit, float(count))
    elif spec.linear_bets:
        record_block_of_bets(state.bets, state.n, state.s, spec.shares, spec.bounded, k, g, unit, count)
    state.n[g, k] += count
    state.s[g, k] += unit
    state.clock[TOLD] += count
    mark_outcomes_changed(work, k)
