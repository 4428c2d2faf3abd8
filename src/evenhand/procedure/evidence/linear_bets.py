"""Linear bets: evidence from outcomes in [0, 1], and from differences of outcomes on shared items.

A bet on an outcome x in [low, high] with tilt tau >= 0 and sign s (1 refutes small means, -1 large ones):

    xhat = (prior + S) / (N + 1),   y = s (x - xhat),   tau <= 0.9 / (largest possible -y)
    W += ln(1 + tau y) + tau s (xhat + behind),   B += s tau ahead

with N and S the count and sum before the draw. With replacement ahead = 1 and behind = 0. Without replacement
from a pool of n items ahead = n / (n - N) and behind = S / (n - N), so that E[x | past] = ahead m - behind at
the mean m. Then E[1 + tau y] = 1 + u <= e^u with u = tau s (ahead m - behind - xhat), and exp(W - B m) is a
supermartingale at the true m: for any law inside the range, any choice of the cell that does not depend on
the outcome itself, and any dependence between policies.

Two policies i and k form a block of 3 L cells: for each group the differences x_i - x_k on items that both
answered, and the outcomes on items that only i, or only k, answered. With fixed weights over sizes and
multipliers,

    M(m) = 1/8 sum over sizes of prod over cells of
           0.05 + 0.10 exp(W - B m) at half the size + 0.75 at the size + 0.10 at twice the size.

ln M is convex in the means; `linear_minimum` bounds its least value over {q.(m_i - m_k) <= c} from below.

Tilts are proportional to the direction q of the comparison: with V the sum of the squared (x - xhat) of a
cell, t the draws in the block, and v the share of a group's weight that its cells of this kind have,

    tau = size f,   f = v q_l / (N + 1) sqrt((t + 1) / S2),
    S2 = sum over cells of (v q)^2 (1/4 + V) / (N + 1)^2.

All of it is known before the draw. The order of the draws matters: it must be that of observation, or at
least not depend on outcomes.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import Axes, kernel

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

BOTH, ONLY_I, ONLY_K = range(3)  # kinds of cells: differences on shared items, and outcomes on others
KINDS = 3
SIZES = 8
TILTS = SIZES + 2  # half the smallest size, the sizes, and twice the largest
MATCHED: Array = np.ldexp(0.01, np.arange(-1, SIZES + 1))  # tilts, in standard deviations of a draw
FIXED: Array = np.ldexp(0.02, np.arange(-1, SIZES + 1))  # tilts of bets with f = 1
FARTHEST = 0.9  # largest relative loss of one bet
MOST_GROWTH = 4.0  # largest factor by which tilts grow as a pool is used up
# logs of the weights of no bet, and of half, one and two times the size
SPREAD = np.log(np.array([0.05, 0.10, 0.75, 0.10]))
SINGLE = np.array([-np.inf, -np.inf, 0.0, -np.inf])


class Block(NamedTuple):
    """The bets on two policies. Row `kind * L + group` belongs to a cell."""

    q: Annotated[Array, Axes("L")]  # weights of the groups
    pool: Annotated[Array, Axes("L")]  # items of each group that may be drawn; infinite with replacement
    w: Annotated[Array, Axes("C", TILTS)]
    b: Annotated[Array, Axes("C", TILTS)]
    n: Annotated[Array, Axes("C")]
    s: Annotated[Array, Axes("C")]
    v: Annotated[Array, Axes("C")]  # sums of squared differences to the estimates before each draw
    draws: Annotated[Array, Axes(1)]


def new_block(q: Array, pool: Array | None = None) -> Block:
    """Return a block without draws; `pool` is the number of items of each group, each drawn at most once."""
    groups = q.size
    cells, tilts = np.zeros(KINDS * groups), np.zeros((KINDS * groups, TILTS))
    sizes = np.full(groups, math.inf) if pool is None else np.array(pool, dtype=float)
    return Block(
        np.array(q, dtype=float), sizes, tilts, tilts.copy(), cells, cells.copy(), cells.copy(), np.zeros(1)
    )


@kernel
def block_in(shares: Array, work: Array) -> tuple[Block, Array]:
    """Return a block in this scratch, with its content, and the rest of the scratch."""
    groups = shares.size
    cells = KINDS * groups
    w = work[: cells * TILTS].reshape((cells, TILTS))
    b = work[cells * TILTS : 2 * cells * TILTS].reshape((cells, TILTS))
    used = 2 * cells * TILTS
    n, s = work[used : used + cells], work[used + cells : used + 2 * cells]
    v = work[used + 2 * cells : used + 3 * cells]
    used = used + 3 * cells
    pool, draws = work[used : used + groups], work[used + groups : used + groups + 1]
    return Block(shares, pool, w, b, n, s, v, draws), work[used + groups + 1 :]


@kernel
def place_bets(
    w: Array, b: Array, sizes: Array, scale: float, x: float, estimate: float, reach: float, sign: float,
    ahead: float, behind: float,
) -> None:  # fmt: skip
    """Add one outcome to W and B for every tilt; `reach` is the largest possible loss per unit of tilt."""
    y = sign * (x - estimate)
    for j in range(sizes.size):
        tau = min(sizes[j] * scale, FARTHEST / reach)
        w[j] += math.log1p(tau * y) + tau * sign * (estimate + behind)
        b[j] += sign * tau * ahead


@kernel
def record_draw(block: Block, kind: int, g: int, x: float) -> None:
    """Add an outcome (kinds ONLY_I, ONLY_K) or a difference of outcomes (BOTH) of group g to the block."""
    c = kind * block.q.size + g
    estimate, sign, reach, scale = next_bet(block, kind, g)
    n, s = block.n[c], block.s[c]
    ahead, behind = 1.0, 0.0
    if block.pool[g] < math.inf:
        left = block.pool[g] - n
        ahead, behind = block.pool[g] / left, s / left
        scale *= min(ahead, MOST_GROWTH)
    place_bets(block.w[c], block.b[c], MATCHED, scale, x, estimate, reach, sign, ahead, behind)
    block.v[c] += (x - estimate) * (x - estimate)
    block.n[c] += 1.0
    block.s[c] += x
    block.draws[0] += 1.0


@kernel
def next_bet(block: Block, kind: int, g: int) -> tuple[float, float, float, float]:
    """Return estimate, sign, largest possible loss per unit of tilt and f of the next bet on a cell."""
    c = kind * block.q.size + g
    n, s = block.n[c], block.s[c]
    low, prior = (-1.0, 0.0) if kind == BOTH else (0.0, 0.5)
    sign = -1.0 if kind == ONLY_K else 1.0
    estimate = (prior + s) / (n + 1.0)
    reach = estimate - low if sign > 0.0 else 1.0 - estimate
    share = share_of_pairs(block, g, kind)
    weight = block.q[g] * (share if kind == BOTH else 1.0 - share)
    scale = weight / (n + 1.0) * math.sqrt((block.draws[0] + 1.0) / _squared_error(block, g, kind))
    return estimate, sign, reach, scale


@kernel
def record_draws(block: Block, kind: int, g: int, ups: float, downs: float, count: float) -> None:
    """Add a block of draws that are 1 (`ups`), -1 (`downs`) or 0 (the others), all at the same tilts.

    For forecasts, with replacement; the numbers may be expected ones.
    """
    c = kind * block.q.size + g
    estimate, sign, reach, scale = next_bet(block, kind, g)
    level = count - ups - downs
    up, down = 1.0 - estimate, -1.0 - estimate
    for j in range(TILTS):
        tau = sign * min(MATCHED[j] * scale, FARTHEST / reach)
        block.w[c, j] += ups * math.log1p(tau * up) + level * math.log1p(-tau * estimate)
        if downs > 0.0:
            block.w[c, j] += downs * math.log1p(tau * down)
        block.w[c, j] += count * tau * estimate
        block.b[c, j] += count * tau
    block.v[c] += ups * up * up + level * estimate * estimate + downs * down * down
    block.n[c] += count
    block.s[c] += ups - downs
    block.draws[0] += count


@kernel
def _squared_error(block: Block, group: int, kind: int) -> float:
    """Return the estimated squared error of the comparison; the next draw is of this group and kind."""
    total = 0.0
    for g in range(block.q.size):
        share = share_of_pairs(block, g, kind if g == group else -1)
        error = 0.0
        if share > 0.0:
            error += share * share * _error(block, BOTH, g)
        if share < 1.0:
            error += (1.0 - share) * (1.0 - share) * (_error(block, ONLY_I, g) + _error(block, ONLY_K, g))
        total += block.q[g] * block.q[g] * error
    return total


@kernel
def share_of_pairs(block: Block, g: int, kind: int) -> float:
    """Return the weight of the differences among a group's cells: by precision where there are both kinds."""
    groups = block.q.size
    pairs = block.n[BOTH * groups + g] > 0.0 or kind == BOTH
    alone = block.n[ONLY_I * groups + g] + block.n[ONLY_K * groups + g]
    singles = alone > 0.0 or kind in (ONLY_I, ONLY_K)
    if not singles:
        return 1.0
    if not pairs:
        return 0.0
    error = _error(block, ONLY_I, g) + _error(block, ONLY_K, g)
    return error / (error + _error(block, BOTH, g))


