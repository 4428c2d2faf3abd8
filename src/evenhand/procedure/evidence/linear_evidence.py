"""Evidence by the linear bets in a state: of one policy's lead, and of one cell with bounded outcomes.

The bets have a smallest size: for a smaller difference their evidence does not grow with the data. So the
mixture over all means (`likelihood_mixture`) has a weight of e^-MIXTURE_COST, as in `tilts`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.model.unit_families import divergence
from evenhand.procedure.evidence import likelihood_mixture
from evenhand.procedure.evidence.linear_bets import BOTH, KINDS, ONLY_I, ONLY_K, SPREAD, TILTS, Block
from evenhand.procedure.evidence.linear_minimum import Null, least
from evenhand.procedure.evidence.pair_bets import FIRST, SECOND, bounded_row, pair_row, squares_row
from evenhand.procedure.evidence.thresholds import atom_ceiling
from evenhand.procedure.evidence.tilt_mixture import GRID, LIFTS, LOG_GRID
from evenhand.procedure.evidence.tilts import MIXTURE_COST, combined
from evenhand.procedure.log_space import NOTHING
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State

Array = NDArray[np.float64]


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
    for g in range(groups):  # no shared items; their rows of the scratch hold other numbers
        c = BOTH * groups + g
        block.n[c], block.s[c], block.v[c] = 0.0, 0.0, 0.0
        for j in range(TILTS):
            block.w[c, j], block.b[c, j] = 0.0, 0.0
    for kind, p, rival, place in ((ONLY_I, i, k, FIRST), (ONLY_K, k, i, SECOND)):
        for g in range(groups):
            c, row = kind * groups + g, pair_row(groups, spec.bounded, rival, place, g)
            block.n[c], block.s[c] = state.n[g, p], state.s[g, p]
            block.v[c] = state.bets[squares_row(groups, g), p]
            for j in range(TILTS):
                block.w[c, j], block.b[c, j] = state.bets[row + j, p], state.bets[row + TILTS + j, p]


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
    cells = KINDS * groups
    w = work[: cells * TILTS].reshape((cells, TILTS))
    b = work[cells * TILTS : 2 * cells * TILTS].reshape((cells, TILTS))
    used = 2 * cells * TILTS
    n, s = work[used : used + cells], work[used + cells : used + 2 * cells]
    v = work[used + 2 * cells : used + 3 * cells]
    used = used + 3 * cells
    pool, draws = work[used : used + groups], work[used + groups : used + groups + 1]
    used = used + groups + 1
    low, high = work[used : used + 2 * groups], work[used + 2 * groups : used + 4 * groups]
    used = used + 4 * groups
    block = Block(spec.shares, pool, w, b, n, s, v, draws)
    return block, Null(spec.shares, -spec.indifference, low, high), work[used:]
