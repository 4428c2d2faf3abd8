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
from evenhand.model.region import BOX, RELATIVE, ROUNDING, inside
from evenhand.model.unit_families import EXPONENTIAL, GAUSSIAN
from evenhand.procedure.alternatives import solve_cells, weakest_by_evidence, weakest_by_likelihood
from evenhand.procedure.estimates import dispersion, refresh
from evenhand.procedure.guardrails import (
    control_of,
    has_conditions,
    has_control,
    leave_any,
    masses_of_leaving,
    meets_all,
)
from evenhand.procedure.posterior import draw_policy, posterior_answer, posterior_leader
from evenhand.procedure.randomness import DECISIONS, two_uniforms
from evenhand.procedure.sampling.draw_cell import (
    MINIMUM_FACTOR,
    certain,
    count,
    from_masses,
    least_sampled,
    least_sampled_cell,
    with_minimum,
)
from evenhand.procedure.sampling.guardrail_cells import add_broken_guardrails, displace_by_guardrails
from evenhand.procedure.spec import ACTIVE, CERTIFIED, Spec
from evenhand.procedure.state import NONE, Array, State, Work
from evenhand.theory import inner
from evenhand.theory.metrics import METRIC

PLAUSIBLE = 4.0  # standard errors by which a policy's score may be misjudged


@kernel
def choose(
    spec: Spec, state: State, work: Work, seed: int, replication: int, decision: int, group: int
) -> tuple[int, int]:
    """Return the next cell to sample."""
    leader = refresh(spec, state, work, True)
    coin, u = two_uniforms(seed, decision, 0, replication, DECISIONS)
    challenger = leader
    if coin < spec.leader:
        if spec.several:
            challenger = posterior_answer(spec, state, work, leader, seed, replication, decision)
        else:
            challenger = posterior_leader(spec, state, work, seed, replication, decision)
    if challenger == leader:
        k, g = NONE, NONE
        if has_control(spec) and coin < spec.leader and leader != NONE:
            k, g = _from_doubtful_rival(spec, state, work, leader, seed, replication, decision, group, u)
        if k == NONE:
            k, g = from_weakest_alternative(spec, state, work, leader, group, u)
    else:
        k, g = from_disagreement(spec, state, work, leader, challenger, group, u)
    if k < 0:
        k, g = least_sampled(spec, state, work, group)
    return with_minimum(spec, state, work, k, g)


@kernel
def from_weakest_alternative(
    spec: Spec, state: State, work: Work, leader: int, group: int, u: float
) -> tuple[int, int]:
    """Draw a cell of the weakest alternative in proportion to the evidence it carries."""
    alternative = _weakest(spec, state, work, leader)
    if spec.several and leader != NONE and alternative >= spec.phi.shape[1]:
        k, g = _neglected(spec, state, work, leader, group)
        if k != NONE:
            return certain(spec, work, k, g)
    i, k = solve_cells(spec, work, leader, alternative)
    cell = from_masses(spec, work, i, k, group, u)
    if cell[0] >= 0 or spec.mode != ACTIVE:
        return cell
    # no evidence: start with the least-sampled cell of the alternative
    if k != NONE:
        a, b = least_sampled_cell(state, i), least_sampled_cell(state, k)
        if count(state, k, b) <= count(state, i, a):
            return certain(spec, work, k, b)
    return certain(spec, work, i, least_sampled_cell(state, i))


@kernel
def _weakest(spec: Spec, state: State, work: Work, leader: int) -> int:
    """Return the alternative with the least evidence against it."""
    if spec.stopping == CERTIFIED and not spec.many:
        _, alternative = weakest_by_evidence(spec, state, work, leader)
    else:
        _, alternative = weakest_by_likelihood(spec, work, leader)
    return alternative


