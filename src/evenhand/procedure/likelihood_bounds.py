"""Lower bounds on the likelihood ratios of all rivals after new samples.

The alternative "rival k is at least as good as leader i" costs the least sum over cells of v d(mean, lam).
Say cell g of the leader had n outcomes of mean m and weight v, and has n' of mean m' and weight v' now, the
new ones of mean x. By the identity of Bregman divergences

    n' d(m', lam) = n d(m, lam) + (n' - n) d(x, lam) - drop,    drop = n d(m, m') + (n' - n) d(x, m'),

and d(x, lam) >= 0, so for every alternative lam, v' d(m', lam) >= kept v d(m, lam) - lost with

    kept = min(1, v' n / (v n'))    lost = drop v' / n'.

This holds for every rival at once: a ratio that was c is still at least kept c - lost. With KEPT the product
of all `kept` and LOST the sum of all lost / KEPT, an alternative solved at c is stored as floor = c / KEPT +
LOST, and its ratio is at least KEPT (floor - LOST) at any later time. So the weakest alternative is found by
solving the few with low floors.

With many policies a step evaluates blocks, not every policy.

For each block Work holds its leader by the estimates (`leaders`), its largest drawn score (`top`) and a lower
bound on the floors of its policies (`lowest`). A change of a policy's samples
discards those of its block only.

When the leader changes, the floors of all rivals are discarded. New ones come from Lagrangian duality: for
any multiplier eta >= 0 the ratio of rival k against leader i is at least A_i(eta) + B_k(eta) + eta eps,

    A_i(eta) = sum over cells of min over x of v d(mean, x) + eta q x
    B_k(eta) = sum over cells of min over x in the bounds of v d(mean, x) - eta q x.

B_k does not depend on the leader. Its least value over a block (`reach`) for a few multipliers bounds the
ratios of the whole block, and only blocks with a low bound are solved.
"""

from __future__ import annotations

import math

import numpy as np

from evenhand.compile import kernel
from evenhand.model.region import ROUNDING
from evenhand.model.unit_families import GAUSSIAN, divergence, edge_high, edge_low, variance
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import BLOCK, NONE, Work
from evenhand.theory.regions.single_cell import tilted_cost, tilted_minimiser

# entries of Work.bound_state: the leader that all floors refer to; KEPT and LOST as above
OWNER, KEPT, LOST = range(3)
LEAST_KEPT = 1e-100  # below this, floors would lose digits: all alternatives are solved again
# solvers are exact to about 1e-9: a floor is used up to this tolerance, so that a stored bound and a solved
# ratio never disagree on which alternative is weakest
TRUST, MARGIN = 1.0 - 1e-6, 1e-9
ROUNDING_OUTSIDE = 1e-7  # how far outside the domain, relative to the means, rounding may put x


UNKNOWN = -2  # in Work.leaders: the leader of the block must be found again
# multipliers are sqrt(c / slope): with them the bound is sharp for ratios of about these sizes c
SHARP_AT = np.array([2e-6, 2e-5, 2e-4, 2e-3, 0.02, 0.2, 2.0, 20.0])
FAR = 4.0  # multipliers are chosen again when the leader's differ by more than this factor


@kernel
def reset_bounds(work: Work, leader: int) -> None:
    """Discard all floors; new ones refer to this leader."""
    refer_to(work, leader)
    work.floor[:] = -math.inf


@kernel
def refer_to(work: Work, leader: int) -> None:
    """Let floors that are written from now on refer to this leader."""
    work.bound_state[OWNER], work.bound_state[KEPT], work.bound_state[LOST] = leader, 1.0, 0.0


@kernel
def lower_bounds(code: int, work: Work, g: int, k: int, n: float, mean: float, v: float) -> None:
    """Update KEPT and LOST: the leader's cell now has n outcomes of this mean, with weight v."""
    n_old, m_old, v_old = work.n_estimated[g, k], work.mean[g, k], work.v[g, k]
    if n_old <= 0.0 or v_old <= 0.0 or v <= 0.0 or n < n_old or (n == n_old and mean != m_old):
        reset_bounds(work, NONE)
        return
    drop = _largest_drop(code, n_old, m_old, n, mean) if n > n_old else 0.0
    work.bound_state[KEPT] *= min(1.0, v * n_old / (v_old * n))
    work.bound_state[LOST] += drop * v / n / work.bound_state[KEPT]
    if not (work.bound_state[KEPT] > LEAST_KEPT and work.bound_state[LOST] < math.inf):
        reset_bounds(work, NONE)


@kernel
def _largest_drop(code: int, n_old: float, m_old: float, n: float, mean: float) -> float:
    """Return n d(m, m') + (n' - n) d(x, m'); infinite where no x in the domain is possible."""
    fresh = n - n_old
    x = (n * mean - n_old * m_old) / fresh
    if code != GAUSSIAN:
        low, high = edge_low(code), edge_high(code)
        astray = ROUNDING_OUTSIDE * max(m_old, mean)
        if x < low - astray or x > high + astray:
            return math.inf
        x = min(max(x, low), high)
    return n_old * divergence(code, m_old, mean) + fresh * divergence(code, x, mean)


