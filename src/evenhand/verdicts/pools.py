"""Finite pools: the verdict is about the items of a pool, each drawn at most once, instead of a population.

In a comparison of two policies an item that only one of them answered tells little about the other's outcome
on it: such items are set aside, with the smallest difference that is possible on each. The rest of the pool,
n' of n items, is drawn without replacement, and with D the least sum of the differences on the items aside

    q.m <= -eps  implies  sum over groups of q n'/n m' <= -eps - sum over groups of q D/n.

When every policy has answered every item of the pool the means are known and the answer is exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput, nearest, shown
from evenhand.model.problem import Problem
from evenhand.model.region import BOX
from evenhand.procedure.evidence import linear_minimum
from evenhand.procedure.evidence.cell_bets import PoolBets, add_pool_outcomes, new_pool_bets
from evenhand.procedure.evidence.linear_bets import SINGLE, SPREAD, new_block, record_pair
from evenhand.procedure.evidence.linear_minimum import Null, scratch
from evenhand.procedure.spec import Spec
from evenhand.verdicts.items import Items

Array = NDArray[np.float64]

OF_THE_DATA = "data"  # the pool is all items that the data name


def checked_pool(problem: Problem, pool: Any, items: Items | None) -> Array:
    """Return the number of items of each group in the pool, or raise one sentence."""
    if items is None:
        raise BadInput("a pool needs data that name their items; add a column 'item', a name for every item.")
    answered = np.bincount(items.group, minlength=len(problem.groups))
    if pool == OF_THE_DATA:
        return answered.astype(float)
    if not isinstance(pool, Mapping):
        raise BadInput(f"pool must give the number of items by group, or be 'data'; it is {shown(pool)}.")
    for name in pool:
        if name not in problem.group_names:
            raise BadInput(f"there is no group {shown(name)}{nearest(str(name), problem.group_names)}")
    sizes = []
    for g, name in enumerate(problem.group_names):
        size = pool.get(name)
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
            raise BadInput(f"the pool of {name!r} must be a whole number of at least 1; it is {shown(size)}.")
        if size < answered[g]:
            raise BadInput(
                f"the pool of {name!r} must hold every item that was answered; it has {size:,} items, and "
                f"{answered[g]:,} were answered."
            )
        sizes.append(float(size))
    return np.array(sizes)


def refuse_what_has_no_pool(problem: Problem, spec: Spec) -> None:
    """Refuse a pool where the requirement is not one of floors and caps, or nothing is compared."""
    if spec.region.kind != BOX:
        raise BadInput(
            f"a pool needs floors, caps or no requirement; it is {problem.constraint.describe()!r}."
        )
    if problem.goal == "screen":
        raise BadInput('a pool needs goal = "best"; the goal is to screen.')


def is_exhausted(pool: Array, counts: Array, guardrails: Array) -> bool:
    """Return whether every policy answered every item; counts are (L, K), of guard-rails (M, L, K)."""
    return bool(np.all(counts == pool[:, None]) and np.all(guardrails == pool[:, None]))


def pool_bets(pool: Array, items: Items) -> PoolBets:
    """Return the bets on every cell."""
    bets = new_pool_bets(pool, len(items.answers))
    add_pool_outcomes(bets, *items.in_order())
    return bets


def ahead_in_pool(spec: Spec, pool: Array, items: Items, i: int, k: int) -> float:
    """Return the ln e-value against {q.m_k >= q.m_i + indifference} for the means of the pool."""
    one, other = items.answers[i], items.answers[k]
    groups = spec.shares.size
    only_i = ~np.isin(one.items, other.items, assume_unique=True)
    only_k = ~np.isin(other.items, one.items, assume_unique=True)
    # the least differences on items that one of them answered: x_i - 1 and -x_k
    aside = np.zeros(groups)  # np.bincount counts in whole numbers where it gets nothing
    aside += np.bincount(items.group[one.items[only_i]], one.outcomes[only_i] - 1.0, groups)
    aside -= np.bincount(items.group[other.items[only_k]], other.outcomes[only_k], groups)
    rest = pool - np.bincount(items.group[one.items[only_i]], minlength=groups)
    rest -= np.bincount(items.group[other.items[only_k]], minlength=groups)
    block = new_block(spec.shares, rest)
    record_pair(block, items.group, one.items, one.outcomes, other.items, other.outcomes, True)
    n, s, size = block.n[:groups], block.s[:groups], np.maximum(rest, 1.0)
    low, high = np.zeros(2 * groups), np.zeros(2 * groups)
    low[:groups], high[:groups] = (s - (rest - n)) / size, (s + (rest - n)) / size
    bound = -spec.indifference - float(np.sum(spec.shares * aside / pool))
    null = Null(spec.shares * rest / pool, bound, low, high)
    multipliers = SINGLE if groups == 1 else SPREAD
    return float(linear_minimum.least(block, null, multipliers, math.inf, scratch(groups)))
