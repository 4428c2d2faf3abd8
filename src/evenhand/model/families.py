"""Outcome families: a closed set. Each says which unit family it is (`units`), and what its outcomes and
means may be.

One sample of a cell with dispersion phi is worth 1/phi unit samples of the rescaled outcome (x - low) /
width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.compile import uncompiled
from evenhand.errors import BadInput
from evenhand.model import unit_families
from evenhand.model.region import ROUNDING

Array = NDArray[np.float64]

EPSILON = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Family:
    """What all families share; a family overrides what differs."""

    name: ClassVar[str]
    code: ClassVar[int]
    outcomes: ClassVar[str]  # completes "outcomes must be ..."

    @property
    def low(self) -> float:
        """What is subtracted from an outcome before the kernels see it."""
        return 0.0

    @property
    def width(self) -> float:
        """What an outcome is divided by before the kernels see it."""
        return 1.0

    @property
    def open_below(self) -> bool:
        """Does the domain lack its smallest number? At mean 0 a gamma outcome could be nothing but 0."""
        return self.code == unit_families.EXPONENTIAL

    @property
    def domain(self) -> tuple[float, float]:
        """The smallest and largest mean (either may be infinite)."""
        code = self.code
        return (
            self.low + self.width * uncompiled(unit_families.edge_low)(code),
            self.low + self.width * uncompiled(unit_families.edge_high)(code),
        )

    def dispersion(self, policies: int, groups: int) -> Array:
        """phi per cell, K x L: one sample is worth 1/phi unit samples."""
        return np.ones((policies, groups))

    def resolution(self, policies: int, groups: int) -> Array:
        """What two means in unit scale may differ by through rounding, however small they are; K x L.

        Counts and shares have a scale of their own; what was shifted to it has lost digits on the way.
        """
        shifted = 4.0 * EPSILON * abs(self.low) / self.width
        return np.full((policies, groups), ROUNDING + shifted)

    def admits(self, outcomes: ArrayLike) -> NDArray[np.bool_]:
        """Which of these numbers can be an outcome."""
        x = np.asarray(outcomes, dtype=float)
        return np.isfinite(x)

    def divergence(self, mu: ArrayLike, lam: ArrayLike) -> Array:
        """d(mu, lam) in nats per sample, elementwise."""
        mu, lam = np.broadcast_arrays(self.to_unit(mu), self.to_unit(lam))
        return _each(unit_families.divergence, self.code, mu, lam) / self._phi(mu)

    def variance(self, mean: ArrayLike) -> Array:
        """V: the variance of one outcome whose mean is this."""
        unit = self.to_unit(mean)
        return _each(uncompiled(unit_families.variance), self.code, unit) * self.width**2 * self._phi(unit)

    def up(self, mu: ArrayLike, s: ArrayLike) -> Array:
        """U(mu, s): solves (lam - mu) / V(lam) = s for lam >= mu."""
        return self._pulled(unit_families.up, mu, s)

    def down(self, mu: ArrayLike, s: ArrayLike) -> Array:
        """D(mu, s): solves (lam - mu) / V(lam) = -s for lam <= mu."""
        return self._pulled(unit_families.down, mu, s)

    def to_unit(self, mean: ArrayLike) -> Array:
        """Means or outcomes as the kernels see them."""
        return (np.asarray(mean, dtype=float) - self.low) / self.width

    def _pulled(self, kernel: Callable[..., float], mu: ArrayLike, s: ArrayLike) -> Array:
        # V is width^2 phi times the unit variance and lam - mu is width times the unit distance
        unit, rate = np.broadcast_arrays(self.to_unit(mu), np.asarray(s, dtype=float))
        return self.low + self.width * _each(kernel, self.code, unit, rate * self.width * self._phi(unit))

    def _phi(self, like: Array) -> Array:
        """Dispersion for these numbers: the family's one value, or its K x L table for a K x L argument."""
        shape = like.shape if like.ndim == 2 else (1, 1)
        phi = self.dispersion(*shape)
        return phi if like.ndim == 2 else phi[0, 0]


def _each(kernel: Callable[..., float], code: int, *arguments: Array) -> Array:
    """A unit kernel applied elementwise."""
    return np.asarray(np.vectorize(lambda *x: kernel(code, *x), otypes=[float])(*arguments), dtype=float)


@dataclass(frozen=True)
class Gaussian(Family):
    """Outcomes on the line with known standard deviation: one number, or K x L."""

    sd: float | tuple[tuple[float, ...], ...] = 1.0
    name: ClassVar[str] = "gaussian"
    code: ClassVar[int] = unit_families.GAUSSIAN
    outcomes: ClassVar[str] = "finite numbers"

    def __init__(self, sd: ArrayLike = 1.0) -> None:
        values = _numbers(sd, "sd")
        if values.ndim not in (0, 2) or not np.all(values > 0) or not np.all(np.isfinite(values)):
            raise BadInput(f"sd must be a positive finite number or a K x L table of them; it is {sd!r}.")
        object.__setattr__(self, "sd", _frozen(values))

    def dispersion(self, policies: int, groups: int) -> Array:
        sd = np.asarray(self.sd, dtype=float)
        if sd.ndim == 2 and sd.shape != (policies, groups):
            raise BadInput(
                f"sd must have a row per policy and a column per group, {policies} x {groups}; "
                f"it is {sd.shape[0]} x {sd.shape[1]}."
            )
        return np.broadcast_to(sd**2, (policies, groups)).copy()

    def resolution(self, policies: int, groups: int) -> Array:
        return ROUNDING * np.sqrt(self.dispersion(policies, groups))


