"""Estimates from the counts, policy by policy, and the leader by these estimates."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.unit_families import BERNOULLI, GAUSSIAN, POISSON
from evenhand.model.unit_families import variance as unit_variance
from evenhand.procedure.acceptable import by_estimates, easiest, update_summary
from evenhand.procedure.guardrails import control_of, has_control, margin_of, state_of
from evenhand.procedure.likelihood_bounds import (
    OWNER,
    discard,
    first_best,
    first_best_of_blocks,
    lower_bounds,
)
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import NONE, SHIFTED, SQUARES, State, Work, mark_samples_changed
from evenhand.theory.inner import score

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

# share of the other cells' variance that is assumed for a cell whose outcomes are all equal
LEAST_VARIANCE = 1e-12


@kernel
def refresh(spec: Spec, state: State, work: Work, pending_counts: bool) -> int:
    """def:goal at eq:est_performance: update estimates, return the leader or NONE.

    Where several answers may be acceptable, the leader is the one that seems easiest to certify; the best is
    work.lead[0].
    `pending_counts`: pending samples count in the weights v (as needed for the allocation, not
    for the evidence).
    """
    if spec.unknown_variance:
        _pool(state, work, work.lacking, work.pooled)
    if spec.guardrails.present and spec.guardrails.has_unknown_variance:
        _pool_guardrails(spec, state, work)
    waiting = work.queue[0]
    work.queue[0] = 0
    if waiting < 0:
        for k in range(spec.phi.shape[1]):
            _estimate(spec, state, work, k, pending_counts)
        _place_all(spec, work)
        work.lead[0] = _leading(spec, work)
        return easiest(spec, work, by_estimates(work), work.lead[0]) if spec.several else work.lead[0]
    control_moved = False
    for j in range(1, waiting + 1):
        k = work.queue[j]
        control_moved = control_moved or k == control_of(spec)
        _estimate(spec, state, work, k, pending_counts)
        if k == work.lead[0]:
            work.lead[0] = _leading(spec, work)
        elif work.margin[k] >= 0.0 and _goes_before(work, k, work.lead[0]):
            work.lead[0] = k
    if has_control(spec) and control_moved:
        _place_all(spec, work)
        work.lead[0] = _leading(spec, work)
    return easiest(spec, work, by_estimates(work), work.lead[0]) if spec.several else work.lead[0]


@kernel
def _place_all(spec: Spec, work: Work) -> None:
    """Compute the margins of all policies again, from the control's means, if bounds are relative."""
    if has_control(spec):
        for k in range(spec.phi.shape[1]):
            work.margin[k] = margin_of(spec, spec.region, k, work.mean, work.rail_mean)
            if spec.many:
                discard(work, k)
            if spec.several:
                update_summary(spec, work, by_estimates(work), k)


@kernel
def _leading(spec: Spec, work: Work) -> int:
    """Return the first feasible policy with the highest score, or NONE."""
    return first_best_of_blocks(work) if spec.many else first_best(work, 0, work.score.size)


@kernel
def _goes_before(work: Work, k: int, leader: int) -> bool:
    """Return whether feasible policy k leads before `leader`; the lower index wins ties."""
    if leader == NONE or work.score[k] > work.score[leader]:
        return True
    return k < leader and work.score[k] == work.score[leader]


@kernel
def _estimate(spec: Spec, state: State, work: Work, k: int, pending_counts: bool) -> None:
    groups = spec.phi.shape[0]
    work.floor[k] = -math.inf
    for g in range(groups):
        n = state.n[g, k]
        mean = state.s[g, k] / n if n > 0.0 else _before_data(spec.code)
        counted = n + state.out[g, k] if pending_counts else n
        phi = dispersion(spec, state, work.pooled[0], g, k)
        v = counted / phi
        if k == work.bound_state[OWNER] or (k == control_of(spec) and work.bound_state[OWNER] != NONE):
            lower_bounds(spec.code, work, g, k, n, mean, v)
        work.mean[g, k], work.v[g, k], work.n_estimated[g, k] = mean, v, n
        work.middle[g, k], work.spread[g, k] = _reach(spec.code, mean, max(n, 1.0) / phi)
    if spec.guardrails.present:
        _estimate_guardrails(spec, state, work, k, pending_counts)
    work.margin[k] = margin_of(spec, spec.region, k, work.mean, work.rail_mean)
    work.score[k] = score(spec.region, spec.shares, k, work.mean)
    if spec.many:
        discard(work, k)
    if spec.several:
        _note_noise(spec, state, work, k)
        update_summary(spec, work, by_estimates(work), k)


@kernel
def _estimate_guardrails(spec: Spec, state: State, work: Work, k: int, pending_counts: bool) -> None:
    """Estimate the means of every guard-rail for policy k."""
    for j in range(spec.guardrails.code.shape[0]):
        code = spec.guardrails.code[j]
        for g in range(spec.phi.shape[0]):
            n, phi = state.rail_n[j, g, k], rail_dispersion(spec, state, work, j, g, k)
            mean = state.rail_s[j, g, k] / n if n > 0.0 else _before_data(code)
            work.rail_mean[j, g, k] = mean
            work.rail_v[j, g, k] = (n + state.out[g, k] if pending_counts and n > 0.0 else n) / phi
            if spec.several:
                work.rail_noise[j, g, k] = phi * _variance_of_one(code, mean, max(n, 1.0) / phi)


