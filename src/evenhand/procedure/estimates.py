"""Estimates from the counts, policy by policy, and who leads by them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand._kernel import kernel
from evenhand.model.region import ROUNDING, margin
from evenhand.model.units import BERNOULLI, GAUSSIAN, POISSON
from evenhand.procedure.randomness import DECISIONS, four_normals
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import CURSOR, NONE, State, Work
from evenhand.theory.inner import score

Array = NDArray[np.float64]

# up to so many policies a posterior draw renews every cell; beyond, a window rolls over their latest draws
DRAWN_AT_ONCE = 256
# the first block of a decision's stream that holds posterior draws; the ones before are its coins
FIRST_NORMAL = 8


@kernel(apart=True)
def refresh(spec: Spec, state: State, work: Work, pending_counts: bool) -> int:
    """Bring mean, margin and score up to date for touched policies; return the leader, or NONE. def:goal at
    eq:est_performance.

    `pending_counts`: samples asked and not yet told count in the weights v (they do for the allocation, not
    for the evidence).
    """
    waiting = work.queue[0]
    work.queue[0] = 0
    if waiting < 0:
        for k in range(spec.phi.shape[1]):
            _estimate(spec, state, work, k, pending_counts)
        work.lead[0] = _first_best(work.margin, work.score)
        return work.lead[0]
    for j in range(1, waiting + 1):
        k = work.queue[j]
        _estimate(spec, state, work, k, pending_counts)
        if k == work.lead[0]:
            work.lead[0] = _first_best(work.margin, work.score)
        elif work.margin[k] >= -ROUNDING and _goes_before(work, k, work.lead[0]):
            work.lead[0] = k
    return work.lead[0]


@kernel
def _goes_before(work: Work, k: int, leader: int) -> bool:
    """Does feasible policy k lead rather than `leader`? The lower index does on ties."""
    if leader == NONE or work.score[k] > work.score[leader]:
        return True
    return k < leader and work.score[k] == work.score[leader]


@kernel
def _estimate(spec: Spec, state: State, work: Work, k: int, pending_counts: bool) -> None:
    groups = spec.phi.shape[0]
    for g in range(groups):
        n = state.n[g, k]
        work.mean[g, k] = state.s[g, k] / n if n > 0.0 else _before_data(spec.code)
        counted = n + state.out[g, k] if pending_counts else n
        work.v[g, k] = counted / dispersion(spec, state, g, k)
    work.margin[k] = margin(spec.region, k, work.mean)
    work.score[k] = score(spec.region, spec.shares, k, work.mean)


@kernel
def _before_data(code: int) -> float:
    """A mean inside the domain for a cell without data: it has no weight yet, so any will do."""
    if code == GAUSSIAN:
        return 0.0
    return 0.5 if code == BERNOULLI else 1.0


@kernel
def dispersion(spec: Spec, state: State, g: int, k: int) -> float:
    """phi of a cell; the estimate of its variance where nobody knows it."""
    if not spec.unknown_variance:
        return spec.phi[g, k]
    n = state.n[g, k]
    if n < 2.0:
        return 1.0
    mean = state.s[g, k] / n
    return max((state.ss[g, k] / n - mean * mean) * n / (n - 1.0), 1e-12)


@kernel
def _first_best(margins: Array, scores: Array) -> int:
    leader, best = NONE, -math.inf
    for k in range(scores.size):
        if margins[k] >= -ROUNDING and scores[k] > best:
            leader, best = k, scores[k]
    return leader


@kernel(apart=True)
def posterior_leader(spec: Spec, state: State, work: Work, seed: int, replication: int, decision: int) -> int:
    """Draw means from the posterior and say who leads by them."""
    groups, policies = spec.phi.shape
    first, count = 0, policies
    if policies > DRAWN_AT_ONCE and state.clock[CURSOR] > 0:  # 0: nobody has been drawn yet
        first, count = state.clock[CURSOR] - 1, DRAWN_AT_ONCE
    state.clock[CURSOR] = (first + count) % policies + 1
    cells = count * groups
    for block in range((cells + 3) // 4):
        normals = four_normals(seed, decision, FIRST_NORMAL + block, replication, DECISIONS)
        for j in range(4):
            cell = 4 * block + j
            if cell < cells:
                k, g = (first + cell // groups) % policies, cell % groups
                state.theta[g, k] = _drawn(spec, state, work, k, g, normals[j])
    for j in range(count):
        work.drawn[(first + j) % policies] = math.nan
    leader, best = NONE, -math.inf
    for k in range(policies):
        if math.isnan(work.drawn[k]):
            feasible = margin(spec.region, k, state.theta) >= -ROUNDING
            work.drawn[k] = score(spec.region, spec.shares, k, state.theta) if feasible else -math.inf
        if work.drawn[k] > best:
            leader, best = k, work.drawn[k]
    return leader


@kernel
def _drawn(spec: Spec, state: State, work: Work, k: int, g: int, z: float) -> float:
    """A mean from the posterior of cell (k, g), by the transform that makes its spread constant: exact for
    the Gaussian, within the domain and close to the Beta, Gamma and inverse-Gamma posteriors for the others.
    """
    n = max(state.n[g, k], 1.0) / dispersion(spec, state, g, k)
    mean = work.mean[g, k]
    if spec.code == GAUSSIAN:
        return mean + z / math.sqrt(n)
    if spec.code == BERNOULLI:
        angle = math.asin(math.sqrt((n * mean + 0.375) / (n + 0.75))) + 0.5 * z / math.sqrt(n + 0.5)
        return math.sin(min(max(angle, 0.0), 0.5 * math.pi)) ** 2
    if spec.code == POISSON:
        return max(math.sqrt(mean + 0.375 / n) + 0.5 * z / math.sqrt(n), 0.0) ** 2
    return mean * math.exp(z / math.sqrt(n))
