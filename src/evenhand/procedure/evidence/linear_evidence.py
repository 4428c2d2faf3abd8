"""Evidence by the linear bets in a state: of one policy's lead, and of one cell with bounded outcomes.

The bets have a smallest size: for a smaller difference their evidence does not grow with the data. So the
mixture over all means (`likelihood_mixture`) has a weight of e^-MIXTURE_COST, as in `tilts`. With Gaussian
outcomes (`gaussian_ahead`; `pair_bets` has the formulas) the evidence of `gaussian` has this weight, and
variables are means relative to the estimates, in units of `sum of q sd`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.unit_families import divergence
from evenhand.procedure.evidence import gaussian, likelihood_mixture
from evenhand.procedure.evidence.linear_bets import (
    BOTH,
    ONLY_I,
    ONLY_K,
    SIZES,
    SPREAD,
    TILTS,
    Block,
    block_in,
)
from evenhand.procedure.evidence.linear_minimum import LOG_SIZES, ROUNDING, Null, least
from evenhand.procedure.evidence.pair_bets import FIRST, SECOND, bounded_row, pair_row, squares_row
from evenhand.procedure.evidence.thresholds import atom_ceiling
from evenhand.procedure.evidence.tilt_mixture import GRID, LIFTS, LOG_GRID
from evenhand.procedure.evidence.tilts import MIXTURE_COST, combined
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
    groups = spec.shares.size
    block, null, rest = views(spec, work)
    _gather(spec, state, i, k, block)
    for v in range(2 * groups):
        null.low[v], null.high[v] = 0.0, 1.0
    found = least(block, null, SPREAD, enough, rest)
    if found == NOTHING:
        return NOTHING
    ceiling, most = atom_ceiling(spec), _likelihood_ratio(spec, state, i, k, rest)
    if found >= min(enough, ceiling) or most - MIXTURE_COST <= max(found, 0.0):
        return found
    return combined(found, likelihood_mixture.ahead(spec, state, i, k, work), ceiling)


@kernel
def bounded_cell(state: State, g: int, k: int, c: float, sign: float) -> float:
    """Return the ln e-value of bets at the bound c against {mean <= c} (sign 1) or {mean >= c} (-1).

    `cell_bets` has the formula.
    """
    groups, side = state.n.shape[0], 1 if sign > 0.0 else 0
    peak, total = -math.inf, 0.0
    for j in range(GRID):
        sums = state.bets[bounded_row(groups, side, j, g), k]
        term = sums - state.n[g, k] * math.log(1.0 + c * LIFTS[side, 0, j])
        if term > peak:
            total, peak = total * math.exp(peak - term) + 1.0, term
        else:
            total += math.exp(term - peak)
    return peak + math.log(total) - LOG_GRID


@kernel
def _gather(spec: Spec, state: State, i: int, k: int, block: Block) -> None:
    """Copy the bets on the pair (i, k) to a block without shared items."""
    groups = spec.shares.size
    _clear_shared_items(groups, block)
    for kind, p, rival, place in ((ONLY_I, i, k, FIRST), (ONLY_K, k, i, SECOND)):
        for g in range(groups):
            c, row = kind * groups + g, pair_row(groups, spec.bounded, rival, place, g)
            block.n[c], block.s[c] = state.n[g, p], state.s[g, p]
            block.v[c] = state.bets[squares_row(groups, g), p]
            for j in range(TILTS):
                block.w[c, j], block.b[c, j] = state.bets[row + j, p], state.bets[row + TILTS + j, p]


@kernel
def _clear_shared_items(groups: int, block: Block) -> None:
    """Write zeros where a block has shared items: those rows of the scratch hold other numbers."""
    for g in range(groups):
        c = BOTH * groups + g
        block.n[c], block.s[c], block.v[c] = 0.0, 0.0, 0.0
        for j in range(TILTS):
            block.w[c, j], block.b[c, j] = 0.0, 0.0


@kernel
def _likelihood_ratio(spec: Spec, state: State, i: int, k: int, rest: Array) -> float:
    """Return the log likelihood ratio of the estimates to the null where the search ended."""
    groups, total = spec.shares.size, 0.0
    lam = rest[4 * groups : 6 * groups]  # `linear_minimum._views` has the places
    for g in range(groups):
        for place, p in ((0, i), (1, k)):
            n = state.n[g, p]
            at = lam[place * groups + g]
            total += n / spec.phi[g, p] * divergence(spec.code, state.s[g, p] / n, at)
    return total


@kernel
def views(spec: Spec, work: Array) -> tuple[Block, Null, Array]:
    """Return views of the scratch: a block, its null, and the rest."""
    groups = spec.shares.size
    block, rest = block_in(spec.shares, work)
    low, high = rest[: 2 * groups], rest[2 * groups : 4 * groups]
    return block, Null(spec.shares, -spec.indifference, low, high), rest[4 * groups :]


@kernel
def gaussian_ahead(spec: Spec, state: State, i: int, k: int, enough: float, work: Array) -> float:
    """Return a lower bound on the ln e-value against {q.mu_k >= q.mu_i + indifference}.

    Above `enough` the bound need not be tight.
    """
    groups, unit = spec.shares.size, 0.0
    for g in range(groups):
        if state.n[g, i] == 0.0 or state.n[g, k] == 0.0:
            return NOTHING  # a cell without samples can have any mean at no cost
        unit += spec.shares[g] * (math.sqrt(spec.phi[g, i]) + math.sqrt(spec.phi[g, k]))
    block, null, rest = views(spec, work)
    noise = _gather_gaussian(spec, state, i, k, unit, block)
    bound, slack = _gaussian_lead(spec, state, i, k)
    bound = (slack - bound) / unit
    found = FAR
    if _gaussian_box(spec, block, null, bound):
        found = least(block, Null(null.weight, bound, null.low, null.high), SPREAD, enough, rest)
        if found == NOTHING:
            return NOTHING
        found = min(found, FAR) - ROUNDING * noise
    ceiling = atom_ceiling(spec)
    if found >= min(enough, ceiling):
        return found
    return combined(found, gaussian.ahead(spec, state, i, k), ceiling)


@kernel
def _gaussian_lead(spec: Spec, state: State, i: int, k: int) -> tuple[float, float]:
    """Return the estimated lead of i plus the indifference, and a bound on its rounding error."""
    lead, size = spec.indifference, abs(spec.indifference)
    for g in range(spec.shares.size):
        one, other = state.s[g, i] / state.n[g, i], state.s[g, k] / state.n[g, k]
        lead += spec.shares[g] * (one - other)
        size += spec.shares[g] * (abs(one) + abs(other))
    return lead, ROUNDING * size


@kernel
def _gather_gaussian(spec: Spec, state: State, i: int, k: int, unit: float, block: Block) -> float:
    """Copy the bets on the pair (i, k) to a block without shared items; return the size of what cancels."""
    groups, noise = spec.shares.size, 0.0
    _clear_shared_items(groups, block)
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
def _gaussian_box(spec: Spec, block: Block, null: Null, bound: float) -> bool:
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
