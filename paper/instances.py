"""The paper's problem instances."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evenhand.model.families import Bernoulli, Gaussian
from evenhand.model.problem import Problem
from evenhand.model.requirements import Constraint, Floors, Penalty
from evenhand.procedure.randomness import SCENARIOS, uniform

Array = NDArray[np.float64]

THIRDS = {"group 1": 1 / 3, "group 2": 1 / 3, "group 3": 1 / 3}

# table:ist_cells_appendix: (policy, group) -> (patients, patients with a good outcome after 14 days)
STROKE_COUNTS = {
    "Aspirin only": ((3470, 3097), (1388, 1170)),
    "Heparin only": ((3484, 3049), (1371, 1094)),
    "Both": ((3499, 3046), (1363, 1069)),
    "Neither": ((3496, 3151), (1364, 1125)),
}
STROKE_GROUPS = {"under 80": 0.7177, "80 and over": 0.2823}
STROKE_FLOOR = 5 / 6


def scaling(gap: float = 0.6) -> tuple[Problem, Array]:
    """table:asymptotic_instance.

    The third policy is best in two groups and misses the floor of the first by `gap`.
    """
    means = [[0.8, 0.6, 0.7], [0.5, 0.6, 0.4], [-gap, 1.2, 1.1], [-1.5, 0.8, 0.9], [0.4, 0.2, 0.1]]
    return Problem(_names(5), THIRDS, Gaussian(0.5), Floors(0.0)), np.array(means)


def hard_and_soft(gamma: float | None) -> tuple[Problem, Array]:
    """table:extension_instance with a hard floor, or with a penalty gamma for a shortfall."""
    means = [
        [0.55, 0.60, 0.50], [0.35, 0.40, 0.30], [0.30, 0.35, 0.25], [0.05, 1.05, 1.00], [0.00, 0.80, 0.75],
        [0.05, 0.40, 0.35], [0.00, 0.35, 0.30], [0.10, 0.30, 0.25], [0.25, 0.30, 0.20], [0.20, 0.25, 0.25],
    ]  # fmt: skip
    requirement: Constraint = Floors(0.2) if gamma is None else Penalty(floor=0.2, gamma=gamma)
    return Problem(_names(10), THIRDS, Gaussian(0.5), requirement), np.array(means)


def three_treatments(epsilon: float) -> tuple[Problem, Array]:
    """tab:example_2: B fails group 2 by epsilon; C is best overall and fails group 2 by far."""
    problem = Problem(("A", "B", "C"), {"group 1": 0.5, "group 2": 0.5}, Gaussian(1.0), Floors(0.0))
    return problem, np.array([[1.0, 1.0], [1.0, -epsilon], [4.0, -1.0]])


def stroke_trial() -> tuple[Problem, Array]:
    """table:ist_means: shares of patients with a good outcome after 14 days.

    The outcome is good without death, another stroke or major bleeding.
    """
    means = np.array([[well / n for n, well in groups] for groups in STROKE_COUNTS.values()])
    return Problem(tuple(STROKE_COUNTS), STROKE_GROUPS, Bernoulli(), Floors(STROKE_FLOOR)), means


def operational_scale(policies: int, family: Bernoulli | Gaussian) -> Problem:
    """subsubsec:robustness.

    Many policies, floors at 0.2. Outcomes are 0 or 1; the paper models them as Gaussian.
    """
    return Problem(_names(policies), THIRDS, family, Floors(0.2))


class OperationalMeans:
    """Means of the operational-scale instance, drawn for each replication.

    The paper gives three ranges of means but not how many policies have each. Here it is a third each, or the
    first two shares are in `mix`. Policy 1 is (0.45, 0.45, 0.45).
    """

    def __init__(self, policies: int, mix: tuple[float, float] = (1 / 3, 1 / 3)) -> None:
        self.policies = policies
        feasible, good = mix
        self.ends = round(feasible * (policies - 1)), round((feasible + good) * (policies - 1))

    def __call__(self, seed: int, replication: int) -> Array:
        means = np.full((self.policies, 3), 0.45)
        for k in range(1, self.policies):
            kind = sum(k > end for end in self.ends)
            for g in range(3):
                low, high = _range(kind, g)
                means[k, g] = low + (high - low) * uniform(seed, 3 * k + g, 0, replication, SCENARIOS)
        return means


def _range(kind: int, group: int) -> tuple[float, float]:
    """Return the range of means: 0 feasible, 1 infeasible and good, 2 infeasible and poor."""
    if kind == 0:
        return 0.32, 0.42
    if group == 0:
        return 0.00, 0.10
    return (0.45, 0.70) if kind == 1 else (0.20, 0.35)


def _names(count: int) -> tuple[str, ...]:
    return tuple(f"a{k}" for k in range(1, count + 1))