@kernel
def _error(block: Block, kind: int, g: int) -> float:
    """Return the estimated squared error of a cell's mean."""
    c = kind * block.q.size + g
    return (0.25 + block.v[c]) / ((block.n[c] + 1.0) * (block.n[c] + 1.0))


@kernel
def record_pair(
    block: Block, group_of_item: Ints, items_i: Ints, outcomes_i: Array, items_k: Ints, outcomes_k: Array,
    paired_only: bool,
) -> None:  # fmt: skip
    """Add the outcomes of two policies, each sorted by item number, item by item.

    With `paired_only` items that only one of them answered are left out.
    """
    at_i, at_k = 0, 0
    while at_i < items_i.size or at_k < items_k.size:
        behind_i = at_k >= items_k.size or (at_i < items_i.size and items_i[at_i] < items_k[at_k])
        behind_k = at_i >= items_i.size or (at_k < items_k.size and items_k[at_k] < items_i[at_i])
        if behind_i:
            if not paired_only:
                record_draw(block, ONLY_I, group_of_item[items_i[at_i]], outcomes_i[at_i])
            at_i += 1
        elif behind_k:
            if not paired_only:
                record_draw(block, ONLY_K, group_of_item[items_k[at_k]], outcomes_k[at_k])
            at_k += 1
        else:
            x = outcomes_i[at_i] - outcomes_k[at_k]
            record_draw(block, BOTH, group_of_item[items_i[at_i]], x)
            at_i, at_k = at_i + 1, at_k + 1
