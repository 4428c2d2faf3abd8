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
from evenhand.procedure.likelihood_bounds import (
    OWNER,
    bound_blocks,
    highest,
    refer_to,
    reset_bounds,
    span_of,
    store_bound,
)
from evenhand.procedure.log_space import NOT_COMPUTED, add
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import NONE, OUTCOMES, SAMPLES, Array, Ints, State, Work
from evenhand.procedure.stopping import kaufmann_koolen
from evenhand.procedure.stopping.kaufmann_koolen import strongest_metric, weakest_metric
from evenhand.theory import inner
from evenhand.theory.beat_bulk import beat_all, beat_one, beat_some, own_line
from evenhand.theory.bernoulli_bulk import BLOCK
from evenhand.theory.metrics import METRIC
from evenhand.theory.regions import relative

# stale rivals of a block above which they are solved together, and not one by one
FEW = 16


@kernel
def weakest_by_likelihood(spec: Spec, work: Work, leader: int) -> tuple[float, int]:
    """eq:stopping_statistics: return the smallest likelihood ratio and its alternative."""
    if _is_known(work, SAMPLES, leader):
        return work.weakest[SAMPLES], work.stamp_weakest[SAMPLES, 2]
    value, alternative = _least_ratio(spec, work, leader)
    _keep(work, SAMPLES, leader, value, alternative)
    return value, alternative


@kernel
def _is_known(work: Work, what: int, leader: int) -> bool:
    """Return whether nothing has changed since this kind of weakest alternative was found."""
    stamp = work.stamp_weakest[what]
    return stamp[0] == leader and stamp[1] == work.changes[what]


@kernel
def _keep(work: Work, what: int, leader: int, value: float, alternative: int) -> None:
    stamp = work.stamp_weakest[what]
    work.weakest[what] = value
    stamp[0], stamp[1], stamp[2] = leader, work.changes[what], alternative


@kernel
def _least_ratio(spec: Spec, work: Work, leader: int) -> tuple[float, int]:
    policies = spec.phi.shape[1]
    if leader == NONE or spec.region.kind not in (BOX, PENALTY, RELATIVE) or spec.guardrails.present:
        solve_rivals(spec, work, leader)
        value, alternative = _least(work, leader)
    elif spec.many and spec.region.kind == BOX:
        value, alternative = _weakest_of_many(spec, work, leader)
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
    level, slope = own_line(spec.shares, spec.indifference, leader, work.v, work.mean)
    lowest, first = math.inf, NONE
    for k in range(policies):
        if work.floor[k] < lowest and k != leader:
            lowest, first = work.floor[k], k
    value, alternative = math.inf, 0
    if first != NONE:
        value, alternative = _solved(spec, work, leader, first, level, slope), first
    enough = highest(work, value)
    for k in range(policies):
        if work.floor[k] <= enough and k != leader and k != first:
            mine = _solved(spec, work, leader, k, level, slope)
            if mine < value or (mine == value and k < alternative):
                value, alternative = mine, k
                enough = highest(work, value)
    return value, alternative


@kernel
def _weakest_of_many(spec: Spec, work: Work, leader: int) -> tuple[float, int]:
    """Do what `_weakest_rival` does, without blocks of policies whose lower bound is too high."""
    if work.bound_state[OWNER] != leader:
        refer_to(work, leader)
        bound_blocks(spec, work, leader)
    level, slope = own_line(spec.shares, spec.indifference, leader, work.v, work.mean)
    lowest, first = math.inf, NONE
    for block in range(work.lowest.size):
        if work.lowest[block] < lowest:
            start, stop = span_of(work, block)
            for k in range(start, stop):
                if work.floor[k] < lowest and k != leader:
                    lowest, first = work.floor[k], k
    value, alternative = math.inf, 0
    if first != NONE:
        value, alternative = _solved(spec, work, leader, first, level, slope), first
    for block in range(work.lowest.size):
        if work.lowest[block] <= highest(work, value):
            value, alternative = _weakest_of_block(
                spec, work, leader, block, value, alternative, level, slope
            )
    return value, alternative


