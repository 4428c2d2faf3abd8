"""Regions: requirements in unit scale, one named tuple for all kinds; intersections.

There is one type for all kinds so that kernels compile once. A policy meets its requirement when its vector
of group means lies in the region. Bounds differ by policy where the user gave a K x L table, and depend on
the control's means where they are relative to it; everything else is shared. Arrays that are passed to
kernels are (L, K): groups first, policies innermost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import Axes, Static, kernel, uncompiled
from evenhand.errors import BadInput
from evenhand.model.argument_checks import Scale

Array = NDArray[np.float64]
# one number for each cell, policy or group
PerCell = Annotated[Array, Axes("L", "K")]
PerPolicy = Annotated[Array, Axes("K")]
PerGroup = Annotated[Array, Axes("L")]

BOX = 0  # lo <= m <= hi, cell by cell: none, floors, caps
SPREAD = 1  # m_l >= rho m_l' - slack for every pair: gap (rho = 1), ratio
QUOTA = 2  # at least `need` groups reach lo
DISPERSION = 3  # m' quad m <= limit
CONVEX = 4  # rows m >= rhs, and m' quad m <= limit, and the quota: an intersection of any of these
PENALTY = 5  # every policy is feasible; a shortfall from `lo` costs gamma per unit
CUSTOM = 6  # a convex set defined in Python; it has no kernel
RELATIVE = 7  # the box of lo and hi, and bounds relative to the means of a control policy

# two numbers are equal up to rounding if they differ by less than this part of the sum of their terms' sizes
ROUNDING = 1e-12
FEW = 64  # policies up to which a margin is computed by plain Python when called from there
# if means are farther from 0 than this many times their range, squares are taken relative to one of them
FAR = 1024.0


class Region(NamedTuple):
    """One requirement for all policies, in unit scale."""

    kind: Static[int]
    lo: PerCell  # (L, K) floors, -inf where there is none
    hi: PerCell  # (L, K) caps, +inf where there is none
    rho: float
    slack: float
    need: Static[int]
    # (L, L); its rows sum to 0, so that adding a constant to all means changes nothing
    quad: Annotated[Array, Axes("L", "L")]
    limit: float  # +inf where there is no quadratic
    rows: Annotated[Array, Axes("rows", "L")]  # (m, L)
    rhs: Annotated[Array, Axes("rows", "K")]  # (m, K)
    gamma: PerGroup  # (L,)
    control: int  # the policy that relative bounds refer to; -1 where there are none
    # every policy but the control has floor_ratio c - floor_margin <= m <= cap_ratio c + cap_margin, c the
    # control's mean
    floor_ratio: PerGroup  # (L,)
    floor_margin: PerGroup  # (L,) +inf where there is no relative floor
    cap_ratio: PerGroup  # (L,)
    cap_margin: PerGroup  # (L,) +inf where there is no relative cap
    resolution: PerCell  # (L, K) absolute rounding error of a difference of two means


def region(kind: int, groups: int, policies: int, **parts: object) -> Region:
    """Return a region of this kind with all other fields empty."""
    blank: dict[str, object] = {
        "lo": np.full((groups, policies), -math.inf),
        "hi": np.full((groups, policies), math.inf),
        "rho": 0.0,
        "slack": math.inf,
        "need": 0,
        "quad": np.zeros((groups, groups)),
        "limit": math.inf,
        "rows": np.zeros((0, groups)),
        "rhs": np.zeros((0, policies)),
        "gamma": np.zeros(groups),
        "control": -1,
        "floor_ratio": np.ones(groups),
        "floor_margin": np.full(groups, math.inf),
        "cap_ratio": np.ones(groups),
        "cap_margin": np.full(groups, math.inf),
        "resolution": np.zeros((groups, policies)),
    }
    blank.update(parts)
    return Region(kind, **blank)  # type: ignore[arg-type]


def bounds_at(r: Region, mean: Array) -> tuple[Array, Array]:
    """Return floors and caps (L, K) in unit scale, relative ones at the control's means."""
    lo, hi = r.lo.copy(), r.hi.copy()
    if r.control >= 0:
        others = np.arange(mean.shape[1]) != r.control
        control = mean[:, r.control]
        lo[:, others] = np.maximum(lo, (r.floor_ratio * control - r.floor_margin)[:, None])[:, others]
        hi[:, others] = np.minimum(hi, (r.cap_ratio * control + r.cap_margin)[:, None])[:, others]
    return lo, hi


