"""Several regions at once as one: a set of rows, at most one quadratic and at most one quota."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput
from evenhand.model import region as regions
from evenhand.model.bounds import Scale
from evenhand.model.region import Region

Array = NDArray[np.float64]

LEAST_ROOM = 1e-12  # radius of a ball, relative to the size of the conditions, that counts as room


def intersection(lo: Array | None, hi: Array | None, others: list[Region], scale: Scale) -> Region:
    """Several regions as one set of rows, at most one quadratic and at most one quota."""
    rows: list[Array] = []
    rhs: list[Array] = []
    quad, limit, need = np.zeros((scale.groups, scale.groups)), math.inf, 0
    floors = np.full((scale.groups, scale.policies), -math.inf)
    for bound, sign in ((lo, 1.0), (hi, -1.0)):
        for g in range(scale.groups if bound is not None else 0):
            assert bound is not None
            if np.all(np.isfinite(bound[g])):
                rows.append(sign * np.eye(scale.groups)[g])
                rhs.append(sign * bound[g])
    for part in others:
        if part.kind == regions.SPREAD:
            spread_rows = list(_pair_rows(part.rho, scale.groups))
            rows += spread_rows
            rhs += [np.full(scale.policies, -part.slack)] * len(spread_rows)
        elif part.kind == regions.CONVEX:
            rows += list(part.rows)
            rhs += list(part.rhs)
        elif part.kind == regions.QUOTA and need == 0:
            need, floors = part.need, part.lo
        elif part.kind == regions.DISPERSION and limit == math.inf:
            quad, limit = part.quad, part.limit
        else:
            raise BadInput("'all' takes at most one quota and at most one dispersion; it got two of a kind.")
    found = regions.region(
        regions.CONVEX, scale.groups, scale.policies, rows=np.array(rows).reshape(-1, scale.groups),
        rhs=np.array(rhs).reshape(-1, scale.policies), quad=quad, limit=limit, need=need, lo=floors,
    )  # fmt: skip
    check_interior(found, scale)
    return found


def _pair_rows(rho: float, groups: int) -> Iterator[Array]:
    """m_g - rho m_h >= -slack for every ordered pair."""
    for g in range(groups):
        for h in range(groups):
            if g != h:
                row = np.zeros(groups)
                row[g], row[h] = 1.0, -rho
                yield row


def check_interior(region: Region, scale: Scale) -> None:
    """Refuse linear conditions that no vector of means meets with room to spare."""
    from scipy.optimize import linprog

    norms = np.linalg.norm(region.rows, axis=1)
    rows = region.rows / norms[:, None]
    edges = [(edge - scale.low) / scale.width for edge in scale.domain]
    for k in range(scale.policies):
        # the solver's tolerances are absolute: it sees the conditions from a point among them, in their size
        origin, unit = _origin_and_unit(rows, region.rhs[:, k] / norms, edges)
        rhs = (region.rhs[:, k] / norms - rows @ origin) / unit
        bounds = [
            tuple((edge - at) / unit if math.isfinite(edge) else None for edge in edges) for at in origin
        ]
        # the largest ball of radius at most 1 that fits: max t with rows m - t >= rhs
        found = linprog(
            np.r_[np.zeros(scale.groups), -1.0], A_ub=np.c_[-rows, np.ones(len(rows))], b_ub=-rhs,
            bounds=[*bounds, (None, 1.0)],
        )  # fmt: skip
        if found.status == 2 or found.x is None or found.x[-1] <= LEAST_ROOM:
            raise BadInput(
                "the linear conditions must leave room for some vector of means in the family's domain; "
                "none meets them all with room to spare. Loosen one."
            )
        if np.ptp(region.rhs, axis=1).max(initial=0.0) == 0.0:
            return  # the same conditions for every policy: one look is enough


def _origin_and_unit(rows: Array, rhs: Array, edges: list[float]) -> tuple[Array, float]:
    """Where to look at rows m >= rhs from, and in which unit of length; the domain's own if it is bounded."""
    origin, largest = np.zeros(rows.shape[1]), float(np.abs(rhs).max(initial=0.0))
    if all(map(math.isfinite, edges)) or largest == 0.0:
        return origin, 1.0
    if any(map(math.isfinite, edges)):
        return origin, largest
    near: Array = np.asarray(np.linalg.lstsq(rows, rhs, rcond=None)[0], dtype=np.float64)
    apart = float(np.abs(rhs - rows @ near).max())
    # where all conditions are met with equality at one point, only the size of their bounds is left
    return near, apart if apart > regions.ROUNDING * largest else largest
