"""The tilt bound: how much larger an error can be near a point where it is known.

Let theta be the natural parameters of the cells, A the log-partition function of one sample, n the largest
number of samples of a run, and f(theta) the probability of an event that the data of the run decide. For
every q > 1 and v, with g(q, v) = A(theta + q v) - A(theta) - q (A(theta + v) - A(theta)) of each cell,

    f(theta + v) <= f(theta)^(1 - 1/q) exp(n max_cells g(q, v) / q).

It is Hoelder's inequality for f(theta + v) = E_theta[1_event L(v)]. The likelihood ratio L of an adaptive run
is the product over its samples, whatever the rule that chose their cells. L(v)^q is the likelihood ratio
L(q v), whose mean is 1, times exp(sum_cells N g(q, v)), where the numbers of samples N of the cells sum to at
most n. g is not negative since A is convex, so the worst allocation has all samples in the cell with the
largest g. g grows with |v| on either side of 0, so its maximum over a tile is at an end of one of its edges.
The derivation is in docs/decisions/box-calibration.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput
from evenhand.model.families import Bernoulli, Binomial, Family, Gaussian, Poisson
from evenhand.model.problem import Problem

Array = NDArray[np.float64]

# the bound holds for each of these exponents; the best one is taken
EXPONENTS: Array = 1.0 + np.geomspace(1e-2, 1e4, 400)
ROUNDING = 1e-9  # the cost of a tile is increased by this part of itself, for errors of rounding
COVERED = (Bernoulli, Binomial, Gaussian, Poisson)


@dataclass(frozen=True)
class NaturalScale:
    """The natural parameter of a cell by its mean, and the log-partition function of one sample."""

    of_mean: Callable[[Array], Array]
    log_partition: Callable[[Array], Array]
    # a scale on which tiles of equal width have about the same cost, and its inverse
    stabilised: Callable[[float], float]
    from_stabilised: Callable[[Array], Array]


def natural_scale(problem: Problem, k: int, g: int) -> NaturalScale:
    """Return the natural parameter and log-partition function of a cell; refuse families without."""
    family = problem.family
    check_family(family)
    if isinstance(family, Gaussian):
        variance = float(family.dispersion(*problem.shape)[k, g])
        return NaturalScale(
            lambda mean: mean / variance, lambda theta: variance * theta**2 / 2, float, lambda x: x
        )
    if isinstance(family, Poisson):
        return NaturalScale(np.log, np.exp, math.sqrt, np.square)
    trials = family.trials if isinstance(family, Binomial) else 1
    return NaturalScale(
        lambda mean: np.log(mean / (trials - mean)),
        lambda theta: trials * np.logaddexp(0.0, theta),
        lambda mean: math.asin(math.sqrt(mean / trials)),
        lambda x: trials * np.sin(x) ** 2,
    )


def check_family(family: Family) -> None:
    """Refuse a family for which the bound is not derived."""
    if not isinstance(family, COVERED):
        names = ", ".join(one.name for one in COVERED)
        raise BadInput(f"a box is proved for the families {names}; this one is {family.name}.")


def check_inside(family: Family, low: float, high: float, where: str) -> None:
    """Refuse a range that touches the end of the domain, where the natural parameter is infinite."""
    least, most = family.domain
    if low <= least or high >= most:
        raise BadInput(
            f"{where} must lie strictly between {least:g} and {most:g} for a proof; "
            f"it is {low:g} to {high:g}."
        )


def tilt_cost(scale: NaturalScale, point: Array, low: Array, high: Array) -> Array:
    """Return max g(q, v) / q over tiles from low to high, around points: one row per exponent q.

    The arguments are means, one per tile.
    """
    theta = scale.of_mean(point)
    costs = np.zeros((len(EXPONENTS), len(point)))
    q = EXPONENTS[:, np.newaxis]
    start = scale.log_partition(theta)
    with np.errstate(over="ignore"):
        for end in (low, high):
            v = scale.of_mean(end) - theta
            rise = scale.log_partition(theta + v) - start
            costs = np.maximum(costs, (scale.log_partition(theta + q * v) - start) / q - rise)
    return costs * (1.0 + ROUNDING)


def allowed_at_point(costs: Array, samples: int, delta: float) -> Array:
    """Return the largest error at each tile's point for which the bound is at most delta on all of the tile.

    f^(1 - 1/q) exp(n c) <= delta is ln f <= (ln delta - n c) q / (q - 1), for any q: the best is taken.
    `costs` has a row per exponent and a column per tile.
    """
    q = EXPONENTS[:, np.newaxis]
    with np.errstate(over="ignore"):  # a cost beyond all numbers allows no error
        logs = (math.log(delta) - samples * costs) * q / (q - 1.0)
    found: Array = np.exp(np.max(logs, axis=0))
    return np.minimum(found, delta)


def bound_on_tile(costs: Array, samples: int, error: Array) -> Array:
    """Return the upper bound on the error over each tile, given the error at its point."""
    q = EXPONENTS[:, np.newaxis]
    with np.errstate(divide="ignore", over="ignore"):
        logs = np.log(error) * (1.0 - 1.0 / q) + samples * costs
    return np.minimum(np.exp(np.minimum(np.min(logs, axis=0), 0.0)), 1.0)
