"""Runs of linear bets under true nulls, with sampling that may know the truth: do they ever cross a level?"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from evenhand.compile import kernel
from evenhand.procedure.evidence.linear_bets import (
    BOTH,
    ONLY_I,
    ONLY_K,
    SINGLE,
    SPREAD,
    Block,
    new_block,
    record_draw,
)
from evenhand.procedure.evidence.linear_minimum import Null, least, scratch

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

ALPHA = 0.05
FALSE_ALARM = 1e-6
RANDOM, OPTIMISTIC, UNLUCKY, LUCKY, NEYMAN = range(5)


class Law(NamedTuple):
    """Outcomes of i and k on one item, by group: only i is right, only k is right, both are."""

    up: Array
    down: Array
    both: Array


@kernel
def record_draws(block: Block, kinds: Ints, groups: Ints, values: Array) -> None:
    """Record draws in their order."""
    for r in range(values.size):
        record_draw(block, kinds[r], groups[r], values[r])


@kernel
def unpaired_crosses(
    block: Block, null: Null, x_i: Array, x_k: Array, multipliers: Array, level: float, work: Array
) -> bool:
    """Return whether the evidence reaches the level if shared items are taken for different ones."""
    due = 10.0
    for t in range(x_i.size):
        record_draw(block, ONLY_I, 0, x_i[t])
        record_draw(block, ONLY_K, 0, x_k[t])
        if t >= due:
            due *= 1.03
            if least(block, null, multipliers, level, work) >= level:
                return True
    return False


@kernel
def fraction(x: float) -> float:
    """Return the fractional part of a positive number."""
    return x - math.floor(x)


@kernel
def choose(block: Block, law: Law, mode: int, pool: float, luck: Array, u: float) -> int:
    """Return the next group, by the true means or in favour of high or low estimates; -1 at the end."""
    best, found = -math.inf, -1
    groups = block.q.size
    for g in range(groups):
        n = block.n[g] + block.n[groups + g] + block.n[2 * groups + g]
        if n >= pool:
            continue
        value = fraction(u * 7919.0 * (g + 1.0))
        if mode == OPTIMISTIC:
            value = luck[g] / (n + 1.0) + law.up[g] - law.down[g] + 1.0 / math.sqrt(n + 1.0)
        elif mode == UNLUCKY:
            value = -luck[g] / math.sqrt(n + 1.0)
        elif mode == LUCKY:
            value = luck[g]
        elif mode == NEYMAN:
            value = block.q[g] * block.q[g] * (0.25 + block.v[g]) / ((n + 1.0) * (n + 1.0))
        if value > best:
            best, found = value, g
    return found


@kernel
def crosses(
    block: Block, null: Null, law: Law, multipliers: Array, mode: int, shared: float, pool: float,
    deck: Array, uniforms: Array, level: float, luck: Array, work: Array,
) -> bool:  # fmt: skip
    """Return whether the evidence ever reaches the level; `deck` holds the differences of a pool."""
    groups = block.q.size
    due = 4.0
    for t in range(uniforms.shape[0]):
        g = choose(block, law, mode, pool, luck, uniforms[t, 0])
        if g < 0:
            return False
        kind, x = BOTH, 0.0
        if pool < math.inf:
            x = deck[g, int(block.n[g])]
        else:
            u = uniforms[t, 1]
            x_i = 1.0 if u < law.up[g] + law.both[g] else 0.0
            x_k = 1.0 if law.up[g] <= u < law.up[g] + law.both[g] + law.down[g] else 0.0
            if uniforms[t, 2] < shared:
                x = x_i - x_k
            elif uniforms[t, 2] < 0.5 * (1.0 + shared):
                kind, x = ONLY_I, x_i
            else:
                kind, x = ONLY_K, x_k
        record_draw(block, kind, g, x)
        mean = law.up[g] - law.down[g]
        if kind == ONLY_I:
            mean = law.up[g] + law.both[g]
        elif kind == ONLY_K:
            mean = law.down[g] + law.both[g]
        luck[g] += -(x - mean) if kind == ONLY_K else x - mean
        if t + 1 >= due or t + 1 == uniforms.shape[0]:
            due = max(due + 4.0, due * 1.01)
            if pool < math.inf:
                for j in range(groups):
                    left = pool - block.n[j]
                    null.low[j], null.high[j] = (block.s[j] - left) / pool, (block.s[j] + left) / pool
            if least(block, null, multipliers, level, work) >= level:
                return True
    return False


def crossings(law: Law, q, mode: int, runs: int, horizon: int, *, shared=1.0, pool=math.inf, seed=0) -> int:
    """Return the number of runs whose evidence against a true null ever reaches 1/ALPHA."""
    rng, weights = np.random.default_rng(seed), np.array(q, dtype=float)
    groups, found, work = len(q), 0, scratch(len(q))
    law = Law(*(np.array(part, dtype=float) for part in law))
    low, high = np.zeros(2 * groups), np.ones(2 * groups)
    if shared == 1.0:
        low[:groups], high[groups:] = -1.0, 0.0
    multipliers = SINGLE if groups == 1 and shared == 1.0 else SPREAD
    for _ in range(runs):
        deck = np.zeros((groups, 1))
        if pool < math.inf:
            deck = np.array([rng.permutation(_pool(law, g, int(pool))) for g in range(groups)])
        block = new_block(weights, None if pool == math.inf else np.full(groups, pool))
        null = Null(weights, 0.0, low.copy(), high.copy())
        uniforms, luck = rng.random((horizon, 3)), np.zeros(groups)
        found += crosses(
            block, null, law, multipliers, mode, shared, pool, deck, uniforms, math.log(1 / ALPHA), luck, work
        )
    return found


def _pool(law: Law, g: int, size: int) -> Array:
    """Return the differences of a pool that has exactly these shares."""
    up, down = round(law.up[g] * size), round(law.down[g] * size)
    return np.array([1.0] * up + [-1.0] * down + [0.0] * (size - up - down))


def is_too_often(count: int, runs: int, alpha: float = ALPHA) -> bool:
    """Return whether so many crossings are nearly impossible at probability alpha each."""
    return bool(stats.binom.sf(count - 1, runs, alpha) < FALSE_ALARM)
