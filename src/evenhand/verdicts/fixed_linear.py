"""Tests of conditions on several cells, for a sample whose size was fixed before the data.

Write x for a cell's sample mean and m for its mean. Everything here rests on one representation that holds
for all cells of a comparison at once, except with probability `spent`:

    x = m + s N + r,    N independent standard normal,    s^2 <= variance,    -below <= r <= above.

*gaussian*: exact; s is known, r = 0 and nothing is spent.

*gaussian-unknown*: r = 0; the estimated variance takes the place of s^2, and Student's t that of the normal
law (see `Noise.tail`).

*bernoulli, binomial, poisson, exponential, gamma*: N is the normal variable at the quantile of the sum, drawn
at random within a jump of its distribution function; r is what the exact law differs from the normal one.
With probability 1 - spent every |N| is at most B; then m lies between exact confidence limits, and s^2 and r
are bounded by their largest values over such m.

Against {sum of a m <= c}: under it sum of a x - c <= sum of a s N + sum of |a| max(above, below), so

    t = (sum of a x - c - sum of |a| r's bound) / sqrt(sum of a^2 variance),    p = P(N >= t) + spent.

`bounded` outcomes have no law: their test is the sequential e-value, and p = 1 / e-value (Markov).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from evenhand.model.unit_families import BERNOULLI, GAUSSIAN, POISSON
from evenhand.procedure.evidence import by_family as certified
from evenhand.procedure.evidence import control_pair
from evenhand.verdicts.fixed_cells import (
    SMALLEST,
    Sample,
    cell_evidence,
    limits,
    mean_variance,
    student_evidence,
    tails,
)

Array = NDArray[np.float64]

SPENT = 0.1  # share of a test's level that is used for the representation where it is not exact
POINTS = 65  # means between the confidence limits at which the remainder r is evaluated


class Cell(NamedTuple):
    """A cell of a comparison and its weight there."""

    g: int
    k: int
    a: float


class Noise(NamedTuple):
    """How far sample means may lie from the means, cell by cell; see the top of this file."""

    low: Array  # confidence limits of the means
    high: Array
    variance: Array
    above: Array
    below: Array
    degrees: float  # smallest degrees of freedom of the estimated variances; infinite where they are known
    spent: float

    def tail(self, t: float) -> float:
        """Return -ln of the bound P(N >= t) + spent, or of the same with Student's t.

        For estimated variances let Y be the sum of their shares in the total, each times chi-squared over
        its degrees: the shares sum to 1. P(N >= t sqrt(Y)) is the mean of a convex function of Y for t > 0,
        so at most the shares' mean of P(t_nu >= t), hence at most P(t_nu >= t) with the smallest nu.
        """
        if t <= 0.0:
            return 0.0
        finite = math.isfinite(self.degrees)
        value = student_evidence(t, self.degrees) if finite else -float(special.log_ndtr(-t))
        return -math.log(max(math.exp(-value) + self.spent, SMALLEST)) if self.spent > 0.0 else value


def row_evidence(sample: Sample, k: int, a: Array, c: float, alpha: float) -> float:
    """Return -ln p against {a.m_k <= c}, for a test at level `alpha`."""
    used = [Cell(g, k, float(a[g])) for g in range(a.size) if a[g] != 0.0]
    if len(used) == 1:
        cell = used[0]
        return cell_evidence(sample, cell.g, k, c / cell.a, 1 if cell.a > 0 else -1)
    if sample.problem.family.name == "bounded":
        found = certified.row(sample.spec, sample.state, k, -a, -c, sample.work.scratch)
        return max(float(found), 0.0)
    return _half_space(sample, used, c, alpha)


def ahead_evidence(sample: Sample, i: int, k: int, alpha: float) -> float:
    """Return -ln p against {q.m_k >= q.m_i + indifference}, for a test at level `alpha`."""
    spec = sample.spec
    if sample.problem.family.name == "bounded":
        found = certified.ahead(spec, sample.state, i, k, math.inf, sample.work.scratch)
        return max(float(found), 0.0)
    return _half_space(sample, both(sample, i, k), -spec.indifference, alpha)


def pair_evidence(
    sample: Sample, g: int, k: int, control: int, sign: float, ratio: float, c: float, alpha: float
) -> float:
    """Return -ln p against {sign (m_k - ratio m_control) <= c} in group g, at level `alpha`."""
    if sample.problem.family.name == "bounded":
        spec, state, scratch = sample.spec, sample.state, sample.work.scratch
        if state.n[g, k] == 0.0 or state.n[g, control] == 0.0:
            return 0.0
        return max(float(control_pair.against(spec, state, control, g, k, -sign, ratio, -c, scratch)), 0.0)
    return _half_space(sample, [Cell(g, k, sign), Cell(g, control, -sign * ratio)], c, alpha)


def both(sample: Sample, i: int, k: int) -> list[Cell]:
    """Return the cells of two policies with weights q and -q."""
    weights = [(g, float(q)) for g, q in enumerate(sample.spec.shares) if q > 0.0]
    return [Cell(g, i, q) for g, q in weights] + [Cell(g, k, -q) for g, q in weights]


def _half_space(sample: Sample, cells: Sequence[Cell], c: float, alpha: float) -> float:
    a = np.array([cell.a for cell in cells])
    x = np.array([sample.work.mean[cell.g, cell.k] for cell in cells])
    if any(sample.state.n[cell.g, cell.k] == 0.0 for cell in cells) or a @ x <= c:
        return 0.0
    noise = noise_of(sample, cells, alpha, with_limits=False)
    if noise is None:
        return 0.0
    distance = float(a @ x) - c - float(np.abs(a) @ np.where(a > 0, noise.above, noise.below))
    return noise.tail(distance / math.sqrt(float(a**2 @ noise.variance)))


def noise_of(sample: Sample, cells: Sequence[Cell], alpha: float, with_limits: bool) -> Noise | None:
    """Return the representation for these cells at a test's level; None where there is none.

    `with_limits`: the caller uses the confidence limits, so a part of the level is used for them in any case.
    """
    spent = SPENT * alpha
    each = spent / (2 * len(cells))  # for either side of every cell
    if sample.spec.code == GAUSSIAN:
        return _gaussian_noise(sample, cells, each, spent if with_limits else 0.0)
    low, high, variance, above, below = np.array([_cell_noise(sample, c.g, c.k, each) for c in cells]).T
    return Noise(low, high, variance, above, below, math.inf, spent)


def _gaussian_noise(sample: Sample, cells: Sequence[Cell], each: float, spent: float) -> Noise | None:
    x, n, phi = (
        np.array([table[cell.g, cell.k] for cell in cells])
        for table in (sample.work.mean, sample.state.n, sample.spec.phi)
    )
    none, degrees = np.zeros(len(cells)), math.inf
    if sample.spec.unknown_variance:
        variance = np.array([mean_variance(sample, cell.g, cell.k) for cell in cells])
        if np.any(variance == 0.0):
            return None
        degrees = float(n.min()) - 1.0
        reach = -special.stdtrit(n - 1.0, each) * np.sqrt(variance)
    else:
        variance = phi / n
        reach = -special.ndtri(each) * np.sqrt(variance)
    return Noise(x - reach, x + reach, variance, none, none, degrees, spent)


def _cell_noise(sample: Sample, g: int, k: int, each: float) -> tuple[float, ...]:
    """Return low, high, variance, above and below of one cell, exceeded with probability 2 `each`."""
    found = sample.noise.get((g, k, each))
    if found is None:
        found = sample.noise[g, k, each] = _exact_noise(sample, g, k, each)
    return found


def _exact_noise(sample: Sample, g: int, k: int, each: float) -> tuple[float, ...]:
    spec, state = sample.spec, sample.state
    n, s = float(state.n[g, k] / spec.phi[g, k]), float(state.s[g, k] / spec.phi[g, k])
    low, high = limits(spec.code, n, s, each)
    mean = np.linspace(low, high, POINTS)
    upper, lower = tails(spec.code, n, s, mean)
    most = -float(special.ndtri(each))
    sd = np.sqrt(unit_variance(spec.code, mean) / n)
    # N lies between the normal quantiles of P(sum < s) and P(sum <= s), and within most of 0
    least_n = np.maximum(-special.ndtri(upper), -most)
    largest_n = np.minimum(special.ndtri(lower), most)
    above = _largest(s / n - mean - sd * least_n)
    below = _largest(mean - s / n + sd * largest_n)
    top = unit_variance(spec.code, np.array([min(max(0.5, low), high) if spec.code == BERNOULLI else high]))
    return low, high, float(top[0]) / n, above, below


def _largest(values: Array) -> float:
    """Return the largest value of a smooth function from its values at neighbouring points, or 0.

    Between two points it exceeds both by less than the largest step between neighbours.
    """
    return max(float(values.max() + np.abs(np.diff(values)).max()), 0.0)


def unit_variance(code: int, mean: Array) -> Array:
    """Return the variance of one unit sample at these means."""
    if code == GAUSSIAN:
        return np.ones_like(mean)
    if code == BERNOULLI:
        return mean * (1.0 - mean)
    return mean if code == POISSON else mean**2
