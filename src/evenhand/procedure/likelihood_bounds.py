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
"""

from __future__ import annotations

import math

from evenhand.compile import kernel
from evenhand.model.region import ROUNDING
from evenhand.model.unit_families import GAUSSIAN, divergence, edge_high, edge_low
from evenhand.procedure.state import NONE, Work

# entries of Work.sunk: the leader that all floors refer to; KEPT and LOST as above
OWNER, KEPT, LOST = range(3)
LEAST_KEPT = 1e-100  # below this, floors would lose digits: all alternatives are solved again
# solvers are exact to about 1e-9: a floor is used up to this tolerance, so that a stored bound and a solved
# ratio never disagree on which alternative is weakest
TRUST, MARGIN = 1.0 - 1e-6, 1e-9
ROUNDING_OUTSIDE = 1e-7  # how far outside the domain, relative to the means, rounding may put x


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
