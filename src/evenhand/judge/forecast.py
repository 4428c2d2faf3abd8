"""How many more samples, and where: runs continued from the data at hand, each with means drawn from what the
data leave possible.

A forecast goes in strides: one decision of the procedure hands out a block of about half a percent of the
samples so far, and the stopping rule looks after each. That moves a stopping time by half a percent at most,
and a run over millions of samples takes about a thousand decisions. Random numbers come from their
addresses, so the same data give the same forecast.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand._kernel import kernel
from evenhand.model.problem import Problem
from evenhand.model.units import BERNOULLI, GAUSSIAN, POISSON
from evenhand.procedure.decide import check, next_cell
from evenhand.procedure.estimates import variance
from evenhand.procedure.randomness import DELAYS, four_normals
from evenhand.procedure.spec import ACTIVE, AGNOSTIC, BUDGET, PROPORTIONAL, Spec
from evenhand.procedure.state import (
    ASKED,
    DECIDED,
    EMPTY,
    FIRST,
    PENDING,
    RUNNING,
    SHIFTED,
    SQUARES,
    STOPPED,
    TOLD,
    State,
    Work,
    hear,
    new_state,
    new_work,
    record,
)
from evenhand.sim.streams import Source, arrival, scenario_uniforms, total
from evenhand.sim.truths import compile_truth
from evenhand.study import Truth

Array = NDArray[np.float64]

CHANCES = (0.5, 0.7, 0.8, 0.9)
STRIDE = 200  # a block is this part of the samples so far
FIRST_FEW = 4.0  # so many outcomes of a cell are drawn one by one
FARTHEST = 100  # a forecast looks no further than so many times the present samples
LEAST_FAR = 1_000_000  # but always this far, if the procedure's own cap allows


@dataclass(frozen=True)
class Forecast:
    """Further samples by which so many in a hundred runs have decided, and where those samples go."""

    more: dict[float, int]
    unfinished: float  # share of runs undecided at the horizon; they count at it
    next: tuple[tuple[float, ...], ...]  # K x L, shares of the further samples
    horizon: int  # how many further samples the forecast looked ahead


def forecast(
    problem: Problem,
    spec: Spec,
    state: State,
    replications: int = 200,
    seed: int = 0,
    means: ArrayLike | None = None,
) -> Forecast:
    """From this state on. What is out and not yet told counts as lost.

    `means` (K x L) are taken for true if given; otherwise each run draws its own from the posterior.
    """
    told = int(state.clock[TOLD])
    horizon = _horizon(spec, told)
    start, body, work = _quiet(state), new_state(spec), new_work(spec)
    source = _source(problem, spec, state)
    known = None if means is None else np.ascontiguousarray(problem.check_means(means).T)
    further, finished = np.zeros(replications), np.zeros(replications, dtype=bool)
    shares = np.zeros(spec.phi.shape)
    for r in range(replications):
        truth = _possible_means(problem, spec, state, seed, r) if known is None else known
        _copy(start, body, work)
        stride_on(spec._replace(cap=horizon), source, truth, body, work, seed, r)
        finished[r] = body.clock[STOPPED] == DECIDED
        further[r] = min(int(body.clock[TOLD]), horizon) - told
        shares += (body.n - start.n) / max(float(body.clock[TOLD] - told), 1.0)
    more = {chance: int(np.quantile(further, chance, method="inverted_cdf")) for chance in CHANCES}
    where = shares.T / max(float(shares.sum()), 1e-300)
    return Forecast(more, float(1.0 - finished.mean()), tuple(map(tuple, where.tolist())), horizon - told)


def _horizon(spec: Spec, told: int) -> int:
    """The number of samples where a forecast gives up."""
    if spec.stopping == BUDGET:
        return spec.cap
    far = max(FARTHEST * told, LEAST_FAR)
    # data beyond the procedure's own cap can still be judged, and looked ahead from
    return min(spec.cap, far) if spec.cap > told else far


def _quiet(state: State) -> State:
    """A copy that runs, with nothing out."""
    tables: list[Any] = [np.array(part) for part in state]
    quiet = State(*tables)
    quiet.out[:] = 0.0
    quiet.clock[STOPPED] = RUNNING
    quiet.clock[PENDING] = 0
    quiet.clock[ASKED] = 0
    return quiet


def _source(problem: Problem, spec: Spec, state: State) -> Source:
    """The family's law of outcomes; a spread nobody knows is the one observed."""
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
    pooled = float(np.average(seen, weights=state.n)) if state.n.sum() > 0 else 1.0
    return source._replace(sd=np.sqrt(np.where(state.n >= 3, seen, pooled)))


def _possible_means(problem: Problem, spec: Spec, state: State, seed: int, replication: int) -> Array:
    """Means (L, K) in the user's units, drawn from the posterior under Jeffreys' prior."""
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
    """Begin again; whatever Work remembers is stamped with counts that never come again."""
    for target, origin in zip(body, start, strict=True):
        target[:] = origin
    work.touched[:] += 1
    work.heard[:] += 1
    work.queue[0] = -1
    work.drawn[:] = math.nan


@kernel
def stride_on(
    spec: Spec, source: Source, mean: Array, state: State, work: Work, seed: int, replication: int
) -> None:
    """Stride on until the rule stops or the cap is reached."""
    step = 0
    while state.clock[STOPPED] == RUNNING and state.clock[TOLD] < spec.cap:
        came = arrival(spec.arrivals, step, seed, replication) if spec.mode != ACTIVE else -1
        k, g = next_cell(spec, state, work, seed, replication, came if spec.mode == PROPORTIONAL else -1)
        if spec.mode == AGNOSTIC:
            g = came
        count = max(1, min(state.clock[TOLD] // STRIDE, spec.cap - state.clock[TOLD]))
        if state.n[g, k] < FIRST_FEW:
            count = 1  # what a cell begins with is remembered outcome by outcome
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
    """`state.record` for a block of outcomes with this sum."""
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
    hear(work, k)
