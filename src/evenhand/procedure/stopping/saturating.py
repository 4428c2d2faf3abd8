"""The least of sum n/2 ln(1 + y^2/t) over y >= 0, sum y = gap: costs convex up to sqrt(t), concave beyond.

At a least point no two cells lie beyond their sqrt(t): moving some of the gap from one to the other would
pay. So either every cell is in its convex part, or one cell j is beyond and the others are not. Lagrange's

    eta gap + sum over cells of the least of (cost(y) - eta y)

is a lower bound for every eta. With all cells in their convex part it is exact where no cell would rather
take the whole gap. Otherwise cell j's range is split again and again: on a short interval its concave cost is
nearly its chord.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand._kernel import kernel

Array = NDArray[np.float64]

TURNS = 60  # of the search for eta: six are usual
NODES = 400  # of the search over intervals, for each cell
DEPTH = 60
CLOSE = 1e-8  # relative distance of bound and cost at which an interval is split no further
NOBODY = -1


@kernel
def cheapest(n: Array, t: Array, gap: float, work: Array) -> float:
    """The least cost, from below: exact up to rounding, or to the shortest interval."""
    least, certain = math.inf, False
    if _room(t, NOBODY) >= gap:
        eta = _pull(n, t, gap, NOBODY)
        least, certain = eta * gap, True
        for c in range(n.size):
            near = _bargain(n[c], t[c], eta, _answer(n[c], t[c], eta))
            least += near
            certain = certain and near <= _bargain(n[c], t[c], eta, gap)
    if not certain:
        for j in range(n.size):
            least = min(least, _beyond(n, t, gap, j, least, work))
    return least


@kernel
def _beyond(n: Array, t: Array, gap: float, j: int, best: float, work: Array) -> float:
    """A lower bound of the least cost with cell j beyond its sqrt(t) and all others not: branch and bound."""
    start = max(math.sqrt(t[j]), gap - _room(t, j))
    if start > gap:
        return math.inf
    stack = work[: 2 * DEPTH].reshape((DEPTH, 2))
    stack[0, 0], stack[0, 1] = start, gap
    depth, lower = 1, math.inf
    for node in range(NODES):
        depth -= 1
        low, high = stack[depth, 0], stack[depth, 1]
        bound, value = _interval(n, t, gap, j, low, high)
        best = min(best, value)
        if bound < best - CLOSE * (1.0 + best) and depth < DEPTH - 2 and node + depth < NODES - 2:
            middle = 0.5 * (low + high)
            stack[depth, 0], stack[depth, 1] = low, middle
            stack[depth + 1, 0], stack[depth + 1, 1] = middle, high
            depth += 2
        else:
            lower = min(lower, bound)
        if depth == 0:
            break
    return lower


@kernel
def _interval(n: Array, t: Array, gap: float, j: int, low: float, high: float) -> tuple[float, float]:
    """With cell j between low and high: a lower bound by its chord, and the cost at a point."""
    at_low, at_high = _cost(n[j], t[j], low), _cost(n[j], t[j], high)
    slope = (at_high - at_low) / (high - low) if high > low else math.inf
    eta = _pull(n, t, gap - low, j)
    if eta > slope:
        eta = max(slope, _pull(n, t, gap - high, j))
    bound = eta * gap + min(at_low - eta * low, at_high - eta * high)
    value, left = 0.0, gap
    for c in range(n.size):
        if c != j:
            y = _answer(n[c], t[c], eta)
            bound += _bargain(n[c], t[c], eta, y)
            value += _cost(n[c], t[c], y)
            left -= y
    return bound, value + _cost(n[j], t[j], left) if low <= left <= high else math.inf


@kernel
def _pull(n: Array, t: Array, gap: float, skip: int) -> float:
    """The eta at which the cells but `skip`, kept in their convex parts, close the gap."""
    ease, top = 0.0, 0.0
    for c in range(n.size):
        if c != skip:
            ease += t[c] / n[c]
            top = max(top, 0.5 * n[c] / math.sqrt(t[c]))
    if gap <= 0.0:
        return 0.0
    low, high = 0.0, top
    eta = min(gap / ease, top)
    for _ in range(TURNS):
        closed, slope = 0.0, 0.0
        for c in range(n.size):
            if c != skip:
                y = _answer(n[c], t[c], eta)
                closed += y
                slope += (t[c] + y * y) ** 2 / (n[c] * (t[c] - y * y)) if y * y < t[c] else 0.0
        if abs(closed - gap) <= 1e-12 * gap or high - low <= 1e-15 * top:
            break
        low, high = (eta, high) if closed < gap else (low, eta)
        eta -= (closed - gap) / slope
        if not low < eta < high:
            eta = 0.5 * (low + high)
    return eta


@kernel
def _room(t: Array, skip: int) -> float:
    """How much of a gap the cells but `skip` can close in their convex parts."""
    total = 0.0
    for c in range(t.size):
        total += math.sqrt(t[c]) if c != skip else 0.0
    return total


@kernel
def _answer(n: float, t: float, eta: float) -> float:
    """The least of cost(y) - eta y in the convex part: n y / (t + y^2) = eta, or its end."""
    inside = n * n - 4.0 * eta * eta * t
    return 2.0 * eta * t / (n + math.sqrt(inside)) if inside > 0.0 else math.sqrt(t)


@kernel
def _cost(n: float, t: float, y: float) -> float:
    return 0.5 * n * math.log1p(y * y / t)


@kernel
def _bargain(n: float, t: float, eta: float, y: float) -> float:
    return _cost(n, t, y) - eta * y