@kernel
def margin(r: Region, k: int, mean: Array) -> float:
    """def:feasible: return how far policy k's means lie inside the region; negative outside.

    0 on the boundary up to rounding. In the units of its tightest condition. `mean` is (L, K). With a penalty
    every policy is inside.
    """
    groups = mean.shape[0]
    worst = math.inf
    if r.kind == QUOTA or (r.kind == CONVEX and r.need > 0):
        worst = _quota_margin(r, k, mean)
    elif r.kind in (BOX, RELATIVE):
        for g in range(groups):
            worst = min(worst, _above_floor(r, k, g, mean[g, k]), _below_cap(r, k, g, mean[g, k]))
    elif r.kind == SPREAD:
        worst = _spread_margin(r, k, mean)
    if r.kind == RELATIVE and k != r.control:
        worst = min(worst, _relative_margin(r, k, mean))
    if r.kind == DISPERSION or (r.kind == CONVEX and r.limit < math.inf):
        spread, size = quadratic(r, k, mean)
        worst = min(worst, distance(r.limit - spread, r.limit + size, 0.0))
    for row in range(r.rows.shape[0]):
        total, size, blur = -r.rhs[row, k], abs(r.rhs[row, k]), 0.0
        for g in range(groups):
            total += r.rows[row, g] * mean[g, k]
            size += abs(r.rows[row, g] * mean[g, k])
            blur += abs(r.rows[row, g]) * r.resolution[g, k]
        worst = min(worst, distance(total, size, blur))
    return worst


@kernel
def inside(r: Region, k: int, mean: Array) -> bool:
    """Return whether policy k meets its requirement at these means (L, K)."""
    return margin(r, k, mean) >= 0.0


def margin_of(r: Region, k: int, mean: Array) -> float:
    """Return `margin`; by plain Python where there are few policies, which is quicker than compiling."""
    found = margin if mean.shape[1] > FEW else uncompiled(margin)
    return float(found(r, k, mean))


def is_inside(r: Region, k: int, mean: Array) -> bool:
    """Return `inside`; by plain Python where there are few policies."""
    return margin_of(r, k, mean) >= 0.0


@kernel
def distance(difference: float, size: float, resolution: float) -> float:
    """Return a difference of numbers whose sizes sum to `size`; 0 if it is within rounding."""
    # strictly below: an absent bound is infinite, and so is the difference
    return 0.0 if abs(difference) < ROUNDING * size + resolution else difference


@kernel
def quadratic(r: Region, k: int, mean: Array) -> tuple[float, float]:
    """eq:variance_constraint: return m' quad m for policy k, the dispersion of its group means.

    Also returns the sum of the sizes of its terms.
    """
    groups = mean.shape[0]
    centre = centre_of(mean[:, k])
    total, size = 0.0, 0.0
    for g in range(groups):
        for h in range(groups):
            part = (mean[g, k] - centre) * r.quad[g, h] * (mean[h, k] - centre)
            total += part
            size += abs(part)
    return total, size


@kernel
def centre_of(means: Array) -> float:
    """Return the origin for the distances of means, in a quadratic that is invariant to shifts.

    Squares of means far from 0 would cancel, so distances are then taken from the first mean; else from 0.
    """
    least, most = means[0], means[0]
    for g in range(means.size):
        least, most = min(least, means[g]), max(most, means[g])
    return means[0] if min(abs(least), abs(most)) > FAR * (most - least) else 0.0


@kernel
def _above_floor(r: Region, k: int, g: int, mean: float) -> float:
    return distance(mean - r.lo[g, k], abs(mean) + abs(r.lo[g, k]), r.resolution[g, k])


@kernel
def _below_cap(r: Region, k: int, g: int, mean: float) -> float:
    return distance(r.hi[g, k] - mean, abs(mean) + abs(r.hi[g, k]), r.resolution[g, k])


@kernel
def _relative_margin(r: Region, k: int, mean: Array) -> float:
    """Return the least distance of policy k's means to the bounds relative to the control's."""
    worst = math.inf
    for g in range(mean.shape[0]):
        own, floor, cap = (
            mean[g, k],
            r.floor_ratio[g] * mean[g, r.control],
            r.cap_ratio[g] * mean[g, r.control],
        )
        blur = r.resolution[g, k] + r.floor_ratio[g] * r.resolution[g, r.control]
        size = abs(own) + abs(floor) + abs(r.floor_margin[g])
        worst = min(worst, distance(own - floor + r.floor_margin[g], size, blur))
        blur = r.resolution[g, k] + r.cap_ratio[g] * r.resolution[g, r.control]
        size = abs(own) + abs(cap) + abs(r.cap_margin[g])
        worst = min(worst, distance(cap + r.cap_margin[g] - own, size, blur))
    return worst


