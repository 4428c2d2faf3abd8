"""Indifference and tolerance: allowed distances of an answer from the best and its bounds."""

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
