"""Optimal weights where no policy is feasible: inverse to the cost of entering.

lemma:weight_infeas for boxes; for any other region a policy's split over groups is the one that maximises the
cost of entering, and in agnostic mode it is the arrival shares.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.region import BOX
from evenhand.model.unit_families import divergence
from evenhand.procedure.estimates import dispersion, rail_dispersion
from evenhand.procedure.guardrails import add_masses_of_entering, enter_guardrails, has_control
from evenhand.procedure.sampling.tracking import even_weight
from evenhand.procedure.sampling.weight_ascent import weighed
from evenhand.procedure.spec import AGNOSTIC, PROPORTIONAL, Spec
from evenhand.procedure.state import State, Work
from evenhand.theory import inner

Array = NDArray[np.float64]

# rounds for a policy's best split over groups where the region is not a box
ROUNDS = 30


@kernel
def has_closed_form(spec: Spec) -> bool:
    """Return whether `optimal_weights` gives the weights: not for fixed columns or a shared control."""
    return spec.mode != PROPORTIONAL and not has_control(spec)


@kernel
def optimal_weights(spec: Spec, state: State, work: Work, w: Array, v: Array) -> None:
    """lemma:weight_infeas: write w_k = split_k / cost_k, normalised; v is scratch.

    Active and agnostic mode.
    """
    groups, policies = w.shape
    total = 0.0
    for k in range(policies):
        if spec.mode == AGNOSTIC:
            cost = _as_they_arrive(spec, state, work, k, w, v)
        elif spec.region.kind == BOX:
            cost = _all_on_the_worst(spec, state, work, k, w)
        else:
            cost = _best_split(spec, state, work, k, w, v)
        for g in range(groups):
            w[g, k] /= max(cost, 1e-100)
            total += w[g, k]
    for g in range(groups):
        for k in range(policies):
            w[g, k] = w[g, k] / total if total > 0.0 else even_weight(spec, g)


@kernel
def _all_on_the_worst(spec: Spec, state: State, work: Work, k: int, w: Array) -> float:
    """Put a policy's weight on l(k) = argmax over groups of d(mean, bound); return d_k."""
    w[:, k] = 0.0
    worst, most = 0, 0.0
    for g in range(w.shape[0]):
        mean = work.mean[g, k]
        bound = min(max(mean, spec.region.lo[g, k]), spec.region.hi[g, k])
        distance = divergence(spec.code, mean, bound) / dispersion(spec, state, work.pooled[0], g, k)
        if spec.guardrails.present:
            distance += _distance_of_guardrails(spec, state, work, g, k)
        if distance > most:
            worst, most = g, distance
    w[worst, k] = 1.0
    return most


@kernel
def _distance_of_guardrails(spec: Spec, state: State, work: Work, g: int, k: int) -> float:
    """Return the sum over the guard-rails of d(mean, bound) of one cell, for one sample."""
    rails, total = spec.guardrails, 0.0
    for j in range(rails.code.shape[0]):
        mean = work.rail_mean[j, g, k]
        bound = min(max(mean, rails.lo[j, g, k]), rails.hi[j, g, k])
        total += divergence(rails.code[j], mean, bound) / rail_dispersion(spec, state, work, j, g, k)
    return total


@kernel
def _as_they_arrive(spec: Spec, state: State, work: Work, k: int, w: Array, v: Array) -> float:
    for g in range(w.shape[0]):
        w[g, k] = spec.arrivals[g]
        _weigh(spec, state, work, g, k, w, v)
    return _cost_of_entering(spec, work, k, v)


@kernel
def _best_split(spec: Spec, state: State, work: Work, k: int, w: Array, v: Array) -> float:
    """Return sup over splits v of inf over the region of v.d, by evidence-proportional updates."""
    groups = w.shape[0]
    cost = 0.0
    for g in range(groups):
        w[g, k] = 1.0 / groups
    for n in range(ROUNDS):
        for g in range(groups):
            _weigh(spec, state, work, g, k, w, v)
        cost = _cost_of_entering(spec, work, k, v)
        if not 0.0 < cost < math.inf:
            break
        if spec.guardrails.present:  # what their outcomes carry, in lam_i
            work.lam_i[:] = 0.0
            add_masses_of_entering(spec, weighed(work, v)._replace(lam_k=work.lam_i), k)
        for g in range(groups):
            carried = v[g, k] * divergence(spec.code, work.mean[g, k], work.lam_k[g]) / cost
            if spec.guardrails.present:
                carried += work.lam_i[g] / cost
            w[g, k] += (carried - w[g, k]) / (n + 2.0)
    return cost


@kernel
def _weigh(spec: Spec, state: State, work: Work, g: int, k: int, w: Array, v: Array) -> None:
    """Write the effective counts of one cell at weights w, for the outcome and every guard-rail."""
    v[g, k] = w[g, k] / dispersion(spec, state, work.pooled[0], g, k)
    if spec.guardrails.present:
        for j in range(spec.guardrails.code.shape[0]):
            work.rail_weighed[j, g, k] = w[g, k] / rail_dispersion(spec, state, work, j, g, k)


@kernel
def _cost_of_entering(spec: Spec, work: Work, k: int, v: Array) -> float:
    """Return the cost for policy k to meet its requirement and guard-rails; the outcome's means in lam_k."""
    cost, _ = inner.enter(spec.code, spec.region, k, v, work.mean, work.lam_k, work.lam_0, work.scratch)
    if spec.guardrails.present:
        cost += enter_guardrails(spec, weighed(work, v), k)
    return cost
