"""Forecasts: runs of the procedure continued from the data at hand, each with means drawn from what the data
leave possible.

A forecast depends on the problem, the procedure and the outcomes alone: the procedure starts anew with the
counts, whatever it did before, so that the same data give the same forecast wherever they are looked at.

Runs go in strides: one decision of the procedure hands out a block of about half a percent of the samples so
far, and the stopping rule looks after each. That moves a stopping time by half a percent at most, and a run
over millions of samples takes about a thousand decisions. Random numbers come from their addresses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.compile import kernel
from evenhand.model.problem import Problem
from evenhand.model.unit_families import BERNOULLI, GAUSSIAN, POISSON
from evenhand.procedure.decide import check, next_cell
from evenhand.procedure.estimates import variance
from evenhand.procedure.randomness import DELAYS, four_normals
from evenhand.procedure.spec import ACTIVE, AGNOSTIC, BUDGET, PROPORTIONAL, Spec
from evenhand.procedure.state import (
    DECIDED,
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
    new_state,
    new_work,
    record,
)
from evenhand.simulation.outcome_laws import compile_truth
from evenhand.simulation.streams import Source, arrival, scenario_uniforms, total
from evenhand.study import Truth
from evenhand.verdicts.counts import ready
from evenhand.verdicts.forecast_statement import (
    CHANCES,
    NOTHING,
    RUNS,
    SEED,
    Forecast,
    settled_forecast,
    why_no_forecast,
)
from evenhand.verdicts.near_tie import suggest_indifference

if TYPE_CHECKING:
    from evenhand.live.projection import View

Array = NDArray[np.float64]

STRIDE = 200  # a block is this part of the samples so far
FIRST_FEW = 4.0  # the first outcomes of a cell, which are drawn one by one
FARTHEST = 100  # the horizon of a forecast, in multiples of the present samples
LEAST_FAR = 1_000_000  # the least horizon, if the cap of the procedure allows


def experiment_forecast(view: View) -> Forecast:
    """Return the forecast of a live experiment; open tickets count as lost."""
    settled = settled_forecast(view)
    return forecast(view.protocol.problem, view.protocol.spec, view.state) if settled is None else settled


def forecast(
    problem: Problem,
    spec: Spec,
    state: State,
    replications: int = RUNS,
    seed: int = SEED,
    means: ArrayLike | None = None,
) -> Forecast:
    """Return the forecast from these outcomes on, or why there is none.

    `means` (K x L) are taken for true if given; otherwise each run draws its own from the posterior.
    """
    start, body, work = ready(spec, state), new_state(spec), new_work(spec)
    told = int(start.clock[TOLD])
    if means is None and (why := why_no_forecast(spec, start)):
        return Forecast(told, next=_first_cells(spec, start), why_none=why)
    if _decides(spec, start, body, work):
        return nothing_more(problem, told)
    horizon = _horizon(spec, told)
    source = _source(problem, spec, start)
    known = None if means is None else np.ascontiguousarray(problem.check_means(means).T)
    further = np.full(replications, math.inf)
    shares = np.zeros(spec.phi.shape)
    for r in range(replications):
        truth = _possible_means(problem, spec, start, seed, r) if known is None else known
        _copy(start, body, work)
        stride_on(spec._replace(cap=horizon), source, truth, body, work, seed, r)
        if body.clock[STOPPED] == DECIDED:
            further[r] = min(int(body.clock[TOLD]), horizon) - told
        shares += (body.n - start.n) / max(float(body.clock[TOLD] - told), 1.0)
    where = shares.T / max(float(shares.sum()), 1e-300)
    unfinished = float(np.isinf(further).mean())
    found = Forecast(
        told, replications, _quantiles(further), unfinished, horizon - told, tuple(map(tuple, where.tolist()))
    )
    return (
        replace(found, suggestion=suggest_indifference(problem, spec, start)) if found.is_hopeless else found
    )


def nothing_more(problem: Problem, samples: int) -> Forecast:
    """Return the forecast for data that decide."""
    return Forecast(samples, more=NOTHING, next=tuple((0.0,) * problem.shape[1] for _ in problem.policies))


def _first_cells(spec: Spec, start: State) -> tuple[tuple[float, ...], ...] | None:
    """Return where samples go first, K x L shares, while cells lack initial ones."""
    short = np.maximum(spec.initial.T - start.n.T, 0.0)
    return tuple(map(tuple, (short / short.sum()).tolist())) if short.sum() > 0 else None


def _decides(spec: Spec, start: State, body: State, work: Work) -> bool:
    """Return whether these outcomes decide already."""
    _copy(start, body, work)
    if body.clock[EMPTY] > 0:
        return False
    check(spec, body, work)
    return bool(body.clock[STOPPED] == DECIDED)


def _quantiles(further: Array) -> Mapping[float, int | None]:
    """Return for each chance the samples within which this share of runs decides; None where it does not."""
    ordered = np.sort(further)
    found = {chance: float(ordered[math.ceil(chance * ordered.size - 1e-9) - 1]) for chance in CHANCES}
    return {chance: int(value) if math.isfinite(value) else None for chance, value in found.items()}


def _horizon(spec: Spec, told: int) -> int:
    """Return the number of samples at which continued runs are cut."""
    return spec.cap if spec.stopping == BUDGET else min(spec.cap, max(FARTHEST * told, LEAST_FAR))


def _source(problem: Problem, spec: Spec, state: State) -> Source:
    """Return the law of outcomes of the family; an unknown spread is the observed one."""
    middle = np.full(problem.shape, problem.family.low + 0.5 * problem.family.width)
    source = compile_truth(problem, Truth(means=tuple(map(tuple, middle.tolist()))))
    if not spec.unknown_variance:
        return source
    seen = np.array(
        [
            [variance(state, g, k) if state.n[g, k] >= 2 else 0.0 for k in range(state.n.shape[1])]
            for g in range(state.n.shape[0])
        ]
    )
    known = np.where(state.n >= 2, state.n, 0.0)
    pooled = float(np.average(seen, weights=known)) if known.sum() > 0 else 1.0
    return source._replace(sd=np.sqrt(np.where(state.n >= 3, seen, pooled)))


def _possible_means(problem: Problem, spec: Spec, state: State, seed: int, replication: int) -> Array:
    """Return means (L, K) in the user's units, drawn from the posterior under Jeffreys' prior.

    Its density is 1/sqrt(mu (1 - mu)) for Bernoulli means, 1/sqrt(mu) for Poisson, 1/mu for exponential and
    constant for Gaussian; an unknown variance is taken to be the observed one.
    """
    from scipy.special import betaincinv, gammaincinv, ndtri

    u = scenario_uniforms(seed, replication, state.n.size).reshape(state.n.shape)
    n, s = state.n / spec.phi, state.s / spec.phi
    empty = state.n == 0
    if spec.code == BERNOULLI:
        unit = betaincinv(s + 0.5, n - s + 0.5, u)
    elif spec.code == POISSON:
        unit = gammaincinv(s + 0.5, u) / np.maximum(n, 1.0)
    else:
        pooled = float(state.s.sum() / max(state.n.sum(), 1.0))
        mean = np.where(empty, pooled, state.s / np.maximum(state.n, 1.0))
        if spec.code == GAUSSIAN:
            spread = _source(problem, spec, state).sd ** 2 if spec.unknown_variance else spec.phi
            unit = mean + np.sqrt(spread / np.maximum(state.n, 1.0)) * ndtri(u)
        else:
            shape = np.maximum(n, 1.0)
            unit = mean * shape / gammaincinv(shape, u)
    return np.ascontiguousarray(problem.family.low + problem.family.width * unit)


def _copy(start: State, body: State, work: Work) -> None:
    """Reset the state; what `Work` caches is keyed by counts that do not occur again."""
    for target, origin in zip(body, start, strict=True):
        target[:] = origin
    work.sample_changes[:] += 1
    work.outcome_changes[:] += 1
    work.changes[:] += 1
    work.queue[0] = -1
    work.drawn[:] = math.nan
    work.top[:] = math.nan


@kernel
def stride_on(
    spec: Spec, source: Source, mean: Array, state: State, work: Work, seed: int, replication: int
) -> None:
    """Add blocks of samples until the rule stops or the cap is reached."""
    step = 0
    while state.clock[STOPPED] == RUNNING and state.clock[TOLD] < spec.cap:
        came = arrival(spec.arrivals, step, seed, replication) if spec.mode != ACTIVE else -1
        k, g = next_cell(spec, state, work, seed, replication, came if spec.mode == PROPORTIONAL else -1)
        if spec.mode == AGNOSTIC:
            g = came
        count = max(1, min(state.clock[TOLD] // STRIDE, spec.cap - state.clock[TOLD]))
        if state.n[g, k] < FIRST_FEW:
            count = 1  # the first outcomes of a cell are kept one by one
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
def _record_block(
    spec: Spec, source: Source, state: State, work: Work, k: int, g: int, unit: float, count: int, seed: int,
    step: int, replication: int,
) -> None:  # fmt: skip
    """Record a block of outcomes with this sum, as `state.record` does one by one."""
    if spec.unknown_variance:
        groups, own = state.n.shape[0], unit / count
        # their squared distances to their own mean: sd^2 times chi-squared, by Wilson and Hilferty's cube
        degrees = float(count - 1)
        z, _, _, _ = four_normals(seed, step, k * groups + g, replication, DELAYS)
        cube = max(1.0 - 2.0 / (9.0 * degrees) + z * math.sqrt(2.0 / (9.0 * degrees)), 0.0) ** 3
        centred = source.sd[g, k] * source.sd[g, k] * degrees * cube
        away = own - state.bets[FIRST * groups + g, k]
        state.bets[SHIFTED * groups + g, k] += count * away
        state.bets[SQUARES * groups + g, k] += centred + count * away * away
    state.n[g, k] += count
    state.s[g, k] += unit
    state.clock[TOLD] += count
    mark_outcomes_changed(work, k)
