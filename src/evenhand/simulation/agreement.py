"""How often policies agree on an item: outcomes 0 or 1 that depend on its difficulty.

The difficulty of an item, a standard normal z, has a share rho of the variance of every policy's latent
score. A policy with mean m is right on the item with probability Phi((Phi^-1(m) - sqrt(rho) z) / sqrt(1 -
rho)). rho is solved for from the wanted share of items on which two policies are both right or both wrong.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput, shown
from evenhand.model.argument_checks import is_number

Array = NDArray[np.float64]

NODES = 96  # of the quadrature over the difficulty of an item
MOST_SHARE = 1.0 - 1e-6  # of the latent variance


def difficulty_share(means: Array, shares: Array, agreement: float) -> float:
    """Return the share rho of the latent variance at which two policies agree this often."""
    if means.shape[0] == 1:
        return 0.0
    least, most = _agreement(means, shares, 0.0), _agreement(means, shares, 1.0)
    if not is_number(agreement) or not least - 1e-9 <= agreement <= most + 1e-9:
        raise BadInput(
            f"agreement must be possible at the assumed means, between {least:.3f} (independent outcomes) "
            f"and {most:.3f}; it is {shown(agreement)}."
        )
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        if _agreement(means, shares, middle) < agreement:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def likely_share(means: Array, shares: Array, agreement: float) -> float:
    """Return the share rho at the agreement nearest to this one that is possible at these means."""
    if means.shape[0] == 1:
        return 0.0
    least, most = _agreement(means, shares, 0.0), _agreement(means, shares, 1.0)
    found = difficulty_share(means, shares, min(max(agreement, least), max(least, most)))
    return min(found, MOST_SHARE)


def right_given(means: Array, rho: float, difficulty: Any) -> Array:
    """Return the probability of a right answer of every cell on an item of this difficulty."""
    from scipy.special import ndtr, ndtri

    return np.asarray(ndtr((ndtri(means) - math.sqrt(rho) * difficulty) / math.sqrt(1.0 - rho)))


@cache
def quadrature() -> tuple[Array, Array]:
    """Return difficulties and their weights, which sum to 1."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return nodes, weights / weights.sum()


def _agreement(means: Array, shares: Array, rho: float) -> float:
    """Return the share of items on which two policies agree, on average over pairs."""
    i, k = np.triu_indices(means.shape[0], 1)
    if rho >= MOST_SHARE:
        return float(np.mean(1.0 - np.abs(means[i] - means[k]) @ shares))
    nodes, weights = quadrature()
    right = right_given(means, rho, nodes[:, None, None])
    both = right[:, i] * right[:, k] + (1.0 - right[:, i]) * (1.0 - right[:, k])
    return float(np.mean(np.tensordot(weights, both, 1) @ shares))
