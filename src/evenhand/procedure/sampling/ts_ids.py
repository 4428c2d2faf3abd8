"""`ts-ids`, the default: posterior-drawn leader and information-directed selection.

With probability `leader` the leader by a posterior draw is the challenger of the leader by the estimates.
Otherwise, or when they agree, a cell of the weakest alternative is drawn in proportion to the evidence it
carries, so that the cells of an alternative share samples as in the optimal allocation (Qin and You 2025 for
best-arm identification). There is no step size and no scale. A minimum keeps sampling every cell of a sampled
policy, and the posterior draw keeps sampling every policy.
"""

from __future__ import annotations

import math

from evenhand.compile import kernel
from evenhand.model.region import PENALTY, ROUNDING
from evenhand.model.unit_families import EXPONENTIAL, GAUSSIAN
from evenhand.procedure.alternatives import open_up, weakest_by_evidence, weakest_by_likelihood
from evenhand.procedure.estimates import dispersion, refresh
from evenhand.procedure.posterior import posterior_leader
from evenhand.procedure.randomness import DECISIONS, two_uniforms
from evenhand.procedure.sampling.draw_cell import (
    count,
    from_masses,
    guarded,
    least_sampled,
    least_sampled_cell,
    surely,
)
from evenhand.procedure.spec import ACTIVE, CERTIFIED, Spec
from evenhand.procedure.state import NONE, State, Work
from evenhand.theory import inner


@kernel
def choose(
    spec: Spec, state: State, work: Work, seed: int, replication: int, decision: int, group: int
) -> tuple[int, int]:
    """Return the next cell to sample."""
    leader = refresh(spec, state, work, True)
    coin, u = two_uniforms(seed, decision, 0, replication, DECISIONS)
    challenger = leader
    if coin < spec.leader:
        challenger = posterior_leader(spec, state, work, seed, replication, decision)
    if challenger == leader:
        k, g = from_weakest_piece(spec, state, work, leader, group, u)
    else:
        k, g = from_disagreement(spec, state, work, leader, challenger, group, u)
    if k < 0:
        k, g = least_sampled(spec, state, work, group)
    return guarded(spec, state, work, k, g)


@kernel
def from_weakest_piece(
    spec: Spec, state: State, work: Work, leader: int, group: int, u: float
) -> tuple[int, int]:
    """Draw a cell of the weakest alternative in proportion to the evidence it carries."""
    if spec.stopping == CERTIFIED and not spec.many:
        _, piece = weakest_by_evidence(spec, state, work, leader)
    else:
        _, piece = weakest_by_likelihood(spec, work, leader)
    i, k = open_up(spec, work, leader, piece)
    cell = from_masses(spec, work, i, k, group, u)
    if cell[0] >= 0 or spec.mode != ACTIVE:
        return cell
    # no evidence: start with the least-sampled cell of the alternative
    if k != NONE:
        a, b = least_sampled_cell(state, i), least_sampled_cell(state, k)
        if count(state, k, b) <= count(state, i, a):
            return surely(spec, work, k, b)
    return surely(spec, work, i, least_sampled_cell(state, i))


@kernel
def from_disagreement(
    spec: Spec, state: State, work: Work, leader: int, challenger: int, group: int, u: float
) -> tuple[int, int]:
    """Draw a cell that can show whether the challenger or the leader is right."""
    if challenger == NONE:
        # no policy is feasible in the draw: sample where the leader is nearest to failing
        inner.leave(spec.code, spec.region, leader, work.v, work.mean, work.lam_k, work.lam_0, work.scratch)
        _displaced(spec, state, work, leader)
        return from_masses(spec, work, leader, NONE, group, u)
    if work.margin[challenger] < 0.0 and spec.region.kind != PENALTY:
        # the challenger's estimates fail: sample its least-sampled failing cell
        inner.enter(
            spec.code, spec.region, challenger, work.v, work.mean, work.lam_k, work.lam_0, work.scratch
        )
        _displaced(spec, state, work, challenger)
        _keep_least_sampled(spec, state, work, challenger)
        return from_masses(spec, work, challenger, NONE, group, u)
    # both are feasible: sample where their difference varies most
    for g in range(spec.phi.shape[0]):
        work.lam_k[g] = _variation(spec, state, work, challenger, g)
        work.lam_i[g] = _variation(spec, state, work, leader, g) if leader != NONE else 0.0
    return from_masses(spec, work, leader, challenger, group, u)


@kernel
def _variation(spec: Spec, state: State, work: Work, k: int, g: int) -> float:
    share, phi = spec.shares[g], dispersion(spec, state, work.pooled[0], g, k)
    return share * share * phi / max(count(state, k, g), 1.0)


@kernel
def _displaced(spec: Spec, state: State, work: Work, k: int) -> None:
    """Write mass 1 for every cell that the alternative in lam_k moves, 0 for the others."""
    for g in range(spec.phi.shape[0]):
        moved = abs(work.lam_k[g] - work.mean[g, k])
        work.lam_k[g] = 1.0 if moved > ROUNDING * _scale(spec, state, work, k, g) else 0.0


@kernel
def _scale(spec: Spec, state: State, work: Work, k: int, g: int) -> float:
    """Return the size of a relevant change of a cell's mean: its noise, its mean, or 1."""
    if spec.code == GAUSSIAN:
        return math.sqrt(dispersion(spec, state, work.pooled[0], g, k))
    return work.mean[g, k] if spec.code == EXPONENTIAL else 1.0


@kernel
def _keep_least_sampled(spec: Spec, state: State, work: Work, k: int) -> None:
    best = -1
    for g in range(spec.phi.shape[0]):
        if work.lam_k[g] > 0.0 and (best < 0 or count(state, k, g) < count(state, k, best)):
            best = g
    for g in range(spec.phi.shape[0]):
        work.lam_k[g] = 1.0 if g == best else 0.0
