"""Forecasts: runs of the procedure continued from the existing data, each with means drawn from what the data
leave possible.

A forecast depends on the problem, the procedure and the outcomes alone: the procedure starts again from the
counts, without its earlier memory, so that the same data give the same forecast in every command.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.model.families import Family
from evenhand.model.problem import Problem
from evenhand.model.unit_families import BERNOULLI, GAUSSIAN, POISSON
from evenhand.procedure.decide import check
from evenhand.procedure.estimates import variance
from evenhand.procedure.guardrail_rows import guardrail_problem, metric_spec, metric_state
from evenhand.procedure.spec import BUDGET, Spec
from evenhand.procedure.state import (
    DECIDED,
    EMPTY,
    ITEMS,
    STOPPED,
    TOLD,
    State,
    Work,
    new_state,
    new_work,
)
from evenhand.simulation.outcome_laws import compile_truth
from evenhand.simulation.streams import Source, scenario_uniforms
from evenhand.study import Truth
from evenhand.verdicts.counts import ready
from evenhand.verdicts.forecast_runs import stride_on
from evenhand.verdicts.forecast_statement import (
    CHANCES,
    NOTHING,
    RUNS,
    SEED,
    Forecast,
    settled_forecast,
    why_no_forecast,
)
from evenhand.verdicts.item_forecast import Shared, continue_on_items, dependent, laws_at, shared_by
from evenhand.verdicts.near_tie import suggest_indifference

if TYPE_CHECKING:
    from evenhand.live.projection import View

Array = NDArray[np.float64]

# continues a run: means of the outcome and of guard-rails, state, scratch, seed, replication
Continuation = Callable[[Array, Array, State, Work, int, int], None]

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
    guardrails: Mapping[str, ArrayLike] | None = None,
    agreement: float | None = None,
) -> Forecast:
    """Return the forecast from these outcomes on, or why there is none.

    `means` (K x L), and `guardrails` by name, are taken for true if given; otherwise each run draws its own
    from the posterior. `agreement` is how often two policies agree on a shared item; estimated if None.
    """
    start, body, work = ready(spec, state), new_state(spec), new_work(spec)
    told, start.clock[ITEMS] = int(start.clock[TOLD]), state.clock[ITEMS]
    if means is None and (why := why_no_forecast(spec, start)):
        return Forecast(told, next=_first_cells(spec, start), why_none=why)
    if _decides(spec, start, body, work):
        return nothing_more(problem, told)
    known = None if means is None else _given_means(problem, means, guardrails)
    shared = None
    if spec.shared_items:
        _copy(body, start, work)  # the group of the next item depends on the last check
        shared = shared_by(spec, start, None if known is None else known[0], agreement)
    horizon = _horizon(spec, told)
    further, items = np.full(replications, math.inf), np.full(replications, math.inf)
    shares, proceed = np.zeros(spec.phi.shape), _continuation(problem, spec, start, horizon, shared)
    for r in range(replications):
        truth, rails = known or _possible_means(problem, spec, start, seed, r, shared)
        _copy(start, body, work)
        proceed(truth, rails, body, work, seed, r)
        if body.clock[STOPPED] == DECIDED:
            further[r] = min(int(body.clock[TOLD]), horizon) - told
            items[r] = body.clock[ITEMS] - start.clock[ITEMS]
        shares += (body.n - start.n) / max(float(body.clock[TOLD] - told), 1.0)
    where = tuple(map(tuple, (shares.T / max(float(shares.sum()), 1e-300)).tolist()))
    unfinished = float(np.isinf(further).mean())
    found = Forecast(told, replications, _quantiles(further), unfinished, horizon - told, where)
    if shared is not None:  # a suggestion is about samples with items of their own
        return replace(found, items=_quantiles(items))
    return replace(found, suggestion=suggest_indifference(problem, spec, start)) if found.is_long else found


def _continuation(
    problem: Problem, spec: Spec, start: State, horizon: int, shared: Shared | None
) -> Continuation:
    """Return the function that continues a run at given means to the horizon, by items or by samples."""
    spec = spec._replace(cap=horizon)
    source, present = _source(problem, spec, start), _present(start)

    def by_items(truth: Array, rails: Array, body: State, work: Work, seed: int, replication: int) -> None:
        assert shared is not None
        continue_on_items(spec, *laws_at(truth, shared.rho), source, truth, body, work, seed, replication)

    def by_samples(truth: Array, rails: Array, body: State, work: Work, seed: int, replication: int) -> None:
        stride_on(spec, source, truth, rails, present, body, work, seed, replication)

    return by_samples if shared is None else by_items


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


def _present(state: State) -> Array:
    """Return the share of the samples that have an outcome of each guard-rail; it stays as it was."""
    return (
        np.asarray(state.rail_n.sum(axis=(1, 2)) / state.n.sum())
        if state.n.sum() > 0
        else np.ones(len(state.rail_n))
    )


def _source(problem: Problem, spec: Spec, state: State) -> Source:
    """Return the laws of outcomes of the families; an unknown spread is the observed one."""

    def middle(family: Family) -> list[list[float]]:
        return np.full(problem.shape, family.low + 0.5 * family.width).tolist()

    rails = {rail.name: middle(rail.family) for rail in problem.guardrails}
    truth = Truth(tuple(map(tuple, middle(problem.family))), guardrails=rails or None)
    source = compile_truth(problem, truth)
    if spec.unknown_variance:
        source = source._replace(sd=_observed_sd(state))
    for j in np.flatnonzero(spec.guardrails.unknown_variance):
        source.rail_sd[j] = _observed_sd(metric_state(state, int(j)))
    return source


def _observed_sd(state: State) -> Array:
    """Return the standard deviation in every cell, (L, K); the pooled one where there are few outcomes."""
    seen = np.array(
        [
            [variance(state, g, k) if state.n[g, k] >= 2 else 0.0 for k in range(state.n.shape[1])]
            for g in range(state.n.shape[0])
        ]
    )
    known = np.where(state.n >= 2, state.n, 0.0)
    pooled = float(np.average(seen, weights=known)) if known.sum() > 0 else 1.0
    return np.sqrt(np.where(state.n >= 3, seen, pooled))


def _given_means(
    problem: Problem, means: ArrayLike, guardrails: Mapping[str, ArrayLike] | None
) -> tuple[Array, Array]:
    """Return given means of the outcome, (L, K), and of the guard-rails, (M, L, K), checked."""
    tables = [table.T for table in problem.check_guardrail_means(guardrails)]
    policies, groups = problem.shape
    rails = np.array(tables, dtype=float).reshape(len(tables), groups, policies)
    return np.ascontiguousarray(problem.check_means(means).T), rails


def _possible_means(
    problem: Problem, spec: Spec, state: State, seed: int, replication: int, shared: Shared | None = None
) -> tuple[Array, Array]:
    """Return means of the outcome (L, K) and of the guard-rails (M, L, K), drawn from their posteriors."""
    rails = len(problem.guardrails)
    u = scenario_uniforms(seed, replication, (rails + 1) * state.n.size).reshape(rails + 1, *state.n.shape)
    drawn = np.zeros(state.rail_n.shape)
    for j in range(rails):
        own, told = metric_spec(problem, spec, j), metric_state(state, j)
        drawn[j] = _posterior_draw(guardrail_problem(problem, j), own, told, u[j + 1])
    own_u = u[0] if shared is None else dependent(u[0], shared)
    return _posterior_draw(problem, spec, state, own_u), drawn


def _posterior_draw(problem: Problem, spec: Spec, state: State, u: Array) -> Array:
    """Return means (L, K) in the user's units, drawn from the posterior under Jeffreys' prior.

    Its density is 1/sqrt(mu (1 - mu)) for Bernoulli means, 1/sqrt(mu) for Poisson, 1/mu for exponential and
    constant for Gaussian; an unknown variance is taken to be the observed one. `u` holds uniforms, (L, K).
    """
    from scipy.special import betaincinv, gammaincinv, ndtri

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
            spread = _observed_sd(state) ** 2 if spec.unknown_variance else spec.phi
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
