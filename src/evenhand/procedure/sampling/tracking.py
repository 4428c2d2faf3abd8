"""C- and D-tracking of weights (Garivier and Kaufmann 2016), with a minimum for every cell.

The candidates depend on the mode. Active: cells. Proportional: the policies within the group that
arrived, whose weights sum to its arrival share. Agnostic: policies, whose weights are split as groups
arrive. Weights w (L, K) sum to 1 in all three.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.procedure.sampling.draw_cell import certain, count
from evenhand.procedure.spec import ACTIVE, AGNOSTIC, PROPORTIONAL, Spec
from evenhand.procedure.state import PENDING, STAGE, TOLD, State, Work

Array = NDArray[np.float64]

# no candidate may have fewer samples than this times sqrt(t / candidates)
FLOOR = 0.5
# at most this share of the samples is spread evenly for the minimum when C-tracking
MOST_SPREAD = 0.5


@kernel
def samples(state: State) -> float:
    """Return t: all samples, pending ones included."""
    return float(state.clock[TOLD] + state.clock[PENDING])


@kernel
def group_range(spec: Spec, group: int) -> tuple[int, int]:
    """Return the range of groups to compare: all, the arrived one, or one for the whole policy."""
    if spec.mode == ACTIVE:
        return 0, spec.phi.shape[0]
    return (group, group + 1) if spec.mode == PROPORTIONAL else (0, 1)


@kernel(inlined=True)
def entry_of(spec: Spec, table: Array, k: int, g: int) -> float:
    """Return a cell's entry, or its policy's total in agnostic mode."""
    if spec.mode != AGNOSTIC:
        return table[g, k]
    total = 0.0
    for h in range(table.shape[0]):
        total += table[h, k]
    return total


@kernel(inlined=True)
def samples_of(spec: Spec, state: State, k: int, g: int) -> float:
    """Return the samples of a cell, or of its policy in agnostic mode; pending ones included."""
    return entry_of(spec, state.n, k, g) + entry_of(spec, state.out, k, g)


@kernel(inlined=True)
def even_weight(spec: Spec, g: int) -> float:
    """Return the weight of a cell of group g for samples spread as evenly as the mode allows."""
    groups, policies = spec.phi.shape
    return 1.0 / (groups * policies) if spec.mode == ACTIVE else spec.arrivals[g] / policies


@kernel
def mix_with_even(spec: Spec, w: Array, share: float, mixed: Array) -> None:
    """Write mixed = (1 - share) w + share even."""
    groups, policies = spec.phi.shape
    for g in range(groups):
        for k in range(policies):
            mixed[g, k] = (1.0 - share) * w[g, k] + share * even_weight(spec, g)


@kernel
def begin_tracking(spec: Spec, state: State) -> None:
    """Initialise a tracking rule: even weights, and past samples count as tracked."""
    if state.clock[STAGE] > 0:
        return
    state.clock[STAGE] = 1
    groups, policies = spec.phi.shape
    for g in range(groups):
        for k in range(policies):
            state.w[g, k] = even_weight(spec, g)
            state.track[g, k] = count(state, k, g)


@kernel
def track(spec: Spec, state: State, work: Work, w: Array, group: int) -> tuple[int, int]:
    """Return the next cell by tracking of weights w, with a minimum for all cells."""
    candidates, t = _reach(spec, state, group)
    if spec.c_tracking:
        mixed = work.spare[7]
        # summed over time this is FLOOR sqrt(t / candidates) for each candidate
        mix_with_even(spec, w, min(MOST_SPREAD, 0.5 * FLOOR * math.sqrt(candidates / t)), mixed)
        return c_track(spec, state, work, mixed, group)
    k, g = _least_sampled(spec, state, group, FLOOR * math.sqrt(t / candidates))
    if k >= 0:
        return certain(spec, work, k, g)
    return d_track(spec, state, work, w, group)


@kernel
def _reach(spec: Spec, state: State, group: int) -> tuple[float, float]:
    """Return the number of candidates and their total samples, this one included."""
    groups, policies = spec.phi.shape
    if spec.mode == PROPORTIONAL:
        arrived = 1.0
        for k in range(policies):
            arrived += count(state, k, group)
        return float(policies), arrived
    return float(policies * groups if spec.mode == ACTIVE else policies), samples(state) + 1.0


@kernel
def c_track(spec: Spec, state: State, work: Work, w: Array, group: int) -> tuple[int, int]:
    """eq:c_tracking: return the candidate furthest behind the sum of all weights so far."""
    add_weights(spec, state, w, group)
    return _furthest_behind(spec, state, work, state.track, 1.0, group)


@kernel
def add_weights(spec: Spec, state: State, w: Array, group: int) -> None:
    """Add the weights of one sample: S(t) = S(t-1) + w (only the arrived column)."""
    groups, policies = spec.phi.shape
    column = 1.0
    first, last = (group, group + 1) if spec.mode == PROPORTIONAL else (0, groups)
    if spec.mode == PROPORTIONAL:
        column = _column(w, group)
    for g in range(first, last):
        for k in range(policies):
            state.track[g, k] += w[g, k] / column if column > 0.0 else 1.0 / policies


@kernel
def d_track(spec: Spec, state: State, work: Work, w: Array, group: int) -> tuple[int, int]:
    """Return the candidate furthest behind its current weight times the number of samples."""
    _, t = _reach(spec, state, group)
    if spec.mode == PROPORTIONAL:
        column = _column(w, group)
        t = t / column if column > 0.0 else 0.0
    return _furthest_behind(spec, state, work, w, t, group)


@kernel
def _furthest_behind(
    spec: Spec, state: State, work: Work, owed: Array, scale: float, group: int
) -> tuple[int, int]:
    """Return argmax over the candidates of scale owed - N; the first on ties."""
    best_k, best_g, most = 0, max(group, 0), -math.inf
    first, last = group_range(spec, group)
    for g in range(first, last):
        for k in range(spec.phi.shape[1]):
            behind = scale * entry_of(spec, owed, k, g) - samples_of(spec, state, k, g)
            if behind > most:
                best_k, best_g, most = k, g, behind
    return certain(spec, work, best_k, best_g)


@kernel
def _least_sampled(spec: Spec, state: State, group: int, least: float) -> tuple[int, int]:
    """Return the candidate with the fewest samples if it has fewer than `least`, else (-1, -1)."""
    found_k, found_g, fewest = -1, -1, least
    first, last = group_range(spec, group)
    for g in range(first, last):
        for k in range(spec.phi.shape[1]):
            has = samples_of(spec, state, k, g)
            if has < fewest:
                found_k, found_g, fewest = k, g, has
    return found_k, found_g


@kernel
def _column(w: Array, g: int) -> float:
    total = 0.0
    for k in range(w.shape[1]):
        total += w[g, k]
    return total
