"""`top-two`: half of the samples for a posterior-drawn leader, half for a challenger.

Top-two Thompson sampling with a transport-cost challenger (Russo 2020; Shang, de Heide, Menard, Kaufmann and
Valko 2020), policies in place of arms. Within a policy the cell is drawn in proportion to the evidence it
carries, which is its share of the comparison's variance where no bound is active. A robust baseline; `ts-ids`
also divides samples between the two policies by evidence.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.procedure.alternatives import solve_cells, weakest_by_likelihood
from evenhand.procedure.estimates import dispersion, refresh
from evenhand.procedure.guardrails import has_control
from evenhand.procedure.posterior import posterior_leader
from evenhand.procedure.randomness import DECISIONS, two_uniforms
from evenhand.procedure.sampling.draw_cell import count, from_masses, with_minimum
from evenhand.procedure.spec import PROPORTIONAL, Spec
from evenhand.procedure.state import NONE, State, Work

Array = NDArray[np.float64]


@kernel
def choose(
    spec: Spec, state: State, work: Work, seed: int, replication: int, decision: int, group: int
) -> tuple[int, int]:
    """Return the next cell to sample."""
    leader = refresh(spec, state, work, True)
    coin, u = two_uniforms(seed, decision, 0, replication, DECISIONS)
    if coin < spec.leader:
        leader = posterior_leader(spec, state, work, seed, replication, decision)
    _, alternative = weakest_by_likelihood(spec, work, leader)
    i, k = solve_cells(spec, work, leader, alternative)
    control = 0.0
    if has_control(spec):  # the control's part of the rival's half
        control = _total(spec, group, work.lam_0)
        control /= max(control + _total(spec, group, work.lam_k), 1e-300)
        _scale(work.lam_0, control / max(_total(spec, group, work.lam_0), 1e-300))
    _normalise_masses(spec, state, work, i if k == NONE else k, group, work.lam_k)
    if has_control(spec):
        _scale(work.lam_k, 1.0 - control)
    if k != NONE:
        _normalise_masses(spec, state, work, i, group, work.lam_i)
    k, g = from_masses(spec, work, i, k, group, u)
    return with_minimum(spec, state, work, k, g)


@kernel
def _normalise_masses(spec: Spec, state: State, work: Work, k: int, group: int, masses: Array) -> None:
    """Scale a policy's masses to the sum 1; where there are none, use its variances."""
    groups = spec.phi.shape[0]
    total = _total(spec, group, masses)
    if not total > 0.0:
        for g in range(groups):
            noise = dispersion(spec, state, work.pooled[0], g, k) / max(count(state, k, g), 1.0)
            masses[g] = (spec.shares[g] ** 2 + 1e-9) * noise
        total = _total(spec, group, masses)
    for g in range(groups):
        masses[g] /= total


@kernel
def _scale(masses: Array, by: float) -> None:
    for g in range(masses.size):
        masses[g] *= by


@kernel
def _total(spec: Spec, group: int, masses: Array) -> float:
    total = 0.0
    for g in range(masses.size):
        if spec.mode != PROPORTIONAL or g == group:
            total += masses[g]
    return total
