"""Requirements on the group means of a policy: a closed set, plus `Convex` for a convex set of your own.

A requirement checks its numbers when it is made. A problem turns it into a `Region` in unit scale, with its
K, L, shares and the scale of its family. Bounds are one number, one per group, K x L, or by name; floors and
caps may also be relative to a control policy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput, shown
from evenhand.model import region as regions
from evenhand.model import relative_requirements
from evenhand.model.argument_checks import (
    Scale,
    as_python_numbers,
    check_positive,
    checked_table,
    flag,
    in_words,
    is_number,
    is_whole,
    per_cell,
)
from evenhand.model.labels import bounds_in_order, by_name, checked_bounds, checked_bounds_by_name
from evenhand.model.region import Region, check_interior, intersection

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Constraint:
    """The base class of requirements on the vector of group means of a policy."""

    kind: ClassVar[str]

    def region(self, scale: Scale) -> Region:
        """Return the requirement in unit scale."""
        raise BadInput(f"a requirement of kind {shown(self.kind)} has no region.")

    def describe(self) -> str:
        """Return the requirement in words, completing 'every policy must ...'."""
        raise BadInput(f"a requirement of kind {shown(self.kind)} has no description.")

    def in_order(self, policies: Sequence[str], groups: Sequence[str]) -> Constraint:
        """Return the requirement with numbers that were given by name put into the order of the problem."""
        changed = {
            name: bounds_in_order(value, policies, groups, name)
            for name, value in vars(self).items()
            if isinstance(value, Mapping)
        }
        return replace(self, **changed) if changed else self


@dataclass(frozen=True)
class NoConstraint(Constraint):
    """No requirement: the policy with the best overall mean is the answer.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.NoConstraint().describe()
    'meet nothing in particular'
    """

    kind: ClassVar[str] = "none"

    def region(self, scale: Scale) -> Region:
        return regions.region(regions.BOX, scale.groups, scale.policies)

    def describe(self) -> str:
        return "meet nothing in particular"


@dataclass(frozen=True)
class Floors(Constraint):
    """Floors: the mean of every group is at least this much.

    Relative to a control policy the floor is its mean times `ratio`, less `margin`.

    Parameters
    ----------
    at_least : float, list, dict or frame, optional
        The floor: one number, one per group, a row per policy, or by name.
    relative_to : str, optional
        The control policy. The control itself is exempt from the bound.
    margin : float, list, dict or series, optional
        How far below the control a policy may be; one number, one per group, or by group name.
    ratio : float, list, dict or series, optional
        The fraction of the mean of the control that a policy must reach; one number, one per group,
        or by group name.

    Raises
    ------
    BadInput
        If a number is not finite, or absolute and relative arguments are mixed.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.Floors(0.8).describe()
    'reach 0.8 in every group'
    >>> eh.Floors({"young": 0.8, "old": 0.7}).describe()
    'reach 0.7 to 0.8 in every group'
    >>> eh.Floors(relative_to="standard", margin=0.02).describe()
    'fall no more than 0.02 below standard in any group'
    """

    at_least: Any = None
    relative_to: str | None = field(default=None, kw_only=True)
    margin: Any = field(default=None, kw_only=True)
    ratio: Any = field(default=None, kw_only=True)
    kind: ClassVar[str] = "floors"

    def __post_init__(self) -> None:
        given = (self.at_least, self.relative_to, self.margin, self.ratio)
        _put(
            self,
            ("at_least", "margin", "ratio"),
            relative_requirements.checked(self.kind, "at_least", *given),
        )
        as_python_numbers(self, "relative_to")

    def region(self, scale: Scale) -> Region:
        if self.relative_to is not None:
            return relative_requirements.region(self.relative_to, self.margin, self.ratio, 1.0, scale)
        lo = per_cell(self.at_least, "floor", scale)
        return regions.region(regions.BOX, scale.groups, scale.policies, lo=lo)

    def describe(self) -> str:
        if self.relative_to is not None:
            return relative_requirements.describe_floors(self.relative_to, self.margin, self.ratio)
        return f"reach {in_words(self.at_least)} in every group"


@dataclass(frozen=True)
class Caps(Constraint):
    """Caps: the mean of every group is at most this much.

    Relative to a control policy the cap is its mean times `ratio`, plus `margin`.

    Parameters
    ----------
    at_most : float, list, dict or frame, optional
        The cap: one number, one per group, a row per policy, or by name.
    relative_to : str, optional
        The control policy. The control itself is exempt from the bound.
    margin : float, list, dict or series, optional
        How far above the control a policy may be; one number, one per group, or by group name.
    ratio : float, list, dict or series, optional
        The multiple of the mean of the control that a policy may reach; one number, one per group,
        or by group name.

    Raises
    ------
    BadInput
        If a number is not finite, or absolute and relative arguments are mixed.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.Caps([0.1, 0.2]).describe()
    'stay at or below 0.1 to 0.2 in every group'
    """

    at_most: Any = None
    relative_to: str | None = field(default=None, kw_only=True)
    margin: Any = field(default=None, kw_only=True)
    ratio: Any = field(default=None, kw_only=True)
    kind: ClassVar[str] = "caps"

    def __post_init__(self) -> None:
        given = (self.at_most, self.relative_to, self.margin, self.ratio)
        _put(
            self, ("at_most", "margin", "ratio"), relative_requirements.checked(self.kind, "at_most", *given)
        )
        as_python_numbers(self, "relative_to")

    def region(self, scale: Scale) -> Region:
        if self.relative_to is not None:
            return relative_requirements.region(self.relative_to, self.margin, self.ratio, -1.0, scale)
        hi = per_cell(self.at_most, "cap", scale)
        return regions.region(regions.BOX, scale.groups, scale.policies, hi=hi)

    def describe(self) -> str:
        if self.relative_to is not None:
            return relative_requirements.describe_caps(self.relative_to, self.margin, self.ratio)
        return f"stay at or below {in_words(self.at_most)} in every group"


@dataclass(frozen=True)
class Gap(Constraint):
    """The largest group mean exceeds the smallest by at most this much.

    Parameters
    ----------
    at_most : float
        The largest difference allowed, positive.

    Raises
    ------
    BadInput
        If `at_most` is not a positive finite number.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.Gap(0.1).describe()
    'keep the largest and smallest group mean within 0.1'
    """

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
    """The smallest group mean is at least this fraction of the largest (0.8: the four-fifths rule).

    Parameters
    ----------
    at_least : float
        The fraction, strictly between 0 and 1.

    Raises
    ------
    BadInput
        If `at_least` does not lie strictly between 0 and 1.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.Ratio(0.8).describe()
    'keep the smallest group mean at 0.8 of the largest or more'
    """

    at_least: float
    kind: ClassVar[str] = "ratio"

    def __post_init__(self) -> None:
        if not (is_number(self.at_least) and 0 < self.at_least < 1):
            raise BadInput(
                f"the ratio's at_least must lie strictly between 0 and 1; it is {shown(self.at_least)}."
            )
        object.__setattr__(self, "at_least", float(self.at_least))

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
    """At least this number of groups, or this share of them, reach the floor.

    Parameters
    ----------
    at_least : float, list, dict or frame
        The floor: one number, one per group, a row per policy, or by name.
    groups : int, optional
        How many groups must reach it.
    share : float, optional
        Which share of the groups must reach it, rounded up. Give `groups` or `share`, not both.

    Raises
    ------
    BadInput
        If both or neither of `groups` and `share` are given, or a number is out of range.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.Quota(0.7, groups=2).describe()
    'reach 0.7 in at least 2 groups'
    """

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
            raise BadInput(
                f"the quota's groups must be a whole number, at least 1; it is {shown(self.groups)}."
            )
        if self.share is not None and not (is_number(self.share) and 0 < self.share <= 1):
            raise BadInput(f"the quota's share must lie in (0, 1]; it is {shown(self.share)}.")
        as_python_numbers(self, "groups", "share")

    def needed(self, groups: int) -> int:
        """Return how many of this many groups must reach the floor."""
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
    """Group means stay near their share-weighted mean. example:variance_fairness.

    Parameters
    ----------
    at_most : float
        The largest sum, over groups, of squared distances to the share-weighted mean.
    weighted : bool
        Whether the distances are weighted by the shares.

    Raises
    ------
    BadInput
        If `at_most` is not a positive finite number.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.Dispersion(0.01).kind
    'dispersion'
    """

    at_most: float
    weighted: bool = False
    kind: ClassVar[str] = "dispersion"

    def __post_init__(self) -> None:
        check_positive(self.at_most, "the dispersion's at_most")
        flag(self.weighted, "weighted")
        as_python_numbers(self, "at_most", "weighted")

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
    """Linear conditions A m >= b on the vector m of group means.

    Parameters
    ----------
    A : list of lists
        A row per condition, a column per group in the order of the problem.
    b : list
        The right-hand side, one number per condition.

    Raises
    ------
    BadInput
        If the shapes do not fit, or a row of `A` is all zeros.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.Polyhedron([[1, -1]], [-0.1]).describe()
    'satisfy 1 linear condition on its group means'
    """

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
        conditions = "condition" if len(self.b) == 1 else "conditions"
        return f"satisfy {len(self.b)} linear {conditions} on its group means"


@dataclass(frozen=True)
class All(Constraint):
    """Several requirements at once.

    Parameters
    ----------
    of : sequence of requirements
        Floors, caps, gap, ratio, quota, dispersion, polyhedron or none.

    Raises
    ------
    BadInput
        If there is none, or one of them cannot be joined.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.All((eh.Floors(0.5), eh.Gap(0.1))).describe()
    'reach 0.5 in every group, and keep the largest and smallest group mean within 0.1'
    """

    of: tuple[Constraint, ...]
    kind: ClassVar[str] = "all"

    def __post_init__(self) -> None:
        if not isinstance(self.of, (list, tuple)):
            raise BadInput(f"'of' must be a list of requirements; it is {shown(self.of)}.")
        parts = tuple(self.of)
        if not parts:
            raise BadInput("'all' needs at least one requirement in 'of'; it has none.")
        for part in parts:
            if isinstance(part, (Penalty, Convex)) or not isinstance(part, Constraint):
                raise BadInput(
                    "'all' takes floors, caps, gap, ratio, quota, dispersion, polyhedron and none; "
                    f"it got {shown(getattr(part, 'kind', part))}."
                )
        object.__setattr__(self, "of", parts)

    def region(self, scale: Scale) -> Region:
        parts = [part.region(scale) for part in self._flat()]
        boxes = [p for p in parts if p.kind == regions.BOX]
        others = [p for p in parts if p.kind not in (regions.BOX, regions.RELATIVE)]
        relatives = [p for p in parts if p.kind == regions.RELATIVE]
        if relatives and others:
            raise BadInput(
                "floors and caps relative to a policy can be joined with floors and caps only; "
                "'all' has others too."
            )
        lo = np.max([b.lo for b in boxes], axis=0) if boxes else None
        hi = np.min([b.hi for b in boxes], axis=0) if boxes else None
        if lo is not None and hi is not None and np.any(lo >= hi):
            raise BadInput("the floors must lie below the caps in every cell; somewhere they do not.")
        if relatives:
            return relative_requirements.joined(relatives, lo, hi, scale)
        if not others and boxes:
            return regions.region(regions.BOX, scale.groups, scale.policies, lo=lo, hi=hi)
        if len(others) == 1 and not boxes:
            return others[0]
        return intersection(lo, hi, others, scale)

    def in_order(self, policies: Sequence[str], groups: Sequence[str]) -> All:
        return All(tuple(part.in_order(policies, groups) for part in self.of))

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
    """The soft form of floors: a shortfall in a group lowers the overall mean of a policy.

    The overall mean falls by gamma times the shortfall, weighted by the share of the group.

    Parameters
    ----------
    floor : float, list, dict or series
        The floor: one number, one per group, or by group name.
    gamma : float, list, dict or series
        The price of a unit of shortfall, at least 0: one number, one per group, or by group name.

    Raises
    ------
    BadInput
        If a number is not finite, or gamma is negative.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.Penalty(floor=0.7, gamma=2.0).describe()
    'pay 2 per unit of shortfall below 0.7 in a group'
    """

    floor: Any
    gamma: Any
    kind: ClassVar[str] = "penalty"

    def __post_init__(self) -> None:
        object.__setattr__(self, "floor", checked_bounds(self.floor, "floor"))
        given = by_name(self.gamma, "gamma")
        if isinstance(given, Mapping):
            object.__setattr__(self, "gamma", checked_bounds_by_name(given, "gamma"))
            return
        gamma = checked_table(given, "gamma")
        if gamma.ndim > 1 or not np.all(gamma >= 0):
            raise BadInput(
                f"gamma must be a number of at least 0, or one per group; it is {shown(self.gamma)}."
            )
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
    """A convex set of your own, for plans: cvxpy solves it, the compiled procedures do not take it.

    Parameters
    ----------
    build : callable
        `build(m)` returns cvxpy constraints on the vector m of group means, in your own units.
    contains : callable
        `contains(m)` returns whether a vector of group means is inside.
    words : str
        The requirement in words, completing 'every policy must ...'.

    Raises
    ------
    BadInput
        If `build` or `contains` cannot be called.

    Examples
    --------
    >>> import evenhand as eh
    >>> ball = eh.Convex(lambda m: [(m - 0.5) @ (m - 0.5) <= 0.04],
    ...                  lambda m: ((m - 0.5) ** 2).sum() <= 0.04, "lie near one half")
    >>> ball.describe()
    'lie near one half'
    """

    build: Callable[[Any], list[Any]] = field(compare=False)
    contains: Callable[[Array], bool] = field(compare=False)
    words: str = "lie in a convex set of the user's"
    kind: ClassVar[str] = "convex"

    def __post_init__(self) -> None:
        for name in ("build", "contains"):
            if not callable(getattr(self, name)):
                raise BadInput(
                    f"{name} must be a function of the group means; it is {shown(getattr(self, name))}."
                )

    def region(self, scale: Scale) -> Region:
        return regions.region(regions.CUSTOM, scale.groups, scale.policies)

    def describe(self) -> str:
        return self.words


def _put(requirement: Constraint, names: tuple[str, ...], values: tuple[Any, ...]) -> None:
    """Set the fields of a frozen requirement while it is being made."""
    for name, value in zip(names, values, strict=True):
        object.__setattr__(requirement, name, value)


def bounds_of(constraint: Constraint) -> Iterator[Floors | Caps]:
    """Yield the floors and caps that a requirement is made of, those within 'all' one by one."""
    if isinstance(constraint, (Floors, Caps)):
        yield constraint
    elif isinstance(constraint, All):
        for part in constraint.of:
            yield from bounds_of(part)


CONSTRAINTS: dict[str, type[Constraint]] = {
    constraint.kind: constraint
    for constraint in (NoConstraint, Floors, Caps, Gap, Ratio, Quota, Dispersion, Polyhedron, All, Penalty)
}
