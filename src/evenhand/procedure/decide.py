"""The decision functions: the next cell to sample, and when to stop with which answer.

They are pure and compiled, and use no clock, disk, network or global state. The simulator and the live
experiment call only these:

    next_cell   the next cell to sample (changes the state of the rule, not the counts)
    is_due      whether the stopping rule must be checked now
    check       the stopping rule, on the observed outcomes
"""

from __future__ import annotations

import math

from evenhand.compile import kernel
from evenhand.procedure.acceptable import strongest
from evenhand.procedure.alternatives import (
    evidence_of_likeliest,
    weakest_by_evidence,
    weakest_by_excess,
    weakest_by_likelihood,
)
from evenhand.procedure.classification import first_allowed, weakest_classification
from evenhand.procedure.estimates import refresh
from evenhand.procedure.evidence import certified
from evenhand.procedure.evidence.thresholds import cost_of_checks, stylised_threshold
from evenhand.procedure.initial_samples import initial_cell
from evenhand.procedure.log_space import NOT_COMPUTED
from evenhand.procedure.randomness import DECISIONS as DECISION_STREAM
from evenhand.procedure.randomness import uniform as uniform_number
from evenhand.procedure.sampling import (
    classify,
    exact_tracking,
    frank_wolfe,
    ids,
    ocba_co,
    oracle,
    policy_track_and_stop,
    sequential_halving,
    top_two,
    track_and_stop,
    ts_ids,
    two_stage,
    uniform,
)
from evenhand.procedure.sampling.draw_cell import (
    as_mode_requires,
    certain,
    count,
    least_sampled_cell,
    least_sampled_policy,
)
from evenhand.procedure.spec import (
    ACTIVE,
    BUDGET,
    CALIBRATED,
    CERTIFIED,
    EXACT_TRACKING,
    FRANK_WOLFE,
    IDS,
    KAUFMANN_KOOLEN,
    OCBA_CO,
    ORACLE,
    POLICY_TRACK_AND_STOP,
    SEQUENTIAL_HALVING,
    TOP_TWO,
    TRACK_AND_STOP,
    TS_IDS,
    TWO_STAGE,
    Spec,
)
from evenhand.procedure.state import (
    ANSWER,
    DECIDED,
    DECISIONS,
    EMPTY,
    EVIDENCE,
    EXHAUSTED,
    FUTILE,
    NEEDED,
    NOT_COMPUTED_TIMES,
    PENDING,
    SHORT,
    STARTED,
    STOPPED,
    TOLD,
    WEAKEST,
    State,
    Work,
    mark_samples_changed,
)
from evenhand.procedure.stopping import futility


@kernel
def next_cell(
    spec: Spec, state: State, work: Work, seed: int, replication: int, group: int
) -> tuple[int, int]:
    """Return the next cell to sample as (policy, group).

    `group` is the group that arrived, or -1; in agnostic mode the returned group is -1.
    """
    decision = state.clock[DECISIONS]
    state.clock[DECISIONS] += 1
    k, g = _starting_cell(spec, state, work, seed, replication, decision, group)
    if k < 0:
        k, g = _by_rule(spec, state, work, seed, replication, decision, group)
    return as_mode_requires(spec, k, g, group)


@kernel
def _by_rule(
    spec: Spec, state: State, work: Work, seed: int, replication: int, decision: int, group: int
) -> tuple[int, int]:
    rule = spec.sampling
    if spec.screens and rule == TS_IDS:
        return classify.choose(spec, state, work, seed, replication, decision, group)
    if rule == TS_IDS:
        return ts_ids.choose(spec, state, work, seed, replication, decision, group)
    if rule == IDS:
        return ids.choose(spec, state, work, seed, replication, decision, group)
    if rule == TRACK_AND_STOP:
        return track_and_stop.choose(spec, state, work, group)
    if rule == EXACT_TRACKING:
        return exact_tracking.choose(spec, state, work, group)
    if rule == FRANK_WOLFE:
        return frank_wolfe.choose(spec, state, work, group)
    if rule == TOP_TWO:
        return top_two.choose(spec, state, work, seed, replication, decision, group)
    if rule == POLICY_TRACK_AND_STOP:
        return policy_track_and_stop.choose(spec, state, work, seed, replication, decision, group)
    if rule == TWO_STAGE:
        return two_stage.choose(spec, state, work, seed, replication, decision, group)
    if rule == OCBA_CO:
        return ocba_co.choose(spec, state, work, group)
    if rule == SEQUENTIAL_HALVING:
        return sequential_halving.choose(spec, state, work, group)
    if rule == ORACLE:
        return oracle.choose(spec, state, work, group)
    return uniform.choose(spec, state, work, group)


