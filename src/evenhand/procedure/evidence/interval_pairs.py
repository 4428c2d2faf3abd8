"""Bets on the differences of two policies on the same units, for all units of an interval at once.

The bets are those of `linear_bets` on pairs. There every difference changes the tilts of the next; here the
tilts of all differences of an interval are those of the blocks before it, so they are known before each
outcome, and the order within the interval does not matter. With tilts tau and the centre c of a group,

    W += sum ln(1 + tau (x - c)) + n tau c,   B += n tau

so a self-join on the unit that returns the number, the sum, the sum of squares and the sums of
ln(1 + slope (x - c)) gives all that is needed. The slopes of a pair (i, k) are the tilts for "i is ahead",
then minus those for "k is ahead". For outcomes 0 and 1 the number, the sum and the sum of squares give the
rest.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.procedure.evidence.interval_bets import ROUNDING
from evenhand.procedure.evidence.item_bets import CELL, NUMBER, SQUARES, SUM, block_row
from evenhand.procedure.evidence.linear_bets import BOTH, FARTHEST, KINDS, MATCHED, TILTS, Block
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State

Array = NDArray[np.float64]
Pair = tuple[int, int]  # numbers of two policies
Place = tuple[Pair, int]  # a pair and a group


class PairBets(NamedTuple):
    """The bets on the differences of a pair in a group, in unit scale: ln(1 + slope (x - centre))."""

    slope: Array  # that the first is ahead, then that the second is
    centre: float


class PairSums(NamedTuple):
    """Sums over the differences of a pair in a group, in unit scale."""

    n: float
    s: float
    squares: float
    logs: Array  # of ln(1 + slope (x - centre)), for each bet


def blocks_in(spec: Spec, state: State) -> dict[Pair, Block]:
    """Return the bets on all ordered pairs as views of the state: what changes in a block changes there."""
    policies = range(spec.phi.shape[1])
    return {(i, k): _block_in(spec, state, i, k) for i in policies for k in policies if i != k}


def _block_in(spec: Spec, state: State, i: int, k: int) -> Block:
    groups = spec.shares.size
    cells, begin = KINDS * groups, int(block_row(groups, spec.bounded, k))
    end = begin + cells * CELL
    table = state.bets[begin:end, i].reshape(cells, CELL)
    return Block(
        spec.shares, np.full(groups, math.inf), table[:, :TILTS], table[:, TILTS : 2 * TILTS],
        table[:, NUMBER], table[:, SUM], table[:, SQUARES], state.bets[end : end + 1, i],
    )  # fmt: skip


def bets_on_pairs(blocks: dict[Pair, Block]) -> dict[Place, PairBets]:
    """Return the bets of the next interval on every pair (i, k) with i < k in every group."""
    found = {}
    for (i, k), block in blocks.items():
        for g in range(block.q.size) if i < k else ():
            ahead, centre = _tilts(block, g)
            found[(i, k), g] = PairBets(np.concatenate([ahead, -_tilts(blocks[k, i], g)[0]]), centre)
    return found


def add_pairs(blocks: dict[Pair, Block], bets: dict[Place, PairBets], pairs: dict[Place, PairSums]) -> None:
    """Add the sums of an interval to the bets on all pairs, in both directions."""
    for ((i, k), g), sums in pairs.items():
        slope, centre = bets[(i, k), g]
        half = slope.size // 2
        _add(blocks[i, k], g, slope[:half], centre, sums._replace(logs=sums.logs[:half]))
        other = sums._replace(s=-sums.s, logs=sums.logs[half:])
        _add(blocks[k, i], g, -slope[half:], -centre, other)


def _add(block: Block, g: int, tilts: Array, centre: float, sums: PairSums) -> None:
    c = BOTH * block.q.size + g
    block.w[c] += sums.logs + sums.n * tilts * centre
    block.b[c] += sums.n * tilts
    block.v[c] += max(sums.squares - 2.0 * centre * sums.s + sums.n * centre * centre, 0.0)
    block.n[c] += sums.n
    block.s[c] += sums.s
    block.draws[0] += sums.n


def _tilts(block: Block, g: int) -> tuple[Array, float]:
    """Return the tilts of the next interval in a group and the centre, from the intervals before it."""
    groups = block.q.size
    n, v = (table[BOTH * groups : (BOTH + 1) * groups] for table in (block.n, block.v))
    centre = float(block.s[BOTH * groups + g] / (n[g] + 1.0))
    # f = q_l / (N + 1) sqrt((t + 1) / S2),  S2 = sum of q^2 (1/4 + V) / (N + 1)^2
    error = float((block.q**2 * (0.25 + v) / (n + 1.0) ** 2).sum())
    scale = block.q[g] / (n[g] + 1.0) * math.sqrt((block.draws[0] + 1.0) / error)
    return np.minimum(MATCHED * scale, FARTHEST / (centre + 1.0)), centre


def sums_of_signs(n: float, s: float, squares: float, bets: PairBets) -> PairSums:
    """Return the sums of n differences -1, 0 and 1, with this sum and number of those that are not 0."""
    up, down = (squares + s) / 2.0, (squares - s) / 2.0
    logs = sum(
        times * np.log1p(bets.slope * (x - bets.centre))
        for times, x in ((up, 1.0), (down, -1.0), (n - squares, 0.0))
    )
    return PairSums(n, s, squares, np.asarray(logs))


def are_possible(sums: PairSums, bets: PairBets) -> bool:
    """Return whether differences in [-1, 1] with this number and sum can have these sums of logarithms.

    ln(1 + a (x - c)) is concave in x: its sum is at most that of equal differences, and at least that of
    differences at the ends of the range.
    """
    if sums.logs.shape != bets.slope.shape or not np.isfinite(sums.logs).all():
        return False
    most = sums.n * np.log1p(bets.slope * (sums.s / sums.n - bets.centre))
    least = sums_of_signs(sums.n, sums.s, sums.n, bets).logs
    slack = ROUNDING * (sums.n + np.abs(most) + np.abs(least))
    return bool(np.all((sums.logs <= most + slack) & (sums.logs >= least - slack)))
