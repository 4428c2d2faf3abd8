"""`ts-ids` for screening: the unclassified policy with the fewest samples is next.

Its estimates are on one side of its requirement. With probability `leader` a posterior draw is made too: if
it is on the other side, a cell is drawn that can show which is right; else one of the weakest condition, in
proportion to its evidence.
"""

from __future__ import annotations

import math

from evenhand.compile import kernel
from evenhand.procedure.alternatives import solve_cells
from evenhand.procedure.classification import settled_by
from evenhand.procedure.estimates import refresh
from evenhand.procedure.evidence import certified
from evenhand.procedure.guardrails import leave_any, meets_all
from evenhand.procedure.posterior import draw_policy
from evenhand.procedure.randomness import DECISIONS, two_uniforms
from evenhand.procedure.sampling.draw_cell import (
    certain,
    count,
    from_masses,
    least_sampled,
    least_sampled_cell,
    with_minimum,
)
from evenhand.procedure.sampling.ts_ids import from_broken_bounds, from_doubtful_failure
from evenhand.procedure.spec import CERTIFIED, PROPORTIONAL, Spec
from evenhand.procedure.state import NONE, State, Work


@kernel
def choose(
    spec: Spec, state: State, work: Work, seed: int, replication: int, decision: int, group: int
) -> tuple[int, int]:
    """Return the next cell."""
    refresh(spec, state, work, True)
    k = _unsettled(spec, state, work, group)
    if k == NONE:  # all are settled, and the stopping rule is not evaluated yet
        return least_sampled(spec, state, work, group)
    coin, u = two_uniforms(seed, decision, 0, replication, DECISIONS)
    allowed = work.margin[k] >= 0.0
    doubt = False
    if coin < spec.leader:
        draw_policy(spec, state, work, k, seed, replication, decision)
        doubt = meets_all(spec, spec.region, k, state.theta, state.rail_theta) != allowed
    if doubt and allowed:
        chosen, g = from_broken_bounds(spec, state, work, k, group, u)
    elif doubt:
        chosen, g = from_doubtful_failure(spec, state, work, k, group, u)
    else:
        chosen, g = _from_weakest(spec, state, work, k, group, u)
    if chosen < 0:
        chosen, g = certain(spec, work, k, group if group >= 0 else least_sampled_cell(state, k))
    return with_minimum(spec, state, work, chosen, g)


@kernel
def _unsettled(spec: Spec, state: State, work: Work, group: int) -> int:
    """Return the unclassified policy with the fewest samples (in the group that arrived, if any)."""
    found, fewest = NONE, math.inf
    for k in range(spec.phi.shape[1]):
        drawn = 0.0
        for g in range(spec.phi.shape[0]):
            if spec.mode != PROPORTIONAL or g == group:
                drawn += count(state, k, g)
        if drawn < fewest:
            value, needed = settled_by(spec, state, work, k)
            if value < needed:
                found, fewest = k, drawn
    return found


@kernel
def _from_weakest(spec: Spec, state: State, work: Work, k: int, group: int, u: float) -> tuple[int, int]:
    """Return a cell of policy k's weakest condition, or of the conditions that it fails."""
    if work.margin[k] < 0.0:
        solve_cells(spec, work, NONE, k)
        return from_masses(spec, work, k, NONE, group, u)
    if spec.stopping == CERTIFIED:
        _, which = certified.meets(spec, state, work, k)
    else:
        _, which = leave_any(spec, work, spec.region, k)
    solve_cells(spec, work, k, spec.phi.shape[1] + which)
    return from_masses(spec, work, k, NONE, group, u)