@kernel
def rail_dispersion(spec: Spec, state: State, work: Work, j: int, g: int, k: int) -> float:
    """Return phi of a cell's outcomes of guard-rail j; the estimated variance where it is unknown."""
    if spec.guardrails.has_unknown_variance and spec.guardrails.unknown_variance[j]:
        return _estimated_dispersion(state_of(state, j), work.rail_pooled[j], g, k)
    return spec.guardrails.phi[j, g, k]


@kernel
def _note_noise(spec: Spec, state: State, work: Work, k: int) -> None:
    """Compute the variance of single outcomes of policy k, and the standard deviation of its score."""
    work.score_sd[k] = 0.0
    for g in range(spec.phi.shape[0]):
        phi = dispersion(spec, state, work.pooled[0], g, k)
        one = _variance_of_one(spec.code, work.mean[g, k], max(state.n[g, k], 1.0) / phi)
        work.noise[g, k] = phi * one
        work.score_sd[k] += spec.shares[g] * math.sqrt(phi * one)


@kernel
def _reach(code: int, mean: float, n: float) -> tuple[float, float]:
    """Return the centre and spread of a cell's posterior, to bound a draw (see `posterior`)."""
    if code == GAUSSIAN:
        return mean, 1.0 / math.sqrt(n)
    if code == BERNOULLI:
        return (n * mean + 0.375) / (n + 0.75), 0.5 / math.sqrt(n + 0.5)
    return mean, 0.0


@kernel
def _variance_of_one(code: int, mean: float, n: float) -> float:
    """Return the variance at the estimate, moved inside the domain: on its boundary it would be 0."""
    if code == BERNOULLI:
        mean = (n * mean + 0.5) / (n + 1.0)
    elif code == POISSON:
        mean += 0.5 / n
    return unit_variance(code, mean)


@kernel
def _before_data(code: int) -> float:
    """Return a mean inside the domain for a cell without data; its weight is 0."""
    if code == GAUSSIAN:
        return 0.0
    return 0.5 if code == BERNOULLI else 1.0


@kernel
def dispersion(spec: Spec, state: State, pooled: float, g: int, k: int) -> float:
    """Return phi of a cell; where it is unknown, the estimated variance, or `pooled`."""
    if not spec.unknown_variance:
        return spec.phi[g, k]
    return _estimated_dispersion(state, pooled, g, k)


@kernel
def _estimated_dispersion(state: State, pooled: float, g: int, k: int) -> float:
    if state.n[g, k] < 2.0:
        return pooled
    own = variance(state, g, k)
    return own if own > 0.0 else LEAST_VARIANCE * pooled


@kernel
def _pool_guardrails(spec: Spec, state: State, work: Work) -> None:
    for j in range(spec.guardrails.code.shape[0]):
        if spec.guardrails.unknown_variance[j]:
            _pool(state_of(state, j), work, work.rail_lacking[j], work.rail_pooled[j : j + 1])


@kernel
def _pool(state: State, work: Work, without: Ints, pooled: Array) -> None:
    """Compute a variance for the cells that have none; mark their policies for a new estimate.

    `without` holds the number of such cells of every policy, then that of all.
    """
    policies = state.n.shape[1]
    waiting = work.queue[0]
    for j in range(policies if waiting < 0 else waiting):
        k = j if waiting < 0 else work.queue[j + 1]
        lacking = _lacking(state, k)
        without[policies] += lacking - without[k]
        without[k] = lacking
    if without[policies] == 0:
        return
    pooled[0] = pooled_variance(state)
    for k in range(policies):
        if without[k] > 0:
            mark_samples_changed(work, k)


@kernel
def _lacking(state: State, k: int) -> int:
    """Return how many cells of policy k have no two different outcomes."""
    lacking = 0
    for g in range(state.n.shape[0]):
        lacking += state.n[g, k] < 2.0 or variance(state, g, k) <= 0.0
    return lacking


@kernel
def pooled_variance(state: State) -> float:
    """Return the mean variance within cells, or that of all outcomes where no cell has one.

    1 where all outcomes are equal.
    """
    groups, policies = state.n.shape
    squares, degrees, seen, total, apart = 0.0, 0.0, 0.0, 0.0, 0.0
    origin = 0.0
    for g in range(groups):
        for k in range(policies):
            n = state.n[g, k]
            if n >= 2.0:
                squares += (n - 1.0) * variance(state, g, k)
                degrees += n - 1.0
            if n > 0.0:
                mean = state.s[g, k] / n
                origin = mean if seen == 0.0 else origin
                seen += n
                total += n * (mean - origin)
                apart += n * (mean - origin) * (mean - origin)
    if squares > 0.0:
        return squares / degrees
    between = apart - total * total / seen if seen > 1.0 else 0.0
    return between / (seen - 1.0) if between > 0.0 else 1.0


@kernel
def variance(state: State, g: int, k: int) -> float:
    """Return the variance of two or more outcomes.

    It is computed from their distances to the first outcome, which avoids cancellation.
    """
    groups, n = state.n.shape[0], state.n[g, k]
    total, squares = state.bets[SHIFTED * groups + g, k], state.bets[SQUARES * groups + g, k]
    return max(squares - total * total / n, 0.0) / (n - 1.0)
