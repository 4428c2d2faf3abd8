"""Evidence against each alternative to the current answer, and the weakest alternative.

With a leader i the alternatives are "rival k is feasible and at least as good" (code k) and "i violates
atom a of its requirement" (code K + a). When no policy is feasible they are "policy k meets the requirement"
(code k). An alternative is solved again only when the data of one of its policies have changed.
"""

from __future__ import annotations

import math

from evenhand.compile import kernel
from evenhand.model.region import BOX, PENALTY, RELATIVE
from evenhand.model.unit_families import divergence
from evenhand.procedure.evidence import certified
from evenhand.procedure.guardrails import (
    add_masses_of_entering,
    control_of,
    enter_all,
    enter_guardrails,
    has_conditions,
    has_control,
    leave_any,
    masses_of_leaving,
)
from evenhand.procedure.likelihood_bounds import OWNER, bound_of, reset_bounds, store_bound
from evenhand.procedure.log_space import NOT_COMPUTED, add
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import NONE, Array, Ints, State, Work
from evenhand.procedure.stopping import kaufmann_koolen
from evenhand.theory import inner
from evenhand.theory.beat_bulk import beat_all, beat_some
from evenhand.theory.metrics import METRIC
from evenhand.theory.regions import relative

# with more policies than this, computing all evidence at each check takes too long
BULK_POLICIES = 256


@kernel
def weakest_by_likelihood(spec: Spec, work: Work, leader: int) -> tuple[float, int]:
    """eq:stopping_statistics: return the smallest likelihood ratio and its alternative."""
    policies = spec.phi.shape[1]
    if leader == NONE or spec.region.kind not in (BOX, PENALTY) or spec.guardrails.present:
        solve_rivals(spec, work, leader)
        value, alternative = _least(work, leader)
    else:
        value, alternative = _weakest_rival(spec, work, leader)
    if leader != NONE and has_conditions(spec):
        lower, which = leave_any(spec, work, spec.kept, leader)
        if lower < value:
            value, alternative = lower, policies + which
    return value, alternative


@kernel
def _weakest_rival(spec: Spec, work: Work, leader: int) -> tuple[float, int]:
    """Return the smallest likelihood ratio of the rivals, and its rival.

    Only rivals whose lower bound allows it are solved (see `likelihood_bounds`).
    """
    policies = spec.phi.shape[1]
    if work.bound_state[OWNER] != leader:
        reset_bounds(work, leader)
        solve_rivals(spec, work, leader)
        for k in range(policies):
            store_bound(work, k)
        return _least(work, leader)
    lowest, first = math.inf, NONE
    for k in range(policies):
        floor = bound_of(work, k)
        if floor < lowest and k != leader:
            lowest, first = floor, k
    value, alternative = math.inf, 0
    if first != NONE:
        value, alternative = _solved(spec, work, leader, first), first
    for k in range(policies):
        if k != leader and k != first and bound_of(work, k) <= value:
            mine = _solved(spec, work, leader, k)
            if mine < value or (mine == value and k < alternative):
                value, alternative = mine, k
    return value, alternative


@kernel
def _solved(spec: Spec, work: Work, leader: int, k: int) -> float:
    """Return the likelihood ratio of rival k, solving it again only if its data have changed."""
    owner = work.sample_changes[leader]
    if not _is_fresh(work.stamp_glr, changes_of(spec, work.sample_changes, k), k, owner, leader):
        _solve_one(spec, work, leader, k)
        _stamp(work.stamp_glr, changes_of(spec, work.sample_changes, k), k, owner, leader)
    store_bound(work, k)
    return work.glr[k]


@kernel
def _least(work: Work, leader: int) -> tuple[float, int]:
    value, alternative = math.inf, 0
    for k in range(work.glr.size):
        if k != leader and work.glr[k] < value:
            value, alternative = work.glr[k], k
    return value, alternative


@kernel
def solve_rivals(spec: Spec, work: Work, leader: int) -> None:
    """Update work.glr, solving only the alternatives whose policies have changed."""
    policies = spec.phi.shape[1]
    owner = work.sample_changes[leader] if leader != NONE else 0
    stale = 0
    for k in range(policies):
        if k != leader and not _is_fresh(
            work.stamp_glr, changes_of(spec, work.sample_changes, k), k, owner, leader
        ):
            stale += 1
    if leader != NONE and 2 * stale > policies:
        beat_all(
            spec.code,
            spec.region,
            spec.shares,
            spec.indifference,
            leader,
            work.v,
            work.mean,
            work.glr,
            work.lam_i,
            work.lam_k,
            work.lam_0,
            work.scratch,
        )
        for k in range(policies):
            if spec.guardrails.present and k != leader:
                work.glr[k] += enter_guardrails(spec, work, k)
            _stamp(work.stamp_glr, changes_of(spec, work.sample_changes, k), k, owner, leader)
        return
    for k in range(policies):
        if k != leader and not _is_fresh(
            work.stamp_glr, changes_of(spec, work.sample_changes, k), k, owner, leader
        ):
            _solve_one(spec, work, leader, k)
            _stamp(work.stamp_glr, changes_of(spec, work.sample_changes, k), k, owner, leader)