@kernel
def _from_doubtful_rival(
    spec: Spec, state: State, work: Work, leader: int, seed: int, replication: int, decision: int, group: int,
    u: float,
) -> tuple[int, int]:  # fmt: skip
    """Return a cell that shows whether the rival is allowed, if a draw contradicts the estimates.

    Else a control that was unlucky at first would hardly be sampled while two others compete for the lead.
    NONE where there is no such doubt.
    """
    rival = _weakest(spec, state, work, leader)
    if rival >= spec.phi.shape[1]:
        return NONE, NONE
    draw_policy(spec, state, work, rival, seed, replication, decision)
    allowed = work.margin[rival] >= 0.0
    if meets_all(spec, spec.region, rival, state.theta, state.rail_theta) == allowed:
        return NONE, NONE
    if allowed:
        return from_broken_bounds(spec, state, work, rival, group, u)
    return from_doubtful_failure(spec, state, work, rival, group, u)


@kernel
def _neglected(spec: Spec, state: State, work: Work, leader: int, group: int) -> tuple[int, int]:
    """Return a cell of a possibly acceptable policy with far fewer samples than the leader's, or NONE.

    A leader close to its own bound could absorb all samples while an easier answer was unlucky at first.
    """
    groups, policies = spec.phi.shape
    most = 0.0
    for g in range(groups):
        most = max(most, count(state, leader, g))
    for k in range(policies):
        g = group if group >= 0 else least_sampled_cell(state, k)
        if k != leader and count(state, k, g) < MINIMUM_FACTOR * math.sqrt(most):
            short = work.score[leader] - work.score[k] - spec.indifference
            apart = _variation_of_score(spec, state, work, k) + _variation_of_score(spec, state, work, leader)
            if short <= 0.0 or short * short <= PLAUSIBLE * PLAUSIBLE * apart:
                return k, g
    return NONE, NONE


@kernel
def _variation_of_score(spec: Spec, state: State, work: Work, k: int) -> float:
    total = 0.0
    for g in range(spec.phi.shape[0]):
        total += spec.shares[g] * spec.shares[g] * work.noise[g, k] / max(count(state, k, g), 1.0)
    return total


@kernel
def from_disagreement(
    spec: Spec, state: State, work: Work, leader: int, challenger: int, group: int, u: float
) -> tuple[int, int]:
    """Draw a cell that can show whether the challenger or the leader is right."""
    own_bounds = spec.several or has_control(spec) or spec.guardrails.present
    if (
        own_bounds
        and leader != NONE
        and not meets_all(spec, spec.kept, leader, state.theta, state.rail_theta)
    ):
        return from_broken_bounds(spec, state, work, leader, group, u)
    if challenger == NONE:
        # no policy is feasible in the draw: sample where the leader is nearest to failing
        if spec.guardrails.present:
            _, which = leave_any(spec, work, spec.kept, leader)
            if which >= METRIC:
                masses_of_leaving(spec, work, leader, which)
                return from_masses(spec, work, leader, NONE, group, u)
        inner.leave(spec.code, spec.kept, leader, work.v, work.mean, work.lam_k, work.lam_0, work.scratch)
        _displaced(spec, state, work, leader, work.lam_k)
        _displaced_control(spec, state, work)
        return from_masses(spec, work, leader, NONE, group, u)
    if work.margin[challenger] < 0.0 and has_conditions(spec):
        return from_doubtful_failure(spec, state, work, challenger, group, u)
    # both are feasible: sample where their difference varies most
    for g in range(spec.phi.shape[0]):
        work.lam_k[g] = _variation(spec, state, work, challenger, g)
        work.lam_i[g] = _variation(spec, state, work, leader, g) if leader != NONE else 0.0
        work.lam_0[g] = 0.0
    return from_masses(spec, work, leader, challenger, group, u)


@kernel
def from_doubtful_failure(
    spec: Spec, state: State, work: Work, k: int, group: int, u: float
) -> tuple[int, int]:
    """Return the least-sampled cell of those in which policy k's estimates miss a bound."""
    inner.enter(spec.code, spec.region, k, work.v, work.mean, work.lam_k, work.lam_0, work.scratch)
    _displaced(spec, state, work, k, work.lam_k)
    _displaced_control(spec, state, work)
    if spec.guardrails.present:
        displace_by_guardrails(spec, state, work, k)
    _keep_least_sampled(spec, state, work, k)
    return from_masses(spec, work, k, NONE, group, u)


