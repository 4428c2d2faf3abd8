"""`sequential-halving`: each round keeps the half with the least evidence against it.

Sequential halving (Karnin, Koren and Somekh 2013) over policies, with equal samples for all cells of the
remaining policies. Policies are ranked by the evidence against "this one is feasible and at least as good as
the leader", which combines requirement and mean on one scale. For a `budget` only: the budget fixes the
rounds, and an eliminated policy is never sampled again.
"""

from __future__ import annotations

import math

from evenhand.compile import kernel
from evenhand.procedure.alternatives import solve_rivals
from evenhand.procedure.estimates import refresh
from evenhand.procedure.guardrails import control_of
from evenhand.procedure.sampling.draw_cell import certain
from evenhand.procedure.sampling.tracking import group_range, samples, samples_of
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import STAGE, State, Work

# bisections to find the evidence that separates the halves; closer values are ties, resolved by index
PARTINGS = 80


@kernel
def choose(spec: Spec, state: State, work: Work, group: int) -> tuple[int, int]:
    """Return the least-sampled cell of the remaining policies (those with state.w > 0)."""
    rounds = _rounds(spec.phi.shape[1])
    while state.clock[STAGE] + 1 < rounds and samples(state) * rounds >= spec.cap * (
        state.clock[STAGE] + 1.0
    ):
        leader = refresh(spec, state, work, True)
        solve_rivals(spec, work, leader)
        _halve(state, work, leader, control_of(spec))
        state.clock[STAGE] += 1
    return _least_sampled_survivor(spec, state, work, group)


@kernel
def _rounds(policies: int) -> int:
    """Return ceil(log2 K)."""
    rounds = 0
    while (1 << rounds) < policies:
        rounds += 1
    return max(rounds, 1)


@kernel
def _halve(state: State, work: Work, leader: int, control: int) -> None:
    """Keep the control and the half of the remaining policies with the least evidence against them."""
    alive, highest = 0, 0.0
    for k in range(state.w.shape[1]):
        if state.w[0, k] > 0.0:
            alive += 1
            highest = max(highest, _against(work, leader, control, k))
    keep = (alive + 1) // 2
    low, high = 0.0, highest  # at least `keep` policies lie at or below high
    for _ in range(PARTINGS):
        middle = 0.5 * (low + high)
        if _up_to(state, work, leader, control, middle) >= keep:
            high = middle
        else:
            low = middle
    for k in range(state.w.shape[1]):
        if state.w[0, k] > 0.0:
            if (keep > 0 and _against(work, leader, control, k) <= high) or k == control:
                keep -= 1
            else:
                state.w[:, k] = 0.0


@kernel
def _against(work: Work, leader: int, control: int, k: int) -> float:
    """Return the evidence that k is not the answer; the largest finite number if it cannot be."""
    return 0.0 if k in (leader, control) else min(work.glr[k], 1e300)


@kernel
def _up_to(state: State, work: Work, leader: int, control: int, bar: float) -> int:
    found = 0
    for k in range(state.w.shape[1]):
        if state.w[0, k] > 0.0 and _against(work, leader, control, k) <= bar:
            found += 1
    return found


@kernel
def _least_sampled_survivor(spec: Spec, state: State, work: Work, group: int) -> tuple[int, int]:
    best_k, best_g, fewest = 0, max(group, 0), math.inf
    first, last = group_range(spec, group)
    for g in range(first, last):
        for k in range(spec.phi.shape[1]):
            if state.w[g, k] > 0.0 and samples_of(spec, state, k, g) < fewest:
                best_k, best_g, fewest = k, g, samples_of(spec, state, k, g)
    return certain(spec, work, best_k, best_g)
