"""Indifference and tolerance: how far from the best, and from its own bounds, an answer may lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput, shown
from evenhand.model.bounds import is_number
from evenhand.model.labels import checked_per_group, per_group
from evenhand.model.region import BOX, QUOTA, RELATIVE, Region
from evenhand.model.requirements import Constraint, NoConstraint

Array = NDArray[np.float64]


def checked_indifference(indifference: Any) -> float:
    """How far below the best an answer may be: a finite number, 0 or more."""
    if not is_number(indifference) or indifference < 0:
        raise BadInput(f"indifference must be a finite number, 0 or more; it is {shown(indifference)}.")
    return float(indifference)


def checked_tolerance(tolerance: Any) -> Any:
    """How far outside its own bounds an answer may be: a number, a list or a table by group, frozen."""
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
    """A tolerance as one number per group, for a requirement that it can loosen."""
    found = per_group(checked_tolerance(tolerance), groups, "tolerance")
    if found.any() and (isinstance(constraint, NoConstraint) or region.kind not in (BOX, QUOTA, RELATIVE)):
        raise BadInput(f"tolerance loosens floors, caps and quotas; the requirement is {constraint.kind!r}.")
    return found


def loosened(region: Region, slack: Array) -> Region:
    """The region with its floors lowered and its caps raised by so much in each group, in unit scale."""
    if not slack.any():
        return region
    return region._replace(
        lo=region.lo - slack[:, None],
        hi=region.hi + slack[:, None],
        floor_margin=region.floor_margin + slack,
        cap_margin=region.cap_margin + slack,
    )
