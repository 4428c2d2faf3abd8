"""Certified bounds on sup_w min_j f_j(w): the best allocation and mixture of cuts so far.

Any allocation w gives a lower bound, the smallest certified f_j(w). Any mixture of alternatives gives an
upper bound, the largest value of its cut in the mode. T* lies between their reciprocals.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.theory.alternatives import Alternatives, Cuts, InnerSolution
from evenhand.theory.metrics import Label
from evenhand.theory.modes import Active

Array = NDArray[np.float64]

ROUNDING = 1e-12  # relative allowance for the rounding errors of the bounds themselves
LEAST_WEIGHT = 1e-13  # of a cell, relative to the mean: cuts are finite where every cell has weight


class Binding(NamedTuple):
    """The share of one alternative in the optimum."""

    label: Label
    share: float


@dataclass(frozen=True)
class Solution:
    """sup_w min_j f_j(w) lies in [lower, upper]; `lower` is certified at w."""

    w: Array  # K x L at budget 1
    lower: float
    upper: float
    binding: tuple[Binding, ...]

    @property
    def gap(self) -> float:
        """Return the relative width of the interval."""
        return (self.upper - self.lower) / self.lower if self.lower > 0.0 else np.inf


@dataclass
class Bracket:
    """The best bounds so far, and the allocation and cuts that give them."""

    alternatives: Alternatives
    mode: Active
    w: Array = field(default_factory=lambda: np.zeros((0, 0)))
    value: float = -np.inf  # f*(w) by the inner solvers' own values
    proved: float = -np.inf  # the certified bound at w; far below `value` where a solver's bounds differ
    certified_w: Array = field(default_factory=lambda: np.zeros((0, 0)))
    lower: float = -np.inf  # the certified bound at certified_w, the largest so far
    upper: float = np.inf
    cuts: Cuts | None = None  # of the best mixture
    share: Array = field(default_factory=lambda: np.zeros(0))
    enough: float = 0.0  # an upper bound below this is not narrowed further

    @property
    def width(self) -> float:
        """Return the relative distance of the bounds by the inner solvers' values."""
        return (self.upper - self.value) / self.value if self.value > 0.0 else np.inf

    def closed(self, gap: float) -> bool:
        return self.width <= gap or self.value == np.inf or self.upper < self.enough

    def solve_at(self, w: Array) -> InnerSolution:
        """Solve at w, positive in every cell, and keep the result if it is the best so far."""
        found_at = self.alternatives.solve_at(w)
        if found_at.value > self.value:
            self.w, self.value, self.proved = w, found_at.value, found_at.lower
        if found_at.lower > self.lower:
            self.certified_w, self.lower = w, found_at.lower
        return found_at

    def positive(self, w: Array) -> Array:
        """Return the mode's allocation nearest to w with every cell positive."""
        return self.mode.admit(np.maximum(w, LEAST_WEIGHT * w.mean()))

    def bound(self, cuts: Cuts, share: Array) -> None:
        """Compute the upper bound of this mixture of cuts; keep it if it is the smallest so far."""
        alternatives = self.alternatives
        upper = self.mode.support(
            cuts.mixture(share, alternatives.shape[0], alternatives.answer, alternatives.control)
        )
        if upper < self.upper:
            self.upper, self.cuts, self.share = upper, cuts, share

    def solution(self) -> Solution:
        """Return the certified interval, and an allocation at which its lower end is certified.

        That is the allocation of the best value if its own certified bound is large enough, else
        `certified_w`.
        """
        lower, upper = self.lower * (1.0 - ROUNDING), self.upper * (1.0 + ROUNDING)
        w = self.w if self.proved >= lower else self.certified_w
        return Solution(w, lower, upper, self._binding(w))

    def reach(self) -> float:
        """Return the value at the solution's allocation if it is certified up to rounding.

        Else the certified bound there, if there is one.
        """
        agreed = self.lower >= self.value * (1.0 - 0.5 * ROUNDING) or self.lower <= 0.0
        return self.value if agreed else self.lower

    def _binding(self, w: Array) -> tuple[Binding, ...]:
        """Return the shares of the best mixture, summed over the cuts of each alternative."""
        if self.cuts is None:
            return ()
        total: dict[Label, float] = {}
        cuts = self.cuts
        rows = zip(cuts.policy.tolist(), cuts.atom.tolist(), cuts.own, self.share.tolist(), strict=True)
        for policy, atom, own, share in rows:
            label = self.alternatives.label(policy, atom, own * w[policy])
            total[label] = total.get(label, 0.0) + share
        found = [Binding(label, share) for label, share in total.items()]
        return tuple(sorted(found, key=lambda one: -one.share))
