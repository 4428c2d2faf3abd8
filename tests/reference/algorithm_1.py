"""The paper's Algorithm 1 as printed, slowly: Gaussian outcomes, one floor for all cells, general solvers.

Rows are policies and columns groups, as in the paper. Two things are as in the procedure under test: the
point of the trimmed simplex is (1 - K L epsilon) w + epsilon, where the paper takes one with the smallest
largest change of a weight, which need not be unique; and a cell of weight zero counts 1e-9 in the inner
problem.
"""

from __future__ import annotations

import math

import daqp
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Algorithm1:
    """One run: `choices` at the present estimates, one of which is then to be `take`n."""

    def __init__(
        self, shape: tuple[int, int], shares: Array, floor: float, sd: float, initial: int,
        alpha: float = 1.0, steps: int = 1, diminishing: bool = False,
    ) -> None:  # fmt: skip
        self.q, self.floor, self.sd = shares, floor, sd
        self.alpha, self.steps, self.diminishing = alpha, steps, diminishing
        self.w = np.full(shape, 1 / (shape[0] * shape[1]))
        self.S = self.w - initial
        self.t = self.n = 0

    def choices(self, mu: Array, news: bool = True) -> set[tuple[int, int]]:
        """Lines 4 to 15, all cells that are furthest behind up to rounding.

        `news` is false within a batch, where the weights stay as they are.
        """
        feasible = np.all(mu >= self.floor, axis=1)
        if news and not feasible.any():
            self.w = self._closed_form(mu)
        elif news:
            best = int(np.argmax(np.where(feasible, mu @ self.q, -np.inf)))
            for _ in range(self.steps):
                self.n += 1
                c = self._subgradient(mu, best)
                alpha = (
                    self.alpha / (np.linalg.norm(c) * math.sqrt(self.n)) if self.diminishing else self.alpha
                )
                self.w = nearest_in_simplex(self.w + alpha * c)
        cells = self.w.size
        epsilon = (cells**2 + self.t) ** -0.5 / 2
        self.S += (1 - cells * epsilon) * self.w + epsilon
        return {(int(k), int(l)) for k, l in np.argwhere(self.S.max() - 1e-9 <= self.S)}

    def take(self, cell: tuple[int, int]) -> None:
        """Line 16."""
        self.S[cell] -= 1
        self.t += 1

    def _closed_form(self, mu: Array) -> Array:
        d = np.where(mu < self.floor, self._d(mu, self.floor), 0.0)
        w = np.zeros(mu.shape)
        for k, l in enumerate(d.argmax(axis=1)):
            w[k, l] = 1 / d[k, l]
        return w / w.sum()

    def _subgradient(self, mu: Array, best: int) -> Array:
        """Algorithm 2."""
        v = np.maximum(self.w, 1e-9) / self.sd**2
        least, c = math.inf, np.zeros(mu.shape)
        for l in range(mu.shape[1]):
            cost = v[best, l] * (mu[best, l] - self.floor) ** 2 / 2
            if cost < least:
                least, c = cost, np.zeros(mu.shape)
                c[best, l] = self._d(mu[best, l], self.floor)
        # Algorithm 2 compares one value per policy; the best one's own is the least over its groups
        order = [k for k in range(len(mu)) if k != best]
        for k in order:
            lam = self._nearest(v[[best, k]], mu[[best, k]])
            cost = float((v[[best, k]] * (lam - mu[[best, k]]) ** 2).sum() / 2)
            if cost < least:
                least, c = cost, np.zeros(mu.shape)
                c[[best, k]] = self._d(mu[[best, k]], lam)
        return c

    def _nearest(self, v: Array, mu: Array) -> Array:
        """eq:f_mu_opt as a quadratic programme in y = sqrt(v) (lam - mu)."""
        groups = mu.shape[1]
        rows = np.zeros((1 + groups, 2 * groups))
        rows[0] = np.r_[-self.q, self.q]
        rows[1:, groups:] = np.eye(groups)
        root, flat = np.sqrt(v.ravel()), mu.ravel()
        rhs = np.r_[0.0, np.full(groups, self.floor)] - rows @ flat
        y, _, flag, _ = daqp.solve(
            np.eye(flat.size), np.zeros(flat.size), np.ascontiguousarray(rows / root),
            np.full(len(rhs), 1e30), rhs, np.zeros(len(rhs), dtype=np.int32),
            primal_tol=1e-11, dual_tol=1e-13,
        )  # fmt: skip
        assert flag == 1
        return np.asarray((flat + y / root).reshape(mu.shape))

    def _d(self, mu: Array, lam: Array | float) -> Array:
        return np.asarray((mu - lam) ** 2 / (2 * self.sd**2))


def nearest_in_simplex(x: Array) -> Array:
    """The Euclidean projection onto the simplex, by sorting."""
    descending = np.sort(x.ravel())[::-1]
    cuts = (np.cumsum(descending) - 1) / np.arange(1, x.size + 1)
    return np.maximum(x - cuts[np.nonzero(descending > cuts)[0][-1]], 0.0)
