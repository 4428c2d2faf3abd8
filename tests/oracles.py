"""Slow, literal solvers of the inner problems, for tests to compare the kernels with.

A problem is written as a union of pieces, each a set of linear conditions `rows x >= rhs` on the stacked
means (and at most one quadratic one); the nearest point of every piece is left to a general solver:

    daqp_value     Gaussian, linear pieces: an active-set QP
    conic_value    any family with a convex divergence, convex pieces: cvxpy and Clarabel
    slsqp_value    anything, from several starting points: an upper bound on the infimum
    scip_value     Gaussian with penalties: the mixed-integer programme eq:gamma_miqp, with its 1/2

Weights are divided by their maximum first: the solvers' tolerances are absolute.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import kl_div

from evenhand.model import region as regions
from evenhand.model.region import Region
from evenhand.model.unit_families import BERNOULLI, EXPONENTIAL, GAUSSIAN, POISSON

Array = NDArray[np.float64]


class Part(NamedTuple):
    """rows x >= rhs, and sign (limit - x' quad x) >= 0 where there is a quadratic."""

    rows: Array
    rhs: Array
    quad: Array | None = None
    limit: float = math.inf
    sign: float = 1.0


class Cells(NamedTuple):
    """The cells a problem moves, stacked: their family, weights and means."""

    code: int
    v: Array
    mu: Array


def divergence(code: int, mu: Array, lam: Array) -> Array:
    """d(mu, lam) from the textbook, elementwise."""
    if code == GAUSSIAN:
        return np.asarray((mu - lam) ** 2 / 2)
    if code == BERNOULLI:
        return np.asarray(kl_div(mu, lam) + kl_div(1 - mu, 1 - lam))
    if code == POISSON:
        return np.asarray(kl_div(mu, lam))
    return np.asarray(mu / lam - 1 - np.log(mu / lam))


def inside(r: Region, k: int, groups: int) -> list[Part]:
    """The region of policy k as a union of pieces."""
    eye = np.eye(groups)
    rows, rhs = _linear(r, k, groups)
    quad = r.quad if r.limit < math.inf else None
    if r.need == 0:
        return [Part(rows, rhs, quad, r.limit)]
    return [
        Part(np.r_[rows, eye[list(met)]], np.r_[rhs, r.lo[list(met), k]], quad, r.limit)
        for met in itertools.combinations(range(groups), r.need)
    ]


def outside(r: Region, k: int, groups: int) -> list[Part]:
    """The closure of the region's complement as a union of pieces, one for each condition that may break."""
    eye = np.eye(groups)
    rows, rhs = _linear(r, k, groups)
    pieces = [Part(-row[None], -np.array([bound])) for row, bound in zip(rows, rhs, strict=True)]
    if r.limit < math.inf:
        pieces.append(Part(np.zeros((0, groups)), np.zeros(0), r.quad, r.limit, -1.0))
    if r.need > 0:
        pieces.extend(
            Part(-eye[list(missed)], -r.lo[list(missed), k])
            for missed in itertools.combinations(range(groups), groups - r.need + 1)
        )
    return pieces


def beaten(r: Region, q: Array, i: int, k: int, eps: float = 0.0) -> list[Part]:
    """Rival k inside its region with a score of at least policy i's + eps, on the vector (lam_i, lam_k)."""
    groups = q.size
    if r.kind == regions.PENALTY:
        return list(_soft(r, q, i, k, eps))
    ahead = np.r_[-q, q][None]
    pieces = []
    for piece in inside(r, k, groups):
        rows = np.r_[ahead, np.c_[np.zeros((len(piece.rows), groups)), piece.rows]]
        quad = None
        if piece.quad is not None:
            quad = np.zeros((2 * groups, 2 * groups))
            quad[groups:, groups:] = piece.quad
        pieces.append(Part(rows, np.r_[eps, piece.rhs], quad, piece.limit))
    return pieces


def related(r: Region, k: int, policies: list[int]) -> tuple[list[Array], list[float]]:
    """Rows x >= rhs for policy k inside a relative region, x the stacked means of these policies."""
    groups = r.quad.shape[0]
    rows, rhs = [], []

    def add(bound: float, *terms: tuple[int, int, float]) -> None:
        row = np.zeros(len(policies) * groups)
        for policy, g, factor in terms:
            row[policies.index(policy) * groups + g] += factor
        if math.isfinite(bound):
            rows.append(row)
            rhs.append(bound)

    for g in range(groups):
        add(r.lo[g, k], (k, g, 1.0))
        add(-r.hi[g, k], (k, g, -1.0))
        if k != r.control:
            add(-r.floor_margin[g], (k, g, 1.0), (r.control, g, -r.floor_ratio[g]))
            add(-r.cap_margin[g], (k, g, -1.0), (r.control, g, r.cap_ratio[g]))
    return rows, rhs


def daqp_value(cells: Cells, pieces: list[Part]) -> float:
    """Gaussian, linear pieces, positive weights: exact to about 1e-10."""
    import daqp

    assert cells.code == GAUSSIAN
    top = cells.v.max()
    best = math.inf
    for rows, rhs, quad, _, _ in pieces:
        assert quad is None
        # in y = sqrt(v) (lam - mu) the Hessian is the identity
        root = np.sqrt(cells.v / top)
        x, _, flag, _ = daqp.solve(
            np.eye(root.size), np.zeros(root.size), np.ascontiguousarray(rows / root),
            np.full(len(rhs), 1e30), rhs - rows @ cells.mu, np.zeros(len(rhs), dtype=np.int32),
            primal_tol=1e-11, dual_tol=1e-13,
        )  # fmt: skip
        if flag == 1:
            best = min(best, float(x @ x) / 2 * top)
    return best


def conic_value(cells: Cells, pieces: list[Part]) -> float:
    """Convex divergence, convex pieces: exact to about 1e-8, zero weights and edge means included."""
    import cvxpy

    top = cells.v.max()
    best = math.inf
    for rows, rhs, quad, limit, sign in pieces:
        assert sign > 0
        lam = cvxpy.Variable(cells.mu.size)
        conditions = [rows @ lam >= rhs] if len(rhs) else []
        if quad is not None:
            conditions.append(cvxpy.quad_form(lam, cvxpy.psd_wrap(quad)) <= limit)
        if cells.code == GAUSSIAN:
            each = cvxpy.square(lam - cells.mu) / 2
        elif cells.code == POISSON:
            each = cvxpy.kl_div(cells.mu, lam)
            conditions.append(lam >= 0)
        else:
            each = cvxpy.kl_div(cells.mu, lam) + cvxpy.kl_div(1 - cells.mu, 1 - lam)
            conditions += [lam >= 0, lam <= 1]
        weighted = cells.v > 0
        goal = cvxpy.sum(cvxpy.multiply(cells.v[weighted] / top, each[weighted])) if weighted.any() else 0
        problem = cvxpy.Problem(cvxpy.Minimize(goal), conditions)
        problem.solve(solver=cvxpy.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
        if problem.status in ("optimal", "optimal_inaccurate"):
            best = min(best, float(problem.value) * top)
    return best


def slsqp_value(cells: Cells, pieces: list[Part], starts: int = 4, seed: int = 0) -> float:
    """Anything, from several starts: the cheapest feasible point found, often exact to about 1e-7."""
    rng = np.random.default_rng(seed)
    top = cells.v.max() if cells.v.max() > 0 else 1.0
    low, high = _domain(cells.code)
    bounds = [(low, high)] * cells.mu.size
    best = math.inf
    for piece in pieces:
        conditions = _as_functions(piece)
        for start in range(starts):
            spread = 0.0 if start == 0 else 2.0 ** (start - 1)
            begin = np.clip(_drawn(cells, spread, rng), low, high)
            found = minimize(
                lambda lam: _total(cells, lam) / top, begin, jac=lambda lam: _slopes(cells, lam) / top,
                bounds=bounds, constraints=conditions, method="SLSQP",
                options={"ftol": 1e-14, "maxiter": 500},
            )  # fmt: skip
            if all(np.min(c["fun"](found.x), initial=0.0) > -1e-9 for c in conditions):
                best = min(best, _total(cells, found.x))
    return best


def scip_value(cells: Cells, r: Region, q: Array, i: int, k: int) -> float:
    """Gaussian with penalties, by SCIP."""
    model = scip_model(cells, r, q, i, k)
    model.optimize()
    return float(model.getObjVal()) * cells.v.max()


def scip_model(cells: Cells, r: Region, q: Array, i: int, k: int) -> Any:
    """eq:gamma_miqp with every weight halved; the largest weight is 1."""
    from pyscipopt import Model, quicksum

    assert cells.code == GAUSSIAN
    groups, top = q.size, cells.v.max()
    floor = np.r_[r.lo[:, i], r.lo[:, k]]
    big = 10.0 * (np.ptp(np.r_[cells.mu, floor]) + 1.0)
    model = Model()
    model.hideOutput()
    model.setParam("limits/gap", 1e-9)
    model.setParam("numerics/feastol", 1e-9)
    lam = [model.addVar(lb=mu - big, ub=mu + big) for mu in cells.mu]
    short = [model.addVar(lb=-4 * big, ub=0.0) for _ in lam]
    below = [model.addVar(vtype="B") for _ in lam]
    for x, s, z, c in zip(lam, short, below, floor, strict=True):
        model.addCons(s <= x - c)
        model.addCons(s >= x - c - 4 * big * (1 - z))
        model.addCons(s >= -4 * big * z)
    score = [
        quicksum(q[g] * (lam[a * groups + g] + r.gamma[g] * short[a * groups + g]) for g in range(groups))
        for a in range(2)
    ]
    model.addCons(score[1] >= score[0])
    cost = model.addVar(lb=0.0)
    weights = cells.v / top
    model.addCons(
        cost >= quicksum(w / 2 * (x - m) * (x - m) for w, x, m in zip(weights, lam, cells.mu, strict=True))
    )
    model.setObjective(cost)
    return model


def _linear(r: Region, k: int, groups: int) -> tuple[Array, Array]:
    """The linear conditions of policy k's region."""
    eye = np.eye(groups)
    rows, rhs = list(r.rows), list(r.rhs[:, k])
    if r.kind == regions.BOX:
        for g in range(groups):
            if r.lo[g, k] > -math.inf:
                rows.append(eye[g])
                rhs.append(r.lo[g, k])
            if r.hi[g, k] < math.inf:
                rows.append(-eye[g])
                rhs.append(-r.hi[g, k])
    if r.kind == regions.SPREAD:
        for g, h in itertools.permutations(range(groups), 2):
            rows.append(eye[g] - r.rho * eye[h])
            rhs.append(-r.slack)
    return np.array(rows).reshape(-1, groups), np.array(rhs, dtype=float)


def _soft(r: Region, q: Array, i: int, k: int, eps: float) -> Iterator[Part]:
    """The rival's score is the least of 2^L linear ones; the best policy's is one of its 2^L, any of them."""
    patterns = [np.array(z, dtype=float) for z in itertools.product((0, 1), repeat=q.size)]

    def line(z: Array, a: int) -> tuple[Array, float]:
        # q (x + gamma (x - floor)) where z = 1
        return q * (1 + r.gamma * z), -float((q * r.gamma * z) @ r.lo[:, a])

    for chosen in patterns:
        down, below = line(chosen, i)
        lines = [line(z, k) for z in patterns]
        rows = np.array([np.r_[-down, up] for up, _ in lines])
        yield Part(rows, np.array([below + eps - above for _, above in lines]))


def _as_functions(piece: Part) -> list[dict[str, object]]:
    rows, rhs, quad, limit, sign = piece
    conditions: list[dict[str, object]] = []
    if len(rhs):
        conditions.append({"type": "ineq", "fun": lambda x: rows @ x - rhs, "jac": lambda x: rows})
    if quad is not None:
        conditions.append(
            {"type": "ineq", "fun": lambda x: np.array([sign * (limit - x @ quad @ x)]),
             "jac": lambda x: (-2 * sign * quad @ x)[None]}
        )  # fmt: skip
    return conditions


def _domain(code: int) -> tuple[float, float]:
    if code == GAUSSIAN:
        return -math.inf, math.inf
    return 1e-11, (1 - 1e-11 if code == BERNOULLI else math.inf)


def _drawn(cells: Cells, spread: float, rng: np.random.Generator) -> Array:
    """A starting point near the means, or farther and farther away."""
    noise = rng.normal(size=cells.mu.size)
    if cells.code in (POISSON, EXPONENTIAL):
        return np.maximum(cells.mu, 1e-3) * np.exp(spread * noise)
    return cells.mu + 0.3 * spread * noise


def _total(cells: Cells, lam: Array) -> float:
    used = cells.v > 0
    return float(cells.v[used] @ divergence(cells.code, cells.mu[used], lam[used]))


def _slopes(cells: Cells, lam: Array) -> Array:
    variance = {
        GAUSSIAN: np.ones_like(lam), BERNOULLI: lam * (1 - lam), POISSON: lam, EXPONENTIAL: lam**2
    }[cells.code]  # fmt: skip
    return cells.v * (lam - cells.mu) / variance
