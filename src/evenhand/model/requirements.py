"""Requirements: what every policy must meet in every group. A closed set, plus `Convex` for a user's own
convex set.

Each noun checks its own numbers when made, and turns itself into a `Region` in unit scale when a problem
asks: the problem knows K, L, the shares and the family's scale. Bounds may be one number, one per group, or K
x L; floors and caps may also be relative to a control policy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput
from evenhand.model import region as regions
from evenhand.model import relative
from evenhand.model.bounds import (
    Scale,
    check_positive,
    checked_bounds,
    checked_table,
    in_words,
    is_number,
    is_whole,
    per_cell,
)
from evenhand.model.region import Region, check_interior, intersection

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Constraint:
    """A requirement on a policy's vector of group means."""

    kind: ClassVar[str]

    def region(self, scale: Scale) -> Region:
        """The requirement in unit scale."""
        raise BadInput(f"a requirement of kind {self.kind!r} has no region.")

    def describe(self) -> str:
        """The requirement in words, completing 'every policy must ...'."""
        raise BadInput(f"a requirement of kind {self.kind!r} has no description.")


@dataclass(frozen=True)
class NoConstraint(Constraint):
    """Nothing is required: the best overall mean wins."""

    kind: ClassVar[str] = "none"

    def region(self, scale: Scale) -> Region:
        return regions.region(regions.BOX, scale.groups, scale.policies)

    def describe(self) -> str:
        return "meet nothing in particular"


@dataclass(frozen=True)
class Floors(Constraint):
    """Every group's mean is at least this; or, relative to a control, its mean times ratio less margin.

    The control is exempt from the bound that is relative to it.
    """

    at_least: Any = None
    relative_to: str | None = field(default=None, kw_only=True)
    margin: Any = field(default=None, kw_only=True)
    ratio: Any = field(default=None, kw_only=True)
    kind: ClassVar[str] = "floors"

    def __post_init__(self) -> None:
        given = (self.at_least, self.relative_to, self.margin, self.ratio)
        _put(self, ("at_least", "margin", "ratio"), relative.checked(self.kind, "at_least", *given))

    def region(self, scale: Scale) -> Region:
        if self.relative_to is not None:
            return relative.region(self.relative_to, self.margin, self.ratio, 1.0, scale)
        lo = per_cell(self.at_least, "floor", scale)
        return regions.region(regions.BOX, scale.groups, scale.policies, lo=lo)

    def describe(self) -> str:
        if self.relative_to is not None:
            return relative.describe_floors(self.relative_to, self.margin, self.ratio)
        return f"reach {in_words(self.at_least)} in every group"


@dataclass(frozen=True)
class Caps(Constraint):
    """Every group's mean is at most this; or, relative to a control, its mean times ratio plus margin.

    The control is exempt from the bound that is relative to it.
    """

    at_most: Any = None
    relative_to: str | None = field(default=None, kw_only=True)
    margin: Any = field(default=None, kw_only=True)
    ratio: Any = field(default=None, kw_only=True)
    kind: ClassVar[str] = "caps"

    def __post_init__(self) -> None:
        given = (self.at_most, self.relative_to, self.margin, self.ratio)
        _put(self, ("at_most", "margin", "ratio"), relative.checked(self.kind, "at_most", *given))

    def region(self, scale: Scale) -> Region:
        if self.relative_to is not None:
            return relative.region(self.relative_to, self.margin, self.ratio, -1.0, scale)
        hi = per_cell(self.at_most, "cap", scale)
        return regions.region(regions.BOX, scale.groups, scale.policies, hi=hi)

    def describe(self) -> str:
        if self.relative_to is not None:
            return relative.describe_caps(self.relative_to, self.margin, self.ratio)
        return f"stay at or below {in_words(self.at_most)} in every group"


@dataclass(frozen=True)
class Gap(Constraint):
    """The best-served group's mean exceeds the worst-served group's by at most this."""

    at_most: float
    kind: ClassVar[str] = "gap"

    def __post_init__(self) -> None:
        check_positive(self.at_most, "the gap's at_most")
        object.__setattr__(self, "at_most", float(self.at_most))

    def region(self, scale: Scale) -> Region:
        slack = self.at_most / scale.width
        return regions.region(regions.SPREAD, scale.groups, scale.policies, rho=1.0, slack=slack)

    def describe(self) -> str:
        return f"keep the largest and smallest group mean within {self.at_most:g}"


@dataclass(frozen=True)
class Ratio(Constraint):
    """The worst-served group's mean is at least this fraction of the best-served group's (the four-fifths
    rule at 0.8).
    """

    at_least: float
    kind: ClassVar[str] = "ratio"

    def __post_init__(self) -> None:
        if not (is_number(self.at_least) and 0 < self.at_least < 1):
            raise BadInput(f"the ratio's at_least must lie strictly between 0 and 1; it is {self.at_least}.")

    def region(self, scale: Scale) -> Region:
        if scale.domain[1] <= 0:
            raise BadInput("a ratio needs means that can be positive; this family's cannot.")
        # low + width p >= rho (low + width p')  <=>  p >= rho p' - (1 - rho) low / width
        slack = (1.0 - self.at_least) * scale.low / scale.width
        return regions.region(
            regions.SPREAD, scale.groups, scale.policies, rho=float(self.at_least), slack=slack
        )

    def describe(self) -> str:
        return f"keep the smallest group mean at {self.at_least:g} of the largest or more"


