"""A sequential test of whether units were assigned as published, for shares that change.

For one policy of one group with share s, and a fixed theta, the product over intervals of

    exp(theta n) / (1 + s (e^theta - 1))^N        n of the group's N units have the policy

has expectation 1 if units are assigned as published, whatever the shares depend on. The mean over policies
and a grid of theta is the evidence E against the published shares of a group. By Ville's inequality it ever
exceeds 1/p with probability at most p, so the smallest 1/E so far is a p-value that holds at any number of
looks. A policy whose units are lost at a constant rate is found, even if each interval alone shows nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

THETA: Array = np.concatenate([sign * 0.005 * 2.0 ** np.arange(8) for sign in (-1.0, 1.0)])


class SampleRatios:
    """The evidence against the published shares of every group, after any number of intervals."""

    def __init__(self, groups: int, policies: int) -> None:
        self.logs: Array = np.zeros((groups, policies, THETA.size))  # ln of the products
        self.highest: Array = np.zeros(groups)  # largest ln E of a group so far

    def add(self, g: int, shares: Mapping[int, float], units: Mapping[int, int]) -> None:
        """Add the units of an interval in group g; policies are numbered as in `logs`."""
        total = sum(units.values())
        for k in {*shares, *units}:
            share, n = shares.get(k, 0.0), units.get(k, 0)
            if share == 0.0 and n > 0:
                self.logs[g, k] = np.inf  # impossible under these shares
            else:
                self.logs[g, k] += THETA * n - total * np.log1p(share * np.expm1(THETA))
        peak = float(self.logs[g].max())
        evidence = np.inf if np.isinf(peak) else peak + np.log(np.mean(np.exp(self.logs[g] - peak)))
        self.highest[g] = max(self.highest[g], float(evidence))

    @property
    def p_values(self) -> Array:
        """Return, by group, a p-value that holds at any number of looks."""
        return np.exp(-self.highest)
