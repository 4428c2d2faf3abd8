"""Initial samples: how many every cell gets before the sampling rule chooses, and in which order.

The initial samples come in rounds: each round samples once every cell that still lacks some. Within a round
the order of the cells is that of the problem ("declared"), or random ("random"): a permutation that depends
on the seed, the replication and the round alone, so that a live experiment can be derived again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel
from evenhand.errors import BadInput, is_one_of, nearest, shown
from evenhand.model.argument_checks import is_whole
from evenhand.model.frozen_dict import FrozenDict
from evenhand.model.labels import bounds_in_order, by_name, checked_bounds
from evenhand.model.problem import Problem
from evenhand.procedure.randomness import shuffled

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

ORDERS = ("declared", "random")
BEFORE, CELLS, OFFSET = range(3)  # columns of `Rounds.levels`


class Rounds(NamedTuple):
    """The cells of every round of initial samples."""

    total: int
    # a row for each number of initial samples: samples before it, cells that have at least this number, and
    # where their numbers begin in `cells`
    levels: Ints
    cells: Ints  # numbers of cells, g K + k


def checked_initial(initial: Any, most: int) -> Any:
    """Return the initial samples as a number, a tuple per group or K x L, or a table by name, of ints."""
    if not isinstance(by_name(initial, "initial"), (list, tuple, np.ndarray, Mapping)):
        return _checked_number(initial, most, initial)
    return _whole_numbers(checked_bounds(initial, "initial"), most, initial)


def checked_order(order: Any) -> Any:
    """Return the order of initial samples, checked; None is the default of the command."""
    if order is not None and not is_one_of(order, ORDERS):
        known = nearest(str(order), ORDERS)
        raise BadInput(f"initial_order must be one of {', '.join(ORDERS)}; it is {shown(order)}{known}")
    return order


def initial_table(initial: Any, problem: Problem) -> Array:
    """Return the initial samples of every cell, (L, K)."""
    policies, groups = problem.shape
    table = np.asarray(
        bounds_in_order(initial, problem.policies, problem.group_names, "initial"), dtype=float
    )
    if table.ndim == 1 and table.size != groups:
        raise BadInput(f"initial must have one number per group, {groups}; it has {table.size}.")
    if table.ndim == 2 and table.shape != (policies, groups):
        raise BadInput(
            f"initial must have a row per policy and a column per group, {policies} x {groups}; it is "
            f"{table.shape[0]} x {table.shape[1]}."
        )
    return np.ascontiguousarray(np.broadcast_to(table, (policies, groups)).T)


def rounds_of(table: Array) -> Rounds:
    """Return the rounds of initial samples with these numbers per cell, (L, K)."""
    wanted = table.ravel().astype(np.int64)
    levels, cells, before, least = [], [np.zeros(0, dtype=np.int64)], 0, 0
    for number in np.unique(wanted).tolist():
        members = np.flatnonzero(wanted >= number)
        levels.append([before, members.size, sum(part.size for part in cells)])
        cells.append(members)
        before, least = before + (number - least) * members.size, number
    return Rounds(before, np.array(levels, dtype=np.int64), np.concatenate(cells).astype(np.int64))


@kernel
def initial_cell(
    levels: Ints, cells: Ints, random_order: bool, started: int, seed: int, replication: int
) -> int:
    """Return the cell of initial sample `started`, counted from 0, as g K + k."""
    level = levels.shape[0] - 1
    while level > 0 and started < levels[level, BEFORE]:
        level -= 1
    size = levels[level, CELLS]
    turn = (started - levels[level, BEFORE]) % size
    if random_order:
        turn = shuffled(seed, started - turn, replication, turn, size)
    return cells[levels[level, OFFSET] + turn]


def _whole_numbers(value: Any, most: int, given: Any) -> Any:
    if isinstance(value, Mapping):
        return FrozenDict({name: _whole_numbers(part, most, given) for name, part in value.items()})
    if isinstance(value, tuple):
        return tuple(_whole_numbers(part, most, given) for part in value)
    return _checked_number(value, most, given)


def _checked_number(value: Any, most: int, given: Any) -> int:
    if not is_whole(value) or not 1 <= value <= most:
        raise BadInput(f"initial must be a whole number from 1 to {most}; it is {shown(given)}.")
    return int(value)
