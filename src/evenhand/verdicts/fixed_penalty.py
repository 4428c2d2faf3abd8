"""The comparison of two penalised scores, for a sample whose size was fixed before the data.

The score is the sum over groups of phi(m) = q (m + gamma min(m - C, 0)), the lower of two lines: plain, q m,
and steep, q (m + gamma (m - C)). For each point of the null {score of rival k >= score of leader i} choose
lines that depend on that point alone: for the leader the line that holds at its mean, for the rival steep
where its mean lies below C - slack, plain elsewhere. No line lies below phi, so under the null

    sum of the leader's lines at x - sum of the rival's lines at x <= sum of a (x - m),

a the lines' weights: the test of `fixed_linear`. Confidence limits for the means use a part of the
level and leave some lines as possible; the p-value is the largest over all choices of possible lines, plus
that part. `slack` keeps a rival near its floors on the plain line, whose noise is less by 1 + gamma; where
the limits lie below the floor, its score is less than the plain line by at least gamma times the shortfall.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import special

from evenhand.procedure.evidence import certified
from evenhand.verdicts.fixed_cells import Sample
from evenhand.verdicts.fixed_linear import SPENT, Cell, Noise, both, noise_of, unit_variance


class PenaltyLine(NamedTuple):
    """What a cell adds to the distance between the scores and to its variance, on one line."""

    variance: float
    distance: float


def penalised_ahead(sample: Sample, i: int, k: int, alpha: float) -> float:
    """Return -ln p against {k scores at least what i does, and the indifference more}, at level `alpha`."""
    spec, state, work = sample.spec, sample.state, sample.work
    if sample.problem.family.name == "bounded":
        return max(float(certified.ahead(spec, state, work, i, k, math.inf)), 0.0)
    cells = both(sample, i, k)
    if (
        any(state.n[cell.g, cell.k] == 0.0 for cell in cells)
        or work.score[i] + spec.indifference <= work.score[k]
    ):
        return 0.0
    noise = noise_of(sample, cells, alpha, with_limits=True)
    if noise is None:
        return 0.0
    start, choices = PenaltyLine(0.0, spec.indifference), []
    for j, cell in enumerate(cells):
        lines = _penalty_lines(sample, cell, noise, j, alpha)
        start = PenaltyLine(start.variance + lines[0].variance, start.distance + lines[0].distance)
        if len(lines) == 2:
            choices.append(
                PenaltyLine(lines[1].variance - lines[0].variance, lines[1].distance - lines[0].distance)
            )
    return noise.tail(_least_ratio(start, choices))


def _penalty_lines(sample: Sample, cell: Cell, noise: Noise, j: int, alpha: float) -> list[PenaltyLine]:
    """Return what cell j adds on each of its possible lines, the plain one first."""
    region, x = sample.spec.region, float(sample.work.mean[cell.g, cell.k])
    floor, gamma = float(region.lo[cell.g, cell.k]), float(region.gamma[cell.g])
    leads, weight = cell.a > 0, abs(cell.a)
    change = floor if leads else floor - _slack(sample, cell, alpha, len(noise.low))
    remainder, variance = float((noise.above if leads else noise.below)[j]), float(noise.variance[j])
    found = []
    if noise.high[j] >= change or gamma == 0.0:
        shortfall = 0.0 if leads else gamma * max(floor - float(noise.high[j]), 0.0)
        found.append(PenaltyLine(weight**2 * variance, cell.a * x + weight * (shortfall - remainder)))
    if noise.low[j] < change and gamma > 0.0:
        steep = weight * (1.0 + gamma)
        distance = cell.a * (x + gamma * (x - floor)) - steep * remainder
        found.append(PenaltyLine(steep**2 * variance, distance))
    return found


def _slack(sample: Sample, cell: Cell, alpha: float, cells: int) -> float:
    """Return how far below its floor a rival's mean is still put on the plain line; no outcome enters it."""
    if sample.spec.unknown_variance:
        return math.inf  # the scale is known from outcomes only, so there is no place to change lines
    spec = sample.spec
    each = SPENT * alpha / (2 * cells)
    n = float(sample.state.n[cell.g, cell.k] / spec.phi[cell.g, cell.k])
    floor = np.array([spec.region.lo[cell.g, cell.k]])
    return -2.0 * float(special.ndtri(each)) * math.sqrt(float(unit_variance(spec.code, floor)[0]) / n)


def _least_ratio(start: PenaltyLine, choices: list[PenaltyLine]) -> float:
    """Return a lower bound of distance / sqrt(variance) over all choices of lines.

    As points (variance, distance) all choices lie above the chain that takes them by slope; the ratio grows
    with the distance, so its least value on the chain is a lower bound.
    """
    variance, distance = start
    least = distance / math.sqrt(variance)
    for choice in sorted(choices, key=lambda line: line.distance / line.variance):
        slope = choice.distance / choice.variance
        at_zero = distance - slope * variance
        if slope > 0.0 and at_zero > 0.0 and variance < at_zero / slope < variance + choice.variance:
            least = min(least, 2.0 * math.sqrt(at_zero * slope))
        variance, distance = variance + choice.variance, distance + choice.distance
        least = min(least, distance / math.sqrt(variance))
    return least
