"""`policy-track-and-stop`: the paper's baseline, which ignores groups.

Track-and-stop for arms (Garivier and Kaufmann 2016): weights from the gaps in overall mean alone, with one
variance for all policies, solved for each sample; D- or C-tracking of policies; the group is drawn uniformly
at random. It ignores requirements, and shows the gain from sampling by group.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.procedure.estimates import refresh
from evenhand.procedure.randomness import DECISIONS, uniform
from evenhand.procedure.sampling.draw_cell import MAX_CELLS_WRITTEN, least_sampled_policy
from evenhand.procedure.sampling.tracking import begin_tracking, samples
from evenhand.procedure.spec import ACTIVE, Spec
from evenhand.procedure.state import State, Work

Array = NDArray[np.float64]

ROUNDS = 60  # maximum for Newton's method; five are usual
CLOSE = 1e-14
TIED = 1e-9


@kernel
def choose(
    spec: Spec, state: State, work: Work, seed: int, replication: int, decision: int, group: int
) -> tuple[int, int]:
    """Return the next cell to sample."""
    groups, policies = spec.phi.shape
    begin_tracking(spec, state)
    refresh(spec, state, work, True)
    means, w = work.spare[0][0], work.spare[1][0]
    for k in range(policies):
        means[k] = 0.0
        for g in range(groups):
            means[k] += spec.shares[g] * work.mean[g, k]
    weights_from_gaps(means, w)
    k = _furthest_behind(spec, state, w)
    _write_probabilities(spec, work, k, group)
    if spec.mode != ACTIVE:
        return k, max(group, 0)
    return k, min(int(uniform(seed, decision, 0, replication, DECISIONS) * groups), groups - 1)


@kernel
def weights_from_gaps(means: Array, w: Array) -> None:
    """Write the optimal weights of Gaussian arms with one variance to w.

    Garivier and Kaufmann 2016, Theorem 5: x_k, the weight over the best arm's, is y / (gap_k^2 - y), where
    the common cost y makes sum x_k^2 = 1.
    """
    best, nearest, widest, size = 0, math.inf, 0.0, 0.0
    for k in range(1, means.size):
        if means[k] > means[best]:
            best = k
    for k in range(means.size):
        widest, size = max(widest, means[best] - means[k]), max(size, abs(means[k]))
    # ties are very small gaps, relative to the other gaps or, where all are tied, to the means
    least = TIED * (widest if widest > 0.0 else size if size > 0.0 else 1.0)
    for k in range(means.size):
        gap = max(means[best] - means[k], least)
        w[k] = gap * gap
        if k != best:
            nearest = min(nearest, w[k])
    w[best] = math.inf
    inverse = _inverse_cost(w, nearest)
    total = 0.0
    for k in range(means.size):
        w[k] = 1.0 / (w[k] * inverse - 1.0) if k != best else 1.0
        total += w[k]
    for k in range(means.size):
        w[k] /= total


@kernel
def _inverse_cost(squares: Array, nearest: float) -> float:
    """Return z = 1/y, the root of sum 1 / (gap_k^2 z - 1)^2 = 1.

    That sum to the power -1/2 is concave and nearly linear in z, so Newton's method converges to 1 from the
    left in a few rounds; at the start the term of the nearest arm alone is 1.
    """
    z = 2.0 / nearest
    for _ in range(ROUNDS):
        total, slope = 0.0, 0.0
        for k in range(squares.size):
            x = 1.0 / (squares[k] * z - 1.0)
            total += x * x
            slope += squares[k] * (x * x * x) if squares[k] < math.inf else 0.0
        step = (1.0 - 1.0 / math.sqrt(total)) * total * math.sqrt(total) / slope
        z += step
        if step <= CLOSE * z:
            break
    return z


@kernel
def _furthest_behind(spec: Spec, state: State, w: Array) -> int:
    """Return the policy furthest behind its weight.

    D-tracking first returns one with fewer than sqrt(t) - K/2 samples.
    """
    policies = w.size
    t = samples(state)
    if spec.c_tracking:
        epsilon = 0.5 / math.sqrt(policies * policies + t)
        for k in range(policies):
            state.track[0, k] += (1.0 - policies * epsilon) * w[k] + epsilon
    else:
        rare = least_sampled_policy(state, -1)
        if _drawn(state, rare) < math.sqrt(t) - 0.5 * policies:
            return rare
    best, most = 0, -math.inf
    for k in range(policies):
        owed = _row(state.track, k) if spec.c_tracking else (t + 1.0) * w[k]
        if owed - _drawn(state, k) > most:
            best, most = k, owed - _drawn(state, k)
    return best


@kernel
def _drawn(state: State, k: int) -> float:
    return _row(state.n, k) + _row(state.out, k)


@kernel
def _row(table: Array, k: int) -> float:
    total = 0.0
    for g in range(table.shape[0]):
        total += table[g, k]
    return total


@kernel
def _write_probabilities(spec: Spec, work: Work, k: int, group: int) -> None:
    groups, policies = spec.phi.shape
    if policies <= MAX_CELLS_WRITTEN:
        work.probability[:, :] = 0.0
        for g in range(groups):
            if group < 0 or g == group:
                work.probability[g, k] = 1.0 / groups if group < 0 else 1.0
