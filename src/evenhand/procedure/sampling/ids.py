"""`ids`: information-directed selection by the estimates, with forced exploration."""

from __future__ import annotations

import math

from evenhand.compile import kernel
from evenhand.procedure.estimates import refresh
from evenhand.procedure.randomness import DECISIONS, two_uniforms
from evenhand.procedure.sampling.draw_cell import certain, count, least_sampled, with_minimum
from evenhand.procedure.sampling.ts_ids import from_weakest_alternative
from evenhand.procedure.spec import ACTIVE, Spec
from evenhand.procedure.state import ASKED, State, Work

# no cell may have fewer samples than this times sqrt(t), divided among the cells of a policy
FORCED = 0.3


@kernel
def choose(
    spec: Spec, state: State, work: Work, seed: int, replication: int, decision: int, group: int
) -> tuple[int, int]:
    """Return the next cell to sample."""
    k, g = forced(spec, state, work, group, FORCED * math.sqrt(float(state.clock[ASKED])))
    if k >= 0:
        return k, g
    leader = refresh(spec, state, work, True)
    _, u = two_uniforms(seed, decision, 0, replication, DECISIONS)
    k, g = from_weakest_alternative(spec, state, work, leader, group, u)
    if k < 0:
        k, g = least_sampled(spec, state, work, group)
    return with_minimum(spec, state, work, k, g)


@kernel
def forced(spec: Spec, state: State, work: Work, group: int, least: float) -> tuple[int, int]:
    """Return the least-sampled cell if it has fewer than `least` samples, else (-1, -1)."""
    groups, policies = spec.phi.shape
    found_k, found_g, fewest = -1, -1, least
    for g in range(groups):
        if spec.mode != ACTIVE and group >= 0 and g != group:
            continue
        for k in range(policies):
            if count(state, k, g) < fewest:
                found_k, found_g, fewest = k, g, count(state, k, g)
    if found_k >= 0:
        return certain(spec, work, found_k, found_g)
    return -1, -1
