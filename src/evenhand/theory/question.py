"""The question at given means: allowed policies, the best one, and the acceptable answers.

An answer i is acceptable if it meets its own bounds, loosened by the tolerance, and no allowed policy exceeds
its score by more than the indifference. With neither, the best allowed policy is the only one. "None" is
acceptable if no policy is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import uncompiled
from evenhand.model import region as regions
from evenhand.model.mean_checks import checked_tolerance
from evenhand.model.problem import Problem
from evenhand.model.region import Region
from evenhand.model.requirements import Convex
from evenhand.theory.alternatives import Alternatives, alternatives_to
from evenhand.theory.metrics import Metric, metrics_of, spread_of

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Question:
    """A problem at given means, with the indifference and the tolerance."""

    problem: Problem
    means: Array  # K x L
    guardrails: tuple[Array, ...]  # K x L each, in the order of the problem's guard-rails
    indifference: float
    tolerance: Any  # as `checked_tolerance` returns it

    @cached_property
    def kept(self) -> Region:
        """Return the outcome's region that an answer itself must lie in, in unit scale."""
        return self.problem.loosened(self.tolerance)

    @cached_property
    def metrics(self) -> tuple[Metric, ...]:
        return metrics_of(self.problem, self.means, self.guardrails)

    @cached_property
    def deviations(self) -> tuple[Array, ...]:
        """Return the standard deviations of single outcomes, K x L for every metric, in unit scale."""
        return tuple(map(spread_of, self.metrics))

    @cached_property
    def guardrail_means(self) -> dict[str, Array]:
        names = [rail.name for rail in self.problem.guardrails]
        return dict(zip(names, self.guardrails, strict=True))

    @cached_property
    def allowed(self) -> Flags:
        """Return which policies meet the requirement and that of every guard-rail."""
        return self.problem.feasible(self.means, self.guardrail_means)

    @cached_property
    def scores(self) -> Array:
        return self.problem.scores(self.means)

    @cached_property
    def answer(self) -> int | None:
        """Return the best allowed policy, the first on ties; None where none is allowed."""
        return self.problem.answer(self.means, self.guardrail_means)

    @cached_property
    def acceptable(self) -> tuple[int | None, ...]:
        """Return all acceptable answers, the best first; None for "none"."""
        found = [k for k in range(len(self.means)) if self._is_acceptable(k)]
        found.sort(key=lambda k: (k != self.answer, -self.scores[k]))
        return tuple(found) if self.answer is not None else (None, *found)

    @property
    def eps(self) -> float:
        """Return the indifference in unit scale."""
        return self.indifference / self.problem.family.width

    def alternatives(self, answer: int | None) -> Alternatives:
        """Return the alternatives to one answer."""
        return alternatives_to(self.problem, self.means, answer, self.guardrails, self.eps, self.kept)

    def lead(self, i: int, k: int) -> float:
        """Return by how much policy i plus the indifference is ahead of k; 0 if within rounding.

        In unit scale.
        """
        size, blur = self._score_sizes
        ahead = float(self.scores[i] - self.scores[k]) / self.problem.family.width + self.eps
        return float(uncompiled(regions.distance)(ahead, size[i] + size[k] + self.eps, blur[i] + blur[k]))

    def margins(self, k: int) -> list[float]:
        """Return how far policy k lies inside what an answer must meet, for every metric.

        In unit scale; NaN for a set without a kernel.
        """
        own = [self.kept, *(one.standard.region for one in self.metrics[1:])]
        return [
            np.nan if r.kind == regions.CUSTOM else regions.margin_of(r, k, one.mu)
            for r, one in zip(own, self.metrics, strict=True)
        ]

    @cached_property
    def _score_sizes(self) -> tuple[Array, Array]:
        """Return the sum of the sizes of each score's terms, and its rounding error, in unit scale."""
        region, shares = self.problem.standard.region, self.problem.shares
        weight = shares * (1.0 + region.gamma)
        size = weight @ np.abs(self.metrics[0].mu)
        if region.kind == regions.PENALTY:
            size = size + (shares * region.gamma) @ np.abs(region.lo)
        return np.asarray(size), np.asarray(weight @ region.resolution)

    def _is_acceptable(self, k: int) -> bool:
        if self.indifference == 0.0 and not self.tolerance:
            return k == self.answer
        if isinstance(self.problem.constraint, Convex):
            inside = bool(self.allowed[k])
        else:
            inside = all(margin >= 0.0 for margin in self.margins(k))
        if self.answer is None or not inside:
            return inside
        return self.lead(k, self.answer) >= 0.0


def question_of(
    problem: Problem, means: Any, guardrails: Mapping[str, Any] | None, indifference: float, tolerance: Any
) -> Question:
    """Return the question at these means, with all arguments checked."""
    tables: Sequence[Array] = problem.check_truth(means, guardrails)
    eps = problem.check_indifference(indifference)
    problem.loosened(tolerance)
    return Question(problem, tables[0], tuple(tables[1:]), eps, checked_tolerance(tolerance))
