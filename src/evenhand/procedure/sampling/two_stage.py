"""`two-stage`: decide which policies meet the requirement, then compare those.

After Andradottir and Kim (2010): policies whose feasibility is undecided are sampled in turn, where each is
nearest to its bounds, until the evidence passes the threshold either way; then the feasible ones are
compared. A policy that has already lost to one that clearly meets the requirement is not sampled further, so
that one exactly on its bound cannot delay the procedure indefinitely. A baseline: it also decides feasibility
where the answer does not depend on it.
"""

from __future__ import annotations

import math

from evenhand.compile import kernel
from evenhand.procedure.alternatives import (
    evidence_of_lead,
    evidence_that_fails,
    solve_cells,
    solve_rivals,
    weakest_by_evidence,
    weakest_by_likelihood,
)
from evenhand.procedure.estimates import refresh
from evenhand.procedure.evidence import certified
from evenhand.procedure.evidence.by_family import threshold
from evenhand.procedure.evidence.thresholds import stylised_threshold
from evenhand.procedure.guardrails import enter_all, has_conditions, leave_any
from evenhand.procedure.randomness import DECISIONS, two_uniforms
from evenhand.procedure.sampling.draw_cell import (
    certain,
    count,
    from_masses,
    least_sampled,
    least_sampled_cell,
    with_minimum,
)
from evenhand.procedure.spec import CERTIFIED, Spec
from evenhand.procedure.state import NONE, TOLD, State, Work


@kernel
def choose(
    spec: Spec, state: State, work: Work, seed: int, replication: int, decision: int, group: int
) -> tuple[int, int]:
    """Return the next cell to sample."""
    leader = refresh(spec, state, work, True)
    _, u = two_uniforms(seed, decision, 0, replication, DECISIONS)
    if spec.stopping == CERTIFIED:
        _, alternative = weakest_by_evidence(spec, state, work, leader)
    else:
        solve_rivals(spec, work, leader)  # each rival's own ratio shows whether it has already lost
        _, alternative = weakest_by_likelihood(spec, work, leader)
    first = _unsettled(spec, state, work, leader) if has_conditions(spec) else NONE
    if first != NONE:
        leader, alternative = _own_alternative(spec, work, first)
    i, k = solve_cells(spec, work, leader, alternative)
    k, g = from_masses(spec, work, i, k, group, u)
    if k == NONE and first != NONE:
        k, g = certain(spec, work, first, group if group >= 0 else least_sampled_cell(state, first))
    elif k == NONE:
        k, g = least_sampled(spec, state, work, group)
    return with_minimum(spec, state, work, k, g)


@kernel
def _unsettled(spec: Spec, state: State, work: Work, leader: int) -> int:
    """Return the least-sampled policy whose feasibility is undecided and still matters.

    NONE when there is no such policy: the second stage.
    """
    groups, policies = spec.phi.shape
    bar = _threshold(spec, state)
    standing = leader != NONE and _feasibility(spec, state, work, leader) >= bar
    found, fewest = NONE, math.inf
    for k in range(policies):
        drawn, out = 0.0, 0.0
        for g in range(groups):
            drawn += count(state, k, g)
            out += state.out[g, k]
        if 2.0 * out > drawn:
            continue  # more samples are pending than observed: wait for them
        if drawn >= fewest or _feasibility(spec, state, work, k) >= bar:
            continue
        if standing and k != leader and _against(spec, state, work, leader, k, bar) >= bar:
            continue
        found, fewest = k, drawn
    return found


@kernel
def _own_alternative(spec: Spec, work: Work, k: int) -> tuple[int, int]:
    """Return the leader and code, as for `solve_cells`, of "policy k crosses its requirement"."""
    if work.margin[k] < 0.0:
        return NONE, k
    _, which = leave_any(spec, work, spec.kept, k)
    return k, spec.phi.shape[1] + which


@kernel
def _threshold(spec: Spec, state: State) -> float:
    """Return the threshold of the stopping rule, or the stylised one where the rule has none."""
    if spec.stopping == CERTIFIED:
        return threshold(spec)
    return stylised_threshold(state.clock[TOLD], spec.delta)


@kernel
def _feasibility(spec: Spec, state: State, work: Work, k: int) -> float:
    """Return the evidence for the side of its requirement on which policy k's estimates lie."""
    inside = work.margin[k] >= 0.0
    if spec.stopping == CERTIFIED:
        return certified.meets(spec, state, work, k)[0] if inside else certified.fails(spec, state, work, k)
    if inside:
        return leave_any(spec, work, spec.kept, k)[0]
    return enter_all(spec, work, k)


@kernel
def _against(spec: Spec, state: State, work: Work, leader: int, k: int, enough: float) -> float:
    """Return the evidence that k is not a better answer than the leader; up to `enough`."""
    if spec.stopping == CERTIFIED:
        ahead = evidence_of_lead(spec, state, work, leader, k, enough)  # both use the same scratch
        fails = evidence_that_fails(spec, state, work, k)
        return max(ahead, fails)
    return work.glr[k]
