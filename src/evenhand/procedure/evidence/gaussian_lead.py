"""Evidence of one policy's lead by the linear bets on Gaussian outcomes in a state.

`gaussian_bets` has the formulas. Variables are means relative to the estimates, in units of `sum of q sd`.
Sizes have a smallest one, so the evidence of `gaussian`, which grows for any difference, has a weight of
e^-MIXTURE_COST, as in `tilts`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.procedure.evidence import gaussian
from evenhand.procedure.evidence.linear_bets import BOTH, ONLY_I, ONLY_K, SIZES, SPREAD, TILTS, Block
from evenhand.procedure.evidence.linear_evidence import views
from evenhand.procedure.evidence.linear_minimum import LOG_SIZES, ROUNDING, Null, least
from evenhand.procedure.evidence.pair_bets import FIRST, SECOND, pair_row
from evenhand.procedure.evidence.thresholds import atom_ceiling
from evenhand.procedure.evidence.tilts import combined
from evenhand.procedure.log_space import NOTHING
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State

Array = NDArray[np.float64]

FAR = 1000.0  # evidence of means outside the box; more is never shown


@kernel
def ahead(spec: Spec, state: State, i: int, k: int, enough: float, work: Array) -> float:
    """Return a lower bound on the ln e-value against {q.mu_k >= q.mu_i + indifference}.

    Above `enough` the bound need not be tight.
    """
    groups, unit = spec.shares.size, 0.0
    for g in range(groups):
        if state.n[g, i] == 0.0 or state.n[g, k] == 0.0:
            return NOTHING  # a cell without samples can have any mean at no cost
        unit += spec.shares[g] * (math.sqrt(spec.phi[g, i]) + math.sqrt(spec.phi[g, k]))
    block, null, rest = views(spec, work)
    noise = _gather(spec, state, i, k, unit, block)
    bound, slack = _lead(spec, state, i, k)
    bound = (slack - bound) / unit
    found = FAR
    if _box(spec, block, null, bound):
        found = least(block, Null(null.weight, bound, null.low, null.high), SPREAD, enough, rest)
        if found == NOTHING:
            return NOTHING
        found = min(found, FAR) - ROUNDING * noise
    ceiling = atom_ceiling(spec)
    if found >= min(enough, ceiling):
        return found
    return combined(found, gaussian.ahead(spec, state, i, k), ceiling)


@kernel
def _lead(spec: Spec, state: State, i: int, k: int) -> tuple[float, float]:
    """Return the estimated lead of i plus the indifference, and a bound on its rounding error."""
    lead, size = spec.indifference, abs(spec.indifference)
    for g in range(spec.shares.size):
        one, other = state.s[g, i] / state.n[g, i], state.s[g, k] / state.n[g, k]
        lead += spec.shares[g] * (one - other)
        size += spec.shares[g] * (abs(one) + abs(other))
    return lead, ROUNDING * size


@kernel
def _gather(spec: Spec, state: State, i: int, k: int, unit: float, block: Block) -> float:
    """Copy the bets on the pair (i, k) to a block without shared items; return the size of what cancels."""
    groups, noise = spec.shares.size, 0.0
    for g in range(groups):
        c = BOTH * groups + g
        block.n[c], block.s[c], block.v[c] = 0.0, 0.0, 0.0
        for j in range(TILTS):
            block.w[c, j], block.b[c, j] = 0.0, 0.0
    for kind, p, rival, place in ((ONLY_I, i, k, FIRST), (ONLY_K, k, i, SECOND)):
        for g in range(groups):
            c, row = kind * groups + g, pair_row(groups, spec.bounded, rival, place, g)
            n = state.n[g, p]
            centre, largest = state.s[g, p] / n - state.bets[g, p], 0.0
            # so that `linear_minimum` finds the information n / variance
            block.n[c], block.s[c] = n, 0.0
            block.v[c] = (n + 1.0) * spec.phi[g, p] / (unit * unit) - 0.25
            for j in range(TILTS):
                w, b = state.bets[row + j, p], state.bets[row + TILTS + j, p]
                block.w[c, j], block.b[c, j] = w - b * centre, b * unit
                largest = max(largest, abs(w) + abs(b * centre))
            noise += largest
    return noise


@kernel
def _box(spec: Spec, block: Block, null: Null, bound: float) -> bool:
    """Write a box outside of which the evidence is at least FAR; return whether it meets the half-space."""
    groups = spec.shares.size
    wanted = FAR + LOG_SIZES - SPREAD[2] - (2.0 * groups - 1.0) * SPREAD[0]
    room = bound
    for g in range(groups):
        i, k = ONLY_I * groups + g, ONLY_K * groups + g
        if spec.shares[g] == 0.0:  # its bets are all 0
            null.low[g], null.high[groups + g] = 0.0, 0.0
            continue
        low, high = -math.inf, math.inf
        for j in range(1, SIZES + 1):
            low = max(low, (block.w[i, j] - wanted) / block.b[i, j])
            high = min(high, (block.w[k, j] - wanted) / block.b[k, j])
        null.low[g], null.high[groups + g] = min(low, 0.0), max(high, 0.0)
        room += spec.shares[g] * (null.high[groups + g] - null.low[g])
    for g in range(groups):
        wide = room / spec.shares[g] if spec.shares[g] > 0.0 else 0.0
        null.high[g], null.low[groups + g] = null.low[g] + wide, null.high[groups + g] - wide
    return room > 0.0
