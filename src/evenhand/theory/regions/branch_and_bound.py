"""Depth-first search over boxes with a stack of splits, without recursion or allocation.

A split cuts the interval of one coordinate in two; the left half is searched first, then the right. An
entry of the stack holds the coordinate, the cut, both old ends, the bound found before the split, and
whether the right half is being searched.
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
    """Cut coordinate `which` and select its left half; return the new depth."""
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
    """Select the last right half not yet searched; return the new depth, 0 when there is none."""
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
    """Return the least bound of the parts that a truncated search has not finished."""
    least = math.inf
    for level in range(depth):
        least = min(least, stack[level, 4])
    return least
