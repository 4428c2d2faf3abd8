"""`exact-tracking`: track the optimal weights at the estimates, solved at each new outcome.

This is what the paper's analysis assumes of Algorithm 1. The weights come from the fixed point w = sum over
alternatives j of nu_j w d_j / f_j (Qin and You 2025): in each round, the cells of the cheapest alternative
gain in proportion to the evidence they carry. D-tracking (Garivier and Kaufmann 2016), or C-tracking where
the procedure asks for it. The computation takes about fifty times as long as for `ts-ids`.
"""

from __future__ import annotations

from evenhand.compile import kernel
from evenhand.procedure.estimates import refresh
from evenhand.procedure.sampling import none_feasible
from evenhand.procedure.sampling.tracking import begin, follow, spread
from evenhand.procedure.sampling.weight_ascent import (
    climb_directed,
    effective,
    need_where_no_slope,
    pieces_at,
    slopes,
)
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import NONE, SEEN, TOLD, State, Work

ROUNDS = 60
# round n moves the weights by 1 / (HELD + n), so that the previous weights keep about half their influence
HELD = 60
# weights near 0 must be able to grow again
REVIVED = 0.01


@kernel
def choose(spec: Spec, state: State, work: Work, group: int) -> tuple[int, int]:
    """Return the next cell: eq:external_opt solved at the estimates, from the last weights."""
    begin(spec, state)
    v, c, values = work.spare[0], work.spare[1], work.spare[2][0]
    rounds, leader = 0, NONE
    if state.clock[SEEN] != state.clock[TOLD]:
        state.clock[SEEN] = state.clock[TOLD]
        leader = refresh(spec, state, work, True)
        if leader == NONE and none_feasible.has_closed_form(spec):
            none_feasible.weigh(spec, state, work, state.w, v)
        else:
            rounds = ROUNDS
            spread(spec, state.w, REVIVED, state.w)
    for n in range(1, rounds + 1):
        effective(spec, state, work, state.w, v)
        piece = pieces_at(spec, work, leader, v, 0.0, values)
        slopes(spec, state, work, leader, piece, v, c)
        need_where_no_slope(spec, state, leader, piece, c)
        climb_directed(spec, state.w, c, 1.0 / (HELD + n))
    return follow(spec, state, work, state.w, group)
