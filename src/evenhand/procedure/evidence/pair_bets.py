"""Linear bets on every ordered pair of policies, in the state of a procedure.

`linear_bets` has the formulas. Here every outcome is of one policy: the pair (i, k) has 2 L cells, those of
i, whose bets refute small means, and those of k, whose bets refute large ones. Counts and sums are those of
the state; each cell keeps V once, and W and B for each rival and both signs, in the column of its policy:

    rows            of State.bets, in column p
    5 L             initial statistics, not used by these families
    L               V, the sum of the squared distances of outcomes to the estimates before them
    2 x 8 x L       with bounded outcomes: sums of ln(1 + l x), see `cell_bets`
    K x 2 x L x 20  for each rival, sign and group: W of all tilts, then B

The tilts follow the direction of the comparison, as in `linear_bets`, but their size does not depend on the
number of draws: with S2 the estimated squared error of the comparison and sd^2 = (1/4 + V) / (N + 1),

    tau = size f,   f = q_l / (N + 1) (sum over cells of q sd) / S2.

With the best allocation S2 t = (sum of q sd)^2, and f is that of `linear_bets`. With any other, S2 can stay
the same while t grows, and a size would mean a larger and larger difference.

The tilts of one cell depend on the counts and V of both policies when its outcome is recorded, so the order
of outcomes across cells matters: after a correction all outcomes are recorded again.

On Gaussian outcomes of known sd, a bet on an outcome x with tilt tau >= 0 and sign s (1 refutes small means,
-1 large ones):

    W += tau s x - tau^2 sd^2 / 2,   B += s tau

so that exp(W - B m) is a martingale at the true mean m, for any choice of the cell and of tau before x. Tilts
follow the direction of the comparison as above, here with the known sd, and sizes are in standard deviations.
With S2 = sum over the cells of both policies of q^2 sd^2 / (N + 1),

    tau = size f,   f = q_l / (N + 1) (sum over cells of q sd) / S2.

The rows of `State.bets` are those above, without V. W holds the distances of outcomes to the first one of
their cell, which is kept too, so that W - B m has no cancellation where means are far from 0.

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

from evenhand.compile import Static, kernel
from evenhand.procedure.evidence.linear_bets import FARTHEST, FIXED, KINDS, MATCHED, TILTS
from evenhand.procedure.evidence.linear_minimum import scratch
from evenhand.procedure.evidence.tilt_mixture import GRID, LIFTS

Array = NDArray[np.float64]

FIRST, SECOND = range(2)  # the policy's place in the pair: its bets refute small means, or large ones
INITIAL = 5  # rows of initial statistics, for each group


def bets_rows(groups: int, policies: int, bounded: bool) -> int:
    """Return the number of rows of `State.bets` with linear bets."""
    return pairs_begin(groups, bounded) + policies * 2 * groups * 2 * TILTS


def pair_scratch(groups: int) -> int:
    """Return the length of the scratch that `linear_evidence.ahead` needs."""
    cells = KINDS * groups
    return cells * (2 * TILTS + 3) + 6 * groups + 1 + scratch(groups).size


@kernel
def pairs_begin(groups: int, bounded: Static[bool]) -> int:
    """Return the first row of the bets on pairs."""
    return (INITIAL + 1 + (2 * GRID if bounded else 0)) * groups


@kernel
def pair_row(groups: int, bounded: Static[bool], rival: int, place: int, g: int) -> int:
    """Return the first row of W against a rival; B begins TILTS rows later."""
    return pairs_begin(groups, bounded) + ((rival * 2 + place) * groups + g) * 2 * TILTS


@kernel
def squares_row(groups: int, g: int) -> int:
    """Return the row of V of a group."""
    return INITIAL * groups + g


@kernel
def bounded_row(groups: int, side: int, j: int, g: int) -> int:
    """Return the row of the sum of ln(1 + l x) of a side and a size."""
    return (INITIAL + 1 + side * GRID + j) * groups + g


@kernel
def record_bets(
    bets: Array, n: Array, s: Array, shares: Array, bounded: Static[bool], k: int, g: int, x: float
) -> None:
    """Add an outcome x in [0, 1] of cell (k, g) to its bets; call it before counting the outcome."""
    _add_to_pairs(bets, n, s, shares, bounded, k, g, x, 1.0)
    estimate = (0.5 + s[g, k]) / (n[g, k] + 1.0)
    bets[squares_row(n.shape[0], g), k] += (x - estimate) * (x - estimate)


@kernel
def record_block_of_bets(
    bets: Array, n: Array, s: Array, shares: Array, bounded: Static[bool], k: int, g: int, total: float,
    count: int,
) -> None:  # fmt: skip
    """Add n outcomes with this sum, in a forecast, where they are not drawn one by one.

    They are taken to be 1 or `low`, with the variance of the cell's outcomes so far and the same tilts.
    """
    row, estimate = squares_row(n.shape[0], g), (0.5 + s[g, k]) / (n[g, k] + 1.0)
    mean = min(max(total / count, 0.0), 1.0)
    variance = min((0.25 + bets[row, k]) / (n[g, k] + 1.0), mean * (1.0 - mean))
    low = max(mean - variance / (1.0 - mean), 0.0) if mean < 1.0 else 1.0
    ones = count * (mean - low) / (1.0 - low) if low < 1.0 else float(count)
    _add_to_pairs(bets, n, s, shares, bounded, k, g, 1.0, ones)
    _add_to_pairs(bets, n, s, shares, bounded, k, g, low, count - ones)
    bets[row, k] += count * (variance + (mean - estimate) * (mean - estimate))


@kernel
def add_ones_to_pairs(
    bets: Array, n: Array, s: Array, shares: Array, bounded: Static[bool], k: int, g: int, ones: float,
    zeros: float,
) -> None:  # fmt: skip
    """Add these numbers of outcomes 1 and 0 of one cell, all with the tilts of the state before them."""
    _add_to_pairs(bets, n, s, shares, bounded, k, g, 1.0, ones)
    _add_to_pairs(bets, n, s, shares, bounded, k, g, 0.0, zeros)


@kernel
def _add_to_pairs(
    bets: Array, n: Array, s: Array, shares: Array, bounded: Static[bool], k: int, g: int, x: float,
    times: float,
) -> None:  # fmt: skip
    """Add an outcome, repeated, to the bets against every rival and at bounds."""
    groups, policies = n.shape
    estimate = (0.5 + s[g, k]) / (n[g, k] + 1.0)
    error, spread = _error_and_spread(bets, n, shares, k)
    for rival in range(policies):
        if rival != k:
            its_error, its_spread = _error_and_spread(bets, n, shares, rival)
            scale = shares[g] / (n[g, k] + 1.0) * (spread + its_spread) / (error + its_error)
            row = pair_row(groups, bounded, rival, FIRST, g)
            _place(bets, row, k, scale, x, estimate, FARTHEST / estimate, 1.0, times)
            row = pair_row(groups, bounded, rival, SECOND, g)
            _place(bets, row, k, scale, x, estimate, FARTHEST / (1.0 - estimate), -1.0, times)
    if bounded:
        record_bounded(bets, groups, k, g, x, times)


@kernel
def record_bounded(bets: Array, groups: int, k: int, g: int, x: float, times: float) -> None:
    """Add an outcome, repeated, to the bets of its cell at bounds."""
    for side in range(2):
        for j in range(GRID):
            bets[bounded_row(groups, side, j, g), k] += times * math.log1p(LIFTS[side, 0, j] * x)


@kernel
def _place(
    bets: Array, row: int, k: int, scale: float, x: float, estimate: float, largest: float, sign: float,
    times: float,
) -> None:  # fmt: skip
    """Add an outcome to W and B for every tilt; `largest` is the largest tilt that is allowed."""
    for j in range(TILTS):
        tau = sign * min(MATCHED[j] * scale, largest)
        bets[row + j, k] += times * (math.log1p(tau * (x - estimate)) + tau * estimate)
        bets[row + TILTS + j, k] += times * tau


@kernel
def _error_and_spread(bets: Array, n: Array, shares: Array, k: int) -> tuple[float, float]:
    """Return the estimated squared error of policy k's overall mean, and sum q sd over its cells."""
    groups = shares.size
    error, spread = 0.0, 0.0
    for g in range(groups):
        after = n[g, k] + 1.0
        variance = (0.25 + bets[squares_row(groups, g), k]) / after
        error += shares[g] * shares[g] * variance / after
        spread += shares[g] * math.sqrt(variance)
    return error, spread