@kernel
def _weakest_of_block(
    spec: Spec,
    work: Work,
    leader: int,
    block: int,
    value: float,
    alternative: int,
    level: float,
    slope: float,
) -> tuple[float, int]:
    """Return the weaker of this alternative and the rivals in a block, and update its bound."""
    start, stop = span_of(work, block)
    owner, stale, least = work.sample_changes[leader], 0, math.inf
    enough = highest(work, value)
    for k in range(start, stop):
        if work.floor[k] <= enough:
            stale += not _is_fresh(work.stamp_glr, work.sample_changes[k], k, owner, leader)
    if stale > FEW:
        _solve_block(spec, work, leader, start, stop)
    for k in range(start, stop):
        if k == leader:
            continue
        if k != alternative and work.floor[k] <= enough:
            mine = _solved(spec, work, leader, k, level, slope)
            if mine < value or (mine == value and k < alternative):
                value, alternative = mine, k
                enough = highest(work, value)
        least = min(least, work.floor[k])
    work.lowest[block] = least
    return value, alternative


@kernel
def _solve_block(spec: Spec, work: Work, leader: int, start: int, stop: int) -> None:
    """Solve all rivals from start to stop; their ratios are those of `_solve_one`, bit for bit."""
    for j in range(start, stop, BLOCK):
        end = min(j + BLOCK, stop)
        beat_some(
            spec.code, spec.region, spec.shares, spec.indifference, leader, j, end, work.v, work.mean,
            work.glr, work.lam_i, work.lam_k, work.lam_0, work.scratch,
        )  # fmt: skip
    for k in range(start, stop):
        _stamp(work.stamp_glr, work.sample_changes[k], k, work.sample_changes[leader], leader)
        store_bound(work, k)


@kernel
def _solved(spec: Spec, work: Work, leader: int, k: int, level: float, slope: float) -> float:
    """Return the likelihood ratio of rival k, solving it again only if its data have changed.

    Level and slope are those of the leader's `own_line`.
    """
    owner = work.sample_changes[leader]
    if not _is_fresh(work.stamp_glr, changes_of(spec, work.sample_changes, k), k, owner, leader):
        beat_one(
            spec.code, spec.region, spec.shares, spec.indifference, leader, k, level, slope, work.v,
            work.mean, work.glr, work.lam_i, work.lam_k, work.lam_0, work.scratch,
        )  # fmt: skip
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
                cost = enter_guardrails(spec, work, k)  # first: it writes scratch
                work.glr[k] += cost
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
        cost = enter_guardrails(spec, work, k)  # first: it writes scratch
        work.glr[k] += cost


@kernel
def weakest_by_evidence(spec: Spec, state: State, work: Work, leader: int) -> tuple[float, int]:
    """Return the smallest certified evidence (ln e-value) and its alternative.

    The alternative that was weakest last is evaluated first, then those whose evidence is stored; for the
    others it is enough to know that they are not weaker.
    """
    if _is_known(work, OUTCOMES, leader):
        return work.weakest[OUTCOMES], work.stamp_weakest[OUTCOMES, 2]
    value, alternative = _least_evidence(spec, state, work, leader)
    _keep(work, OUTCOMES, leader, value, alternative)
    return value, alternative


@kernel
def _least_evidence(spec: Spec, state: State, work: Work, leader: int) -> tuple[float, int]:
    policies = spec.phi.shape[1]
    if has_conditions(spec) and not has_control(spec):
        _renew_failing(spec, state, work, leader, math.inf)
    first, lowest = NONE, math.inf
    for k in range(policies):
        if k != leader and (first == NONE or work.against[k] < lowest):
            first, lowest = k, work.against[k]
    value, alternative = math.inf, 0
    if first != NONE:
        value, alternative = _evidence_against(spec, state, work, leader, first, math.inf), first
    if has_control(spec):
        _renew_failing(spec, state, work, leader, value)
    for k in range(policies):
        if k != leader and k != first and not _is_open(spec, work, leader, k, value):
            if _is_behind(spec, work, leader, k, value):
                continue
            mine = _evidence_against(spec, state, work, leader, k, value)
            if mine < value or (mine == value and k < alternative):
                value, alternative = mine, k
    k = _next_open(spec, work, leader, 0, value)
    while k < policies:
        mine = _evidence_against(spec, state, work, leader, k, value)
        if mine < value or (mine == value and k < alternative):
            value, alternative = mine, k
        k = _next_open(spec, work, leader, k + 1, value)
    if leader != NONE and has_conditions(spec):
        met, which = certified.meets_from_stored(spec, state, work, leader)
        if met < value:
            value, alternative = met, policies + which
    return value, alternative


