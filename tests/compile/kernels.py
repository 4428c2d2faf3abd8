"""Small kernels, one for each way of writing that the specialiser must get right."""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import Axes, Static, kernel

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Words = NDArray[np.uint64]

TABLE = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
STEPS = (0.5, 0.25, 0.125)
STIR = np.uint64(0x9E3779B97F4A7C15)


class Pair(NamedTuple):
    """A part of a named tuple."""

    values: Array
    number: int


class Whole(NamedTuple):
    """A named tuple of everything that may be in one."""

    kind: Static[int]
    part: Pair
    table: Annotated[Array, Axes("rows", "columns")]
    counts: Annotated[Ints, Axes("rows")]
    flags: Annotated[Flags, Axes("columns")]
    words: Annotated[Words, Axes(2)]
    level: float
    on: bool


def whole(kind: int = 0) -> Whole:
    """One to call kernels with."""
    return Whole(
        kind, Pair(np.arange(1.0, 7.0), 2), np.arange(8.0).reshape(2, 4) / 4, np.array([3, -2]),
        np.array([True, False, True, True]), np.array([7, 2**63 + 5], dtype=np.uint64), 0.75, True,
    )  # fmt: skip


@kernel
def add_number(part: Pair, place: int) -> float:
    part.values[place] += 1.0
    return part.values[place] * part.number


@kernel
def bound_again_in_a_loop(w: Whole, turns: int) -> float:
    """The second turn must see the second tuple."""
    now, total = w.part, 0.0
    for _ in range(turns):
        total = 10.0 * total + now.values[0]
        now = Pair(w.part.values[1:], now.number + 1)
    return total + 1000000.0 * now.number


@kernel
def fields_replaced(w: Whole, turn: int) -> float:
    """The new tuple has the same arrays, and the old one keeps its fields."""
    part = w.part._replace(values=w.part.values[2:], number=w.part.number + turn)
    w.part.values[2] += 10.0
    other = w._replace(kind=2, part=part, level=part.values[0] + turn)
    return other.level + 100.0 * add_number(other.part, 1) + 1000.0 * w.level + w.part.values[3]


@kernel
def swapped_in_a_loop(w: Whole, turns: int) -> float:
    one, two, total = w.part.values[:3], w.part.values[3:], 0.0
    for turn in range(turns):
        total += (turn + 1) * (one[0] - 3.0 * two[1])
        one, two = two, one
        if total > 1000.0:
            break
    return total + one[2] + 100.0 * two.size


@kernel
def chosen_at_run_time(w: Whole, turn: int) -> float:
    chosen = w.part if turn > 0 else Pair(w.table[1], turn)
    other = w.table[0] if turn < 0 else w.part.values
    made = Pair(chosen.values[1:], chosen.number + turn)
    return add_number(chosen, 0) + 100.0 * add_number(made, 1) + 10000.0 * other[turn * turn]


@kernel
def order_of_evaluation(w: Whole, turn: int) -> float:
    """What stands left is read before what stands right writes it."""
    first = w.part.values[0] + add_number(w.part, 0) + w.part.values[0]
    second = w.part.values[1] * (1.0 + stand(w, 1).values[0]) + w.part.values[1]
    w.part.values[2], w.part.values[3] = w.part.values[3], w.part.values[2]
    w.part.values[4] += stand(w, 4).values[0]
    return first + 10.0 * second + 100.0 * w.part.values[2] + 1000.0 * w.part.values[4]


@kernel
def stand(w: Whole, place: int) -> Pair:
    w.part.values[place] += 2.0
    return Pair(w.part.values[place:], place)


