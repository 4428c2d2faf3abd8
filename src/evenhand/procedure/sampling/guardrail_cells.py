"""Cells that can show whether a policy meets its guard-rails."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.region import RELATIVE
from evenhand.procedure.estimates import rail_dispersion
from evenhand.procedure.guardrails import region_of
from evenhand.procedure.sampling.draw_cell import count
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State, Work

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
