"""Problem: policies, groups and their shares, outcome family, requirement, guard-rails and sampling mode."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.errors import BadInput, is_one_of, nearest, shown
from evenhand.model import region as regions
from evenhand.model.argument_checks import Scale, float_array, is_number, is_whole
from evenhand.model.families import Family
from evenhand.model.frozen_dict import FrozenDict
from evenhand.model.guardrails import Guardrail, checked_guardrails
from evenhand.model.labels import by_name, cells_in_order, cost_table
from evenhand.model.mean_checks import (
    checked_guardrail_means,
    checked_indifference,
    checked_means,
    loosened,
    refuse_negative_control,
    tolerance_per_group,
)
from evenhand.model.region import Region
from evenhand.model.requirements import Constraint, Convex, NoConstraint, Penalty, bounds_of

Array = NDArray[np.float64]
T = TypeVar("T")

MODES = ("active", "proportional", "agnostic")
GOALS = ("best", "screen")
SHARES_TOLERANCE = 1e-6


JOINED = ", "  # between the values that name a group of several columns
NOBODY = "none"  # the answer "none of the policies" where answers are counted by name
ONE_FAMILY = (
    "All groups have one family: give another kind of outcome as a guard-rail, or rescale outcomes to a "
    "common range and use the bounded family."
)
NEVER_ARRIVES = (
    "every group must arrive with a positive share; one never arrives, so there are no data about it."
)


class Standard(NamedTuple):
    """A problem as the kernels take it: unit scale, arrays (L, K)."""

    code: int  # unit family
    shares: Array  # (L,)
    phi: Array  # (L, K): one sample is worth 1/phi unit samples
    region: Region


@dataclass(frozen=True)
class Problem:
    """The question: which policy has the best overall mean among those that meet the requirement?

    A problem cannot be changed and can be hashed; `dataclasses.replace` makes another one.

    Parameters
    ----------
    policies : sequence of str
        The names of the candidates, at least two (one with the goal "screen" or with `max_policies`).
    groups : mapping
        The share of the population of every group, by name; the shares sum to 1.
    family : Family
        What outcomes are: `Bernoulli()`, `Gaussian(sd)` and so on.
    constraint : Constraint, optional
        What every policy must meet: `Floors(0.8)`, `Gap(0.1)` and so on; nothing unless given.
    mode : {"active", "proportional", "agnostic"}
        Whether the group of a sample can be chosen, only the policy within an arriving group, or only the
        policy before the group is known.
    arrivals : mapping, optional
        How often each group arrives in the two other modes; the shares unless given.
    costs : mapping, table or frame, optional
        The cost of one sample by policy, by group, or K x L; 1 unless given.
    normalise : bool
        Whether to rescale shares that do not sum to 1.
    guardrails : sequence of Guardrail
        Further outcomes of every sample, with requirements of their own.
    goal : {"best", "screen"}
        Choose the best policy, or find out of every policy whether it meets the requirement.
    max_policies : int, optional
        How many policies there may ever be, if some join or leave a live experiment: its threshold covers
        that many from the start.
    by : sequence of str
        The columns of data files that give the group, if there are several: a group is then named by their
        values, such as "north, young".

    Raises
    ------
    BadInput
        If a name, share or number cannot be used; the message says which and what to do.

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["old", "new"], {"young": 0.7, "elderly": 0.3}, eh.Bernoulli(), eh.Floors(0.4))
    >>> problem.shape
    (2, 2)
    >>> means = {"new": {"elderly": 0.1, "young": 0.9}, "old": {"young": 0.8, "elderly": 0.75}}
    >>> problem.policies[problem.answer(means)]
    'old'
    """

    policies: tuple[str, ...]
    groups: Mapping[str, float]
    family: Family
    constraint: Constraint = field(default_factory=NoConstraint)
    mode: str = "active"
    arrivals: Mapping[str, float] | None = None
    costs: tuple[tuple[float, ...], ...] | None = None  # K x L, what one sample costs; all 1 where absent
    guardrails: tuple[Guardrail, ...] = ()
    goal: str = "best"
    max_policies: int | None = None  # how many policies there may ever be, if some join or leave
    by: tuple[str, ...] = ()  # columns of data files that together give the group

    def __init__(
        self,
        policies: Sequence[str],
        groups: Mapping[str, float],
        family: Family,
        constraint: Constraint | None = None,
        mode: str = "active",
        arrivals: Mapping[str, float] | None = None,
        costs: ArrayLike | Mapping[str, Any] | None = None,
        normalise: bool = False,
        *,
        guardrails: Sequence[Guardrail] = (),
        goal: str = "best",
        max_policies: int | None = None,
        by: Sequence[str] = (),
    ) -> None:
        put = object.__setattr__
        if not is_one_of(goal, GOALS):
            raise BadInput(
                f"goal must be one of {', '.join(GOALS)}; it is {shown(goal)}{nearest(str(goal), GOALS)}"
            )
        put(self, "goal", goal)
        fewest = 1 if goal == "screen" or max_policies is not None else 2
        put(self, "policies", _names(policies, "policies", at_least=fewest))
        if NOBODY in self.policies:
            raise BadInput(f"a policy cannot be called {NOBODY!r}: answers say so where no policy is one.")
        put(self, "groups", _shares(groups, "shares", normalise))
        put(self, "family", _checked(family, Family, "family").in_order(self.policies, self.group_names))
        asked = NoConstraint() if constraint is None else _checked(constraint, Constraint, "constraint")
        put(self, "constraint", asked.in_order(self.policies, self.group_names))
        if not is_one_of(mode, MODES):
            raise BadInput(
                f"mode must be one of {', '.join(MODES)}; it is {shown(mode)}{nearest(str(mode), MODES)}"
            )
        put(self, "mode", mode)
        put(self, "arrivals", None if arrivals is None else self._arrivals(arrivals, normalise))
        put(self, "costs", None if costs is None else self._costs(costs))
        put(self, "guardrails", tuple(map(self._rail_in_order, checked_guardrails(guardrails))))
        put(self, "max_policies", None if max_policies is None else self._most(max_policies))
        put(self, "by", self._columns(by))
        self._check_goal()
        self.standards  # noqa: B018  (refuse what has no standard form now, not at first use)

    @property
    def group_names(self) -> tuple[str, ...]:
        """Return the names of the groups, in order."""
        return tuple(self.groups)

    @property
    def shares(self) -> Array:
        """Return the share of every group, as a new array."""
        return np.array(list(self.groups.values()))

    @property
    def arrival_shares(self) -> Array:
        """Return how often each group arrives; the population shares unless given."""
        return self.shares if self.arrivals is None else np.array([self.arrivals[g] for g in self.groups])

    @property
    def shape(self) -> tuple[int, int]:
        """Return the numbers of policies and groups, K and L."""
        return len(self.policies), len(self.groups)

    @property
    def sampling_costs(self) -> Array:
        """Return the cost of one sample in every cell, K x L."""
        return np.ones(self.shape) if self.costs is None else np.array(self.costs)

    @property
    def control(self) -> str | None:
        """Return the policy that relative floors and caps refer to, of the outcome or a guard-rail."""
        constraints = (self.constraint, *(rail.constraint for rail in self.guardrails))
        named = [part.relative_to for one in constraints for part in bounds_of(one) if part.relative_to]
        return named[0] if named else None

    def with_policies(self, policies: Sequence[str]) -> Problem:
        """Return the same problem about other policies.

        Floors, costs and the like must be the same for every policy: those of another are not known.
        """
        costs = self.costs
        if costs is not None:
            if len(set(costs)) > 1:
                raise BadInput("costs differ by policy, so the cost of another policy is not known.")
            costs = costs[:1] * len(policies)
        return replace(self, policies=tuple(policies), costs=costs)

    def describe_requirement(self) -> str:
        """Return the requirement on the outcome and on every guard-rail, as part of a sentence."""
        alone = self.constraint.kind == "none" and self.guardrails
        parts = [] if alone else [self.constraint.describe()]
        parts += [f"{rail.constraint.describe()} ({rail.name})" for rail in self.guardrails]
        return ", and ".join(parts)

    @property
    def standard(self) -> Standard:
        """Return the outcome and its requirement in unit scale, for the kernels."""
        return self.standards[0]

    @cached_property
    def standards(self) -> tuple[Standard, ...]:
        """Return the outcome and its requirement in unit scale, then those of each guard-rail.

        The kernels need writable arrays; they are shared, and not to be changed.
        """
        found = [self._standard(self.family, self.constraint)]
        for rail in self.guardrails:
            try:
                found.append(self._standard(rail.family, rail.constraint))
            except BadInput as error:
                raise BadInput(f"guard-rail {rail.name!r}: {error}") from None
        if len({one.region.control for one in found} - {-1}) > 1:
            raise BadInput(
                "floors and caps relative to a policy must name the same one everywhere, guard-rails "
                "included; these name two."
            )
        return tuple(found)

    def loosened(self, tolerance: Any) -> Region:
        """Return the region of the outcome with floors lowered and caps raised by a tolerance, per group."""
        region = self.standard.region
        slack = tolerance_per_group(tolerance, self.constraint, region, self.group_names)
        if slack.any() and self.goal == "screen":
            raise BadInput('tolerance belongs to goal = "best"; the goal is to screen.')
        return loosened(region, slack / self.family.width)

    def check_indifference(self, indifference: Any) -> float:
        """Return the indifference, checked: how far below the best an answer may be."""
        found = checked_indifference(indifference)
        if found > 0 and self.goal == "screen":
            raise BadInput('indifference belongs to goal = "best"; the goal is to screen.')
        return found

    def unit_means(self, means: ArrayLike) -> Array:
        """Return means, checked, as an (L, K) array in unit scale."""
        return np.ascontiguousarray(self.family.to_unit(self.check_means(means)).T)

    def check_means(self, means: ArrayLike | Mapping[str, Any]) -> Array:
        """Return means, by name or by position, as a K x L array inside the domain of the family."""
        return checked_means(means, self.family, self.policies, self.group_names)

    def check_guardrail_means(self, means: Mapping[str, Any] | None) -> tuple[Array, ...]:
        """Return the means of every guard-rail, K x L each, in the order of the guard-rails."""
        return checked_guardrail_means(means, self.guardrails, self.policies, self.group_names)

    def check_truth(self, means: Any, guardrails: Mapping[str, Any] | None = None) -> tuple[Array, ...]:
        """Return the means of the outcome and of every guard-rail, checked, K x L each."""
        tables = (self.check_means(means), *self.check_guardrail_means(guardrails))
        constraints = (self.constraint, *(rail.constraint for rail in self.guardrails))
        for constraint, table in zip(constraints, tables, strict=True):
            refuse_negative_control(constraint, table, self.policies, self.group_names)
        return tables

    def scores(self, means: ArrayLike) -> Array:
        """Return the overall means, less any penalties: policies are ranked by these. eq:linear_relaxed."""
        table = self._in_order(means)
        overall = table @ self.shares
        region = self.standard.region
        if region.kind == regions.PENALTY:
            floor = self.family.low + self.family.width * region.lo.T
            overall = overall + (self.shares * region.gamma * np.minimum(table - floor, 0.0)).sum(axis=1)
        return np.asarray(overall)

    def feasible(self, means: ArrayLike, guardrails: Mapping[str, Any] | None = None) -> NDArray[np.bool_]:
        """Return which policies meet the requirement and every guard-rail at these means. def:feasible."""
        table = self._in_order(means)
        kept = self._kept(self.check_guardrail_means(guardrails))
        if isinstance(self.constraint, Convex):
            contains = self.constraint.contains
            return np.array([bool(contains(row)) for row in table]) & kept
        unit = np.ascontiguousarray(self.family.to_unit(table).T)
        region = self.standard.region
        return np.array([regions.is_inside(region, k, unit) for k in range(self.shape[0])]) & kept

    def _kept(self, guardrails: tuple[Array, ...]) -> NDArray[np.bool_]:
        """Return which policies meet every guard-rail at these means."""
        kept = np.ones(self.shape[0], dtype=bool)
        for rail, standard, table in zip(self.guardrails, self.standards[1:], guardrails, strict=True):
            unit = np.ascontiguousarray(rail.family.to_unit(table).T)
            kept &= [regions.is_inside(standard.region, k, unit) for k in range(self.shape[0])]
        return kept

    def answer(self, means: ArrayLike, guardrails: Mapping[str, Any] | None = None) -> int | None:
        """Return the best feasible policy, the first on ties; None for none. def:goal, eq:relaxed_goal."""
        table = self.check_means(means)
        feasible = self.feasible(table, guardrails)
        if not feasible.any():
            return None
        return int(np.argmax(np.where(feasible, self.scores(table), -np.inf)))

    def policy_index(self, name: str) -> int:
        """Return the number of a policy, by its name."""
        return _find(name, self.policies, "policy")

    def group_index(self, name: str) -> int:
        """Return the number of a group, by its name."""
        return _find(name, self.group_names, "group")

    def _in_order(self, means: Any) -> Array:
        """Return means by name or by position as a K x L array; they may lie outside the domain."""
        given = cells_in_order(means, self.policies, self.group_names, "means")
        try:
            table = float_array(given)
        except (TypeError, ValueError, OverflowError):
            table = np.zeros(0)
        return table if table.shape == self.shape else self.check_means(means)  # raises the error

    def _rail_in_order(self, rail: Guardrail) -> Guardrail:
        names = self.policies, self.group_names
        return replace(rail, family=rail.family.in_order(*names), constraint=rail.constraint.in_order(*names))

    def _arrivals(self, arrivals: Mapping[str, float], normalise: bool) -> FrozenDict[float]:
        arrivals = by_name(arrivals, "arrivals")
        if not isinstance(arrivals, Mapping):
            raise BadInput(f"arrivals must map each group's name to its share; got {shown(arrivals)}.")
        for name in arrivals:
            if name not in self.groups:
                raise BadInput(f"arrivals name an unknown group {name!r}{nearest(str(name), self.groups)}")
        missing = [name for name in self.groups if name not in arrivals]
        if missing:
            raise BadInput(f"arrivals need a share for every group; {missing[0]!r} has none.")
        shares = _shares(arrivals, "arrivals", normalise)
        if any(share <= 0 for share in shares.values()):
            raise BadInput(NEVER_ARRIVES)
        return FrozenDict({name: shares[name] for name in self.groups})

    def _costs(self, costs: ArrayLike | Mapping[str, Any]) -> tuple[tuple[float, ...], ...]:
        return tuple(map(tuple, cost_table(costs, self.policies, self.group_names).tolist()))

    def _check_goal(self) -> None:
        """Refuse screening without a requirement, or by one that the kernels do not have."""
        if self.goal == "screen" and isinstance(self.constraint, Penalty):
            raise BadInput("a penalty keeps no policy out, so there is nothing to screen by; use floors.")
        if self.goal == "screen" and isinstance(self.constraint, Convex):
            raise BadInput(
                'goal = "screen" needs a requirement of the compiled set, not a convex set of your own; '
                "write it as a polyhedron, dispersion or 'all' of these."
            )
        if self.goal == "screen" and isinstance(self.constraint, NoConstraint) and not self.guardrails:
            raise BadInput('goal = "screen" needs a requirement to screen by; the problem has none.')

    def _columns(self, by: Sequence[str]) -> tuple[str, ...]:
        """Return the columns that give the group, checked against the names of the groups."""
        if isinstance(by, (list, tuple)) and not by:
            return ()
        columns = _names(by, "by", at_least=2)
        clash = next((rail.name for rail in self.guardrails if rail.name in columns), None)
        if clash is not None:
            raise BadInput(
                f"a guard-rail and a column of groups must have different names; both are {clash!r}."
            )
        for name in self.groups:
            if len(name.split(JOINED)) != len(columns):
                example = JOINED.join(f"value of {column}" for column in columns)
                raise BadInput(
                    f"groups by {' and '.join(columns)} are named by a value of each, {example!r}; {name!r} "
                    "is not."
                )
        return columns

    def _most(self, most: Any) -> int:
        if not is_whole(most) or most < len(self.policies):
            raise BadInput(
                f"max_policies must be a whole number, at least the {len(self.policies)} policies there are; "
                f"it is {shown(most)}."
            )
        return int(most)

    def _standard(self, family: Family, constraint: Constraint) -> Standard:
        k, l = self.shape
        scale = Scale(
            k,
            l,
            self.shares,
            family.low,
            family.width,
            family.domain,
            self.policies,
            self.group_names,
            family.name,
        )
        phi = np.ascontiguousarray(family.dispersion(k, l).T)
        resolution = np.ascontiguousarray(family.resolution(k, l).T)
        region = constraint.region(scale)._replace(resolution=resolution)
        return Standard(family.code, self.shares, phi, region)


def _checked(value: Any, kind: type[T], what: str) -> T:
    """Return the value, refused unless it is of this kind."""
    if not isinstance(value, kind):
        example = "Bernoulli()" if what == "family" else "Floors(0.8)"
        hint = f" {ONE_FAMILY}" if what == "family" and isinstance(value, Mapping) else ""
        raise BadInput(f"{what} must be a value such as {example}; it is {shown(value)}.{hint}")
    return value


def _names(names: Sequence[str], what: str, at_least: int) -> tuple[str, ...]:
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise BadInput(f"{what} must be a list of names; it is {shown(names)}.")
    if isinstance(names, (set, frozenset, Mapping)):
        raise BadInput(f"{what} must be a list of names in their order; it is a {type(names).__name__}.")
    found = tuple(names)
    if len(found) < at_least:
        raise BadInput(f"{what} must hold at least {at_least} names; there are {len(found)}.")
    for name in found:
        if not isinstance(name, str) or not name.strip():
            raise BadInput(f"{what} must be non-empty names; one is {shown(name)}.")
    double = (
        next((name for name in found if found.count(name) > 1), None)
        if len(set(found)) < len(found)
        else None
    )
    if double is not None:
        raise BadInput(f"{what} must have different names; {double!r} comes twice.")
    return tuple(map(str, found))  # a name out of an array is NumPy's, and its repr would name NumPy


def _shares(groups: Mapping[str, float], what: str, normalise: bool) -> FrozenDict[float]:
    groups = by_name(groups, what)
    if not isinstance(groups, Mapping):
        raise BadInput(f"{what} must map each group's name to its share; got {shown(groups)}.")
    names = _names(list(groups), "groups", at_least=1)
    values: list[float] = []
    for name in names:
        share: Any = groups[name]
        if not is_number(share):
            raise BadInput(f"{what} must be finite numbers; {name!r} has {shown(share)}.")
        if share < 0:
            raise BadInput(f"{what} must not be negative; {name!r} has {share:g}.")
        values.append(float(share))
    total = math.fsum(values)
    if abs(total - 1.0) > SHARES_TOLERANCE and (not normalise or total <= 0):
        overlap = (
            " If groups overlap, replace them by disjoint ones, such as 'women under 50' and 'women over 50'."
            if total > 1
            else ""
        )
        raise BadInput(
            f"{what} must sum to 1; they sum to {total:.10g}. Rescale them (in Python: normalise=True)."
            f"{overlap}"
        )
    if abs(total - 1.0) <= 1e-12:
        # rescaling would change the last digit, and a written study must read back equal
        return FrozenDict(dict(zip(names, values, strict=True)))
    return FrozenDict({name: value / total for name, value in zip(names, values, strict=True)})


def _find(name: str, names: Sequence[str], what: str) -> int:
    if not is_one_of(name, names):
        raise BadInput(f"there is no {what} {shown(name)}{nearest(str(name), names)}")
    return list(names).index(name)
