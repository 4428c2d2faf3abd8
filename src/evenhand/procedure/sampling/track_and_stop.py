"""`track-and-stop`: the paper's Algorithm 1, to the letter; for replication.

Every time outcomes came in, `steps` projected subgradient steps from the last weights (the closed form
where nobody is feasible), then C-tracking of the weights mixed with a floor. With the constant step the
weights never settle: alpha = 1 as printed costs a factor of two to four in samples. `diminishing` divides
the step by |c| sqrt(n), n counting all steps so far.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand._kernel import kernel
from evenhand.model.region import BOX
from evenhand.model.units import divergence
from evenhand.procedure.estimates import dispersion, refresh
from evenhand.procedure.sampling.ascent import climb_projected, effective, pieces_at, slopes
from evenhand.procedure.sampling.tracking import c_track, samples, spare, spread
from evenhand.procedure.spec import ACTIVE, AGNOSTIC, Spec
from evenhand.procedure.state import NONE, SEEN, TOLD, UPDATES, State, Work
from evenhand.theory import inner

Array = NDArray[np.float64]

# rounds towards a policy's best split over groups where nobody is feasible and the region is no box
SPLIT_ROUNDS = 30


@kernel
def choose(spec: Spec, state: State, work: Work, group: int) -> tuple[int, int]:
    """The next cell. alg:TaSCS."""
    if state.clock[SEEN] != state.clock[TOLD]:
        # once per batch: nothing was learned in between
        state.clock[SEEN] = state.clock[TOLD]
        _update(spec, state, work)
    cells = float(spec.phi.size)
    t = max(samples(state) - spec.initial * cells, 0.0)
    # epsilon_t = (K^2 L^2 + t)^(-1/2) / 2, and (1 - K L epsilon) w + epsilon stays within K L epsilon of w
    mixed = spare(spec, work, 7)
    spread(spec, state.w, cells * 0.5 / math.sqrt(cells * cells + t), mixed)
    return c_track(spec, state, work, mixed, group)


@kernel
def _update(spec: Spec, state: State, work: Work) -> None:
    leader = refresh(spec, state, work, True)
    if leader == NONE and spec.mode == AGNOSTIC:
        _rows_when_nobody_is_feasible(spec, state, work)
    elif leader == NONE and spec.mode == ACTIVE:
        weights_when_nobody_is_feasible(spec, state, work, state.w)
    else:
        _climb(spec, state, work, leader)


@kernel
def _climb(spec: Spec, state: State, work: Work, leader: int) -> None:
    v, c, values = spare(spec, work, 0), spare(spec, work, 1), spare(spec, work, 2)[0]
    for _ in range(spec.steps):
        effective(spec, state, state.w, v)
        piece = pieces_at(spec, work, leader, v, values)
        slopes(spec, state, work, leader, piece, v, c)
        state.clock[UPDATES] += 1
        alpha = spec.step
        if spec.diminishing:
            norm = math.sqrt(np.sum(c * c))
            alpha = spec.step / (norm * math.sqrt(float(state.clock[UPDATES]))) if norm > 0.0 else 0.0
        climb_projected(spec, state.w, c, alpha)


@kernel
def weights_when_nobody_is_feasible(spec: Spec, state: State, work: Work, w: Array) -> None:
    """Each policy in inverse proportion to what one sample can tell about its failing. lemma:weight_infeas."""
    policies = w.shape[1]
    total = 0.0
    for k in range(policies):
        rate = (
            _split_of_box(spec, state, work, k, w)
            if spec.region.kind == BOX
            else _split(spec, state, work, k, w)
        )
        w[:, k] /= max(rate, 1e-100)
        total += np.sum(w[:, k])
    for k in range(policies):
        for g in range(w.shape[0]):
            w[g, k] = w[g, k] / total if total > 0.0 else 1.0 / w.size


@kernel
def _split_of_box(spec: Spec, state: State, work: Work, k: int, w: Array) -> float:
    """All of policy k's weight on the cell that violates its bound most, l(k) = argmax d; returns d_k."""
    w[:, k] = 0.0
    best, most = 0, 0.0
    for g in range(w.shape[0]):
        mean = work.mean[g, k]
        bound = min(max(mean, spec.region.lo[g, k]), spec.region.hi[g, k])
        distance = divergence(spec.code, mean, bound) / dispersion(spec, state, g, k)
        if distance > most:
            best, most = g, distance
    w[best, k] = 1.0
    return most


@kernel
def _split(spec: Spec, state: State, work: Work, k: int, w: Array) -> float:
    """Policy k's best split over groups against entering, and its cost per sample: sup over v of inf over the region of v.d."""
    groups = w.shape[0]
    v = spare(spec, work, 0)
    w[:, k] = 1.0 / groups
    rate = 0.0
    for n in range(SPLIT_ROUNDS):
        for g in range(groups):
            v[g, k] = w[g, k] / dispersion(spec, state, g, k)
        rate, _ = inner.enter(spec.code, spec.region, k, v, work.mean, work.lam_k, work.scratch)
        if not 0.0 < rate < math.inf:
            break
        for g in range(groups):
            mass = v[g, k] * divergence(spec.code, work.mean[g, k], work.lam_k[g])
            w[g, k] += (mass / rate - w[g, k]) / (n + 2.0)
    return rate


@kernel
def _rows_when_nobody_is_feasible(spec: Spec, state: State, work: Work) -> None:
    """Agnostic mode: a policy's split is given, so its weight is in inverse proportion to its cost of entering."""
    groups, policies = state.w.shape
    v = spare(spec, work, 0)
    total = 0.0
    for k in range(policies):
        for g in range(groups):
            v[g, k] = spec.arrivals[g] / dispersion(spec, state, g, k)
        rate, _ = inner.enter(spec.code, spec.region, k, v, work.mean, work.lam_k, work.scratch)
        state.w[0, k] = 1.0 / max(rate, 1e-100)
        total += state.w[0, k]
    for k in range(policies):
        weight = state.w[0, k] / total if total > 0.0 else 1.0 / policies
        for g in range(groups):
            state.w[g, k] = spec.arrivals[g] * weight
