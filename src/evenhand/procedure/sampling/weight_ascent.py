"""Optimisation of weights at the estimates: costs, supergradients and steps.

The external problem, eq:external_opt: maximise over w the cost of the cheapest alternative, the means
replaced by their estimates. An alternative is identified by a policy: rival k against the leader; the leader
itself for "the leader violates its requirement"; any policy k entering, where no policy is feasible.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.region import PENALTY, RELATIVE
from evenhand.model.unit_families import divergence
from evenhand.procedure.estimates import dispersion, rail_dispersion
from evenhand.procedure.guardrails import enter_guardrails, leave_any
from evenhand.procedure.sampling.draw_cell import count
from evenhand.procedure.sampling.guardrail_cells import add_slopes_of_entering, slopes_of_leaving
from evenhand.procedure.spec import ACTIVE, PROPORTIONAL, Spec
from evenhand.procedure.state import NONE, State, Work
from evenhand.theory import inner
from evenhand.theory.beat_bulk import beat_all
from evenhand.theory.metrics import METRIC
from evenhand.theory.regions import penalty

Array = NDArray[np.float64]

# a bound from a search that ended early may differ by rounding from the full solution: so ties are solved
TIED = 1e-9

# a cell without weight has no cost, so its mean is not determined; this small weight determines it
LEAST_WEIGHT = 1e-9


@kernel
def effective(spec: Spec, state: State, work: Work, w: Array, v: Array) -> None:
    """Write v = w / phi, with a small minimum weight in every cell; for guard-rails to work.rail_weighed."""
    groups, policies = spec.phi.shape
    for g in range(groups):
        for k in range(policies):
            weight = max(w[g, k], LEAST_WEIGHT)
            v[g, k] = weight / dispersion(spec, state, work.pooled[0], g, k)
            if spec.guardrails.present:
                for j in range(spec.guardrails.code.shape[0]):
                    work.rail_weighed[j, g, k] = weight / rail_dispersion(spec, state, work, j, g, k)


@kernel
def weighed(work: Work, v: Array) -> Work:
    """Return the estimates with these effective counts, and those of `effective` for the guard-rails."""
    return work._replace(v=v, rail_v=work.rail_weighed)


@kernel
def alternatives_at(spec: Spec, work: Work, leader: int, v: Array, slack: float, values: Array) -> int:
    """alg:internal: write the costs of alternatives at weights v; return the cheapest.

    The costs go to values (K,). Of alternatives that cost more than the cheapest plus `slack` only a lower
    bound is computed.
    """
    policies = spec.phi.shape[1]
    r, mean = spec.region, work.mean
    if leader == NONE:
        for k in range(policies):
            values[k], _ = inner.enter(spec.code, r, k, v, mean, work.lam_k, work.lam_0, work.scratch)
            if spec.guardrails.present:
                cost = enter_guardrails(spec, weighed(work, v), k)
                values[k] += cost
        return _cheapest(values)
    if r.kind == PENALTY:
        _penalised_rivals(spec, work, leader, v, slack, values)
    else:
        beat_all(
            spec.code, r, spec.shares, spec.indifference, leader, v, mean, values,
            work.lam_i, work.lam_k, work.lam_0, work.scratch,
        )  # fmt: skip
        values[leader], _, _ = inner.leave(
            spec.code, spec.kept, leader, v, mean, work.lam_k, work.lam_0, work.scratch
        )
    if spec.guardrails.present:
        _add_guardrails(spec, weighed(work, v), leader, values)
    return _cheapest(values)


@kernel
def _add_guardrails(spec: Spec, work: Work, leader: int, values: Array) -> None:
    """Add every rival's cost to meet its guard-rails; the leader's cost is that of its weakest condition."""
    for k in range(values.size):
        cost = 0.0
        if k == leader:
            cost, _ = leave_any(spec, work, spec.kept, leader)
            values[k] = min(values[k], cost)
        else:
            cost = enter_guardrails(spec, work, k)
            values[k] += cost


@kernel
def _penalised_rivals(spec: Spec, work: Work, leader: int, v: Array, slack: float, values: Array) -> None:
    """Write every rival's cost; the last cheapest is first, which shortens the other searches."""
    values[leader] = math.inf
    first, least = _cheapest(values), math.inf
    for turn in range(values.size):
        k = (first + turn) % values.size
        if k != leader:
            _, values[k] = penalty.beat(
                spec.code, spec.region, spec.shares, spec.indifference, leader, k, v, work.mean,
                (least + slack) * (1.0 + TIED), work.lam_i, work.lam_k, work.scratch,
            )  # fmt: skip
            least = min(least, values[k])


@kernel
def _cheapest(values: Array) -> int:
    best = 0
    for k in range(1, values.size):
        if values[k] < values[best]:
            best = k
    return best


