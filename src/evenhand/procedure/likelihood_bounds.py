"""How far the evidence against any rival can have sunk since it was last solved.

A piece "rival k is at least as good as leader i" costs the least sum over cells of v d(mean, lam). Say cell g
of the leader had n outcomes of mean m and weight v, and has n' of mean m' and weight v' now, the fresh ones
of mean x. By the identity of Bregman divergences

    n' d(m', lam) = n d(m, lam) + (n' - n) d(x, lam) - drop,    drop = n d(m, m') + (n' - n) d(x, m'),

and d(x, lam) >= 0, so whatever the alternative lam, v' d(m', lam) >= kept v d(m, lam) - lost with

    kept = min(1, v' n / (v n'))    lost = drop v' / n'.

It holds for every rival at once: a piece that was worth c is still worth at least kept c - lost. With KEPT
the product of all `kept` and LOST the sum of all lost / KEPT, a piece solved at c is remembered by its
floor = c / KEPT + LOST, and is worth at least KEPT (floor - LOST) at any later time. So the weakest piece is
found by solving the few whose floors are low.
"""

from __future__ import annotations

import math

from evenhand.compile import kernel
from evenhand.model.unit_families import GAUSSIAN, divergence, edge_high, edge_low
from evenhand.procedure.state import NONE, Work

# what Work.sunk holds: the leader all floors are about; KEPT and LOST as above
OWNER, KEPT, LOST = range(3)
LEAST_KEPT = 1e-100  # beyond, floors would lose their digits: all pieces are solved again
# solvers are exact to about 1e-9: a floor is trusted up to this, so that a remembered piece and a solved one
# never disagree on which is weakest
TRUST, CRUMB = 1.0 - 1e-6, 1e-9
ASTRAY = 1e-7  # so far outside the domain, relative to the means, x may come by rounding


@kernel
def begin(work: Work, leader: int) -> None:
    """Forget all floors: they will be about this leader."""
    work.sunk[OWNER], work.sunk[KEPT], work.sunk[LOST] = leader, 1.0, 0.0
    work.floor[:] = -math.inf


@kernel
def sink(code: int, work: Work, g: int, k: int, n: float, mean: float, v: float) -> None:
    """The leader's cell changes from what Work holds to n outcomes of this mean, of weight v."""
    n_old, m_old, v_old = work.told[g, k], work.mean[g, k], work.v[g, k]
    if n_old <= 0.0 or v_old <= 0.0 or v <= 0.0 or n < n_old or (n == n_old and mean != m_old):
        begin(work, NONE)
        return
    drop = _drop(code, n_old, m_old, n, mean) if n > n_old else 0.0
    work.sunk[KEPT] *= min(1.0, v * n_old / (v_old * n))
    work.sunk[LOST] += drop * v / n / work.sunk[KEPT]
    if not (work.sunk[KEPT] > LEAST_KEPT and work.sunk[LOST] < math.inf):
        begin(work, NONE)


@kernel
def _drop(code: int, n_old: float, m_old: float, n: float, mean: float) -> float:
    """n d(m, m') + (n' - n) d(x, m'); infinite where no x in the domain leads from one to the other."""
    fresh = n - n_old
    x = (n * mean - n_old * m_old) / fresh
    if code != GAUSSIAN:
        low, high = edge_low(code), edge_high(code)
        astray = ASTRAY * max(m_old, mean)
        if x < low - astray or x > high + astray:
            return math.inf
        x = min(max(x, low), high)
    return n_old * divergence(code, m_old, mean) + fresh * divergence(code, x, mean)


@kernel
def remember(work: Work, k: int) -> None:
    """Piece k was solved just now."""
    work.floor[k] = work.glr[k] / work.sunk[KEPT] + work.sunk[LOST]


@kernel
def at_least(work: Work, k: int) -> float:
    """What piece k is worth at least by now."""
    sunk = work.sunk[KEPT] * (work.floor[k] - work.sunk[LOST])
    return sunk * TRUST - CRUMB
