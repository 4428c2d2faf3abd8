"""Problem: policies, groups and their shares, outcome family, requirement, sampling mode.

Who is best and feasible.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.errors import BadInput, nearest
from evenhand.model import region as regions
from evenhand.model.bounds import Scale
from evenhand.model.families import Family
from evenhand.model.region import Region
from evenhand.model.requirements import Constraint, Convex, NoConstraint

Array = NDArray[np.float64]

MODES = ("active", "proportional", "agnostic")
SHARES_TOLERANCE = 1e-6


NOBODY = "none"  # where answers are counted by name
NEVER_ARRIVES = (
    "every group must arrive with a positive share; one never arrives, so nothing can be learned of it."
)


class Standard(NamedTuple):
    """A problem as the kernels see it: unit scale, arrays (L, K)."""

    code: int  # unit family
    shares: Array  # (L,)
    phi: Array  # (L, K): one sample is worth 1/phi unit samples
    region: Region


@dataclass(frozen=True)
class Problem:
    """What is asked: which policy has the best overall mean among those that meet the requirement?"""

    policies: tuple[str, ...]
    groups: Mapping[str, float]
    family: Family
    constraint: Constraint = field(default_factory=NoConstraint)
    mode: str = "active"
    arrivals: Mapping[str, float] | None = None
    costs: tuple[tuple[float, ...], ...] | None = None  # K x L, what one sample costs; all 1 where absent

    def __init__(
        self,
        policies: Sequence[str],
        groups: Mapping[str, float],
        family: Family,
        constraint: Constraint | None = None,
        mode: str = "active",
        arrivals: Mapping[str, float] | None = None,
        costs: ArrayLike | None = None,
        normalise: bool = False,
    ) -> None:
        put = object.__setattr__
        put(self, "policies", _names(policies, "policies", at_least=2))
        if NOBODY in self.policies:
            raise BadInput(f"a policy cannot be called {NOBODY!r}: answers say so where no policy is one.")
        put(self, "groups", _shares(groups, "shares", normalise))
        put(self, "family", family)
        put(self, "constraint", NoConstraint() if constraint is None else constraint)
        if mode not in MODES:
            raise BadInput(
                f"mode must be one of {', '.join(MODES)}; it is {mode!r}{nearest(str(mode), MODES)}"
            )
        put(self, "mode", mode)
        put(self, "arrivals", None if arrivals is None else self._arrivals(arrivals, normalise))
        put(self, "costs", None if costs is None else self._costs(costs))
        self.standard  # noqa: B018  (refuse what has no standard form now, not at first use)

    @property
    def group_names(self) -> tuple[str, ...]:
        return tuple(self.groups)

    @property
    def shares(self) -> Array:
        return np.array(list(self.groups.values()))

    @property
    def arrival_shares(self) -> Array:
        """How often each group arrives by itself; the population shares unless told otherwise."""
        return self.shares if self.arrivals is None else np.array([self.arrivals[g] for g in self.groups])

    @property
    def shape(self) -> tuple[int, int]:
        """K, L."""
        return len(self.policies), len(self.groups)

    @property
    def sampling_costs(self) -> Array:
        """K x L."""
        return np.ones(self.shape) if self.costs is None else np.array(self.costs)

    @cached_property
    def standard(self) -> Standard:
        """The problem in unit scale."""
        k, l = self.shape
        scale = Scale(k, l, self.shares, self.family.low, self.family.width, self.family.domain)
        phi = np.ascontiguousarray(self.family.dispersion(k, l).T)
        resolution = np.ascontiguousarray(self.family.resolution(k, l).T)
        region = self.constraint.region(scale)._replace(resolution=resolution)
        return Standard(self.family.code, self.shares, phi, region)

    def unit_means(self, means: ArrayLike) -> Array:
        """Means K x L, checked, as an (L, K) array in unit scale."""
        return np.ascontiguousarray(self.family.to_unit(self.check_means(means)).T)

    def check_means(self, means: ArrayLike) -> Array:
        """Means as a K x L array of finite numbers inside the family's domain."""
        try:
            table = np.asarray(means, dtype=float)
        except (TypeError, ValueError):
            raise BadInput(
                f"means must be a table of numbers, a row per policy; they are {means!r}."
            ) from None
        if table.shape != self.shape:
            came = " x ".join(map(str, table.shape)) or "one number"
            wanted = f"{self.shape[0]} x {self.shape[1]}"
            raise BadInput(
                f"means must have a row per policy and a column per group, {wanted}; they are {came}."
            )
        low, high = self.family.domain
        bad = ~np.isfinite(table) | (table < low) | (table > high)
        if self.family.open_below:
            bad |= table == low
        if np.any(bad):
            k, l = (int(i[0]) for i in np.nonzero(bad))
            domain = _interval(low, high, self.family.open_below)
            raise BadInput(
                f"means must lie in the domain of the {self.family.name} family, {domain}; "
                f"{self.policies[k]!r} in {self.group_names[l]!r} has {table[k, l]:g}."
            )
        return table

    def scores(self, means: ArrayLike) -> Array:
        """What policies are ranked by: overall means, less any penalties. eq:linear_relaxed."""
        table = np.asarray(means, dtype=float)
        overall = table @ self.shares
        region = self.standard.region
        if region.kind == regions.PENALTY:
            floor = self.family.low + self.family.width * region.lo.T
            overall = overall + (self.shares * region.gamma * np.minimum(table - floor, 0.0)).sum(axis=1)
        return np.asarray(overall)

    def feasible(self, means: ArrayLike) -> NDArray[np.bool_]:
        """Which policies meet the requirement at these means. def:feasible."""
        table = np.asarray(means, dtype=float)
        if isinstance(self.constraint, Convex):
            contains = self.constraint.contains
            return np.array([bool(contains(row)) for row in table])
        unit = np.ascontiguousarray(self.family.to_unit(table).T)
        region = self.standard.region
        return np.array([bool(regions.inside(region, k, unit)) for k in range(self.shape[0])])

    def answer(self, means: ArrayLike) -> int | None:
        """The best feasible policy, the first on ties; None where none is. def:goal, eq:relaxed_goal."""
        table = self.check_means(means)
        feasible = self.feasible(table)
        if not feasible.any():
            return None
        return int(np.argmax(np.where(feasible, self.scores(table), -np.inf)))

    def policy_index(self, name: str) -> int:
        return _find(name, self.policies, "policy")

    def group_index(self, name: str) -> int:
        return _find(name, self.group_names, "group")

    def _arrivals(self, arrivals: Mapping[str, float], normalise: bool) -> dict[str, float]:
        for name in arrivals:
            if name not in self.groups:
                raise BadInput(f"arrivals name an unknown group {name!r}{nearest(name, self.groups)}")
        missing = [name for name in self.groups if name not in arrivals]
        if missing:
            raise BadInput(f"arrivals need a share for every group; {missing[0]!r} has none.")
        shares = _shares(arrivals, "arrivals", normalise)
        if any(share <= 0 for share in shares.values()):
            raise BadInput(NEVER_ARRIVES)
        return {name: shares[name] for name in self.groups}

    def _costs(self, costs: ArrayLike) -> tuple[tuple[float, ...], ...]:
        table = np.asarray(costs, dtype=float)
        if table.shape != self.shape or not np.all(np.isfinite(table)) or not np.all(table > 0):
            raise BadInput(
                f"costs must be positive numbers, a row per policy, {self.shape[0]} x {self.shape[1]}; "
                f"they are {costs!r}."
            )
        return tuple(map(tuple, table.tolist()))