@kernel
def record_gaussian_bets(
    bets: Array, n: Array, phi: Array, shares: Array, k: int, g: int, total: float, count: float
) -> None:
    """Add n outcomes of cell (k, g) with this sum, all with the tilts of the state before them."""
    groups, policies = n.shape
    if n[g, k] == 0.0:
        bets[g, k] = total / count
    away = total - count * bets[g, k]
    error, spread = _gaussian_error_and_spread(n, phi, shares, k)
    for rival in range(policies):
        if rival != k:
            its_error, its_spread = _gaussian_error_and_spread(n, phi, shares, rival)
            scale = shares[g] / (n[g, k] + 1.0) * (spread + its_spread) / (error + its_error)
            for place, sign in ((FIRST, 1.0), (SECOND, -1.0)):
                row = pair_row(groups, False, rival, place, g)
                for j in range(TILTS):
                    tau = FIXED[j] * scale
                    bets[row + j, k] += sign * tau * away - 0.5 * count * tau * tau * phi[g, k]
                    bets[row + TILTS + j, k] += sign * count * tau


@kernel
def _gaussian_error_and_spread(n: Array, phi: Array, shares: Array, k: int) -> tuple[float, float]:
    """Return the squared error of policy k's mean with one more outcome in every cell, and sum q sd."""
    error, spread = 0.0, 0.0
    for g in range(shares.size):
        error += shares[g] * shares[g] * phi[g, k] / (n[g, k] + 1.0)
        spread += shares[g] * math.sqrt(phi[g, k])
    return error, spread