@kernel
def index_computed_once(w: Whole, turn: int) -> float:
    """An index that is a call with effects is evaluated once, before the right side."""
    w.part.values[int(add_number(w.part, 0)) // 2] += add_number(w.part, 1)
    w.part.values[int(add_number(w.part, 2)) // 4] = add_number(w.part, 2)
    total = 0.0
    for i in range(6):
        total = 10.0 * total + w.part.values[i]
    return total


@kernel
def variables_of_loops(w: Whole, turn: int) -> float:
    """A loop's variable after a loop that has iterations, and where a loop around reads it."""
    total, j = 0.0, 7
    for i in range(3):
        total = 10.0 * total + j
        i += 10
        for j in range(turn + 1):
            total += j
    for k in range(5):
        if k == turn + 2:
            break
    return total + 1000.0 * i + 100.0 * k


@kernel
def only_where_needed(w: Whole, turn: int) -> float:
    """The right side of `and`, of `or` and of a choice runs only where it is looked at."""
    total = 0.0
    if turn > 0 and stand(w, 0).values[0] > 0.0:
        total += 1.0
    if turn > 0 or stand(w, 1).values[0] > 100.0:
        total += 10.0
    x = stand(w, 2).values[0] if turn > 0 else stand(w, 3).values[0]
    while turn < 5 and stand(w, 4).values[0] < 20.0:
        total += 100.0
    for i in range(6):
        total += (i + 1) * w.part.values[i]
    return total + x


@kernel
def early_returns(w: Whole, turn: int) -> tuple[float, int]:
    for row in range(w.table.shape[0]):
        for column in range(w.table.shape[1]):
            if not w.flags[column]:
                continue
            if w.table[row, column] > 0.3 * turn:
                return w.table[row, column], row * 10 + column
    if w.on:
        return -1.0, turn
    return math.inf, 0


@kernel
def whole_numbers(w: Whole, turn: int) -> int:
    """Division, remainder, power, bits and truth values among whole numbers."""
    total = 7 // 2 + (-7) // 2 + turn % 3 + (turn - 5) % 4 + turn**2
    total += w.table[0, 1] > 0.2
    total += not w.on
    if (turn >> 1) & 1:
        total += 1000
    inside = turn in (1, 3) or w.counts[0] not in (2, 4)
    return total + 100 * inside + int(w.level * 8.0) + w.counts[1] * max(turn, 2, w.counts[0])


@kernel
def kinds_that_widen(w: Whole, turn: int) -> float:
    """A variable that begins as a whole number and becomes another."""
    x, y = 0, turn
    for i in range(4):
        x = x + 0.5 * i
        y = y / 2 if i > 1 else y + 1
    z = 1 if turn > 0 else 0.25
    return x + 10.0 * y + 100.0 * z


@kernel
def arrays_every_way(w: Whole, turn: int) -> float:
    """Rows, ranges, reshaping, filling, unpacking and constants that are arrays."""
    flat = w.part.values[: 2 * 3].reshape((3, 2))
    flat[1, :] = 4.0
    square = flat[1:].reshape(4)
    a, b = flat[0]
    square[3] = square[2] = a - b
    column = w.table[:, turn * turn]
    column[:] = 0.5
    line = w.table[1, 1:]
    line /= 3.0
    total = TABLE[1, turn * turn] + TABLE[0].size
    for x in line:
        total += x
    for step in STEPS:
        total += step
        if total > 9.0:
            break
    for begin, end in ((0, turn + 1), (2, 4)):
        for i in range(begin, end):
            total += 2.0 * square[i]
    return total + (a, b, 3.0)[turn * turn] + len(w.flags) + column[0]


@kernel
def words_and_flags(w: Whole, turn: int) -> float:
    h = w.words[1]
    for i in range(w.part.values.size):
        bits = w.part.values.view(np.uint64)
        h = (h ^ bits[i]) * STIR
        h ^= h >> np.uint64(32)
    w.words[0] = h
    w.flags[turn * turn] = not w.flags[0]
    w.flags[2] = h > w.words[1]
    return float(h & np.uint64(0xFFFF)) + w.table[0, h & np.uint64(3)]


@kernel
def functions(w: Whole, turn: int) -> float:
    x = 0.3 + 0.1 * turn * turn
    total = math.sqrt(x) + math.log(x) + math.exp(x) + math.lgamma(x) + math.log1p(x) + math.expm1(x)
    total += math.sin(x) + math.cos(x) + math.asin(x) + math.erfc(x) + x**3 + x**2.5 + abs(x - 1.0)
    total += float(math.floor(10.0 * x)) + min(x, 0.35) + max(x, 1, 0.2)
    zero = w.table[0, 0]
    return total if math.isinf(turn / zero) or math.isnan(zero / zero) else -math.inf


@kernel
def by_kind(w: Whole, turn: int) -> float:
    """Only one of the branches is left."""
    if w.kind == 0:
        return add_number(w.part, 1)
    if w.kind == 1:
        return math.lgamma(w.level)
    return math.erfc(w.level)
