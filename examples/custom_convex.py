"""A custom convex requirement: the norm of the shortfalls below a target is limited.

No constraint of the study file expresses this, so it is written for cvxpy: `build` returns the conditions on
a policy's vector of group means, `contains` returns whether a vector meets them. Plans work as for any other
requirement; simulations and live experiments refuse it.
"""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np

import evenhand as eh

TARGET, ALLOWED = 0.5, 0.25
GROUPS = {"north": 0.5, "east": 0.3, "south": 0.2}
MEANS = [[0.70, 0.60, 0.55], [0.90, 0.80, -0.10], [0.45, 0.40, 0.50]]


def build(m: Any) -> list[Any]:
    """Return the condition that the Euclidean norm of the shortfalls is at most ALLOWED."""
    return [cp.norm(cp.pos(TARGET - m), 2) <= ALLOWED]


def contains(m: np.ndarray) -> bool:
    return bool(np.linalg.norm(np.maximum(TARGET - m, 0.0)) <= ALLOWED)


def main() -> eh.Plan:
    requirement = eh.Convex(build, contains, words="keep the norm of its shortfalls at or below 0.25")
    problem = eh.Problem(["a", "b", "c"], GROUPS, eh.Gaussian(0.5), requirement)
    plan = eh.plan(problem, MEANS, gap=1e-2)
    print(f"{plan.answer} would be chosen; {', '.join(plan.feasible)} meet the requirement.")
    print(f"T* lies in [{plan.time_low:.3f}, {plan.time_high:.3f}].")
    print(f"No procedure with risk 5% needs fewer than {plan.samples_at_least(0.05):.0f} samples on average.")
    return plan


if __name__ == "__main__":
    main()
