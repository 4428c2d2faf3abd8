"""Plans of random wider questions against the alternatives as the definitions state them, solved by cvxpy.

At the plan's allocation the cheapest alternative must cost what the plan promises, and at no other allocation
may it cost more.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from evenhand.errors import Undecidable
from evenhand.model.families import Bernoulli, Family, Gaussian, Poisson
from evenhand.model.guardrails import Guardrail
from evenhand.model.problem import Problem
from evenhand.model.requirements import All, Caps, Constraint, Floors
from evenhand.theory.plan import Plan, plan

Array = NDArray[np.float64]
Condition = tuple[int, dict[tuple[int, int], float], float]  # metric, factors of (policy, group), at least

SCALES = {"gaussian": 0.5, "bernoulli": 0.2, "poisson": 0.8}
FAMILIES: dict[str, Family] = {"gaussian": Gaussian(1.0), "bernoulli": Bernoulli(), "poisson": Poisson()}


@dataclass
class Metric:
    """An outcome in its own units: floors (or caps) relative to policy 0, and absolute floors."""

    family: str
    means: Array
    sign: float  # 1: relative floors; -1: relative caps
    margin: Array
    floor: Array | None

    @property
    def constraint(self) -> Constraint:
        kind = Floors if self.sign > 0 else Caps
        moving = kind(relative_to="p0", margin=self.margin.tolist())
        return moving if self.floor is None else All((moving, Floors(self.floor.tolist())))

    def conditions(self, number: int, k: int, slack: float = 0.0) -> list[Condition]:
        found: list[Condition] = []
        for g, margin in enumerate(self.margin):
            if k != 0:
                found.append((number, {(k, g): self.sign, (0, g): -self.sign}, -margin - slack))
            if self.floor is not None:
                found.append((number, {(k, g): 1.0}, self.floor[g] - slack))
        return found


def a_metric(rng: np.random.Generator, policies: int, groups: int) -> Metric:
    family = str(rng.choice(list(SCALES)))
    scale = SCALES[family]
    middle = 0.5 if family == "bernoulli" else 1.2
    means = (middle + scale * rng.uniform(-1, 1, (policies, groups))).round(3)
    floor = (middle + scale * rng.uniform(-1.2, -0.2, groups)).round(3) if rng.random() < 0.5 else None
    margin = (scale * rng.uniform(-0.1, 1.0, groups)).round(3)
    return Metric(family, means, 1.0 if rng.random() < 0.7 else -1.0, margin, floor)


def reversed_(condition: Condition) -> Condition:
    metric, factors, least = condition
    return metric, {cell: -factor for cell, factor in factors.items()}, -least


def alternatives(
    metrics: list[Metric], q: Array, answer: int | None, eps: float, tau: float
) -> list[list[Condition]]:
    """The alternatives to an answer: each a list of linear conditions that hold at once."""
    policies = range(len(metrics[0].means))
    inside = [[c for j, one in enumerate(metrics) for c in one.conditions(j, k)] for k in policies]
    if answer is None:
        return inside
    own = [c for j, one in enumerate(metrics) for c in one.conditions(j, answer, 0.0 if j else tau)]
    found = [[reversed_(c)] for c in own]
    for k in policies:
        if k != answer:
            ahead = {(k, g): share for g, share in enumerate(q)}
            ahead |= {(answer, g): -share for g, share in enumerate(q)}
            found.append([*inside[k], (0, ahead, eps)])
    return found


def screened(metrics: list[Metric], allowed: list[bool]) -> list[list[Condition]]:
    """The alternatives to a classification."""
    found: list[list[Condition]] = []
    for k, passes in enumerate(allowed):
        conditions = [c for j, one in enumerate(metrics) for c in one.conditions(j, k)]
        found += [[reversed_(c)] for c in conditions] if passes else [conditions]
    return found


def cheapest(metrics: list[Metric], w: Array, pieces: list[list[Condition]]) -> float:
    """The cost of the nearest alternative at the allocation w, by cvxpy.

    The solver's tolerances are absolute, so it gets weights whose largest is 1.
    """
    largest = float(w.max())
    return min((largest * _cost(metrics, w / largest, piece) for piece in pieces), default=math.inf)


def _cost(metrics: list[Metric], w: Array, piece: list[Condition]) -> float:
    import cvxpy as cp

    cells = sorted({(metric, *cell) for metric, factors, _ in piece for cell in factors})
    if not cells:
        return 0.0
    x = cp.Variable(len(cells))
    at = {cell: n for n, cell in enumerate(cells)}
    costs = []
    for n, (metric, k, g) in enumerate(cells):
        mu, family = metrics[metric].means[k, g], metrics[metric].family
        if family == "gaussian":
            costs.append(w[k, g] * cp.square(x[n] - mu) / 2)
        else:
            costs.append(w[k, g] * cp.kl_div(mu, x[n]))
            if family == "bernoulli":
                costs.append(w[k, g] * cp.kl_div(1 - mu, 1 - x[n]))
    conditions = [
        sum(factor * x[at[metric, *cell]] for cell, factor in factors.items()) >= least
        for metric, factors, least in piece
    ]
    problem = cp.Problem(cp.Minimize(sum(costs)), conditions)
    for tolerance in (1e-11, 1e-9, 1e-7):  # with weights of 1e-12 the solver does not always reach the first
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Solution may be inaccurate")
            value = problem.solve(
                solver=cp.CLARABEL, tol_gap_abs=tolerance, tol_gap_rel=tolerance, tol_feas=tolerance
            )
        if problem.status == cp.OPTIMAL:
            return float(value)
    raise AssertionError(f"the solver ended with {problem.status}")


def check(found: Plan, metrics: list[Metric], pieces: list[list[Condition]], rng: Any) -> None:
    w = np.maximum(found.allocation, 1e-12)
    assert found.time_high <= found.time_low * (1 + 1e-4)
    assert cheapest(metrics, w, pieces) == pytest.approx(1 / found.time_high, rel=2e-4, abs=1e-9)
    for _ in range(3):
        other = w * rng.uniform(0.5, 1.5, w.shape) + 0.05 * rng.dirichlet(np.ones(w.size)).reshape(w.shape)
        other /= other.sum()
        assert cheapest(metrics, other, pieces) <= 1 / found.time_low * (1 + 2e-4) + 1e-9


def a_problem(rng: np.random.Generator, goal: str) -> tuple[Problem, list[Metric]]:
    policies, groups = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    metrics = [a_metric(rng, policies, groups) for _ in range(int(rng.integers(1, 3)))]
    rails = [
        Guardrail(f"rail {j}", FAMILIES[one.family], one.constraint) for j, one in enumerate(metrics) if j
    ]
    shares = rng.dirichlet(np.full(groups, 3.0))
    names = {f"g{g}": float(share) for g, share in enumerate(shares)}
    problem = Problem(
        [f"p{k}" for k in range(policies)], names, FAMILIES[metrics[0].family], metrics[0].constraint,
        guardrails=rails, goal=goal,
    )  # fmt: skip
    return problem, metrics


def rail_means(metrics: list[Metric]) -> dict[str, Array]:
    return {f"rail {j}": one.means for j, one in enumerate(metrics) if j}


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_best_policy_takes_what_the_definition_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem, metrics = a_problem(rng, "best")
    scale = SCALES[metrics[0].family]
    eps, tau = (float(rng.choice([0.0, part * scale])) for part in (0.2, 0.1))
    try:
        found = plan(
            problem, metrics[0].means, guardrails=rail_means(metrics), indifference=eps, tolerance=tau
        )
    except Undecidable:
        return
    if found.time_low == 0.0 or found.time_high > 1e5:
        return  # nothing to rule out; or too small a cost for the solver's tolerance
    answer = None if found.easiest is None else problem.policies.index(found.easiest)
    check(found, metrics, alternatives(metrics, problem.shares, answer, eps, tau), rng)


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_screening_takes_what_the_definition_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem, metrics = a_problem(rng, "screen")
    try:
        found = plan(problem, metrics[0].means, guardrails=rail_means(metrics))
    except Undecidable:
        return
    if found.time_low == 0.0 or found.time_high > 1e5:
        return
    allowed = [name in found.feasible for name in problem.policies]
    check(found, metrics, screened(metrics, allowed), rng)
