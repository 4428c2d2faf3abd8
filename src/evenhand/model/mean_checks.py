"""Checks of means, indifference and tolerance against the family and the requirement."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.errors import BadInput, nearest, shown
from evenhand.model.argument_checks import float_array, is_number
from evenhand.model.families import Family
from evenhand.model.guardrails import Guardrail
from evenhand.model.labels import cells_in_order, checked_per_group, per_group
from evenhand.model.region import BOX, QUOTA, RELATIVE, Region
from evenhand.model.requirements import Constraint, NoConstraint, bounds_of

Array = NDArray[np.float64]


def checked_means(
    means: ArrayLike | Mapping[str, Any], family: Family, policies: Sequence[str], groups: Sequence[str]
) -> Array:
    """Return means, by name or by position, as a K x L array inside the family's domain."""
    means = cells_in_order(means, policies, groups, "means")
    try:
        table = float_array(means)
    except (TypeError, ValueError, OverflowError):
        raise BadInput(
            f"means must be a table of numbers, a row per policy; they are {shown(means)}."
        ) from None
    if table.shape != (len(policies), len(groups)):
        came = " x ".join(map(str, table.shape)) or "one number"
        wanted = f"{len(policies)} x {len(groups)}"
        raise BadInput(f"means must have a row per policy and a column per group, {wanted}; they are {came}.")
    low, high = family.domain
    bad = ~np.isfinite(table) | (table < low) | (table > high)
    if family.open_below:
        bad |= table == low
    if np.any(bad):
        k, l = (int(i[0]) for i in np.nonzero(bad))
        domain = _interval(low, high, family.open_below)
        raise BadInput(
            f"means must lie in the domain of the {family.name} family, {domain}; "
            f"{policies[k]!r} in {groups[l]!r} has {table[k, l]:g}."
        )
    return table


def checked_guardrail_means(
    means: Mapping[str, Any] | None,
    guardrails: Sequence[Guardrail],
    policies: Sequence[str],
    groups: Sequence[str],
) -> tuple[Array, ...]:
    """Return the means of every guard-rail, K x L each, in the order of the guard-rails."""
    names = [rail.name for rail in guardrails]
    given = {} if means is None else means
    if not isinstance(given, Mapping):
        raise BadInput(f"the means of guard-rails must be a table by name; they are {shown(given)}.")
    for name in given:
        if name not in names:
            known = nearest(str(name), names) if names else "; the problem has none."
            raise BadInput(f"there is no guard-rail {name!r}{known}")
    missing = [name for name in names if name not in given]
    if missing:
        raise BadInput(f"every guard-rail needs means, a row per policy; {missing[0]!r} has none.")
    tables = []
    for rail in guardrails:
        try:
            tables.append(checked_means(given[rail.name], rail.family, policies, groups))
        except BadInput as error:
            raise BadInput(f"guard-rail {rail.name!r}: {error}") from None
    return tuple(tables)


def refuse_negative_control(
    constraint: Constraint, table: Array, policies: Sequence[str], groups: Sequence[str]
) -> None:
    """Refuse a ratio to a negative control mean: 0.9 times it would be above it."""
    for bound in bounds_of(constraint):
        if bound.relative_to is None or bound.ratio is None:
            continue
        row = table[policies.index(bound.relative_to)]
        if np.any(row < 0):
            raise BadInput(
                f"a ratio needs a control whose means are not negative; {bound.relative_to!r} in "
                f"{groups[int(np.argmin(row))]!r} has {row.min():g}. Use a margin."
            )


def _interval(low: float, high: float, open_below: bool) -> str:
    left = "(-inf" if math.isinf(low) else f"{'(' if open_below else '['}{low:g}"
    right = "inf)" if math.isinf(high) else f"{high:g}]"
    return f"{left}, {right}"


def checked_indifference(indifference: Any) -> float:
    """Return the indifference, the allowed distance below the best: finite and not negative."""
    if not is_number(indifference) or indifference < 0:
        raise BadInput(f"indifference must be a finite number, 0 or more; it is {shown(indifference)}.")
    return float(indifference)


def checked_tolerance(tolerance: Any) -> Any:
    """Return the tolerance outside an answer's bounds: a number, list or table by group."""
    found = checked_per_group(tolerance, "tolerance")
    numbers = (
        [part[1] if isinstance(part, tuple) else part for part in found]
        if isinstance(found, tuple)
        else [found]
    )
    if min(numbers) < 0:
        raise BadInput(f"tolerance must not be negative; it is {shown(tolerance)}.")
    return 0.0 if not any(numbers) else found


def tolerance_per_group(
    tolerance: Any, constraint: Constraint, region: Region, groups: Sequence[str]
) -> Array:
    """Return a tolerance as one number per group, for a requirement that it can loosen."""
    found = per_group(checked_tolerance(tolerance), groups, "tolerance")
    if found.any() and (isinstance(constraint, NoConstraint) or region.kind not in (BOX, QUOTA, RELATIVE)):
        raise BadInput(f"tolerance loosens floors, caps and quotas; the requirement is {constraint.kind!r}.")
    return found


def loosened(region: Region, slack: Array) -> Region:
    """Return the region with floors lowered and caps raised by `slack` per group (unit scale)."""
    if not slack.any():
        return region
    return region._replace(
        lo=region.lo - slack[:, None],
        hi=region.hi + slack[:, None],
        floor_margin=region.floor_margin + slack,
        cap_margin=region.cap_margin + slack,
    )
