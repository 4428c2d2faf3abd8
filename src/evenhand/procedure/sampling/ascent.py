"""Weights from estimates: the pieces at weights w, a supergradient there, and the steps that climb with it.

The paper's external problem max over w of min over pieces f_j(w), eq:external_opt, with the means
replaced by their estimates. A piece is named by a policy: rival k against the leader, the leader itself
for "the leader violates its requirement", and any k entering where nobody is feasible.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand._kernel import kernel
from evenhand.model.region import PENALTY
from evenhand.model.units import divergence
from evenhand.procedure.estimates import dispersion
from evenhand.procedure.spec import ACTIVE, PROPORTIONAL, Spec
from evenhand.procedure.state import NONE, State, Work
from evenhand.theory import inner
from evenhand.theory.bulk import beat_all

Array = NDArray[np.float64]

# a cell without weight is free, and where it would go is not determined; a crumb of weight determines it
CRUMB = 1e-9


@kernel
def effective(spec: Spec, state: State, w: Array, v: Array) -> None:
    """v = w / phi, with a crumb of weight in every cell."""
    groups, policies = spec.phi.shape
    for g in range(groups):
        for k in range(policies):
            v[g, k] = max(w[g, k], CRUMB) / dispersion(spec, state, g, k)


@kernel
def pieces_at(spec: Spec, work: Work, leader: int, v: Array, values: Array) -> int:
    """The cost of every piece at weights v, into values (K,), and which is cheapest. alg:internal, its comparison."""
    policies = spec.phi.shape[1]
    if leader == NONE:
        for k in range(policies):
            values[k], _ = inner.enter(spec.code, spec.region, k, v, work.mean, work.lam_k, work.scratch)
    else:
        beat_all(
            spec.code, spec.region, spec.shares, leader, v, work.mean, values, work.lam_i, work.lam_k, work.scratch
        )  # fmt: skip
        values[leader] = math.inf
        if spec.region.kind != PENALTY:
            values[leader], _, _ = inner.leave(
                spec.code, spec.region, leader, v, work.mean, work.lam_k, work.scratch
            )
    best = 0
    for k in range(1, policies):
        if values[k] < values[best]:
            best = k
    return best


@kernel
def slopes(spec: Spec, state: State, work: Work, leader: int, piece: int, v: Array, c: Array) -> float:
    """c = d(mean, lam) per sample at the piece's nearest alternative: a supergradient of its cost f = c.w. lemma:subgradient.

    Returns f. Cells the piece does not touch have slope 0.
    """
    c[:, :] = 0.0
    if leader == NONE:
        value, _ = inner.enter(spec.code, spec.region, piece, v, work.mean, work.lam_k, work.scratch)
    elif piece == leader:
        value, _, _ = inner.leave(spec.code, spec.region, leader, v, work.mean, work.lam_k, work.scratch)
    else:
        value, _ = inner.beat(
            spec.code, spec.region, spec.shares, leader, piece, v, work.mean, work.lam_i, work.lam_k, work.scratch
        )  # fmt: skip
        _fill(spec, state, work, leader, work.lam_i, c)
    _fill(spec, state, work, piece, work.lam_k, c)
    return value


@kernel
def _fill(spec: Spec, state: State, work: Work, k: int, lam: Array, c: Array) -> None:
    for g in range(spec.phi.shape[0]):
        slope = divergence(spec.code, work.mean[g, k], lam[g]) / dispersion(spec, state, g, k)
        c[g, k] = slope if math.isfinite(slope) else 0.0


@kernel
def climb_projected(spec: Spec, w: Array, c: Array, alpha: float) -> None:
    """w <- P(w + alpha c), P the Euclidean projection onto the weights the mode allows. eq:subgradient_update."""
    groups, policies = w.shape
    if spec.mode == ACTIVE:
        w += alpha * c
        flat = w.reshape(groups * policies)
        project(flat, 1.0)
    elif spec.mode == PROPORTIONAL:
        for g in range(groups):
            w[g] += alpha * c[g]
            project(w[g], spec.arrivals[g])
    else:
        _climb_rows(spec, w, c, alpha)


@kernel
def _climb_rows(spec: Spec, w: Array, c: Array, alpha: float) -> None:
    """Agnostic mode: the policies' weights climb by sum over groups of arrivals times slope; c's first row is used up as scratch."""
    groups, policies = w.shape
    rows = c[0]
    for k in range(policies):
        slope, weight = 0.0, 0.0
        for g in range(groups):
            slope += spec.arrivals[g] * c[g, k]
            weight += w[g, k]
        rows[k] = weight + alpha * slope
    project(rows, 1.0)
    for g in range(groups):
        for k in range(policies):
            w[g, k] = spec.arrivals[g] * rows[k]


@kernel
def project(x: Array, total: float) -> None:
    """The Euclidean projection of x onto {x >= 0, sum x = total}, in place (Michelot 1986: ends after at most x.size rounds)."""
    cut, kept = -math.inf, -1
    while True:
        inside, above = 0, 0.0
        for j in range(x.size):
            if x[j] > cut:
                inside += 1
                above += x[j]
        if inside == kept:
            break
        kept, cut = inside, (above - total) / inside
    for j in range(x.size):
        x[j] = max(x[j] - cut, 0.0)


@kernel
def climb_directed(spec: Spec, w: Array, c: Array, value: float, share: float) -> None:
    """w <- (1 - share) w + share h with h = w c / f: every cell of the piece gains in proportion to the evidence it carries.

    In the other modes each column (each policy) gains by its slope over the column's (the table's) mean slope, which keeps w a
    weight the mode allows; the fixed point is the optimal weight in each.
    """
    groups, policies = w.shape
    if not value > 0.0:
        return
    if spec.mode == ACTIVE:
        for g in range(groups):
            for k in range(policies):
                w[g, k] *= 1.0 + share * (c[g, k] / value - 1.0)
        return
    for g in range(groups):
        mean, step = 1.0, share
        if spec.mode == PROPORTIONAL:
            mean = 0.0
            for k in range(policies):
                mean += w[g, k] * c[g, k] / (value * spec.arrivals[g])
            step = min(share, 0.5 * spec.arrivals[g])  # else a weight could turn negative
        for k in range(policies):
            slope = c[g, k] / value if spec.mode == PROPORTIONAL else row_slope(spec, c, k) / value
            w[g, k] *= 1.0 + step * (slope - mean)


@kernel
def row_slope(spec: Spec, c: Array, k: int) -> float:
    """Agnostic mode: what one more sample of policy k is worth, the group still unknown."""
    total = 0.0
    for g in range(spec.phi.shape[0]):
        total += spec.arrivals[g] * c[g, k]
    return total
