"""`track-and-stop`: the paper's Algorithm 1, for replication; only its projection is replaced.

After new outcomes, `steps` projected subgradient steps from the last weights (the closed form where no policy
is feasible), then C-tracking of the weights mixed with a floor. With a constant step the weights do not
converge, which wastes a large part of the samples; `diminishing` divides the step by |c| sqrt(n), n counting
all steps so far, and converges.
"""

from __future__ import annotations

import math

from evenhand.compile import kernel
from evenhand.procedure.estimates import refresh
from evenhand.procedure.sampling import none_feasible
from evenhand.procedure.sampling.tracking import begin_tracking, c_track, mix_with_even, samples
from evenhand.procedure.sampling.weight_ascent import alternatives_at, climb_projected, dot, effective, slopes
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import NONE, SEEN, TOLD, UPDATES, State, Work


@kernel
def choose(spec: Spec, state: State, work: Work, group: int) -> tuple[int, int]:
    """alg:TaSCS: return the next cell to sample."""
    begin_tracking(spec, state)
    v, c, values, mixed = work.spare[0], work.spare[1], work.spare[2][0], work.spare[3]
    rounds, leader = 0, NONE
    if state.clock[SEEN] != state.clock[TOLD]:
        # once per batch: the estimates change only with new outcomes
        state.clock[SEEN] = state.clock[TOLD]
        leader = refresh(spec, state, work, True)
        rounds = spec.steps
        if leader == NONE and none_feasible.has_closed_form(spec):
            none_feasible.optimal_weights(spec, state, work, state.w, v)
            rounds = 0
    for _ in range(rounds):
        effective(spec, state, work, state.w, v)
        alternative = alternatives_at(spec, work, leader, v, 0.0, values)
        slopes(spec, state, work, leader, alternative, v, c)
        state.clock[UPDATES] += 1
        alpha = spec.step
        if spec.diminishing:
            alpha /= max(math.sqrt(dot(c, c) * state.clock[UPDATES]), 1e-100)
        climb_projected(spec, state.w, c, alpha)
    # (1 - K L epsilon) w + epsilon lies in the trimmed simplex, within K L epsilon of w
    mix_with_even(spec, state.w, spec.phi.size * _epsilon(spec, state), mixed)
    return c_track(spec, state, work, mixed, group)


@kernel
def _epsilon(spec: Spec, state: State) -> float:
    """Return epsilon_t = (K^2 L^2 + t)^(-1/2) / 2, t counted after the initial samples."""
    cells = float(spec.phi.size)
    t = max(samples(state) - spec.initial_total, 0.0)
    return 0.5 / math.sqrt(cells * cells + t)