@kernel
def _starting_cell(
    spec: Spec, state: State, work: Work, seed: int, replication: int, decision: int, group: int
) -> tuple[int, int]:
    """Return the next cell among the initial samples of every cell, in order.

    A dropped sample is requested again; (-1, -1) when all of them are pending.
    """
    groups, policies = spec.phi.shape
    if spec.mode != ACTIVE:
        k = _starting_policy(spec, state, seed, replication, decision, group)
        g = group if group >= 0 else least_sampled_cell(state, k)
        if count(state, k, g) < spec.initial[g, k] or state.clock[EMPTY] > 0:
            return certain(spec, work, k, g)
        return -1, -1
    if state.clock[STARTED] < spec.initial_total:
        started = state.clock[STARTED]
        cell = initial_cell(
            spec.initial_levels, spec.initial_cells, spec.random_order, started, seed, replication
        )
        state.clock[STARTED] += 1
        return certain(spec, work, cell % policies, cell // policies)
    if state.clock[SHORT] > 0 or state.clock[EMPTY] > 0:
        state.clock[SHORT] = max(state.clock[SHORT] - 1, 0)
        for g in range(groups):
            for k in range(policies):
                if count(state, k, g) < spec.initial[g, k]:
                    return certain(spec, work, k, g)
        if state.clock[EMPTY] > 0:
            # all initial samples are pending and some cell has no outcome yet: keep all cells level
            k = least_sampled_policy(state, -1)
            return certain(spec, work, k, least_sampled_cell(state, k))
    return -1, -1


@kernel
def _starting_policy(spec: Spec, state: State, seed: int, replication: int, decision: int, group: int) -> int:
    """Return the policy with the fewest samples in the group that arrived, or of all groups (-1).

    With uneven initial samples, of the policies that lack some, if there are any. Ties go to the first
    policy, or in random order to one that is drawn.
    """
    if not spec.uneven and not spec.random_order:
        return least_sampled_policy(state, group)
    best, fewest, lacks, ties = 0, math.inf, False, 0
    for k in range(spec.phi.shape[1]):
        drawn, short = 0.0, False
        for g in range(spec.phi.shape[0]):
            if group < 0 or g == group:
                drawn += count(state, k, g)
                short = short or count(state, k, g) < spec.initial[g, k]
        if (short or not lacks) and (drawn < fewest or short != lacks):
            best, fewest, lacks, ties = k, drawn, short, 1
        elif spec.random_order and short == lacks and drawn == fewest:
            ties += 1
            if uniform_number(seed, decision, k, replication, DECISION_STREAM) * ties < 1.0:
                best = k
    return best


@kernel
def is_due(spec: Spec, state: State) -> bool:
    """Return whether the stopping rule must be checked now.

    After every batch, once every cell has its initial samples; and at the end, even where cells are empty.
    """
    told = state.clock[TOLD]
    if state.clock[EMPTY] > 0:
        return told >= spec.cap
    if spec.mode == ACTIVE:
        told -= spec.initial_total
    return told >= 0 and (told % spec.batch == 0 or state.clock[TOLD] >= spec.cap)


@kernel
def check(spec: Spec, state: State, work: Work) -> None:
    """Check the stopping rule and record the evidence, the threshold and the decision, if any."""
    if state.clock[EMPTY] > 0:
        # only at the end: in some groups no unit may have arrived
        state.clock[STOPPED] = EXHAUSTED
        return
    told_only = state.clock[PENDING] > 0 and spec.stopping != CERTIFIED
    if told_only:
        _mark_pending(state, work)
    leader = refresh(spec, state, work, not told_only)
    at_cap = state.clock[TOLD] >= spec.cap
    if spec.several and spec.stopping == BUDGET:
        leader = work.lead[0]
    if spec.screens:
        leader = first_allowed(work)
        value, needed, alternative = weakest_classification(spec, state, work)
        if spec.stopping == BUDGET:
            needed = math.inf
    else:
        value, needed, alternative = _weakest_evidence(spec, state, work, leader, at_cap)
    if spec.several and spec.stopping != BUDGET:
        leader, value, needed, alternative = strongest(spec, state, work, leader, value, needed, alternative)
    if told_only:
        _mark_pending(state, work)
    state.level[EVIDENCE], state.level[NEEDED], state.level[WEAKEST] = value, needed, float(alternative)
    state.clock[ANSWER] = leader
    state.level[NOT_COMPUTED_TIMES] += value == NOT_COMPUTED  # reported, never used in a decision
    if value >= needed or (at_cap and spec.stopping == BUDGET and spec.cap >= spec.level):
        state.clock[STOPPED] = DECIDED
    elif at_cap:
        state.clock[STOPPED] = EXHAUSTED
    elif _is_futile(spec, state, work, leader, value, needed, alternative):
        state.clock[STOPPED] = FUTILE


@kernel
def _is_futile(
    spec: Spec, state: State, work: Work, leader: int, value: float, needed: float, alternative: int
) -> bool:
    """Return whether the estimated probability of a decision before the cap is too small to continue."""
    if not spec.has_futility or value == NOT_COMPUTED:
        return False
    return futility.chance_to_decide(spec, state, work, leader, value, needed, alternative) < spec.futility


@kernel
def _weakest_evidence(
    spec: Spec, state: State, work: Work, leader: int, at_cap: bool
) -> tuple[float, float, int]:
    """Return the evidence of the weakest alternative, its threshold and its code."""
    rule = spec.stopping
    if rule == BUDGET and not at_cap:
        return 0.0, math.inf, 0
    if rule in (CERTIFIED, BUDGET):
        needed = math.inf if rule == BUDGET else certified.threshold(spec)
        if spec.many:
            # one alternative below the threshold is enough to continue
            value, alternative = evidence_of_likeliest(spec, state, work, leader)
            if value < needed:
                return value, needed, alternative
        value, alternative = weakest_by_evidence(spec, state, work, leader)
        return value, needed, alternative
    if rule == KAUFMANN_KOOLEN:
        return weakest_by_excess(spec, state, work, leader)
    value, alternative = weakest_by_likelihood(spec, work, leader)
    told = state.clock[TOLD]
    if rule == CALIBRATED:
        return value, spec.level + cost_of_checks(told), alternative
    return value, stylised_threshold(told, spec.delta), alternative


@kernel
def _mark_pending(state: State, work: Work) -> None:
    """Mark policies with pending samples for a new estimate.

    Pending samples count for the allocation, not for the evidence.
    """
    groups, policies = state.n.shape
    for k in range(policies):
        for g in range(groups):
            if state.out[g, k] > 0.0:
                mark_samples_changed(work, k)
                break
