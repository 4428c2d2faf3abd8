"""`policy-track-and-stop`: the paper's baseline, which looks at policies only and not at groups.

Track-and-stop for arms (Garivier and Kaufmann 2016): weights from the gaps in overall mean alone, with
one variance for all policies, solved anew at each pick; D- or C-tracking of policies; the group is drawn
evenly at random. It knows nothing of requirements, and shows what looking at groups is worth.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand._kernel import kernel
from evenhand.procedure.estimates import refresh
from evenhand.procedure.randomness import DECISIONS, uniform
from evenhand.procedure.sampling.pick import WRITTEN_OUT, least_sampled_policy
from evenhand.procedure.sampling.tracking import remember_start, samples, spare
from evenhand.procedure.spec import ACTIVE, Spec
from evenhand.procedure.state import State, Work

Array = NDArray[np.float64]

HALVINGS = 60


@kernel
def choose(
    spec: Spec, state: State, work: Work, seed: int, replication: int, decision: int, group: int
) -> tuple[int, int]:
    """The next cell."""
    groups, policies = spec.phi.shape
    refresh(spec, state, work, True)
    overall, w = spare(spec, work, 0)[0], spare(spec, work, 1)[0]
    for k in range(policies):
        overall[k] = np.sum(spec.shares * work.mean[:, k])
    weights_from_gaps(overall, w)
    k = _followed(spec, state, w)
    if spec.mode != ACTIVE:
        g = max(group, 0)
    else:
        g = min(int(uniform(seed, decision, 0, replication, DECISIONS) * groups), groups - 1)
    _write_out(spec, work, k, group)
    return k, g


@kernel
def weights_from_gaps(means: Array, w: Array) -> None:
    """The optimal weights of Gaussian arms with one variance, best arm first found: x_k = y / (gap_k^2 - y) with sum x_k^2 = 1.

    Garivier and Kaufmann 2016, Theorem 5: x_k is w_k over the best arm's weight, y the common cost, found by bisection.
    """
    best = np.argmax(means)
    nearest = math.inf
    for k in range(means.size):
        gap = max(means[best] - means[k], 1e-9 * (1.0 + abs(means[best])))
        w[k] = gap * gap
        if k != best:
            nearest = min(nearest, w[k])
    low, high = 0.0, nearest
    for _ in range(HALVINGS):
        y = 0.5 * (low + high)
        total = 0.0
        for k in range(means.size):
            if k != best:
                total += (y / (w[k] - y)) ** 2
        low, high = (y, high) if total < 1.0 else (low, y)
    for k in range(means.size):
        w[k] = low / (w[k] - low) if k != best else 1.0
    w /= np.sum(w)


@kernel
def _followed(spec: Spec, state: State, w: Array) -> int:
    """The policy furthest behind its weight, or the least-sampled one where it has fewer than sqrt(t) - K/2 samples."""
    groups, policies = spec.phi.shape
    remember_start(state)
    t = samples(state)
    if spec.c_tracking:
        state.track[0] += (1.0 - policies * _epsilon(policies, t)) * w + _epsilon(policies, t)
    else:
        rare = least_sampled_policy(state, -1)
        if _drawn(state, rare) < math.sqrt(t) - 0.5 * policies:
            return rare
    best, most = 0, -math.inf
    for k in range(policies):
        owed = np.sum(state.track[:, k]) if spec.c_tracking else (t + 1.0) * w[k]
        if owed - _drawn(state, k) > most:
            best, most = k, owed - _drawn(state, k)
    return best


@kernel
def _epsilon(policies: int, t: float) -> float:
    return 0.5 / math.sqrt(policies * policies + t)


@kernel
def _drawn(state: State, k: int) -> float:
    return np.sum(state.n[:, k]) + np.sum(state.out[:, k])


@kernel
def _write_out(spec: Spec, work: Work, k: int, group: int) -> None:
    groups, policies = spec.phi.shape
    if policies <= WRITTEN_OUT:
        work.probability[:, :] = 0.0
        for g in range(groups):
            if group < 0 or g == group:
                work.probability[g, k] = 1.0 / groups if group < 0 else 1.0
