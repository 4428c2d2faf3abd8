"""Linear bets on the outcomes of a whole interval, with tilts fixed before any of them is seen.

`pair_bets` has the formulas and the rows of `State.bets`. There every outcome changes the tilts of the next;
here the tilts of all outcomes of an interval are those of the state before it, so they are known before each
outcome, and the order within the interval does not matter. With slope a and centre c of a bet, the interval
adds

    W += sum ln(1 + a (x - c)) + n a c,   B += n a

so a database that returns the sums of ln(1 + a (x - c)), the number, the sum and the sum of squares of every
cell returns all that is needed. For outcomes 0 and 1 the number and the sum give the rest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.procedure.evidence.linear_bets import FARTHEST, MATCHED, TILTS
from evenhand.procedure.evidence.pair_bets import FIRST, SECOND, bounded_row, pair_row, squares_row
from evenhand.procedure.evidence.tilt_mixture import GRID, LIFTS
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State

Array = NDArray[np.float64]

ROUNDING = 1e-9  # relative error of sums that a database adds up


class CellBets(NamedTuple):
    """The bets on the outcomes of one cell, in unit scale: ln(1 + slope (x - centre)) for each."""

    slope: Array
    centre: Array


class CellSums(NamedTuple):
    """Sums over the outcomes of one cell in an interval, in unit scale."""

    n: float
    s: float
    squares: float
    logs: Array  # of ln(1 + slope (x - centre)), for each bet


def bets_on(spec: Spec, state: State, k: int, g: int) -> CellBets:
    """Return the bets on a cell: against every rival for both signs, then at the bounds of its mean.

    The cell's own bounds are bet on with bounded outcomes only.
    """
    estimate = (0.5 + state.s[g, k]) / (state.n[g, k] + 1.0)
    errors, spreads = _errors_and_spreads(spec, state)
    slopes = []
    for rival in range(spec.phi.shape[1]):
        if rival != k:
            scale = (
                spec.shares[g] / (state.n[g, k] + 1.0)
                * (spreads[k] + spreads[rival]) / (errors[k] + errors[rival])
            )  # fmt: skip
            slopes.append(np.minimum(MATCHED * scale, FARTHEST / estimate))
            slopes.append(-np.minimum(MATCHED * scale, FARTHEST / (1.0 - estimate)))
    centres = [np.full(TILTS, estimate) for _ in slopes]
    if spec.bounded:
        slopes += [LIFTS[0, 0], LIFTS[1, 0]]
        centres += [np.zeros(GRID), np.zeros(GRID)]
    return CellBets(np.concatenate(slopes), np.concatenate(centres))


def sums_of_ones(n: float, s: float, bets: CellBets) -> CellSums:
    """Return the sums of n outcomes 0 and 1, of which s are 1."""
    logs = s * np.log1p(bets.slope * (1.0 - bets.centre)) + (n - s) * np.log1p(-bets.slope * bets.centre)
    return CellSums(n, s, s, logs)


def add_interval(spec: Spec, state: State, cells: dict[tuple[int, int], CellSums]) -> None:
    """Add the outcomes of an interval to the bets; call it before they are counted.

    `cells` has the sums by (policy, group).
    """
    groups = spec.phi.shape[0]
    found = {cell: bets_on(spec, state, *cell) for cell in cells}  # all of them before any is changed
    for (k, g), sums in cells.items():
        slope, centre = found[k, g]
        at = 0
        for rival in range(spec.phi.shape[1]):
            for place in (FIRST, SECOND) if rival != k else ():
                part, row = slice(at, at + TILTS), pair_row(groups, spec.bounded, rival, place, g)
                state.bets[row : row + TILTS, k] += sums.logs[part] + sums.n * slope[part] * centre[part]
                state.bets[row + TILTS : row + 2 * TILTS, k] += sums.n * slope[part]
                at += TILTS
        for side in range(2) if spec.bounded else ():
            for j in range(GRID):
                state.bets[bounded_row(groups, side, j, g), k] += sums.logs[at]
                at += 1
        estimate = (0.5 + state.s[g, k]) / (state.n[g, k] + 1.0)
        distances = sums.squares - 2.0 * estimate * sums.s + sums.n * estimate * estimate
        state.bets[squares_row(groups, g), k] += max(float(distances), 0.0)


def is_possible(sums: CellSums, bets: CellBets) -> bool:
    """Return whether outcomes in [0, 1] with this number and sum can have these sums of logarithms.

    ln(1 + a (x - c)) is concave in x: its sum is at most that of equal outcomes, and at least that of
    outcomes at the ends of the range.
    """
    if sums.logs.shape != bets.slope.shape or not np.isfinite(sums.logs).all():
        return False
    most = sums.n * np.log1p(bets.slope * (sums.s / sums.n - bets.centre))
    least = sums_of_ones(sums.n, sums.s, bets).logs
    slack = ROUNDING * (sums.n + np.abs(most) + np.abs(least))
    return bool(np.all((sums.logs <= most + slack) & (sums.logs >= least - slack)))


def _errors_and_spreads(spec: Spec, state: State) -> tuple[Array, Array]:
    """Return the estimated squared error of every policy's overall mean, and sum q sd over its cells."""
    groups = spec.phi.shape[0]
    after = state.n + 1.0
    squares = state.bets[squares_row(groups, 0) : squares_row(groups, 0) + groups]
    variance = (0.25 + squares) / after
    q = spec.shares[:, np.newaxis]
    return (q * q * variance / after).sum(axis=0), (q * np.sqrt(variance)).sum(axis=0)
