"""Outcome families, a closed set: the unit family of each, its outcomes and its means.

One sample of a cell with dispersion phi is worth 1/phi unit samples of the rescaled outcome
(x - low) / width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.compile import uncompiled
from evenhand.errors import BadInput, shown
from evenhand.model import unit_families
from evenhand.model.argument_checks import as_python_numbers, check_positive, float_array, is_number, is_whole
from evenhand.model.labels import bounds_in_order, by_name, checked_bounds_by_name
from evenhand.model.region import ROUNDING

Array = NDArray[np.float64]

EPSILON = float(np.finfo(float).eps)
BOOLEANS = {"true": 1.0, "false": 0.0}  # outcomes that files spell as words, in any case


@dataclass(frozen=True)
class Family:
    """The base class of all families; a family overrides what differs."""

    name: ClassVar[str]
    code: ClassVar[int]
    outcomes: ClassVar[str]  # completes "outcomes must be ..."

    @property
    def low(self) -> float:
        """Return the number subtracted from an outcome before it is passed to the kernels."""
        return 0.0

    @property
    def width(self) -> float:
        """Return the number that an outcome is divided by before it is passed to the kernels."""
        return 1.0

    @property
    def open_below(self) -> bool:
        """Return whether the domain excludes its lower end: at mean 0 every gamma outcome would be 0."""
        return self.code == unit_families.EXPONENTIAL

    @property
    def domain(self) -> tuple[float, float]:
        """Return the smallest and largest mean; either may be infinite."""
        code = self.code
        return (
            self.low + self.width * uncompiled(unit_families.edge_low)(code),
            self.low + self.width * uncompiled(unit_families.edge_high)(code),
        )

    def dispersion(self, policies: int, groups: int) -> Array:
        """Return phi per cell, K x L: one sample is worth 1/phi unit samples."""
        return np.ones((policies, groups))

    def resolution(self, policies: int, groups: int) -> Array:
        """Return the difference in unit scale, K x L, that rounding alone can make between two means.

        Counts and shares have a scale of their own; subtracting `low` to reach it loses digits.
        """
        shifted = 4.0 * EPSILON * abs(self.low) / self.width
        return np.full((policies, groups), ROUNDING + shifted)

    def admits(self, outcomes: ArrayLike) -> NDArray[np.bool_]:
        """Return which of these numbers can be an outcome."""
        x = np.asarray(outcomes, dtype=float)
        return np.isfinite(x)

    def divergence(self, mu: ArrayLike, lam: ArrayLike) -> Array:
        """Return d(mu, lam) in nats per sample, elementwise."""
        mu, lam = np.broadcast_arrays(self.to_unit(mu), self.to_unit(lam))
        return _each(unit_families.divergence, self.code, mu, lam) / self._phi(mu)

    def variance(self, mean: ArrayLike) -> Array:
        """Return V, the variance of one outcome, for these means."""
        unit = self.to_unit(mean)
        return _each(uncompiled(unit_families.variance), self.code, unit) * self.width**2 * self._phi(unit)

    def up(self, mu: ArrayLike, s: ArrayLike) -> Array:
        """Return U(mu, s), which solves (lam - mu) / V(lam) = s for lam >= mu."""
        return self._tilted(unit_families.up, mu, s)

    def down(self, mu: ArrayLike, s: ArrayLike) -> Array:
        """Return D(mu, s), which solves (lam - mu) / V(lam) = -s for lam <= mu."""
        return self._tilted(unit_families.down, mu, s)

    def to_unit(self, mean: ArrayLike) -> Array:
        """Return means or outcomes in unit scale, as the kernels take them."""
        return (np.asarray(mean, dtype=float) - self.low) / self.width

    def in_order(self, policies: Sequence[str], groups: Sequence[str]) -> Family:
        """Return the family with parameters that were given by name put into the order of the problem."""
        return self

    def _tilted(self, kernel: Callable[..., float], mu: ArrayLike, s: ArrayLike) -> Array:
        # V is width^2 phi times the unit variance and lam - mu is width times the unit distance
        unit, rate = np.broadcast_arrays(self.to_unit(mu), np.asarray(s, dtype=float))
        return self.low + self.width * _each(kernel, self.code, unit, rate * self.width * self._phi(unit))

    def _phi(self, like: Array) -> Array:
        """Return the dispersion for these numbers: one value, or the K x L table for a K x L argument."""
        shape = like.shape if like.ndim == 2 else (1, 1)
        phi = self.dispersion(*shape)
        return phi if like.ndim == 2 else phi[0, 0]


def _each(kernel: Callable[..., float], code: int, *arguments: Array) -> Array:
    """Apply a unit kernel elementwise."""
    return np.asarray(np.vectorize(lambda *x: kernel(code, *x), otypes=[float])(*arguments), dtype=float)


@dataclass(frozen=True)
class Gaussian(Family):
    """Real outcomes with a known standard deviation.

    Parameters
    ----------
    sd : float, table, dict or frame
        The standard deviation: one number, a row per policy, or by name (by group, or by policy and group).

    Raises
    ------
    BadInput
        If a standard deviation is not positive and finite.

    Examples
    --------
    >>> import evenhand as eh
    >>> float(eh.Gaussian(0.5).variance(0.0))
    0.25
    """

    sd: float | tuple[tuple[float, ...], ...] | Mapping[str, Any] = 1.0
    name: ClassVar[str] = "gaussian"
    code: ClassVar[int] = unit_families.GAUSSIAN
    outcomes: ClassVar[str] = "finite numbers"

    def __init__(self, sd: ArrayLike | Mapping[str, Any] = 1.0) -> None:
        given = by_name(sd, "sd")
        if isinstance(given, Mapping):
            object.__setattr__(self, "sd", checked_bounds_by_name(given, "sd"))
            return
        values = _numbers(given, "sd")
        if values.ndim not in (0, 2) or not np.all(values > 0) or not np.all(np.isfinite(values)):
            raise BadInput(
                f"sd must be a positive finite number or a K x L table of them; it is {shown(sd)}."
            )
        object.__setattr__(self, "sd", _frozen(values))

    def in_order(self, policies: Sequence[str], groups: Sequence[str]) -> Gaussian:
        if not isinstance(self.sd, Mapping):
            return self
        table = np.asarray(bounds_in_order(self.sd, policies, groups, "sd"))
        return replace(self, sd=np.broadcast_to(table, (len(policies), len(groups))).tolist())

    def dispersion(self, policies: int, groups: int) -> Array:
        if isinstance(self.sd, Mapping):
            raise BadInput(
                "sd is given by name, and the names are those of a problem; make one with this family."
            )
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
    """Real outcomes, Gaussian, with an unknown variance in every cell.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.GaussianUnknown().outcomes
    'finite numbers'
    """

    name: ClassVar[str] = "gaussian-unknown"
    code: ClassVar[int] = unit_families.GAUSSIAN
    outcomes: ClassVar[str] = "finite numbers"

    def resolution(self, policies: int, groups: int) -> Array:
        return np.zeros((policies, groups))  # the sizes of the means alone say what their scale is


@dataclass(frozen=True)
class Bernoulli(Family):
    """Outcomes 0 or 1; False and True are taken for them.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.Bernoulli().admits([0, 1, 0.5]).tolist()
    [True, True, False]
    """

    name: ClassVar[str] = "bernoulli"
    code: ClassVar[int] = unit_families.BERNOULLI
    outcomes: ClassVar[str] = "0 or 1"

    def admits(self, outcomes: ArrayLike) -> NDArray[np.bool_]:
        x = np.asarray(outcomes, dtype=float)
        return (x == 0.0) | (x == 1.0)


@dataclass(frozen=True)
class Binomial(Family):
    """Outcomes that count successes in a known number of trials.

    Parameters
    ----------
    trials : int
        The number of trials behind every outcome, at least 1.

    Raises
    ------
    BadInput
        If `trials` is not a whole number of at least 1.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.Binomial(trials=10).domain
    (0.0, 10.0)
    """

    trials: int = 1
    name: ClassVar[str] = "binomial"
    code: ClassVar[int] = unit_families.BERNOULLI
    outcomes: ClassVar[str] = "whole numbers from 0 to trials"

    def __post_init__(self) -> None:
        if not is_whole(self.trials) or self.trials < 1:
            raise BadInput(f"trials must be a whole number, at least 1; it is {shown(self.trials)}.")
        as_python_numbers(self, "trials")

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
    """Outcomes that are counts without an upper limit.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.Poisson().domain
    (0.0, inf)
    """

    name: ClassVar[str] = "poisson"
    code: ClassVar[int] = unit_families.POISSON
    outcomes: ClassVar[str] = "whole numbers, 0 or more"

    def admits(self, outcomes: ArrayLike) -> NDArray[np.bool_]:
        x = np.asarray(outcomes, dtype=float)
        return np.isfinite(x) & (x >= 0) & (x == np.floor(x))


@dataclass(frozen=True)
class Gamma(Family):
    """Positive outcomes, gamma distributed with a known shape.

    Parameters
    ----------
    shape : float
        The shape, positive and finite.

    Raises
    ------
    BadInput
        If `shape` is not positive and finite.

    Examples
    --------
    >>> import evenhand as eh
    >>> float(eh.Gamma(shape=2.0).variance(4.0))
    8.0
    """

    shape: float = 1.0
    name: ClassVar[str] = "gamma"
    code: ClassVar[int] = unit_families.EXPONENTIAL
    outcomes: ClassVar[str] = "positive finite numbers"

    def __post_init__(self) -> None:
        check_positive(self.shape, "shape")
        as_python_numbers(self, "shape")

    def dispersion(self, policies: int, groups: int) -> Array:
        return np.full((policies, groups), 1.0 / self.shape)

    def resolution(self, policies: int, groups: int) -> Array:
        return np.zeros((policies, groups))  # only ratios of means have a scale

    def admits(self, outcomes: ArrayLike) -> NDArray[np.bool_]:
        x = np.asarray(outcomes, dtype=float)
        return np.isfinite(x) & (x > 0)


@dataclass(frozen=True)
class Exponential(Gamma):
    """Positive outcomes, exponentially distributed: gamma with shape 1.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.Exponential().shape
    1.0
    """

    shape: float = field(default=1.0, init=False, repr=False)
    name: ClassVar[str] = "exponential"


@dataclass(frozen=True)
class Bounded(Family):
    """Outcomes anywhere in [low, high], of any distribution.

    Distances are Bernoulli divergences of the rescaled means.

    Parameters
    ----------
    low, high : float
        The ends of the range, finite, `low` below `high`.

    Raises
    ------
    BadInput
        If the ends are not finite numbers, or `low` is not below `high`.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.Bounded(0, 5).domain
    (0.0, 5.0)
    """

    low: float = 0.0
    high: float = 1.0
    name: ClassVar[str] = "bounded"
    code: ClassVar[int] = unit_families.BERNOULLI
    outcomes: ClassVar[str] = "numbers from low to high"

    def __post_init__(self) -> None:
        if not (is_number(self.low) and is_number(self.high) and self.low < self.high):
            raise BadInput(
                f"low must be below high, both finite; they are {shown(self.low)} and {shown(self.high)}."
            )
        object.__setattr__(self, "low", float(self.low))
        object.__setattr__(self, "high", float(self.high))

    @property
    def width(self) -> float:
        return self.high - self.low

    def admits(self, outcomes: ArrayLike) -> NDArray[np.bool_]:
        x = np.asarray(outcomes, dtype=float)
        return (x >= self.low) & (x <= self.high)


FAMILIES: dict[str, type[Family]] = {
    family.name: family
    for family in (Gaussian, Bernoulli, Binomial, Poisson, Exponential, Gamma, Bounded, GaussianUnknown)
}


def _numbers(value: ArrayLike, what: str) -> Array:
    try:
        return float_array(value)
    except (TypeError, ValueError, OverflowError):
        raise BadInput(f"{what} must be a number or a table of numbers; it is {shown(value)}.") from None


def _frozen(values: Array) -> Any:
    """Return nested tuples instead of an array, so that the family can be hashed and compared."""
    return tuple(map(tuple, values.tolist())) if values.ndim == 2 else values.tolist()
