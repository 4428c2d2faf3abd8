"""Enter, leave and beat for a user's convex set, given by cvxpy conditions; in Python.

Entering and beating: cvxpy finds a first point (for the exponential, whose cost is not convex, with the
Poisson divergence). Then outer approximation: the kernels solve the problem on a polyhedron around the set,
which is a certified lower bound; the solution is projected onto the set, which is a candidate; the plane
between the two is added to the polyhedron.

Leaving: inner approximation by a polytope spanned by boundary points of the set. Leaving the polytope through
its cheapest facet is a lower bound; continuing through that facet to the boundary of the set is a candidate;
the point of the set that lies farthest beyond the facet becomes the next corner. With more than HULL groups
the value is that of a few straight lines out of the set, and the polytope only has the points where the axes
leave the set, whose facets need no search: the bound is valid but loose. With more than CROSS groups it is 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from evenhand.compile import uncompiled
from evenhand.errors import BadInput
from evenhand.model import region as regions
from evenhand.model import unit_families
from evenhand.model.problem import Problem, Standard
from evenhand.model.requirements import Convex
from evenhand.theory.regions import halfspace, intersection
from evenhand.theory.regions.custom_cvxpy import UserSet
from evenhand.theory.regions.single_cell import farthest_within

Array = NDArray[np.float64]

CLOSE = 1e-6  # relative distance of value and bound to stop at: about the accuracy of the solver's points
CUTS = 40  # largest number of planes around the set
CORNERS = 120  # largest number of boundary points of the set
HULL = 6  # groups beyond which the polytope is not grown
CROSS = 10  # groups beyond which no polytope is used: one on the axes has 2^L facets
TOLERANCE = 1e-9  # of the solver: how far its points may lie outside
EXTREME = 1e7  # within this factor of 1 the solver can separate the user's conditions from rounding errors


def rescaled(standard: Standard, mu: Array) -> tuple[Standard, Array, float, float]:
    """Return the problem with lengths of about 1, their origin, and their unit, a power of 2.

    Only the Gaussian may be shifted, and only the Gaussian and the exponential rescaled.
    """
    if standard.code == unit_families.GAUSSIAN:
        size = max(float(np.ptp(mu)), math.sqrt(float(standard.phi.mean())))
        origin, unit = float(regions.centre_of(mu.ravel())), 2.0 ** round(math.log2(size))
        return standard._replace(phi=standard.phi / unit**2), (mu - origin) / unit, origin, unit
    if standard.code == unit_families.EXPONENTIAL:
        unit = 2.0 ** round(math.log2(float(mu.mean())))
        return standard, mu / unit, 0.0, unit
    return standard, mu, 0.0, 1.0


class Custom:
    """The inner problems for a `Convex` requirement; arrays as in the kernels, (L, K).

    Lengths are measured from `origin`, in multiples of `unit`, both in unit scale: cvxpy's tolerances, and
    those above, are absolute.
    """

    def __init__(self, problem: Problem, origin: float = 0.0, unit: float = 1.0) -> None:
        if not isinstance(problem.constraint, Convex):
            raise BadInput(
                f"a convex set of your own is needed; the requirement is {problem.constraint.kind!r}."
            )
        self.code = problem.family.code
        self.shares = problem.shares
        self.edges = (
            uncompiled(unit_families.edge_low)(self.code),
            uncompiled(unit_families.edge_high)(self.code),
        )
        size = problem.family.width * unit
        if not 1.0 / EXTREME <= size <= EXTREME:
            raise BadInput(
                f"a convex set of your own needs outcomes of a size from {1.0 / EXTREME:g} to {EXTREME:g}, "
                f"because cvxpy's tolerances are absolute; theirs is about {size:g}. Count in another unit."
            )
        self._set = UserSet(problem, problem.constraint, self.edges, origin, unit)

    def enter(self, k: int, v: Array, mu: Array, lam_k: Array) -> tuple[float, float]:
        """eq:f_star_k_0_ext1: return the least cost for policy k to enter the set, and a bound."""
        if self._set.contains(mu[:, k]):
            lam_k[:] = mu[:, k]
            return 0.0, 0.0
        return self._refine(v[:, [k]], mu[:, [k]], 0.0, lam_k[None])

    def beat(
        self, eps: float, i: int, k: int, v: Array, mu: Array, lam_i: Array, lam_k: Array
    ) -> tuple[float, float]:
        """eq:f_mu_opt_ext1: return the least cost for rival k, inside, to reach q.lam_i + eps."""
        if eps > 0.0 and self._set.highest(self.shares) - self.edges[0] <= eps:
            return math.inf, math.inf
        both = np.empty((2, len(lam_k)))
        found = self._refine(v[:, [k, i]], mu[:, [k, i]], eps, both)
        lam_k[:], lam_i[:] = both
        return found

    def leave(self, k: int, v: Array, mu: Array, lam_k: Array) -> tuple[float, float, int]:
        """eq:f_infeas_ext1: return the least cost for policy k to leave, a bound, and condition 0."""
        lam_k[:] = mu[:, k]
        if not self._set.contains(mu[:, k]):
            return 0.0, 0.0, 0
        value, lower = self._leave(v[:, k].copy(), mu[:, k].copy(), lam_k)
        return value, lower, 0 if value < math.inf else -1

    def _refine(self, v: Array, mu: Array, eps: float, lam: Array) -> tuple[float, float]:
        """Refine a polyhedron around the set; lam holds policy k's means, and i's if beaten."""
        lower = 0.0
        lam[:] = self._with_i(v, mu, eps, self._set.nearest(self.code, v, mu, self.shares, eps))
        value = self._cost(v, mu, lam)
        normals: list[Array] = [self._normal(v, mu, lam)]
        offsets: list[float] = []
        for _ in range(CUTS):
            # nothing cheaper lies beyond these bounds, so the planes need hold only within them
            offsets.append(self._set.least(normals[-1], self._fence(v[:, 0], mu[:, 0], value))[0])
            bound, outer = self._outside(v, mu, eps, np.array(normals), np.array(offsets))
            lower = max(lower, bound)
            inner = self._set.project(outer)
            if inner is None:
                break
            point = self._with_i(v, mu, eps, inner)
            cost = self._cost(v, mu, point)
            if cost < value:
                value = cost
                lam[:] = point
            if lower >= value * (1.0 - CLOSE) or np.linalg.norm(inner - outer) <= TOLERANCE:
                break
            normals.append(inner - outer)
        return value, min(lower, value)

    def _normal(self, v: Array, mu: Array, point: Array) -> Array:
        """Return the Lagrangian's gradient in policy k's means: a normal of the set at an optimum."""
        slope = self._slope(v[:, 0], mu[:, 0], point[0])
        if len(point) == 1:
            return slope
        against = self._slope(v[:, 1], mu[:, 1], point[1])
        used = (self.shares > 0) & (v[:, 1] > 0)
        eta = float(np.max(-against[used] / self.shares[used], initial=0.0))
        return slope - eta * self.shares

    def _with_i(self, v: Array, mu: Array, eps: float, lam_k: Array) -> Array:
        """Return the rival's means and, if there is a policy i, its means lowered to the score."""
        if mu.shape[1] == 1:
            return lam_k[None]
        lam_i = np.empty(len(lam_k))
        self._reach(v[:, 1], mu[:, 1], -self.shares, eps - float(self.shares @ lam_k), lam_i)
        return np.array([lam_k, lam_i])

    def _outside(self, v: Array, mu: Array, eps: float, rows: Array, rhs: Array) -> tuple[float, Array]:
        """Solve on the polyhedron; return a certified bound, and policy k's means there."""
        # every plane is moved out by the solver's error; a plane without a finite offset is dropped
        size = np.linalg.norm(rows, axis=1)
        placed = (size > 0) & np.isfinite(rhs)
        rows, rhs = rows[placed] / size[placed, None], rhs[placed] / size[placed] - TOLERANCE
        groups, policies = mu.shape
        r = regions.region(
            regions.CONVEX, groups, policies, rows=rows, rhs=np.repeat(rhs[:, None], policies, axis=1)
        )
        work, lam = np.empty(intersection.work_size(groups, len(rhs))), np.empty((2, groups))
        weights, centre = np.ascontiguousarray(v), np.ascontiguousarray(mu)
        if policies == 1:
            _, lower = intersection.enter(self.code, r, 0, weights, centre, lam[0], work)
        else:
            _, lower = intersection.beat(
                self.code, r, self.shares, eps, 1, 0, weights, centre, lam[1], lam[0], work
            )  # fmt: skip
        return float(lower), lam[0]

    def _leave(self, v: Array, mu: Array, lam: Array) -> tuple[float, float]:
        """Return the least cost of leaving the set along straight lines, and a bound by a polytope."""
        value = math.inf
        for direction in _directions(len(mu)):
            value = self._try_direction(v, mu, direction, value, lam)
        if len(mu) <= HULL:
            return self._grow(v, mu, value, lam)
        return value, min(self._cross(v, mu), value) if len(mu) <= CROSS else 0.0

    def _grow(self, v: Array, mu: Array, value: float, lam: Array) -> tuple[float, float]:
        """Enlarge a polytope inside the set until its cheapest facet touches the boundary."""
        lower, trial, fence = 0.0, np.empty(len(mu)), self._fence(v, mu, value)
        found = [self._set.least(direction, fence)[1] for direction in _directions(len(mu))]
        corners = [corner for corner in found if corner is not None]
        done: set[tuple[float, ...]] = set()  # facets on the boundary of the set or of the search bounds
        for _ in range(CORNERS):
            best, cheapest, least = math.inf, None, math.inf
            for normal, offset in _facets(np.array(corners)):
                price = self._reach(v, mu, normal, offset, trial)[1]
                least = min(least, price)
                if price < best and tuple(np.round(normal, 9)) not in done:
                    best, cheapest, through = price, (normal, offset), trial.copy()
            lower = max(lower, min(least, value)) if least < math.inf else lower
            if cheapest is None or best >= value * (1.0 - CLOSE):
                break
            value = self._try_direction(v, mu, through - mu, value, lam)
            farthest, corner = self._set.least(-cheapest[0], fence)
            if corner is None or -farthest <= cheapest[1] + TOLERANCE:
                done.add(tuple(np.round(cheapest[0], 9)))
            else:
                corners.append(corner)
        return value, min(lower, value)

    def _cross(self, v: Array, mu: Array) -> float:
        """Return the least cost to leave the polytope of the points where the axes leave the set."""
        ends = np.array([[self._end(mu, sign * axis)[0] for sign in (1, -1)] for axis in np.eye(len(mu))])
        if not ends.all():
            return 0.0
        trial = np.empty(len(mu))
        least = math.inf
        for signs in itertools.product((1, -1), repeat=len(mu)):
            normal = np.array(
                [sign / end[0 if sign > 0 else 1] for sign, end in zip(signs, ends, strict=True)]
            )
            least = min(least, self._reach(v, mu, normal, 1.0 + float(normal @ mu), trial)[1])
        return least

    def _try_direction(self, v: Array, mu: Array, direction: Array, value: float, lam: Array) -> float:
        """Go from the means in this direction to the boundary; keep that point if it is cheaper."""
        inside, outside = self._end(mu, direction)
        if inside == outside:
            return value
        there = np.clip(mu + outside * direction, *self.edges)
        cost = self._cost(v[:, None], mu[:, None], there[None])
        if cost < value:
            lam[:] = there
        return min(cost, value)

    def _end(self, mu: Array, direction: Array) -> tuple[float, float]:
        """Return how far the set extends in this direction: just inside and just outside.

        Both are the same where the domain ends first, or the set is unbounded.
        """
        room = [
            ((self.edges[1] if d > 0 else self.edges[0]) - m) / d
            for m, d in zip(mu, direction, strict=True)
            if d
        ]
        most = min([*room, 1e9 * (1.0 + float(np.abs(mu).max()))], default=0.0)
        inside, outside = 0.0, min(1.0, most)
        while outside < most and self._set.contains(mu + outside * direction):
            inside, outside = outside, min(2.0 * outside, most)
        if self._set.contains(mu + outside * direction):
            return outside, outside
        for _ in range(60):
            middle = 0.5 * (inside + outside)
            if self._set.contains(mu + middle * direction):
                inside = middle
            else:
                outside = middle
        return inside, outside

    def _fence(self, v: Array, mu: Array, value: float) -> tuple[Array, Array]:
        """Return bounds within which no cell alone costs more than the best known; wide if none is."""
        wide = 10.0 * (1.0 + np.ptp(mu) + np.abs(mu).max())
        low, high = np.maximum(mu - wide, self.edges[0]), np.minimum(mu + wide, self.edges[1])
        for g in np.nonzero(v > 0)[0] if math.isfinite(value) else ():
            low[g] = farthest_within(self.code, mu[g], value / v[g], False)
            high[g] = farthest_within(self.code, mu[g], value / v[g], True)
        # the solver needs numbers of moderate size; points beyond this are treated as unreachable
        return np.maximum(low, mu - 1e3 * wide), np.minimum(high, mu + 1e3 * wide)

    def _reach(self, v: Array, mu: Array, a: Array, c: float, lam: Array) -> tuple[float, float]:
        lo, hi = (np.full(len(mu), edge) for edge in self.edges)
        work = np.empty(halfspace.work_size(len(mu)))
        arrays = (np.ascontiguousarray(part) for part in (v, mu, a))
        weights, centre, normal = arrays
        return halfspace.reach(self.code, weights, centre, normal, c, lo, hi, lam, work)

    def _cost(self, v: Array, mu: Array, lam: Array) -> float:
        cells = zip(v.T.ravel(), mu.T.ravel(), lam.ravel(), strict=True)
        return float(sum(w * unit_families.divergence(self.code, m, x) for w, m, x in cells if w > 0))

    def _slope(self, v: Array, mu: Array, lam: Array) -> Array:
        return np.array(
            [
                w * unit_families.slope(self.code, m, x) if w > 0 else 0.0
                for w, m, x in zip(v, mu, lam, strict=True)
            ]
        )


def _directions(groups: int) -> Iterator[Array]:
    """Yield the axes, their sum, and the differences of two: usual normals of a requirement."""
    eye = np.eye(groups)
    yield from eye
    yield from -eye
    if groups > 1:
        yield from (np.ones(groups), -np.ones(groups))
        yield from (eye[g] - eye[h] for g in range(groups) for h in range(groups) if g != h)


def _facets(corners: Array) -> list[tuple[Array, float]]:
    """Return the facets a.x <= c of the polytope of these corners; none where it is flat."""
    from scipy.spatial import ConvexHull, QhullError

    if len(corners) == 0:
        return []
    if corners.shape[1] == 1:
        return [(np.ones(1), float(corners.max())), (-np.ones(1), -float(corners.min()))]
    try:
        hull = ConvexHull(corners)
    except QhullError:
        return []
    different = np.unique(np.round(hull.equations, 12), axis=0)
    return [(row[:-1].copy(), -float(row[-1])) for row in different]