@kernel
def _solve_one(spec: Spec, work: Work, leader: int, k: int) -> None:
    if leader == NONE:
        work.glr[k] = enter_all(spec, work, k)
        return
    beat_some(
        spec.code,
        spec.region,
        spec.shares,
        spec.indifference,
        leader,
        k,
        k + 1,
        work.v,
        work.mean,
        work.glr,
        work.lam_i,
        work.lam_k,
        work.lam_0,
        work.scratch,
    )
    if spec.guardrails.present:
        work.glr[k] += enter_guardrails(spec, work, k)


@kernel
def weakest_by_evidence(spec: Spec, state: State, work: Work, leader: int) -> tuple[float, int]:
    """Return the smallest certified evidence (ln e-value) and its alternative.

    The alternative that was weakest last is evaluated first; for the others it is enough to know that they
    are not weaker.
    """
    policies = spec.phi.shape[1]
    first = NONE
    for k in range(policies):
        if k != leader and (first == NONE or work.against[k] < work.against[first]):
            first = k
    value, alternative = math.inf, 0
    if first != NONE:
        value, alternative = _evidence_against(spec, state, work, leader, first, math.inf), first
    for k in range(policies):
        if k != leader and k != first:
            mine = _evidence_against(spec, state, work, leader, k, value)
            if mine < value or (mine == value and k < alternative):
                value, alternative = mine, k
    if leader != NONE and has_conditions(spec):
        met, which = certified.meets(spec, state, work, leader)
        if met < value:
            value, alternative = met, policies + which
    return value, alternative


@kernel
def _evidence_against(spec: Spec, state: State, work: Work, leader: int, k: int, enough: float) -> float:
    """Return the evidence that k is not the answer: it is behind the leader, or it fails.

    Above `enough` the value is only a lower bound.
    """
    if not has_conditions(spec):
        work.against[k] = evidence_of_lead(spec, state, work, leader, k, enough)
        return work.against[k]
    found = evidence_that_fails(spec, state, work, k)
    if leader != NONE and found <= enough:
        ahead = evidence_of_lead(spec, state, work, leader, k, enough)
        found = joined(spec, ahead, found)
    work.against[k] = found
    return found


@kernel
def joined(spec: Spec, ahead: float, fails: float) -> float:
    """Return the ln of the sum of two e-values; NOT_COMPUTED if one is and the other is too small."""
    both = add(ahead, fails)
    unknown = min(ahead, fails) == NOT_COMPUTED and not both >= certified.threshold(spec)
    return NOT_COMPUTED if unknown else both


@kernel
def evidence_that_fails(spec: Spec, state: State, work: Work, k: int) -> float:
    """Return the evidence that k fails its requirement, recomputed if its outcomes changed."""
    changes = changes_of(spec, work.outcome_changes, k)
    if work.stamp_fails[k] != changes:
        work.fails[k] = certified.fails(spec, state, work, k)
        work.stamp_fails[k] = changes
    return work.fails[k]


@kernel
def evidence_of_lead(spec: Spec, state: State, work: Work, leader: int, k: int, enough: float) -> float:
    """Return the evidence that the leader is ahead of k, recomputed if outcomes changed.

    Above `enough` the value is only a lower bound.
    """
    owner = work.outcome_changes[leader]
    if not _is_fresh(work.stamp_ahead, work.outcome_changes[k], k, owner, leader) or (
        work.up_to[k] < enough and work.ahead[k] > work.up_to[k]
    ):
        work.ahead[k] = certified.ahead(spec, state, work, leader, k, enough)
        work.up_to[k] = enough
        _stamp(work.stamp_ahead, work.outcome_changes[k], k, owner, leader)
    return work.ahead[k]


@kernel
def evidence_of_likeliest(spec: Spec, state: State, work: Work, leader: int) -> tuple[float, int]:
    """Return the certified evidence of the alternative with the smallest likelihood ratio.

    It is never below the smallest certified evidence.
    """
    policies = spec.phi.shape[1]
    _, alternative = weakest_by_likelihood(spec, work, leader)
    if alternative < policies:
        return _evidence_against(spec, state, work, leader, alternative, math.inf), alternative
    met, which = certified.meets(spec, state, work, leader)
    return met, policies + which