@dataclass(frozen=True)
class GaussianUnknown(Family):
    """Outcomes on the line, Gaussian with a variance per cell that nobody knows."""

    name: ClassVar[str] = "gaussian-unknown"
    code: ClassVar[int] = unit_families.GAUSSIAN
    outcomes: ClassVar[str] = "finite numbers"

    def resolution(self, policies: int, groups: int) -> Array:
        return np.zeros((policies, groups))  # the means' own sizes are all that is known of their scale


@dataclass(frozen=True)
class Bernoulli(Family):
    """Outcomes 0 or 1."""

    name: ClassVar[str] = "bernoulli"
    code: ClassVar[int] = unit_families.BERNOULLI
    outcomes: ClassVar[str] = "0 or 1"

    def admits(self, outcomes: ArrayLike) -> NDArray[np.bool_]:
        x = np.asarray(outcomes, dtype=float)
        return (x == 0.0) | (x == 1.0)


@dataclass(frozen=True)
class Binomial(Family):
    """Outcomes count successes in a known number of trials."""

    trials: int = 1
    name: ClassVar[str] = "binomial"
    code: ClassVar[int] = unit_families.BERNOULLI
    outcomes: ClassVar[str] = "whole numbers from 0 to trials"

    def __post_init__(self) -> None:
        if isinstance(self.trials, bool) or int(self.trials) != self.trials or self.trials < 1:
            raise BadInput(f"trials must be a whole number, at least 1; it is {self.trials}.")

    @property
    def width(self) -> float:
        return float(self.trials)

    def dispersion(self, policies: int, groups: int) -> Array:
        return np.full((policies, groups), 1.0 / self.trials)

    def admits(self, outcomes: ArrayLike) -> NDArray[np.bool_]:
        x = np.asarray(outcomes, dtype=float)
        return (x >= 0) & (x <= self.trials) & (x == np.floor(x))


@dataclass(frozen=True)
class Poisson(Family):
    """Outcomes are counts without an upper limit."""

    name: ClassVar[str] = "poisson"
    code: ClassVar[int] = unit_families.POISSON
    outcomes: ClassVar[str] = "whole numbers, 0 or more"

    def admits(self, outcomes: ArrayLike) -> NDArray[np.bool_]:
        x = np.asarray(outcomes, dtype=float)
        return np.isfinite(x) & (x >= 0) & (x == np.floor(x))


@dataclass(frozen=True)
class Gamma(Family):
    """Positive outcomes, gamma with known shape."""

    shape: float = 1.0
    name: ClassVar[str] = "gamma"
    code: ClassVar[int] = unit_families.EXPONENTIAL
    outcomes: ClassVar[str] = "positive finite numbers"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.shape) and self.shape > 0):
            raise BadInput(f"shape must be a positive finite number; it is {self.shape}.")

    def dispersion(self, policies: int, groups: int) -> Array:
        return np.full((policies, groups), 1.0 / self.shape)

    def resolution(self, policies: int, groups: int) -> Array:
        return np.zeros((policies, groups))  # the family knows no scale but ratios of means

    def admits(self, outcomes: ArrayLike) -> NDArray[np.bool_]:
        x = np.asarray(outcomes, dtype=float)
        return np.isfinite(x) & (x > 0)


@dataclass(frozen=True)
class Exponential(Gamma):
    """Positive outcomes, exponential: gamma with shape 1."""

    name: ClassVar[str] = "exponential"

    def __init__(self) -> None:
        object.__setattr__(self, "shape", 1.0)


@dataclass(frozen=True)
class Bounded(Family):
    """Outcomes anywhere in [low, high], of any distribution.

    Measured by the Bernoulli divergence after rescaling.
    """

    smallest: float = 0.0
    largest: float = 1.0
    name: ClassVar[str] = "bounded"
    code: ClassVar[int] = unit_families.BERNOULLI
    outcomes: ClassVar[str] = "numbers from low to high"

    def __init__(self, low: float = 0.0, high: float = 1.0) -> None:
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise BadInput(f"low must be below high, both finite; they are {low} and {high}.")
        object.__setattr__(self, "smallest", float(low))
        object.__setattr__(self, "largest", float(high))

    @property
    def low(self) -> float:
        return self.smallest

    @property
    def width(self) -> float:
        return self.largest - self.smallest

    def admits(self, outcomes: ArrayLike) -> NDArray[np.bool_]:
        x = np.asarray(outcomes, dtype=float)
        return (x >= self.smallest) & (x <= self.largest)


FAMILIES: dict[str, type[Family]] = {
    family.name: family
    for family in (Gaussian, Bernoulli, Binomial, Poisson, Exponential, Gamma, Bounded, GaussianUnknown)
}


def _numbers(value: ArrayLike, what: str) -> Array:
    try:
        return np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise BadInput(f"{what} must be a number or a table of numbers; it is {value!r}.") from None


def _frozen(values: Array) -> Any:
    """Nested tuples instead of an array, so that a frozen noun stays hashable and comparable."""
    return tuple(map(tuple, values.tolist())) if values.ndim == 2 else values.tolist()
