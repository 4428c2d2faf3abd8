"""Every rival at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evenhand._kernel import kernel
from evenhand.model.region import Region
from evenhand.theory.inner import beat

Array = NDArray[np.float64]


@kernel
def beat_all(
    code: int,
    r: Region,
    q: Array,
    i: int,
    v: Array,
    mu: Array,
    values: Array,
    lam_i: Array,
    lam_k: Array,
    work: Array,
) -> None:
    """values[k] = lower bound of the cost for rival k to beat policy i, for every k other than i."""
    for k in range(mu.shape[1]):
        if k != i:
            _, values[k] = beat(code, r, q, i, k, v, mu, lam_i, lam_k, work)
