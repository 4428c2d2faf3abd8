"""A user's convex set through cvxpy: membership, support in a direction, and projection.

Nothing here is certified: `custom` derives certified bounds from these points and directions.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput
from evenhand.model import unit_families
from evenhand.model.problem import Problem
from evenhand.model.requirements import Convex

Array = NDArray[np.float64]


class UserSet:
    """Membership, support in a direction, and projection."""

    def __init__(
        self, problem: Problem, constraint: Convex, edges: tuple[float, float], origin: float, unit: float
    ) -> None:
        cvxpy = _cvxpy()
        self._inside = constraint.contains
        # x represents the mean low + width x in the user's units
        self._low = problem.family.low + problem.family.width * origin
        self._width = problem.family.width * unit
        groups = problem.shape[1]
        self._x = cvxpy.Variable(groups)
        self._conditions = list(constraint.build(self._low + self._width * self._x))
        self._conditions += [self._x >= edges[0]] if math.isfinite(edges[0]) else []
        self._conditions += [self._x <= edges[1]] if math.isfinite(edges[1]) else []
        self._edges = edges
        self._direction, self._origin = cvxpy.Parameter(groups), cvxpy.Parameter(groups)
        self._from, self._to = cvxpy.Parameter(groups), cvxpy.Parameter(groups)
        fence = [self._x >= self._from, self._x <= self._to]
        along, away = self._direction @ self._x, cvxpy.sum_squares(self._x - self._origin)
        self._support = cvxpy.Problem(cvxpy.Minimize(along), self._conditions + fence)
        self._projection = cvxpy.Problem(cvxpy.Minimize(away), self._conditions)

    def contains(self, m: Array) -> bool:
        return bool(self._inside(self._low + self._width * m))

    def least(self, direction: Array, fence: tuple[Array, Array]) -> tuple[float, Array | None]:
        """Return the least direction.x over the part of the set within the bounds, and its point."""
        size = float(np.linalg.norm(direction))
        if size == 0.0:
            return 0.0, None
        self._direction.value = direction / size
        self._from.value, self._to.value = fence
        found = _solved(self._support)
        return (-math.inf, None) if found is None else (found * size, self._point())

    def highest(self, q: Array) -> float:
        """Return the largest q.x over the set, infinite where the set is unbounded."""
        cvxpy = _cvxpy()
        found = cvxpy.Problem(cvxpy.Maximize(q @ self._x), self._conditions)
        found.solve(solver="CLARABEL")
        return math.inf if found.status == "unbounded" or found.value is None else float(found.value)

    def project(self, m: Array) -> Array | None:
        """Return the point of the set nearest to m."""
        self._origin.value = m
        return None if _solved(self._projection) is None else self._point()

    def nearest(self, code: int, v: Array, mu: Array, q: Array, eps: float = 0.0) -> Array:
        """Return policy k's part of cvxpy's cheapest point (columns: policy k, and i if beaten)."""
        cvxpy = _cvxpy()
        both = [self._x] + [cvxpy.Variable(len(mu)) for _ in mu.T[1:]]
        conditions = [*self._conditions, *(q @ self._x >= q @ lam_i + eps for lam_i in both[1:])]
        if math.isfinite(self._edges[0]):
            conditions += [lam_i >= self._edges[0] for lam_i in both[1:]]
        if math.isfinite(self._edges[1]):
            conditions += [lam_i <= self._edges[1] for lam_i in both[1:]]
        # the exponential's divergence is not convex; the Poisson's is; and 1 / mu gives equal curvature at mu
        weight = v / mu if code == unit_families.EXPONENTIAL else v
        weight = weight / weight.max() if weight.max() > 0 else np.ones_like(weight)
        goal = sum(
            cvxpy.sum(cvxpy.multiply(w[w > 0], _divergence(cvxpy, code, m[w > 0], lam[w > 0])))
            for w, m, lam in zip(weight.T, mu.T, both, strict=True)
            if np.any(w > 0)
        )
        if _solved(cvxpy.Problem(cvxpy.Minimize(goal), conditions)) is None:
            raise BadInput(
                "cvxpy must be able to solve with the convex set; it fails. Check what build returns."
            )
        return self._point()

    def _point(self) -> Array:
        return np.clip(np.asarray(self._x.value, dtype=float), *self._edges)


def _divergence(cvxpy: Any, code: int, mu: Array, lam: Any) -> Any:
    if code == unit_families.GAUSSIAN:
        return cvxpy.square(lam - mu) / 2
    if code == unit_families.BERNOULLI:
        return cvxpy.kl_div(mu, lam) + cvxpy.kl_div(1 - mu, 1 - lam)
    return cvxpy.kl_div(mu, lam)


def _solved(problem: Any) -> float | None:
    """Return the optimum, or None if the solver fails; an empty set is refused."""
    import cvxpy

    for tolerance in (1e-11, 1e-8):
        with warnings.catch_warnings():
            # a solution that misses these tolerances is still useful: nothing is certified by it
            warnings.simplefilter("ignore", UserWarning)
            try:
                problem.solve(
                    solver="CLARABEL", tol_gap_abs=tolerance, tol_gap_rel=tolerance, tol_feas=tolerance
                )
            except cvxpy.SolverError:
                continue
        if "infeasible" in problem.status:
            raise BadInput(
                "the convex set must hold some vector of means in the family's domain; cvxpy finds none. "
                "Check what build returns."
            )
        if "optimal" in problem.status:
            return float(problem.value)
    return None


def _cvxpy() -> Any:
    try:
        import cvxpy
    except ImportError:
        raise BadInput(
            "a convex set of your own needs cvxpy and clarabel; install evenhand[convex]."
        ) from None
    return cvxpy
