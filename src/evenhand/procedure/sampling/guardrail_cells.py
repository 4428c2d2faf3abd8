"""Cells that can show whether a policy meets its guard-rails, and what one more sample of a cell is worth."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.region import RELATIVE
from evenhand.model.unit_families import divergence
from evenhand.procedure.estimates import rail_dispersion
from evenhand.procedure.guardrails import enter_guardrail, leave_guardrail_by, region_of
from evenhand.procedure.sampling.draw_cell import count
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State, Work
from evenhand.theory.metrics import METRIC

Array = NDArray[np.float64]


@kernel
def add_broken_guardrails(spec: Spec, state: State, work: Work, k: int) -> None:
    """Add the cells where the draw breaks a guard-rail's bound; every metric has the same total mass."""
    groups = spec.phi.shape[0]
    _scale_to_one(work.lam_k, work.lam_0)
    for j in range(spec.guardrails.code.shape[0]):
        r, own, other = region_of(spec, j), work.rail_lam[0], work.rail_lam[1]
        for g in range(groups):
            drawn = state.rail_theta[j, g, k]
            noise = rail_dispersion(spec, state, work, j, g, k) / max(count(state, k, g), 1.0)
            own[g], other[g] = noise if drawn < r.lo[g, k] or drawn > r.hi[g, k] else 0.0, 0.0
            if r.kind == RELATIVE and k != r.control:
                control = state.rail_theta[j, g, r.control]
                below = drawn < r.floor_ratio[g] * control - r.floor_margin[g]
                if below or drawn > r.cap_ratio[g] * control + r.cap_margin[g]:
                    ratio = r.floor_ratio[g] if below else r.cap_ratio[g]
                    beside = rail_dispersion(spec, state, work, j, g, r.control)
                    own[g] += noise
                    other[g] = ratio * ratio * beside / max(count(state, r.control, g), 1.0)
        _scale_to_one(own, other)
        for g in range(groups):
            work.lam_k[g] += own[g]
            work.lam_0[g] += other[g]


@kernel
def displace_by_guardrails(spec: Spec, state: State, work: Work, k: int) -> None:
    """Write mass 1 for every cell in which a guard-rail of policy k, by the estimates, fails."""
    if spec.region.kind != RELATIVE:
        work.lam_0[:] = 0.0
    for j in range(spec.guardrails.code.shape[0]):
        r, mean = region_of(spec, j), work.rail_mean[j]
        for g in range(spec.phi.shape[0]):
            if mean[g, k] < r.lo[g, k] or mean[g, k] > r.hi[g, k]:
                work.lam_k[g] = 1.0
            if r.kind == RELATIVE and k != r.control:
                control = mean[g, r.control]
                below = mean[g, k] < r.floor_ratio[g] * control - r.floor_margin[g]
                if below or mean[g, k] > r.cap_ratio[g] * control + r.cap_margin[g]:
                    work.lam_k[g], work.lam_0[g] = 1.0, 1.0


@kernel
def _scale_to_one(one: Array, other: Array) -> None:
    """Scale masses to a sum of 1; leave them where there are none."""
    total = 0.0
    for g in range(one.size):
        total += one[g] + other[g]
    for g in range(one.size):
        one[g] /= total if total > 0.0 else 1.0
        other[g] /= total if total > 0.0 else 1.0


@kernel
def add_slopes_of_entering(spec: Spec, state: State, work: Work, k: int, c: Array) -> None:
    """lemma:subgradient: add d(mean, lam) of every guard-rail, lam the nearest means that meet it, to c."""
    for j in range(spec.guardrails.code.shape[0]):
        enter_guardrail(spec, work, j, k)
        _add_slopes(spec, state, work, j, k, c)


@kernel
def slopes_of_leaving(spec: Spec, state: State, work: Work, i: int, which: int, c: Array) -> None:
    """Write d(mean, lam), lam the nearest means at which i violates this condition of a guard-rail, to c."""
    c[:, :] = 0.0
    leave_guardrail_by(spec, work, i, which)
    _add_slopes(spec, state, work, which // METRIC - 1, i, c)


@kernel
def _add_slopes(spec: Spec, state: State, work: Work, j: int, k: int, c: Array) -> None:
    """Add the slopes of policy k, and of the control where guard-rail j is relative to it."""
    control = spec.guardrails.control
    for g in range(spec.phi.shape[0]):
        c[g, k] += _slope(spec, state, work, j, g, k, work.rail_lam[0, g])
        if spec.guardrails.kind == RELATIVE and k != control:
            c[g, control] += _slope(spec, state, work, j, g, control, work.rail_lam[1, g])


@kernel
def _slope(spec: Spec, state: State, work: Work, j: int, g: int, k: int, lam: float) -> float:
    distance = divergence(spec.guardrails.code[j], work.rail_mean[j, g, k], lam)
    slope = distance / rail_dispersion(spec, state, work, j, g, k)
    return slope if math.isfinite(slope) else 0.0
