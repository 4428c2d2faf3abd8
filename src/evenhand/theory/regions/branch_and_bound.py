"""Depth-first search over boxes without recursion or allocation: a stack of splits, each undone on the way
back.

A split cuts the interval of one coordinate in two; the left half is searched first, then the right. An
entry of the stack holds the coordinate, the cut, both old ends, the bound found before the split, and
whether the right half is under way.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import kernel

Array = NDArray[np.float64]

ENTRY = 6


@kernel
def branch(stack: Array, depth: int, which: int, cut: float, bound: float, left: Array, right: Array) -> int:
    """Cut coordinate `which` and turn to its left half; the new depth."""
    entry = stack[depth]
    entry[0], entry[1], entry[2], entry[3], entry[4], entry[5] = (
        which,
        cut,
        left[which],
        right[which],
        bound,
        0.0,
    )
    right[which] = cut
    return depth + 1


@kernel
def backtrack(stack: Array, depth: int, left: Array, right: Array) -> int:
    """Turn to the last right half not yet searched; the new depth, 0 when all is done."""
    while depth > 0:
        entry = stack[depth - 1]
        which = int(entry[0])
        right[which] = entry[3]
        if entry[5] == 0.0:
            left[which], entry[5] = entry[1], 1.0
            return depth
        left[which] = entry[2]
        depth -= 1
    return 0


@kernel
def waiting(stack: Array, depth: int) -> float:
    """The least bound of what a search cut short has not finished."""
    least = math.inf
    for level in range(depth):
        least = min(least, stack[level, 4])
    return least