@kernel
def slopes(spec: Spec, state: State, work: Work, leader: int, alternative: int, v: Array, c: Array) -> None:
    """lemma:subgradient: write c = d(mean, lam) at the nearest lam of one alternative.

    A supergradient of its cost at w; 0 in the cells that are not part of it.
    """
    r, mean = spec.region, work.mean
    c[:, :] = 0.0
    if leader == NONE:
        inner.enter(spec.code, r, alternative, v, mean, work.lam_k, work.lam_0, work.scratch)
    elif alternative == leader:
        if spec.guardrails.present:
            _, which = leave_any(spec, weighed(work, v), spec.kept, leader)
            if which >= METRIC:
                slopes_of_leaving(spec, state, weighed(work, v), leader, which, c)
                return
        inner.leave(spec.code, spec.kept, leader, v, mean, work.lam_k, work.lam_0, work.scratch)
    else:
        inner.beat(
            spec.code, r, spec.shares, spec.indifference, leader, alternative, v, mean,
            work.lam_i, work.lam_k, work.lam_0, work.scratch,
        )  # fmt: skip
        _fill(spec, state, work, leader, work.lam_i, c)
    _fill(spec, state, work, alternative, work.lam_k, c)
    if spec.region.kind == RELATIVE and spec.region.control not in (leader, alternative):
        _fill(spec, state, work, spec.region.control, work.lam_0, c)
    if spec.guardrails.present and alternative != leader:
        add_slopes_of_entering(spec, state, weighed(work, v), alternative, c)


@kernel
def slopes_where_free(spec: Spec, state: State, leader: int, alternative: int, c: Array) -> None:
    """Write slopes 1/N in the cells of an alternative that costs nothing.

    A tie, or an estimate exactly on its bound, has slope 0, and only more samples resolve it.
    """
    if dot(c, c) > 0.0:
        return
    for g in range(spec.phi.shape[0]):
        c[g, alternative] = 1.0 / max(count(state, alternative, g), 1.0)
        if leader != NONE:
            c[g, leader] = 1.0 / max(count(state, leader, g), 1.0)


@kernel
def _fill(spec: Spec, state: State, work: Work, k: int, lam: Array, c: Array) -> None:
    for g in range(spec.phi.shape[0]):
        phi = dispersion(spec, state, work.pooled[0], g, k)
        slope = divergence(spec.code, work.mean[g, k], lam[g]) / phi
        c[g, k] = slope if math.isfinite(slope) else 0.0


@kernel
def climb_projected(spec: Spec, w: Array, c: Array, alpha: float) -> None:
    """lemma:optimization_convergence: w <- P(w + alpha c), P a projection.

    P projects onto the weights of the mode.
    """
    groups, policies = w.shape
    if spec.mode == ACTIVE or spec.mode == PROPORTIONAL:
        for g in range(groups):
            for k in range(policies):
                w[g, k] += alpha * c[g, k]
            if spec.mode == PROPORTIONAL:
                project(w[g], spec.arrivals[g])
        if spec.mode == ACTIVE:
            project(w.reshape(groups * policies), 1.0)
        return
    # agnostic: policies move by their mean slope; c is no longer needed, so its first row holds the slopes
    rows = c[0]
    for k in range(policies):
        slope, weight = row_slope(spec, c, k), 0.0
        for g in range(groups):
            weight += w[g, k]
        rows[k] = weight + alpha * slope
    project(rows, 1.0)
    for g in range(groups):
        for k in range(policies):
            w[g, k] = spec.arrivals[g] * rows[k]


@kernel
def project(x: Array, total: float) -> None:
    """Project x onto {x >= 0, sum x = total}, in place (Michelot 1986; at most x.size rounds)."""
    cut, kept = -math.inf, x.size + 1
    while True:
        inside, above = 0, 0.0
        for j in range(x.size):
            if x[j] > cut:
                inside += 1
                above += x[j]
        if inside >= kept:  # rounding may lower the cut slightly: with ">" two sets could alternate
            break
        kept, cut = inside, (above - total) / inside
    for j in range(x.size):
        x[j] = max(x[j] - cut, 0.0)


@kernel
def climb_directed(spec: Spec, w: Array, c: Array, share: float) -> None:
    """Update w <- (1 - share) w + share h, h = w c / w.c (evidence of the cells).

    The fixed point is the optimal weights. In the other modes a column (a policy) gains by its slope less the
    column's (the table's) mean slope, so that w stays valid in the mode.
    """
    groups, policies = w.shape
    worth = dot(w, c)
    if not 0.0 < worth < math.inf:
        return
    for g in range(groups):
        mean, step = 1.0, share
        if spec.mode == PROPORTIONAL:
            mean = 0.0
            for k in range(policies):
                mean += w[g, k] * c[g, k] / (worth * spec.arrivals[g])
            step = min(share, 0.5 * spec.arrivals[g])  # mean <= 1 / arrivals, and weights stay nonnegative
        for k in range(policies):
            slope = c[g, k] if spec.mode == ACTIVE or spec.mode == PROPORTIONAL else row_slope(spec, c, k)
            w[g, k] *= 1.0 + step * (slope / worth - mean)


@kernel
def row_slope(spec: Spec, c: Array, k: int) -> float:
    """Return the value of one more sample of policy k, group unknown (agnostic mode)."""
    total = 0.0
    for g in range(spec.phi.shape[0]):
        total += spec.arrivals[g] * c[g, k]
    return total


@kernel
def dot(a: Array, b: Array) -> float:
    """Return the sum of the products of two tables."""
    total = 0.0
    for g in range(a.shape[0]):
        for k in range(a.shape[1]):
            total += a[g, k] * b[g, k]
    return total


@kernel
def add(total: Array, part: Array) -> None:
    """Add one table to another."""
    for g in range(total.shape[0]):
        for k in range(total.shape[1]):
            total[g, k] += part[g, k]


@kernel
def normalise(table: Array) -> None:
    """Scale a table to the sum 1."""
    total = 0.0
    for g in range(table.shape[0]):
        for k in range(table.shape[1]):
            total += table[g, k]
    for g in range(table.shape[0]):
        for k in range(table.shape[1]):
            table[g, k] /= total
