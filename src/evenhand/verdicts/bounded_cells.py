"""Verdicts and intervals of cells with floors and caps, by bets at the bound, for outcomes in [0, 1].

The levels are those of `procedure.intervals`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evenhand.procedure.evidence.by_family import threshold
from evenhand.procedure.evidence.cell_bets import (
    PoolBets,
    add_outcomes,
    bounded_evidence,
    new_sums,
    pool_evidence,
    pool_range,
)
from evenhand.procedure.intervals import FAILED, HALVINGS, MET, UNDECIDED
from evenhand.procedure.log_space import NOTHING
from evenhand.procedure.spec import Spec
from evenhand.verdicts.apply_rule import CellVerdicts, new_cells

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


def sums_of(shape: tuple[int, ...], policies: Ints, groups: Ints, outcomes: Array) -> Array:
    """Return the sums of `cell_bets` for outcomes in unit scale."""
    sums = new_sums((shape[0], shape[1]))
    add_outcomes(sums, policies, groups, outcomes)
    return sums


class BoundedCells:
    """The evidence of every cell about floors and caps."""

    def __init__(self, spec: Spec, n: Array, s: Array, sums: Array, others: Ints | None = None) -> None:
        self.spec, self.n, self.s, self.sums = spec, n, s, sums
        self.needed = float(threshold(spec))
        # how many bounds each policy has in other metrics
        self.others = np.zeros(n.shape[1], dtype=np.int64) if others is None else others

    def evidence(self, g: int, k: int, c: float, sign: float, at_cap: bool = False) -> float:
        """Return the ln e-value of one cell against {mean <= c} (sign 1) or {mean >= c} (sign -1).

        `at_cap`: c is a cap, which a mean equal to it meets; of interest only where means are known exactly.
        """
        return bounded_evidence(self.sums[g, k], float(self.n[g, k]), c, sign)

    def edge(self, g: int, k: int, sign: float) -> float:
        """Return the least (sign 1) or the largest possible mean of a cell."""
        return 0.0 if sign > 0 else 1.0

    def conditions(self) -> tuple[list[float], list[tuple[float, int]]]:
        """Return, per policy, the evidence that it fails, and that it meets its weakest bound, and which."""
        policies = range(self.spec.phi.shape[1])
        return [self._fails(k) for k in policies], [self._meets(k) for k in policies]

    def _fails(self, k: int) -> float:
        """Return the log of the mean e-value against {policy k meets this bound}."""
        lo, hi = self.spec.region.lo[:, k], self.spec.region.hi[:, k]
        values = [self.evidence(g, k, c, -1.0) for g, c in enumerate(lo) if math.isfinite(c)]
        values += [self.evidence(g, k, c, 1.0, True) for g, c in enumerate(hi) if math.isfinite(c)]
        return max(float(np.logaddexp.reduce(values)) - math.log(len(values)), NOTHING) if values else NOTHING

    def _meets(self, k: int) -> tuple[float, int]:
        lo, hi, groups = self.spec.kept.lo[:, k], self.spec.kept.hi[:, k], self.spec.phi.shape[0]
        values = [(math.inf, 0)]
        values += [(self.evidence(g, k, c, 1.0), g) for g, c in enumerate(lo) if math.isfinite(c)]
        values += [
            (self.evidence(g, k, c, -1.0, True), groups + g) for g, c in enumerate(hi) if math.isfinite(c)
        ]
        return min(values)

    def cells(self) -> CellVerdicts:
        """Return the interval and the verdict of every cell."""
        found = new_cells(self.spec)
        for g, k in np.ndindex(self.spec.phi.shape):
            floor, cap = float(self.spec.region.lo[g, k]), float(self.spec.region.hi[g, k])
            extra = math.log(max(self.bounds(k) + int(self.others[k]), 1))
            one_sided = math.isfinite(floor) != math.isfinite(cap)
            low = self.needed + (extra if one_sided and math.isfinite(cap) else 0.0)
            high = self.needed + (extra if one_sided and math.isfinite(floor) else 0.0)
            found.low[g, k], found.high[g, k] = self._end(g, k, low, 1.0), self._end(g, k, high, -1.0)
            found.verdict[g, k] = self._verdict(g, k, floor, cap, extra)
        return found

    def _verdict(self, g: int, k: int, floor: float, cap: float, extra: float) -> int:
        sides = [(c, s) for c, s in ((floor, 1.0), (cap, -1.0)) if math.isfinite(c)]
        fails = [self.evidence(g, k, c, -s, s < 0) >= self.needed + extra for c, s in sides]
        if self.n[g, k] > 0 and any(fails):
            return FAILED
        met = all(self.evidence(g, k, c, s, s < 0) >= self.needed for c, s in sides)
        return MET if met and (self.n[g, k] > 0 or not sides) else UNDECIDED

    def bounds(self, k: int) -> int:
        """Return the number of floors and caps of policy k."""
        return int(
            np.isfinite(self.spec.region.lo[:, k]).sum() + np.isfinite(self.spec.region.hi[:, k]).sum()
        )

    def _end(self, g: int, k: int, level: float, sign: float) -> float:
        """Return the last excluded mean below (sign 1) or above (-1) the estimate; else the domain's end."""
        outside = self.edge(g, k, sign)
        if self.n[g, k] == 0:
            return outside
        inside = float(self.s[g, k] / self.n[g, k])
        near = outside + 1e-15 * (inside - outside)
        if self.evidence(g, k, near, sign) < level:
            return outside
        for _ in range(HALVINGS):
            middle = 0.5 * (inside + outside)
            if middle in (inside, outside):
                break
            if self.evidence(g, k, middle, sign) >= level:
                outside = middle
            else:
                inside = middle
        return outside


class PoolCells(BoundedCells):
    """The same for the means of pools, drawn without replacement."""

    def __init__(self, spec: Spec, bets: PoolBets, others: Ints | None = None) -> None:
        super().__init__(spec, bets.n, bets.s, bets.w, others)
        self.bets = bets

    def evidence(self, g: int, k: int, c: float, sign: float, at_cap: bool = False) -> float:
        """Return the ln e-value of one cell against {mean < c} (sign 1) or {mean >= c} (sign -1).

        At a cap against {mean <= c} or {mean > c}.
        """
        return pool_evidence(self.bets, g, k, c, sign, at_cap)

    def edge(self, g: int, k: int, sign: float) -> float:
        """Return the least (sign 1) or the largest possible mean of a cell, given what was drawn."""
        return pool_range(self.bets, g, k)[0 if sign > 0 else 1]
