"""Exact one-cell tests and intervals for a sample whose size was fixed before the data.

The p-value of a cell against {mean <= c} is the probability, at mean c, of a sum at least as large as the one
observed; against {mean >= c}, of a sum at most as large:

    family                            law of the sum at mean c
    gaussian                          normal
    gaussian-unknown                  Student's t of the standardised mean, n - 1 degrees of freedom
    bernoulli, binomial, poisson,     the family's own law of a sum
    exponential, gamma
    bounded                           no law: Chernoff's bound exp(-n d(mean, c)), d the Bernoulli divergence

Every test holds for any number of outcomes. Evidence is -ln p; all is in unit scale.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from evenhand.model.problem import Problem
from evenhand.model.unit_families import (
    BERNOULLI,
    EXPONENTIAL,
    GAUSSIAN,
    POISSON,
    divergence,
    edge_high,
    edge_low,
)
from evenhand.procedure.estimates import variance
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State, Work

Array = NDArray[np.float64]
Limits = tuple[Array, Array]

SMALLEST = 1e-300  # p-values below are given as this
HALVINGS = 100


class Sample(NamedTuple):
    """A fixed sample: the problem, the counts and sums, and the estimates made from them."""

    problem: Problem
    spec: Spec
    state: State
    work: Work  # up to date (`estimates.refresh`)
    noise: dict[tuple[int, int, float], tuple[float, ...]]  # cache of `fixed_linear` for single cells
    guardrails: tuple[Sample, ...] = ()  # the outcomes of every guard-rail, in place of the outcome's

    @property
    def metrics(self) -> tuple[Sample, ...]:
        """Return the sample of the outcome and those of the guard-rails."""
        return (self, *self.guardrails)


def cell_evidence(sample: Sample, g: int, k: int, c: float, sign: int) -> float:
    """Return -ln p of one cell against {mean <= c} (sign 1) or {mean >= c} (sign -1)."""
    n, s, code = float(sample.state.n[g, k]), float(sample.state.s[g, k]), sample.spec.code
    low, high = float(edge_low(code)), float(edge_high(code))
    if (
        c < low or c > high or (code == EXPONENTIAL and c == low)
    ):  # the null holds every possible mean, or none
        return 0.0 if (c > high) == (sign > 0) else math.inf
    if n == 0.0:
        return 0.0
    if sample.problem.family.name == "bounded":
        above = sign * (s / n - c) > 0
        return n * float(divergence(BERNOULLI, s / n, c)) if above else 0.0
    if code == GAUSSIAN:
        return _gaussian(sample, g, k, c, sign)
    phi = float(sample.spec.phi[g, k])
    upper, lower = tails(code, n / phi, s / phi, np.array([c]))
    return -math.log(max(float((upper if sign > 0 else lower)[0]), SMALLEST))


def _gaussian(sample: Sample, g: int, k: int, c: float, sign: int) -> float:
    n, s = float(sample.state.n[g, k]), float(sample.state.s[g, k])
    if not sample.spec.unknown_variance:
        return -float(special.log_ndtr(-sign * (s - n * c) / math.sqrt(n * sample.spec.phi[g, k])))
    spread = mean_variance(sample, g, k)
    if spread == 0.0:
        return 0.0
    return student_evidence(sign * (s / n - c) / math.sqrt(spread), n - 1.0)


def mean_variance(sample: Sample, g: int, k: int) -> float:
    """Return the estimated variance of a cell's mean; 0 where outcomes are fewer than two or all equal.

    Gaussian outcomes are never all equal, so a cell in which they are supports no test of this family.
    """
    n = float(sample.state.n[g, k])
    return float(variance(sample.state, g, k)) / n if n >= 2 else 0.0


def student_evidence(t: float, degrees: float) -> float:
    """Return -ln of the probability that Student's t exceeds `t`."""
    return -math.log(max(float(special.stdtr(degrees, -t)), SMALLEST))


def tails(code: int, n: float, s: float, mean: Array) -> Limits:
    """Return P(sum >= s) and P(sum <= s) at these means, for n unit samples."""
    one = np.ones_like(mean)
    if code == BERNOULLI:
        upper = special.betainc(s, n - s + 1.0, mean) if s > 0 else one
        lower = special.betaincc(s + 1.0, n - s, mean) if s < n else one
    elif code == POISSON:
        upper = special.gammainc(s, n * mean) if s > 0 else one
        lower = special.gammaincc(s + 1.0, n * mean)
    else:
        upper, lower = special.gammaincc(n, s / mean), special.gammainc(n, s / mean)
    return upper, lower


def limits(code: int, n: float, s: float, level: float) -> tuple[float, float]:
    """Return the means between which neither tail is below `level`: exact confidence limits."""
    if code == BERNOULLI:
        low = special.betaincinv(s, n - s + 1.0, level) if s > 0 else 0.0
        high = special.betainccinv(s + 1.0, n - s, level) if s < n else 1.0
    elif code == POISSON:
        low = special.gammaincinv(s, level) / n if s > 0 else 0.0
        high = special.gammainccinv(s + 1.0, level) / n
    else:
        low, high = s / special.gammainccinv(n, level), s / special.gammaincinv(n, level)
    return float(low), float(high)


def interval_end(sample: Sample, g: int, k: int, level: float, sign: int) -> float:
    """Return the last c on this side of the mean that the data exclude; the edge where they exclude none."""
    code = sample.spec.code
    edge = float(edge_low(code) if sign > 0 else edge_high(code))
    n = float(sample.state.n[g, k])
    if n == 0.0 or (sample.spec.unknown_variance and mean_variance(sample, g, k) == 0.0):
        return edge
    inside = float(sample.state.s[g, k]) / n
    outside, step = edge, max(abs(inside), 1.0)
    if math.isinf(edge):
        outside = inside - sign * step
        while cell_evidence(sample, g, k, outside, sign) < level:
            step *= 2.0
            outside = inside - sign * step
            if step > 1e150:
                return edge
    elif cell_evidence(sample, g, k, edge + 1e-15 * (inside - edge), sign) < level:
        return edge
    for _ in range(HALVINGS):
        middle = 0.5 * (inside + outside)
        if middle in (inside, outside):
            break
        if cell_evidence(sample, g, k, middle, sign) >= level:
            outside = middle
        else:
            inside = middle
    return outside
