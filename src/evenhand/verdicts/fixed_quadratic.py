"""Tests of a quadratic condition m'Qm <= limit, for a sample whose size was fixed before the data.

The set E of means that meet it is convex, and holds with a point the whole line through it along (1, ..., 1).
Distances are in standard errors, by the representation of `fixed_linear`.

*Null: the means lie outside E.* A hyperplane separates them from E, and the distance from x to the outside of
E is at most that from x to the hyperplane: one linear condition, hence one normal (or Student) variable, plus
at most the length of r.

*Null: the means lie in E.* The distance from x to E is at most that from x to the line through the means. Its
square is at most chi-squared with L - 1 degrees of freedom where variances are known (plus the length of r),
and a sum of L squared Student variables where they are estimated.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from evenhand.model.region import DISPERSION, Region
from evenhand.model.unit_families import GAUSSIAN
from evenhand.procedure.evidence import likelihood_mixture
from evenhand.procedure.evidence.by_family import atom_ceiling
from evenhand.theory import inner
from evenhand.verdicts.fixed_cells import SMALLEST, Sample
from evenhand.verdicts.fixed_linear import Cell, Noise, noise_of

Array = NDArray[np.float64]

STEPS = 2000  # of the grid on which squared Student variables are added
ACCURACY = 1e-12  # smaller probabilities are lost in the rounding of their complement


def inside_evidence(sample: Sample, k: int, alpha: float) -> float:
    """Return -ln p against {policy k's means exceed the limit}, for a test at level `alpha`."""
    spec, work, r = sample.spec, sample.work, _quadratic(sample.spec.region)
    if sample.problem.family.name == "bounded":
        return max(float(likelihood_mixture.leaves(spec, sample.state, work, r, k, atom_ceiling(spec))), 0.0)
    noise = _noise(sample, k, alpha)
    if noise is None:
        return 0.0
    _, lower, _ = inner.leave(
        GAUSSIAN, r, k, _weights(sample, k, noise), work.mean, work.lam_k, work.lam_0, work.scratch
    )
    return noise.tail(_distance(lower, noise))


def outside_evidence(sample: Sample, k: int, alpha: float) -> float:
    """Return -ln p against {policy k's means keep the limit}, for a test at level `alpha`."""
    spec, work, r = sample.spec, sample.work, _quadratic(sample.spec.region)
    if sample.problem.family.name == "bounded":
        return max(float(likelihood_mixture.enters(spec, sample.state, work, r, k, atom_ceiling(spec))), 0.0)
    noise = _noise(sample, k, alpha)
    if noise is None:
        return 0.0
    _, lower = inner.enter(
        GAUSSIAN, r, k, _weights(sample, k, noise), work.mean, work.lam_k, work.lam_0, work.scratch
    )
    squared = max(_distance(lower, noise), 0.0) ** 2
    groups = spec.phi.shape[0]
    if spec.unknown_variance:
        chance = sum_tail(squared, sample.state.n[:, k] - 1.0)
    else:
        chance = float(stats.chi2.sf(squared, max(groups - 1, 1)))
    return -math.log(min(max(chance + noise.spent, SMALLEST), 1.0))


def sum_tail(total: float, degrees: Array) -> float:
    """Return an upper bound of the probability that squared Student variables add up to `total` or more.

    Each is rounded up to a multiple of total / STEPS.
    """
    if total <= 0.0:
        return 1.0
    grid = np.sqrt(np.linspace(0.0, total, STEPS + 1))
    below = np.zeros(STEPS)
    below[0] = 1.0
    for nu in degrees:
        mass = np.diff(1.0 - 2.0 * special.stdtr(nu, -grid))
        below = np.convolve(below, np.r_[0.0, mass])[:STEPS]
    return max(1.0 - float(below.sum()), ACCURACY)


def _noise(sample: Sample, k: int, alpha: float) -> Noise | None:
    return noise_of(
        sample, [Cell(g, k, 1.0) for g in range(sample.spec.phi.shape[0])], alpha, with_limits=False
    )


def _weights(sample: Sample, k: int, noise: Noise) -> Array:
    """Return policy k's cells' weights as the solvers take them: 1 / variance of the sample mean."""
    weights = np.ones(sample.spec.phi.shape)
    weights[:, k] = 1.0 / noise.variance
    return weights


def _distance(likelihood: float, noise: Noise) -> float:
    """Return the distance with this likelihood ratio, less what the remainders r can add to it."""
    remainder = np.maximum(noise.above, noise.below) / np.sqrt(noise.variance)
    return math.sqrt(2.0 * max(likelihood, 0.0)) - float(np.linalg.norm(remainder))


def _quadratic(r: Region) -> Region:
    """Return the quadratic condition of an intersection alone."""
    return r._replace(kind=DISPERSION, rows=r.rows[:0], rhs=r.rhs[:0], need=0)
