"""Who leads by a draw of all means from the posterior.

Only the leader of the draw matters. The four words at a policy's own address bound its drawn score from above
before any of them is turned into a mean, so most policies are passed over for the price of their words. The
draw is the same as if all had been made.
"""

from __future__ import annotations

import math

import numpy as np

from evenhand._kernel import kernel
from evenhand.model.region import ROUNDING, margin
from evenhand.model.units import BERNOULLI, GAUSSIAN, POISSON
from evenhand.procedure.estimates import dispersion
from evenhand.procedure.randomness import DECISIONS, normal, philox
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import CURSOR, NONE, State, Work
from evenhand.theory.inner import score

# up to so many policies a posterior draw renews every cell; beyond, a window rolls over their latest draws
DRAWN_AT_ONCE = 256
# the first block of a decision's stream that holds posterior draws; the ones before are its coins
FIRST_BLOCK = 8
# a word's highest bits say below which normal it will be turned
CLASS_BITS = np.uint64(24)
HIGHEST = np.array([normal.py_func((c << 24) | 0xFFFFFF) for c in range(256)])  # type: ignore[attr-defined]


@kernel(apart=True)
def posterior_leader(spec: Spec, state: State, work: Work, seed: int, replication: int, decision: int) -> int:
    """Draw means from the posterior and say who leads by them."""
    policies = spec.phi.shape[1]
    if policies > DRAWN_AT_ONCE:
        return _rolling_leader(spec, state, work, seed, replication, decision)
    # the leader by the estimates first: it sets a bar that most others cannot reach
    start = max(work.lead[0], 0)
    leader, best = NONE, -math.inf
    for j in range(policies):
        k = start if j == 0 else (j if j > start else j - 1)
        if j > 0 and _highest_score(spec, state, work, k, seed, replication, decision) <= best:
            continue
        drawn = _drawn_score(spec, state, work, k, seed, replication, decision)
        if drawn > best:
            leader, best = k, drawn
    return leader


@kernel
def _rolling_leader(spec: Spec, state: State, work: Work, seed: int, replication: int, decision: int) -> int:
    """The leader by each policy's latest draw; the next window of policies is drawn afresh."""
    policies = spec.phi.shape[1]
    first, count = 0, policies
    if state.clock[CURSOR] > 0:  # 0: nobody has been drawn yet
        first, count = state.clock[CURSOR] - 1, DRAWN_AT_ONCE
    state.clock[CURSOR] = (first + count) % policies + 1
    for j in range(count):
        k = (first + j) % policies
        work.drawn[k] = _drawn_score(spec, state, work, k, seed, replication, decision)
    leader, best = NONE, -math.inf
    for k in range(policies):
        if math.isnan(work.drawn[k]):  # a fresh Work: the draw itself is part of the state
            work.drawn[k] = _score(spec, state, k)
        if work.drawn[k] > best:
            leader, best = k, work.drawn[k]
    return leader


@kernel
def _drawn_score(
    spec: Spec, state: State, work: Work, k: int, seed: int, replication: int, decision: int
) -> float:
    """Draw policy k's means into state.theta, and score them; -inf where they miss the requirement."""
    groups = spec.phi.shape[0]
    for block in range((groups + 3) // 4):
        words = philox(seed, decision, _block(groups, k, block), replication, DECISIONS)
        for j in range(min(4, groups - 4 * block)):
            g = 4 * block + j
            state.theta[g, k] = _drawn(spec, state, work, k, g, normal(words[j]))
    return _score(spec, state, k)


@kernel
def _score(spec: Spec, state: State, k: int) -> float:
    feasible = margin(spec.region, k, state.theta) >= -ROUNDING
    return score(spec.region, spec.shares, k, state.theta) if feasible else -math.inf


@kernel
def _highest_score(
    spec: Spec, state: State, work: Work, k: int, seed: int, replication: int, decision: int
) -> float:
    """What policy k's drawn score cannot exceed: its words' classes, and penalties left out."""
    groups, total = spec.phi.shape[0], 0.0
    for block in range((groups + 3) // 4):
        words = philox(seed, decision, _block(groups, k, block), replication, DECISIONS)
        for j in range(min(4, groups - 4 * block)):
            g = 4 * block + j
            total += spec.shares[g] * _highest(spec, state, work, k, g, HIGHEST[words[j] >> CLASS_BITS])
    return total


@kernel
def _block(groups: int, k: int, block: int) -> int:
    return FIRST_BLOCK + k * ((groups + 3) // 4) + block


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


@kernel
def _highest(spec: Spec, state: State, work: Work, k: int, g: int, z: float) -> float:
    """No mean drawn with a normal up to z exceeds this; cheap where `_drawn` is not.

    The squared sine climbs at a rate of at most 1.
    """
    if spec.code != BERNOULLI:
        return _drawn(spec, state, work, k, g, z)
    n = max(state.n[g, k], 1.0) / dispersion(spec, state, g, k)
    middle = (n * work.mean[g, k] + 0.375) / (n + 0.75)
    return middle + 0.5 * max(z, 0.0) / math.sqrt(n + 0.5) + ROUNDING
