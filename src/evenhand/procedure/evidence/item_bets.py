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
    record_draws,
)
from evenhand.procedure.evidence.pair_bets import pairs_begin

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

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
    _read_bets(bets, bounded, i, k, kind, g, block)
    record_draw(block, kind, g, x)
    _write_bets(bets, bounded, i, k, kind, g, block)


@kernel
def record_block_on_pairs(
    bets: Array, shares: Array, g: int, answers: Flags, count: float, right: Array, differing: Array,
    work: Array,
) -> None:  # fmt: skip
    """Add a block of items of group g with outcomes 0 or 1, for a forecast, at the tilts before the block.

    `right` has the number of outcomes 1 of each policy, `differing` that of items on which two differ.
    """
    block, _ = block_in(shares, work)
    for h in range(shares.size):
        block.pool[h] = math.inf
    for i in range(answers.size):
        for k in range(answers.size):
            if i == k or not (answers[i] or answers[k]):
                continue
            kind = BOTH if answers[i] and answers[k] else ONLY_I if answers[i] else ONLY_K
            ups, downs = right[k] if kind == ONLY_K else right[i], 0.0
            if kind == BOTH:
                lead = right[i] - right[k]
                ups, downs = 0.5 * (differing[i, k] + lead), 0.5 * (differing[i, k] - lead)
            _read_bets(bets, False, i, k, kind, g, block)
            record_draws(block, kind, g, ups, downs, count)
            _write_bets(bets, False, i, k, kind, g, block)


@kernel
def _read_bets(bets: Array, bounded: Static[bool], i: int, k: int, kind: int, g: int, block: Block) -> None:
    """Copy the sums of the pair (i, k), and the bets on one of its cells, to a block."""
    groups = block.q.size
    begin, changed = block_row(groups, bounded, k), kind * groups + g
    _read_sums(bets, begin, i, block)
    row = begin + changed * CELL
    for j in range(TILTS):
        block.w[changed, j], block.b[changed, j] = bets[row + j, i], bets[row + TILTS + j, i]


@kernel
def _write_bets(bets: Array, bounded: Static[bool], i: int, k: int, kind: int, g: int, block: Block) -> None:
    """Copy the bets on one cell of the pair (i, k), and the number of draws, from a block."""
    groups = block.q.size
    begin, changed = block_row(groups, bounded, k), kind * groups + g
    row = begin + changed * CELL
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


@kernel
def differing_items(
    bets: Array, groups: int, bounded: Static[bool], i: int, k: int, g: int
) -> tuple[float, float]:
    """Return the number of items of a group that both answered, and on how many outcomes 0 or 1 differ.

    V sums squared distances to estimates from earlier items: about n + ln n times their variance.
    """
    row = block_row(groups, bounded, k) + (BOTH * groups + g) * CELL
    n, s, v = bets[row + NUMBER, i], bets[row + SUM, i], bets[row + SQUARES, i]
    if n == 0.0:
        return 0.0, 0.0
    found = v * n / (n + math.log(n)) + s * s / n
    return n, min(max(found, abs(s)), n)
