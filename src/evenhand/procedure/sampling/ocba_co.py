"""`ocba-co`: optimal computing budget allocation under constraints; for fixed budgets.

After OCBA-CO (Lee, Pujowidianto, Li, Chen and Yap 2012) and SCORE (Pasupathy, Hunter, Pujowidianto, Lee
and Chen 2014): a rival is ruled out either by its overall mean or by its requirement, whichever is
cheaper; it gets samples in inverse proportion to that rate, and the leader enough to balance the
comparisons and to secure its own requirement. Overall means are treated as Gaussian with the family's
variance at the estimates. The weights are computed at the estimates for each sample and D-tracked.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.region import PENALTY
from evenhand.model.unit_families import BERNOULLI, POISSON, divergence, variance
from evenhand.procedure.estimates import dispersion, rail_dispersion, refresh
from evenhand.procedure.guardrails import (
    add_masses_of_entering,
    control_of,
    has_conditions,
    has_control,
    leave_any,
    masses_of_leaving,
)
from evenhand.procedure.sampling.tracking import samples, track
from evenhand.procedure.sampling.weight_ascent import normalise, weighed
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import NONE, State, Work
from evenhand.theory import inner
from evenhand.theory.metrics import METRIC

Array = NDArray[np.float64]


@kernel
def choose(spec: Spec, state: State, work: Work, group: int) -> tuple[int, int]:
    """Return the next cell to sample."""
    leader = refresh(spec, state, work, True)
    policies = spec.phi.shape[1]
    w, v = work.spare[1], work.spare[0]
    for k in range(policies):
        for g in range(spec.phi.shape[0]):
            v[g, k] = 1.0 / dispersion(spec, state, work.pooled[0], g, k)
            if spec.guardrails.present:
                for j in range(spec.guardrails.code.shape[0]):
                    work.rail_weighed[j, g, k] = 1.0 / rail_dispersion(spec, state, work, j, g, k)
    # a rate below one nat in all samples so far is not distinguishable from 0
    least = 1.0 / max(samples(state), 1.0)
    balance = 0.0
    for k in range(policies):
        if k != leader:
            balance += _rival(spec, state, work, leader, k, v, least, w)
    if leader != NONE:
        _leading(spec, state, work, leader, v, balance, least, w)
    if has_control(spec):
        _raise_control(w, control_of(spec))
    normalise(w)
    return track(spec, state, work, w, group)


@kernel
def _raise_control(w: Array, control: int) -> None:
    """Raise the control's weight in each group to the largest weight of another policy there."""
    for g in range(w.shape[0]):
        for k in range(w.shape[1]):
            w[g, control] = max(w[g, control], w[g, k])


@kernel
def _rival(
    spec: Spec, state: State, work: Work, leader: int, k: int, v: Array, least: float, w: Array
) -> float:
    """Write weights of rival k in inverse proportion to its rate; return (w_k / sd_k)^2."""
    by_mean, sd = 0.0, 0.0
    for g in range(w.shape[0]):
        sd += _pull(spec, state, work, k, g)
    if leader != NONE:
        gap = work.score[leader] - work.score[k]
        by_mean = max(gap, 0.0) ** 2 / (2.0 * sd * sd)
    by_requirement = 0.0
    if work.margin[k] < 0.0 and has_conditions(spec):
        inner.enter(spec.code, spec.region, k, v, work.mean, work.lam_k, work.lam_0, work.scratch)
        if spec.guardrails.present:
            work.lam_i[:] = 0.0
            add_masses_of_entering(spec, weighed(work, v)._replace(lam_k=work.lam_i), k)
        by_requirement = _split(spec, work, k, v, w)
    rate = max(by_mean, by_requirement, least)
    if by_requirement >= by_mean and by_requirement > 0.0:
        for g in range(w.shape[0]):
            w[g, k] /= rate
        return 0.0
    for g in range(w.shape[0]):
        w[g, k] = _pull(spec, state, work, k, g) / (sd * rate)
    return 1.0 / (rate * sd) ** 2


@kernel
def _leading(
    spec: Spec, state: State, work: Work, i: int, v: Array, balance: float, least: float, w: Array
) -> None:
    """Write the leader's weights: (w_i / sd_i)^2 = sum (w_k / sd_k)^2; its requirement may add."""
    total, cost = 0.0, math.inf
    if spec.region.kind != PENALTY:
        cost, _, _ = inner.leave(spec.code, spec.kept, i, v, work.mean, work.lam_k, work.lam_0, work.scratch)
    if spec.guardrails.present:
        cost = _leave_by_weakest_metric(spec, work, i, v)
    if cost < math.inf:
        rate = max(_split(spec, work, i, v, w), least)
        for g in range(w.shape[0]):
            w[g, i] /= rate
    else:
        w[:, i] = 0.0  # it cannot violate its requirement
    for g in range(w.shape[0]):
        # Neyman allocation: w_il = sqrt(balance) sd_i pull_l / sd_i
        w[g, i] = max(w[g, i], math.sqrt(balance) * _pull(spec, state, work, i, g))
        total += w[g, i]
    if not total > 0.0:
        w[:, i] = 1.0


@kernel
def _leave_by_weakest_metric(spec: Spec, work: Work, i: int, v: Array) -> float:
    """Return the leader's cost to violate any condition; its means in lam_k, masses of a guard-rail in lam_i.

    A guard-rail's condition leaves the outcome's means where they are.
    """
    at = weighed(work, v)
    cost, which = leave_any(spec, at, spec.kept, i)
    work.lam_i[:] = 0.0
    if which >= METRIC:
        masses_of_leaving(spec, at._replace(lam_k=work.lam_i), i, which)
        for g in range(work.lam_k.size):
            work.lam_k[g] = work.mean[g, i]
    return cost


@kernel
def _split(spec: Spec, work: Work, k: int, v: Array, w: Array) -> float:
    """Split k's weight by the evidence per sample of each group against lam_k; return its rate.

    With guard-rails, theirs is in lam_i.
    """
    total, squares = 0.0, 0.0
    for g in range(w.shape[0]):
        mass = v[g, k] * divergence(spec.code, work.mean[g, k], work.lam_k[g])
        if spec.guardrails.present:
            mass += work.lam_i[g]
        w[g, k] = mass if math.isfinite(mass) else 0.0
        total += w[g, k]
        squares += w[g, k] * w[g, k]
    for g in range(w.shape[0]):
        w[g, k] = w[g, k] / total if total > 0.0 else 1.0 / w.shape[0]
    return squares / total if total > 0.0 else 0.0


@kernel
def _pull(spec: Spec, state: State, work: Work, k: int, g: int) -> float:
    """Return q_l sd_kl, a cell's noise in its policy's score; larger below a penalised floor."""
    weight = spec.shares[g]
    if spec.region.kind == PENALTY and work.mean[g, k] < spec.region.lo[g, k]:
        weight *= 1.0 + spec.region.gamma[g]
    noise = variance(spec.code, work.mean[g, k]) * dispersion(spec, state, work.pooled[0], g, k)
    if spec.code in (BERNOULLI, POISSON):
        # an estimate on the boundary of its domain has variance 0, which is implausible
        noise = max(noise, 1e-6)
    return (weight + 1e-9) * math.sqrt(noise)