@kernel
def highest(work: Work, value: float) -> float:
    """Return the highest floor with which an alternative's ratio may be as low as `value`."""
    return ((value + MARGIN) / (TRUST * work.bound_state[KEPT]) + work.bound_state[LOST]) * (1.0 + ROUNDING)


@kernel
def store_bound(work: Work, k: int) -> None:
    """Store the floor of alternative k, which was just solved."""
    work.floor[k] = work.glr[k] / work.bound_state[KEPT] + work.bound_state[LOST]


@kernel
def discard(work: Work, k: int) -> None:
    """Discard what is known of the block of policy k, whose estimates have changed."""
    block = k // BLOCK
    work.leaders[block] = UNKNOWN
    work.lowest[block] = -math.inf
    work.stale[block] = 1


@kernel
def span_of(work: Work, block: int) -> tuple[int, int]:
    """Return the first policy of a block and the one after its last."""
    return block * BLOCK, min((block + 1) * BLOCK, work.score.size)


@kernel
def first_best(work: Work, start: int, stop: int) -> int:
    """Return the first feasible policy from start to stop with the highest score, or NONE."""
    leader, best = NONE, -math.inf
    for k in range(start, stop):
        if work.margin[k] >= 0.0 and work.score[k] > best:
            leader, best = k, work.score[k]
    return leader


@kernel
def first_best_of_blocks(work: Work) -> int:
    """Do what `first_best` does for all policies, by way of the leaders of blocks."""
    leader, best = NONE, -math.inf
    for block in range(work.leaders.size):
        if work.leaders[block] == UNKNOWN:
            start, stop = span_of(work, block)
            work.leaders[block] = first_best(work, start, stop)
        k = work.leaders[block]
        if k != NONE and work.score[k] > best:
            leader, best = k, work.score[k]
    return leader


@kernel
def bound_blocks(spec: Spec, work: Work, leader: int) -> None:
    """Write lower bounds on the ratios against this leader to the floors of all its rivals."""
    _choose_multipliers(spec, work, leader)
    for block in range(work.lowest.size):
        start, stop = span_of(work, block)
        if work.stale[block] != 0:
            _find_reach(spec, work, block)
        bound = 0.0
        for j in range(work.multipliers.size):
            bound = max(bound, work.own[j] + work.reach[j, block])
        work.lowest[block] = bound
        for k in range(start, stop):
            work.floor[k] = bound


@kernel
def _choose_multipliers(spec: Spec, work: Work, leader: int) -> None:
    """Write A_i(eta) + eta eps to work.own for every multiplier, new ones if the old are far off."""
    slope = 0.0
    for g in range(spec.phi.shape[0]):
        slope += spec.shares[g] ** 2 * variance(spec.code, work.mean[g, leader]) / work.v[g, leader]
    wanted = math.sqrt(SHARP_AT[0] / slope) if 0.0 < slope < math.inf else 1.0
    if not wanted / FAR < work.multipliers[0] < wanted * FAR:
        work.stale[:] = 1
        for j in range(work.multipliers.size):
            work.multipliers[j] = wanted * math.sqrt(SHARP_AT[j] / SHARP_AT[0])
    for j in range(work.multipliers.size):
        eta = work.multipliers[j]
        work.own[j] = _dual(spec, work, leader, -eta, False) + eta * spec.indifference


@kernel
def _find_reach(spec: Spec, work: Work, block: int) -> None:
    start, stop = span_of(work, block)
    work.stale[block] = 0
    for j in range(work.multipliers.size):
        least = math.inf
        for k in range(start, stop):
            least = min(least, _dual(spec, work, k, work.multipliers[j], True))
        work.reach[j, block] = least


@kernel
def _dual(spec: Spec, work: Work, k: int, eta: float, bounded: bool) -> float:
    """Return the sum over cells of the least v d(mean, x) - eta q x, rounded down.

    `bounded`: x is between the floor and the cap of the cell, otherwise in the domain of the family.
    """
    total, size = 0.0, 0.0
    for g in range(spec.phi.shape[0]):
        low, high = edge_low(spec.code), edge_high(spec.code)
        if bounded:
            low, high = max(low, spec.region.lo[g, k]), min(high, spec.region.hi[g, k])
        s, v, mean = eta * spec.shares[g], work.v[g, k], work.mean[g, k]
        least = tilted_cost(spec.code, v, mean, s, tilted_minimiser(spec.code, v, mean, s, low, high))
        total += least - s * mean
        size += abs(least) + abs(s * mean)
    return total - ROUNDING * size if math.isfinite(total) else -math.inf
