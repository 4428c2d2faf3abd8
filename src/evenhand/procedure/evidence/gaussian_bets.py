"""Linear bets on Gaussian outcomes of known sd, on every ordered pair of policies, in the state.

A bet on an outcome x with tilt tau >= 0 and sign s (1 refutes small means, -1 large ones):

    W += tau s x - tau^2 sd^2 / 2,   B += s tau

so that exp(W - B m) is a martingale at the true mean m, for any choice of the cell and of tau before x. As in
`pair_bets` tilts follow the direction of the comparison, here with the known sd, and sizes are in standard
deviations. With S2 = sum over the cells of both policies of q^2 sd^2 / (N + 1),

    tau = size f,   f = q_l / (N + 1) (sum over cells of q sd) / S2.

The rows of `State.bets` are those of `pair_bets`, without V. W holds the distances of outcomes to the first
one of their cell, which is kept too, so that W - B m has no cancellation where means are far from 0.

The search for the least of ln M over a half-space (`linear_minimum`) needs a box. Outside of it the evidence
is at least FAR: with W and B of some size in a cell and the smallest factor, 0.05, in the others,

    ln M >= W - B m + ln 0.75 + (2 L - 1) ln 0.05 - ln 8 >= FAR

for every m beyond an edge; the half-space bounds the means on the other side. The smaller of FAR and the
bound in the box holds everywhere.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.procedure.evidence.linear_bets import FIXED, TILTS
from evenhand.procedure.evidence.pair_bets import FIRST, SECOND, pair_row

Array = NDArray[np.float64]


@kernel
def record_gaussian_bets(
    bets: Array, n: Array, phi: Array, shares: Array, k: int, g: int, total: float, count: float
) -> None:
    """Add so many outcomes of cell (k, g) with this sum, all with the tilts of the state before them."""
    groups, policies = n.shape
    if n[g, k] == 0.0:
        bets[g, k] = total / count
    away = total - count * bets[g, k]
    error, spread = _error_and_spread(n, phi, shares, k)
    for rival in range(policies):
        if rival != k:
            its_error, its_spread = _error_and_spread(n, phi, shares, rival)
            scale = shares[g] / (n[g, k] + 1.0) * (spread + its_spread) / (error + its_error)
            for place, sign in ((FIRST, 1.0), (SECOND, -1.0)):
                row = pair_row(groups, False, rival, place, g)
                for j in range(TILTS):
                    tau = FIXED[j] * scale
                    bets[row + j, k] += sign * tau * away - 0.5 * count * tau * tau * phi[g, k]
                    bets[row + TILTS + j, k] += sign * count * tau


@kernel
def _error_and_spread(n: Array, phi: Array, shares: Array, k: int) -> tuple[float, float]:
    """Return the squared error of policy k's mean with one more outcome in every cell, and sum q sd."""
    error, spread = 0.0, 0.0
    for g in range(shares.size):
        error += shares[g] * shares[g] * phi[g, k] / (n[g, k] + 1.0)
        spread += shares[g] * math.sqrt(phi[g, k])
    return error, spread