@dataclass(frozen=True)
class Quota(Constraint):
    """At least so many groups (or this share of the groups, rounded up) reach the floor."""

    at_least: Any
    groups: int | None = None
    share: float | None = None
    kind: ClassVar[str] = "quota"

    def __post_init__(self) -> None:
        object.__setattr__(self, "at_least", checked_bounds(self.at_least, "at_least"))
        if (self.groups is None) == (self.share is None):
            raise BadInput(
                "a quota takes either groups (how many) or share (which share of them); give exactly one."
            )
        if self.groups is not None and (not is_whole(self.groups) or self.groups < 1):
            raise BadInput(f"the quota's groups must be a whole number, at least 1; it is {self.groups}.")
        if self.share is not None and not (is_number(self.share) and 0 < self.share <= 1):
            raise BadInput(f"the quota's share must lie in (0, 1]; it is {self.share}.")

    def needed(self, groups: int) -> int:
        """How many of so many groups must reach the floor."""
        if self.share is not None:
            return math.ceil(self.share * groups - 1e-9)
        assert self.groups is not None
        if self.groups > groups:
            raise BadInput(f"the quota asks for {self.groups} groups, but there are only {groups}.")
        return int(self.groups)

    def region(self, scale: Scale) -> Region:
        lo = per_cell(self.at_least, "floor", scale)
        need = self.needed(scale.groups)
        if need == scale.groups:
            return regions.region(regions.BOX, scale.groups, scale.policies, lo=lo)
        return regions.region(regions.QUOTA, scale.groups, scale.policies, lo=lo, need=need)

    def describe(self) -> str:
        many = f"{self.groups} groups" if self.groups is not None else f"{self.share:.0%} of the groups"
        return f"reach {in_words(self.at_least)} in at least {many}"


@dataclass(frozen=True)
class Dispersion(Constraint):
    """Group means stay near their overall mean. example:variance_fairness.

    The sum over groups of squared distances to the share-weighted mean is at most this (weighted by shares if
    asked).
    """

    at_most: float
    weighted: bool = False
    kind: ClassVar[str] = "dispersion"

    def __post_init__(self) -> None:
        check_positive(self.at_most, "the dispersion's at_most")
        if not isinstance(self.weighted, bool):
            raise BadInput(f"weighted must be true or false; it is {self.weighted!r}.")

    def region(self, scale: Scale) -> Region:
        centre = np.eye(scale.groups) - np.outer(np.ones(scale.groups), scale.shares)
        weight = np.diag(scale.shares) if self.weighted else np.eye(scale.groups)
        quad = centre.T @ weight @ centre
        limit = self.at_most / scale.width**2
        return regions.region(
            regions.DISPERSION, scale.groups, scale.policies, quad=(quad + quad.T) / 2, limit=limit
        )

    def describe(self) -> str:
        how = "share-weighted " if self.weighted else ""
        spread = f"{how}sum of squared distances of its group means to their average"
        return f"keep the {spread} at or below {self.at_most:g}"


@dataclass(frozen=True)
class Polyhedron(Constraint):
    """A m >= b for the vector m of group means."""

    A: Any
    b: Any
    kind: ClassVar[str] = "polyhedron"

    def __post_init__(self) -> None:
        rows, rhs = np.atleast_2d(checked_table(self.A, "A")), np.atleast_1d(checked_table(self.b, "b"))
        if rows.ndim != 2 or rhs.ndim != 1 or rows.shape[0] != rhs.shape[0] or rows.size == 0:
            raise BadInput(f"A needs a row for each entry of b; A is {rows.shape}, b has {rhs.size} entries.")
        if not np.all(np.any(rows != 0, axis=1)):
            raise BadInput("every row of A needs an entry that is not 0.")
        object.__setattr__(self, "A", tuple(map(tuple, rows.tolist())))
        object.__setattr__(self, "b", tuple(rhs.tolist()))

    def region(self, scale: Scale) -> Region:
        rows, rhs = np.array(self.A), np.array(self.b)
        if rows.shape[1] != scale.groups:
            raise BadInput(f"A needs a column per group, {scale.groups}; it has {rows.shape[1]}.")
        unit = (rhs - scale.low * rows.sum(axis=1)) / scale.width
        rhs_per_policy = np.repeat(unit[:, None], scale.policies, axis=1)
        found = regions.region(regions.CONVEX, scale.groups, scale.policies, rows=rows, rhs=rhs_per_policy)
        check_interior(found, scale)
        return found

    def describe(self) -> str:
        return f"satisfy {len(self.b)} linear conditions on its group means"