@kernel
def weakest_by_excess(spec: Spec, state: State, work: Work, leader: int) -> tuple[float, float, int]:
    """Return the ratio, threshold and code of the alternative that exceeds its threshold least."""
    policies = spec.phi.shape[1]
    solve_rivals(spec, work, leader)
    value, needed, alternative = math.inf, 0.0, 0
    for k in range(policies):
        if k != leader:
            mine = kaufmann_koolen.alternative_threshold(spec, state, k, leader)
            if work.glr[k] - mine < value - needed:
                value, needed, alternative = work.glr[k], mine, k
    if leader != NONE and has_conditions(spec):
        lower, which = leave_any(spec, work, spec.kept, leader)
        mine = kaufmann_koolen.alternative_threshold(spec, state, leader, NONE)
        if lower - mine < value - needed:
            value, needed, alternative = lower, mine, policies + which
    return value, needed, alternative


@kernel
def solve_cells(spec: Spec, work: Work, leader: int, alternative: int) -> tuple[int, int]:
    """Solve one alternative; write v d(mean, lam), its cells' evidence, to lam_i and lam_k.

    In lam_0 that of the control's cells, where bounds are relative to one that is neither policy. Returns the
    two policies (the second is NONE where the alternative concerns one policy only; its masses are then in
    lam_k).
    """
    policies = spec.phi.shape[1]
    if leader != NONE and alternative < policies:
        inner.beat(
            spec.code,
            spec.region,
            spec.shares,
            spec.indifference,
            leader,
            alternative,
            work.v,
            work.mean,
            work.lam_i,
            work.lam_k,
            work.lam_0,
            work.scratch,
        )
        _masses(spec, work, leader, work.lam_i)
        _masses(spec, work, alternative, work.lam_k)
        _masses_of_control(spec, work)
        if spec.guardrails.present:
            add_masses_of_entering(spec, work, alternative)
        return leader, alternative
    if leader == NONE:
        inner.enter(
            spec.code, spec.region, alternative, work.v, work.mean, work.lam_k, work.lam_0, work.scratch
        )
        _masses(spec, work, alternative, work.lam_k)
        _masses_of_control(spec, work)
        if spec.guardrails.present:
            add_masses_of_entering(spec, work, alternative)
        return alternative, NONE
    if spec.guardrails.present:
        work.lam_0[:] = 0.0
        if alternative - policies >= METRIC:
            masses_of_leaving(spec, work, leader, alternative - policies)
            return leader, NONE
    if spec.region.kind == BOX:
        work.lam_k[:] = 0.0
        g = (alternative - policies) % spec.phi.shape[0]
        work.lam_k[g] = 1.0
        return leader, NONE
    if spec.region.kind == RELATIVE:
        bound = alternative - policies
        relative.leave_by(
            spec.code, spec.kept, leader, bound, work.v, work.mean, work.lam_k, work.lam_0, work.scratch
        )
        _masses(spec, work, leader, work.lam_k)
        _masses_of_control(spec, work)
        return leader, NONE
    inner.leave(spec.code, spec.kept, leader, work.v, work.mean, work.lam_k, work.lam_0, work.scratch)
    _masses(spec, work, leader, work.lam_k)
    return leader, NONE


@kernel
def _masses_of_control(spec: Spec, work: Work) -> None:
    if spec.region.kind == RELATIVE:
        _masses(spec, work, spec.region.control, work.lam_0)
    elif has_control(spec):
        work.lam_0[:] = 0.0


@kernel
def _masses(spec: Spec, work: Work, k: int, lam: Array) -> None:
    for g in range(spec.phi.shape[0]):
        mass = work.v[g, k] * divergence(spec.code, work.mean[g, k], lam[g]) if work.v[g, k] > 0.0 else 0.0
        lam[g] = mass if math.isfinite(mass) else 0.0


@kernel
def changes_of(spec: Spec, changes: Ints, k: int) -> int:
    """Return the number of changes of policy k, plus those of the control if bounds are relative."""
    if has_control(spec) and k != control_of(spec):
        return changes[k] + changes[control_of(spec)]
    return changes[k]


@kernel
def _is_fresh(stamps: Ints, changes: int, k: int, owner: int, leader: int) -> bool:
    return stamps[0, k] == changes and stamps[1, k] == owner and stamps[2, k] == leader


@kernel
def _stamp(stamps: Ints, changes: int, k: int, owner: int, leader: int) -> None:
    stamps[0, k] = changes
    stamps[1, k] = owner
    stamps[2, k] = leader
