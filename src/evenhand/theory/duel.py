"""A duel: what the search for a meeting must know of a rival and the policy it is to beat."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Duel(NamedTuple):
    """Rival k, inside its bounds, against policy i. Arrays are (L,), but v and mu (L, K)."""

    code: int
    q: Array
    i: int
    k: int
    v: Array
    mu: Array
    low: Array  # bounds of the rival's means, inside the domain
    high: Array
    gamma: Array  # 0 where a group has no penalty; what follows is then not read
    floor: Array
    line: Array  # which line of its penalised score policy i may be on: PLAIN, STEEP, EITHER
    slope: Array  # written by `place`: the slope of the line that it is on, 1 or 1 + gamma