@kernel
def from_broken_bounds(
    spec: Spec, state: State, work: Work, leader: int, group: int, u: float
) -> tuple[int, int]:
    """Return a cell in which the draw misses a bound of the leader, by the variance of its mean.

    A bound relative to the control is broken by both together: the control's variance counts ratio^2 times.
    """
    r = spec.kept
    for g in range(spec.phi.shape[0]):
        drawn = state.theta[g, leader]
        broken = drawn < r.lo[g, leader] or drawn > r.hi[g, leader] or spec.region.kind not in (BOX, RELATIVE)
        work.lam_k[g] = _noise_of_mean(spec, state, work, leader, g) if broken else 0.0
        work.lam_0[g] = 0.0
        if spec.region.kind == RELATIVE and leader != r.control:
            control, noise = state.theta[g, r.control], _noise_of_mean(spec, state, work, r.control, g)
            below = drawn < r.floor_ratio[g] * control - r.floor_margin[g]
            if below or drawn > r.cap_ratio[g] * control + r.cap_margin[g]:
                ratio = r.floor_ratio[g] if below else r.cap_ratio[g]
                work.lam_k[g] += _noise_of_mean(spec, state, work, leader, g)
                work.lam_0[g] = ratio * ratio * noise
    if spec.guardrails.present:
        if spec.region.kind not in (BOX, RELATIVE) and inside(spec.kept, leader, state.theta):
            work.lam_k[:] = 0.0
        add_broken_guardrails(spec, state, work, leader)
    return from_masses(spec, work, leader, NONE, group, u)


@kernel
def _noise_of_mean(spec: Spec, state: State, work: Work, k: int, g: int) -> float:
    return dispersion(spec, state, work.pooled[0], g, k) / max(count(state, k, g), 1.0)


@kernel
def _variation(spec: Spec, state: State, work: Work, k: int, g: int) -> float:
    share, phi = spec.shares[g], dispersion(spec, state, work.pooled[0], g, k)
    return share * share * phi / max(count(state, k, g), 1.0)


@kernel
def _displaced_control(spec: Spec, state: State, work: Work) -> None:
    """Write the control's masses to lam_0, where bounds are relative to one."""
    if spec.region.kind == RELATIVE:
        _displaced(spec, state, work, spec.region.control, work.lam_0)


@kernel
def _displaced(spec: Spec, state: State, work: Work, k: int, lam: Array) -> None:
    """Write mass 1 for every cell of policy k that the alternative in `lam` moves, 0 for the others."""
    for g in range(spec.phi.shape[0]):
        moved = abs(lam[g] - work.mean[g, k])
        lam[g] = 1.0 if moved > ROUNDING * _scale(spec, state, work, k, g) else 0.0


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
    if has_control(spec):
        best = _keep_least_sampled_of_both(spec, state, work, k, best)
    for g in range(spec.phi.shape[0]):
        work.lam_k[g] = 1.0 if g == best else 0.0


@kernel
def _keep_least_sampled_of_both(spec: Spec, state: State, work: Work, k: int, best: int) -> int:
    """Choose between policy k's least-sampled displaced cell, in group `best`, and the control's.

    Returns `best`, or -1 where the control's has fewer samples, which is then all that is left in lam_0.
    """
    control, other = control_of(spec), -1
    for g in range(spec.phi.shape[0]):
        if work.lam_0[g] > 0.0 and (other < 0 or count(state, control, g) < count(state, control, other)):
            other = g
    keep = other >= 0 and (best < 0 or count(state, control, other) < count(state, k, best))
    for g in range(spec.phi.shape[0]):
        work.lam_0[g] = 1.0 if keep and g == other else 0.0
    return -1 if keep else best