@kernel
def _spread_margin(r: Region, k: int, mean: Array) -> float:
    """Return the distance of the smallest mean from rho times the largest, less the slack."""
    low, high = 0, 0
    for g in range(mean.shape[0]):
        low = g if mean[g, k] < mean[low, k] else low
        high = g if mean[g, k] > mean[high, k] else high
    least, most = mean[low, k], r.rho * mean[high, k]
    blur = r.resolution[low, k] + r.rho * r.resolution[high, k]
    return distance(least - most + r.slack, abs(least) + abs(most) + abs(r.slack), blur)


@kernel
def _quota_margin(r: Region, k: int, mean: Array) -> float:
    """Return the need-th largest surplus over the floors; positive if enough groups have one."""
    groups = mean.shape[0]
    for g in range(groups):
        surplus = _above_floor(r, k, g, mean[g, k])
        above = 0
        ties = 0
        for h in range(groups):
            other = _above_floor(r, k, h, mean[h, k])
            if other > surplus:
                above += 1
            elif other == surplus:
                ties += 1
        if above < r.need <= above + ties:
            return surplus
    return -math.inf


LEAST_RADIUS = 1e-12  # least radius of a ball inside the conditions, relative to their size


def intersection(lo: Array | None, hi: Array | None, others: list[Region], scale: Scale) -> Region:
    """Return several regions as one set of rows, at most one quadratic and at most one quota."""
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
        if part.kind == SPREAD:
            spread_rows = list(_pair_rows(part.rho, scale.groups))
            rows += spread_rows
            rhs += [np.full(scale.policies, -part.slack)] * len(spread_rows)
        elif part.kind == CONVEX:
            rows += list(part.rows)
            rhs += list(part.rhs)
        elif part.kind == QUOTA and need == 0:
            need, floors = part.need, part.lo
        elif part.kind == DISPERSION and limit == math.inf:
            quad, limit = part.quad, part.limit
        else:
            raise BadInput("'all' takes at most one quota and at most one dispersion; it got two of a kind.")
    found = region(
        CONVEX, scale.groups, scale.policies, rows=np.array(rows).reshape(-1, scale.groups),
        rhs=np.array(rhs).reshape(-1, scale.policies), quad=quad, limit=limit, need=need, lo=floors,
    )  # fmt: skip
    check_interior(found, scale)
    return found


def _pair_rows(rho: float, groups: int) -> Iterator[Array]:
    """Yield the rows of m_g - rho m_h >= -slack for every ordered pair."""
    for g in range(groups):
        for h in range(groups):
            if g != h:
                row = np.zeros(groups)
                row[g], row[h] = 1.0, -rho
                yield row


def check_interior(region: Region, scale: Scale) -> None:
    """Refuse linear conditions that no vector of means satisfies strictly."""
    from scipy.optimize import linprog

    norms = np.linalg.norm(region.rows, axis=1)
    rows = region.rows / norms[:, None]
    edges = [(edge - scale.low) / scale.width for edge in scale.domain]
    for k in range(scale.policies):
        # the solver's tolerances are absolute: shift and scale the conditions to a size of about 1
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
        if found.status == 2 or found.x is None or found.x[-1] <= LEAST_RADIUS:
            raise BadInput(
                "the linear conditions must leave room for some vector of means in the family's domain; "
                "none meets them all strictly. Loosen one."
            )
        if np.ptp(region.rhs, axis=1).max(initial=0.0) == 0.0:
            return  # the conditions are the same for every policy: one check is enough


def _origin_and_unit(rows: Array, rhs: Array, edges: list[float]) -> tuple[Array, float]:
    """Return an origin and a unit of length for rows m >= rhs; those of the domain if bounded."""
    origin, largest = np.zeros(rows.shape[1]), float(np.abs(rhs).max(initial=0.0))
    if all(map(math.isfinite, edges)) or largest == 0.0:
        return origin, 1.0
    if any(map(math.isfinite, edges)):
        return origin, largest
    near: Array = np.asarray(np.linalg.lstsq(rows, rhs, rcond=None)[0], dtype=np.float64)
    apart = float(np.abs(rhs - rows @ near).max())
    # where all conditions hold with equality at one point, use the size of their bounds
    return near, apart if apart > ROUNDING * largest else largest
