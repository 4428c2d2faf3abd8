"""Following weights: C- and D-tracking (Garivier and Kaufmann 2016) and the floor under every cell, in all three modes.

Weights w (L, K) sum to 1. Where groups arrive by themselves (proportional) a column sums to its arrival
share and only the arrived column is followed; where the group is met afterwards (agnostic) every row is
split as groups arrive and policies are followed.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand._kernel import kernel
from evenhand.procedure.sampling.pick import count, surely
from evenhand.procedure.spec import ACTIVE, AGNOSTIC, PROPORTIONAL, Spec
from evenhand.procedure.state import PENDING, STAGE, TOLD, State, Work

Array = NDArray[np.float64]

# at most this share of the samples is spread evenly when C-tracking; it falls like FLOOR / 2 sqrt(cells / t)
MOST_SPREAD = 0.5
# no cell may have fewer samples than this times sqrt(t / cells) when D-tracking
FLOOR = 0.5


@kernel
def samples(state: State) -> float:
    """t: all samples, those still out included."""
    return float(state.clock[TOLD] + state.clock[PENDING])


@kernel
def spare(spec: Spec, work: Work, j: int) -> Array:
    """The j-th of the eight (L, K) tables at the end of the scratch, which belong to the sampling rule."""
    groups, policies = spec.phi.shape
    cells = groups * policies
    start = work.scratch.size - (8 - j) * cells
    return work.scratch[start : start + cells].reshape((groups, policies))


@kernel
def even(spec: Spec, g: int) -> float:
    """The weight of a cell of group g when samples are spread evenly, as far as the mode allows."""
    groups, policies = spec.phi.shape
    return 1.0 / (groups * policies) if spec.mode == ACTIVE else spec.arrivals[g] / policies


@kernel
def spread(spec: Spec, w: Array, share: float, mixed: Array) -> None:
    """mixed = (1 - share) w + share even: every cell keeps a little weight."""
    groups, policies = spec.phi.shape
    for g in range(groups):
        for k in range(policies):
            mixed[g, k] = (1.0 - share) * w[g, k] + share * even(spec, g)


@kernel
def remember_start(state: State) -> None:
    """The samples drawn before the rule took over count as drawn at its wish."""
    if state.clock[STAGE] == 0:
        state.clock[STAGE] = 1
        state.track[:, :] = state.n
        state.track += state.out


@kernel
def follow(spec: Spec, state: State, work: Work, w: Array, group: int) -> tuple[int, int]:
    """The next cell towards weights w, by the tracking the procedure asks for, no cell left behind."""
    cells, t = spec.phi.size, max(samples(state), 1.0)
    if spec.c_tracking:
        mixed = spare(spec, work, 7)
        spread(spec, w, min(MOST_SPREAD, 0.5 * FLOOR * math.sqrt(cells / t)), mixed)
        return c_track(spec, state, work, mixed, group)
    k, g = laggard(spec, state, work, group, FLOOR * math.sqrt(t / cells))
    if k >= 0:
        return k, g
    return d_track(spec, state, work, w, group)


@kernel
def c_track(spec: Spec, state: State, work: Work, w: Array, group: int) -> tuple[int, int]:
    """The cell furthest behind the sum of all weights so far. eq:c_tracking."""
    remember_start(state)
    owe(spec, state, w, group)
    return furthest_behind(spec, state, work, state.track, 1.0, group)


@kernel
def owe(spec: Spec, state: State, w: Array, group: int) -> None:
    """Add one pick's weights to what has been owed so far: S(t) = S(t-1) + w, in the arrived column only where groups arrive."""
    if spec.mode == PROPORTIONAL:
        total = _column(w, group)
        for k in range(w.shape[1]):
            state.track[group, k] += w[group, k] / total if total > 0.0 else 1.0 / w.shape[1]
    else:
        state.track += w


@kernel
def d_track(spec: Spec, state: State, work: Work, w: Array, group: int) -> tuple[int, int]:
    """The cell furthest behind its present weight times the number of samples."""
    if spec.mode != PROPORTIONAL:
        return furthest_behind(spec, state, work, w, samples(state) + 1.0, group)
    total, arrived = _column(w, group), 1.0
    for k in range(w.shape[1]):
        arrived += count(state, k, group)
    return furthest_behind(spec, state, work, w, arrived / total if total > 0.0 else 0.0, group)


@kernel
def furthest_behind(
    spec: Spec, state: State, work: Work, owed: Array, scale: float, group: int
) -> tuple[int, int]:
    """argmax over cells (arrived column, policies) of scale owed - N; the first on ties."""
    groups, policies = spec.phi.shape
    best_k, best_g, most = 0, max(group, 0), -math.inf
    if spec.mode == AGNOSTIC:
        for k in range(policies):
            behind = 0.0
            for g in range(groups):
                behind += scale * owed[g, k] - count(state, k, g)
            if behind > most:
                best_k, most = k, behind
        return surely(spec, work, best_k, 0)
    for g in range(groups):
        if spec.mode == PROPORTIONAL and g != group:
            continue
        for k in range(policies):
            behind = scale * owed[g, k] - count(state, k, g)
            if behind > most:
                best_k, best_g, most = k, g, behind
    return surely(spec, work, best_k, best_g)


@kernel
def laggard(spec: Spec, state: State, work: Work, group: int, least: float) -> tuple[int, int]:
    """The cell (policy, where groups are met afterwards) with the fewest samples if it has fewer than `least`, else (-1, -1)."""
    groups, policies = spec.phi.shape
    found_k, found_g, fewest = -1, -1, least
    for g in range(groups):
        if spec.mode == PROPORTIONAL and g != group:
            continue
        for k in range(policies):
            if count(state, k, g) < fewest:
                found_k, found_g, fewest = k, g, count(state, k, g)
    return surely(spec, work, found_k, found_g) if found_k >= 0 else (-1, -1)


@kernel
def _column(w: Array, g: int) -> float:
    total = 0.0
    for k in range(w.shape[1]):
        total += w[g, k]
    return total
