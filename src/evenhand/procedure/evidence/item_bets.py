"""Linear bets on every ordered pair of policies that answer shared items, in the state of a procedure.

`linear_bets` has the formulas. An item that both policies of a pair answered is a bet on the difference of
their outcomes; one that only one of them answered is a bet on its outcome. The block of the pair (i, k) is a
part of column i of `State.bets`, after the rows that `pair_bets` lists before its pairs:

    K x (3 L x 23 + 1)  for each rival: of every kind and group W and B of all tilts, then number, sum and V;
                        then the number of draws

Items count in the order in which they are recorded.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import Static, kernel
from evenhand.procedure.evidence.linear_bets import (
    BOTH,
    KINDS,
    ONLY_I,
    ONLY_K,
    TILTS,
    Block,
    block_in,
    record_draw,
)
from evenhand.procedure.evidence.pair_bets import pairs_begin

Array = NDArray[np.float64]

NUMBER, SUM, SQUARES = 2 * TILTS, 2 * TILTS + 1, 2 * TILTS + 2  # places after W and B of a cell
CELL = 2 * TILTS + 3  # rows of a cell


def item_rows(groups: int, policies: int, bounded: bool) -> int:
    """Return the number of rows of `State.bets` with bets on shared items."""
    return int(pairs_begin(groups, bounded)) + policies * (KINDS * groups * CELL + 1)


@kernel
def block_row(groups: int, bounded: Static[bool], rival: int) -> int:
    """Return the first row of the block against a rival."""
    return pairs_begin(groups, bounded) + rival * (KINDS * groups * CELL + 1)


@kernel
def record_on_pairs(
    bets: Array, shares: Array, bounded: Static[bool], g: int, outcomes: Array, work: Array
) -> None:
    """Add the outcomes of all policies on an item of group g; NaN where a policy has none."""
    block, _ = block_in(shares, work)
    for h in range(shares.size):
        block.pool[h] = math.inf
    for i in range(outcomes.size):
        for k in range(outcomes.size):
            if i == k:
                continue
            x, y = outcomes[i], outcomes[k]
            if not math.isnan(x) and not math.isnan(y):
                _record(bets, bounded, i, k, BOTH, g, x - y, block)
            elif not math.isnan(x):
                _record(bets, bounded, i, k, ONLY_I, g, x, block)
            elif not math.isnan(y):
                _record(bets, bounded, i, k, ONLY_K, g, y, block)


@kernel
def _record(
    bets: Array, bounded: Static[bool], i: int, k: int, kind: int, g: int, x: float, block: Block
) -> None:
    groups = block.q.size
    begin, changed = block_row(groups, bounded, k), kind * groups + g
    _read_sums(bets, begin, i, block)
    row = begin + changed * CELL
    for j in range(TILTS):
        block.w[changed, j], block.b[changed, j] = bets[row + j, i], bets[row + TILTS + j, i]
    record_draw(block, kind, g, x)
    for j in range(TILTS):
        bets[row + j, i], bets[row + TILTS + j, i] = block.w[changed, j], block.b[changed, j]
    bets[row + NUMBER, i], bets[row + SUM, i] = block.n[changed], block.s[changed]
    bets[row + SQUARES, i] = block.v[changed]
    bets[begin + KINDS * groups * CELL, i] = block.draws[0]


@kernel
def read_block(bets: Array, bounded: Static[bool], i: int, k: int, block: Block) -> None:
    """Copy the bets on the pair (i, k) to a block."""
    groups = block.q.size
    begin = block_row(groups, bounded, k)
    _read_sums(bets, begin, i, block)
    for c in range(KINDS * groups):
        row = begin + c * CELL
        for j in range(TILTS):
            block.w[c, j], block.b[c, j] = bets[row + j, i], bets[row + TILTS + j, i]


@kernel
def _read_sums(bets: Array, begin: int, i: int, block: Block) -> None:
    cells = KINDS * block.q.size
    for c in range(cells):
        row = begin + c * CELL
        block.n[c], block.s[c], block.v[c] = bets[row + NUMBER, i], bets[row + SUM, i], bets[row + SQUARES, i]
    block.draws[0] = bets[begin + cells * CELL, i]


@kernel
def difference(
    bets: Array, groups: int, bounded: Static[bool], i: int, k: int, g: int
) -> tuple[float, float]:
    """Return mean and standard deviation of the differences of two policies on the items of a group."""
    row = block_row(groups, bounded, k) + (BOTH * groups + g) * CELL
    n, s, v = bets[row + NUMBER, i], bets[row + SUM, i], bets[row + SQUARES, i]
    return s / max(n, 1.0), math.sqrt((0.25 + v) / (n + 1.0))