def _names(names: Sequence[str], what: str, at_least: int) -> tuple[str, ...]:
    found = tuple(names)
    if len(found) < at_least:
        raise BadInput(f"{what} must hold at least {at_least} names; there are {len(found)}.")
    for name in found:
        if not isinstance(name, str) or not name.strip():
            raise BadInput(f"{what} must be non-empty names; one is {name!r}.")
    double = (
        next((name for name in found if found.count(name) > 1), None)
        if len(set(found)) < len(found)
        else None
    )
    if double is not None:
        raise BadInput(f"{what} must have different names; {double!r} comes twice.")
    return found


def _shares(groups: Mapping[str, float], what: str, normalise: bool) -> dict[str, float]:
    if not isinstance(groups, Mapping):
        raise BadInput(f"{what} must map each group's name to its share; got {groups!r}.")
    names = _names(list(groups), "groups", at_least=1)
    values: list[float] = []
    for name in names:
        share: Any = groups[name]
        if (
            isinstance(share, bool)
            or not isinstance(share, (int, float, np.floating, np.integer))
            or not math.isfinite(share)
        ):
            raise BadInput(f"{what} must be finite numbers; {name!r} has {share!r}.")
        if share < 0:
            raise BadInput(f"{what} must not be negative; {name!r} has {share:g}.")
        values.append(float(share))
    total = math.fsum(values)
    if abs(total - 1.0) > SHARES_TOLERANCE and (not normalise or total <= 0):
        raise BadInput(
            f"{what} must sum to 1; they sum to {total:.10g}. Rescale them (in Python: normalise=True)."
        )
    if abs(total - 1.0) <= 1e-12:
        # rescaling would only stir the last digit, and a written study must read back equal
        return dict(zip(names, values, strict=True))
    return {name: value / total for name, value in zip(names, values, strict=True)}


def _find(name: str, names: Sequence[str], what: str) -> int:
    if name not in names:
        raise BadInput(f"there is no {what} {name!r}{nearest(str(name), names)}")
    return list(names).index(name)


def _interval(low: float, high: float, open_below: bool) -> str:
    left = "(-inf" if math.isinf(low) else f"{'(' if open_below else '['}{low:g}"
    right = "inf)" if math.isinf(high) else f"{high:g}]"
    return f"{left}, {right}"
