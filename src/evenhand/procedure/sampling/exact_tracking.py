"""`exact-tracking`: follow the optimal weights at the estimates, solved anew (nearly) whenever outcomes come in.

What the paper's analysis assumes of Algorithm 1. The weights come from the fixed point w = sum over
pieces of nu_j w d^j / f_j (Qin and You 2025): each round the cheapest piece's cells gain in proportion to
the evidence they carry. D-tracking (Garivier and Kaufmann 2016) by default, C-tracking where the
procedure says so. For those who want the textbook rule at its best; costs about fifty times as much
computing as `ts-ids` for about as many samples.
"""

from __future__ import annotations

from evenhand._kernel import kernel
from evenhand.procedure.estimates import refresh
from evenhand.procedure.sampling.ascent import climb_directed, effective, pieces_at, slopes
from evenhand.procedure.sampling.tracking import follow, spare, spread
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import SEEN, TOLD, State, Work

ROUNDS = 60
# round i moves the weights by 1 / (HELD + i): the last weights keep about half their say
HELD = 60
# weights that reached zero must be able to come back
REVIVED = 0.01


@kernel
def choose(spec: Spec, state: State, work: Work, group: int) -> tuple[int, int]:
    """The next cell."""
    if state.clock[SEEN] != state.clock[TOLD]:
        state.clock[SEEN] = state.clock[TOLD]
        _solve(spec, state, work)
    return follow(spec, state, work, state.w, group)


@kernel
def _solve(spec: Spec, state: State, work: Work) -> None:
    leader = refresh(spec, state, work, True)
    v, c, values = spare(spec, work, 0), spare(spec, work, 1), spare(spec, work, 2)[0]
    spread(spec, state.w, REVIVED, state.w)
    for n in range(1, ROUNDS + 1):
        effective(spec, state, state.w, v)
        piece = pieces_at(spec, work, leader, v, values)
        value = slopes(spec, state, work, leader, piece, v, c)
        if not value > 0.0:
            # a tie or an estimate on its bound: no sample tells yet, so keep all cells of the policies concerned alive
            c[:, piece] = 1.0
            if leader >= 0:
                c[:, leader] = 1.0
            value = _total(state.w, c)
        climb_directed(spec, state.w, c, value, 1.0 / (HELD + n))


@kernel
def _total(w, c) -> float:  # type: ignore[no-untyped-def]
    total = 0.0
    for g in range(w.shape[0]):
        for k in range(w.shape[1]):
            total += w[g, k] * c[g, k]
    return total