@kernel
def _renew_failing(spec: Spec, state: State, work: Work, leader: int, enough: float) -> None:
    """Compute the evidence that rivals fail where it is not known, and may matter.

    By a loop over these alone, as in `_least_evidence`: neighbouring threads of a GPU, each with another
    policy, compute together.
    """
    k = _next_stale(spec, work, leader, 0, enough)
    while k < spec.phi.shape[1]:
        evidence_that_fails(spec, state, work, k)
        k = _next_stale(spec, work, leader, k + 1, enough)


@kernel
def _next_stale(spec: Spec, work: Work, leader: int, start: int, enough: float) -> int:
    for k in range(start, spec.phi.shape[1]):
        stale = k != leader and work.stamp_fails[k] != changes_of(spec, work.outcome_changes, k)
        if stale and not _is_behind(spec, work, leader, k, enough):
            return k
    return spec.phi.shape[1]


@kernel
def _is_behind(spec: Spec, work: Work, leader: int, k: int, enough: float) -> bool:
    """Return whether it is known that the leader is ahead of k by more evidence than `enough`.

    Then it does not matter whether k fails. Beside a control this saves most: each of its outcomes changes
    the evidence that any policy fails.
    """
    if not has_control(spec) or leader == NONE:
        return False
    fresh = _is_fresh(work.stamp_ahead, work.outcome_changes[k], k, work.outcome_changes[leader], leader)
    return fresh and work.ahead[k] > enough


@kernel
def _is_open(spec: Spec, work: Work, leader: int, k: int, enough: float) -> bool:
    """Return whether the evidence that the leader is ahead of k must be computed."""
    if leader == NONE or (has_conditions(spec) and work.fails[k] > enough):
        return False
    return _is_ahead_stale(work, leader, k, enough)


@kernel
def _next_open(spec: Spec, work: Work, leader: int, start: int, enough: float) -> int:
    for k in range(start, spec.phi.shape[1]):
        if k != leader and _is_open(spec, work, leader, k, enough):
            return k
    return spec.phi.shape[1]


@kernel
def _is_ahead_stale(work: Work, leader: int, k: int, enough: float) -> bool:
    if not _is_fresh(work.stamp_ahead, work.outcome_changes[k], k, work.outcome_changes[leader], leader):
        return True
    return work.up_to[k] < enough and work.ahead[k] > work.up_to[k]


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
    if _is_ahead_stale(work, leader, k, enough):
        work.ahead[k] = certified.ahead_from_stored(spec, state, work, leader, k, enough)
        work.up_to[k] = enough
        _stamp(work.stamp_ahead, work.outcome_changes[k], k, work.outcome_changes[leader], leader)
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
    met, which = certified.meets_from_stored(spec, state, work, leader)
    return met, policies + which


@kernel
def weakest_by_excess(spec: Spec, state: State, work: Work, leader: int) -> tuple[float, float, int]:
    """Return the ratio, threshold and code of the alternative that exceeds its threshold least."""
    policies = spec.phi.shape[1]
    if spec.guardrails.present:
        return _weakest_by_metric(spec, state, work, leader)
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
def _weakest_by_metric(spec: Spec, state: State, work: Work, leader: int) -> tuple[float, float, int]:
    """Do what `weakest_by_excess` does, with guard-rails: each metric has its own threshold."""
    value, needed, alternative = math.inf, 0.0, 0
    for k in range(spec.phi.shape[1]):
        if k != leader:
            mine, need = strongest_metric(spec, state, work, leader, k)
            if mine - need < value - needed:
                value, needed, alternative = mine, need, k
    if leader != NONE:
        mine, need, which = weakest_metric(spec, state, work, spec.kept, leader)
        if mine - need < value - needed:
            value, needed, alternative = mine, need, spec.phi.shape[1] + which
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