@dataclass(frozen=True)
class All(Constraint):
    """All of these at once."""

    of: tuple[Constraint, ...]
    kind: ClassVar[str] = "all"

    def __post_init__(self) -> None:
        parts = tuple(self.of)
        if not parts:
            raise BadInput("'all' needs at least one requirement in 'of'; it has none.")
        for part in parts:
            if isinstance(part, (Penalty, Convex)) or not isinstance(part, Constraint):
                raise BadInput(
                    "'all' takes floors, caps, gap, ratio, quota, dispersion, polyhedron and none; "
                    f"it got {getattr(part, 'kind', part)!r}."
                )
        object.__setattr__(self, "of", parts)

    def region(self, scale: Scale) -> Region:
        parts = [part.region(scale) for part in self._flat()]
        boxes = [p for p in parts if p.kind == regions.BOX]
        others = [p for p in parts if p.kind not in (regions.BOX, regions.RELATIVE)]
        moving = [p for p in parts if p.kind == regions.RELATIVE]
        if moving and others:
            raise BadInput(
                "floors and caps relative to a policy can be joined with floors and caps only; "
                "'all' has others too."
            )
        lo = np.max([b.lo for b in boxes], axis=0) if boxes else None
        hi = np.min([b.hi for b in boxes], axis=0) if boxes else None
        if lo is not None and hi is not None and np.any(lo >= hi):
            raise BadInput("the floors must lie below the caps in every cell; somewhere they do not.")
        if moving:
            return relative.joined(moving, lo, hi, scale)
        if not others and boxes:
            return regions.region(regions.BOX, scale.groups, scale.policies, lo=lo, hi=hi)
        if len(others) == 1 and not boxes:
            return others[0]
        return intersection(lo, hi, others, scale)

    def _flat(self) -> Iterator[Constraint]:
        for part in self.of:
            if isinstance(part, All):
                yield from part._flat()
            else:
                yield part

    def describe(self) -> str:
        return ", and ".join(part.describe() for part in self.of)


@dataclass(frozen=True)
class Penalty(Constraint):
    """The soft form: falling short of the floor in a group costs gamma times the shortfall, weighted by the
    group's share.
    """

    floor: Any
    gamma: Any
    kind: ClassVar[str] = "penalty"

    def __post_init__(self) -> None:
        object.__setattr__(self, "floor", checked_bounds(self.floor, "floor"))
        gamma = checked_table(self.gamma, "gamma")
        if gamma.ndim > 1 or not np.all(gamma >= 0):
            raise BadInput(f"gamma must be a number of at least 0, or one per group; it is {self.gamma}.")
        object.__setattr__(self, "gamma", gamma.tolist() if gamma.ndim == 0 else tuple(gamma.tolist()))

    def region(self, scale: Scale) -> Region:
        lo = per_cell(self.floor, "floor", scale)
        if np.any(lo != lo[:, :1]):
            raise BadInput("the penalty's floor must be one number or one per group, not per policy.")
        gamma = np.asarray(self.gamma, dtype=float)
        if gamma.ndim == 1 and gamma.size != scale.groups:
            raise BadInput(f"gamma needs an entry per group, {scale.groups}; it has {gamma.size}.")
        gamma = np.broadcast_to(gamma, (scale.groups,)).copy()
        return regions.region(regions.PENALTY, scale.groups, scale.policies, lo=lo, gamma=gamma)

    def describe(self) -> str:
        return f"pay {in_words(self.gamma)} per unit of shortfall below {in_words(self.floor)} in a group"


@dataclass(frozen=True)
class Convex(Constraint):
    """A convex set of your own: `build(m)` returns cvxpy constraints on the vector m of group means, in your
    own units.

    `contains(m)` says whether a vector is inside. Solved by cvxpy: slow, and closed to the compiled
    simulator.
    """

    build: Callable[[Any], list[Any]] = field(compare=False)
    contains: Callable[[Array], bool] = field(compare=False)
    words: str = "lie in a convex set of the user's"
    kind: ClassVar[str] = "convex"

    def region(self, scale: Scale) -> Region:
        return regions.region(regions.CUSTOM, scale.groups, scale.policies)

    def describe(self) -> str:
        return self.words


def _put(noun: Constraint, names: tuple[str, ...], values: tuple[Any, ...]) -> None:
    """Set the fields of a frozen noun while it is being made."""
    for name, value in zip(names, values, strict=True):
        object.__setattr__(noun, name, value)


def bounds_of(constraint: Constraint) -> Iterator[Floors | Caps]:
    """The floors and caps that a requirement is made of, those within 'all' one by one."""
    if isinstance(constraint, (Floors, Caps)):
        yield constraint
    elif isinstance(constraint, All):
        for part in constraint.of:
            yield from bounds_of(part)


CONSTRAINTS: dict[str, type[Constraint]] = {
    constraint.kind: constraint
    for constraint in (NoConstraint, Floors, Caps, Gap, Ratio, Quota, Dispersion, Polyhedron, All, Penalty)
}
