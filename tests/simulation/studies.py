"""Small studies that the simulator's tests share."""

from __future__ import annotations

from typing import Any

import numpy as np

from evenhand.model.families import Bernoulli, Family, Gaussian
from evenhand.model.problem import Problem
from evenhand.model.requirements import Constraint, Floors
from evenhand.procedure.spec import Procedure
from evenhand.simulation.runs import Runs
from evenhand.study import Study, Truth
from evenhand.theory.question import question_of

# the paper's scaling instance: p1 is best, p3 and p4 miss their floors
SCALING = ((0.8, 0.6, 0.7), (0.5, 0.6, 0.4), (-0.6, 1.2, 1.1), (-1.5, 0.8, 0.9), (0.4, 0.2, 0.1))


def scaling(truth: dict[str, Any] | None = None, mode: str = "active", **procedure: Any) -> Study:
    """The scaling instance with a stylised stop at risk .2, or as asked."""
    problem = problem_of(5, 3, Gaussian(0.5), Floors(0.0), mode)
    given = {"stopping": "stylised", "delta": 0.2, "initial": 5, "max_samples": 20_000} | procedure
    return Study(problem, Procedure(**given), Truth(means=SCALING, **(truth or {})))


def coins(**procedure: Any) -> Study:
    """Two policies, two groups, successes and failures; small and quick."""
    problem = problem_of(2, 2, Bernoulli(), Floors(0.3))
    given = {"stopping": "stylised", "delta": 0.1, "initial": 5, "max_samples": 2_000} | procedure
    return Study(problem, Procedure(**given), Truth(means=((0.8, 0.7), (0.4, 0.5))))


def problem_of(
    policies: int, groups: int, family: Family, constraint: Constraint, mode: str = "active"
) -> Problem:
    names = [f"p{k + 1}" for k in range(policies)]
    shares = {f"g{g + 1}": 1 / groups for g in range(groups)}
    return Problem(names, shares, family, constraint, mode=mode)


def same_rows(one: Runs, other: Runs) -> bool:
    """Equal bit for bit, in everything but the time it took."""
    return all(np.array_equal(a, b) for a, b in zip(one.rows, other.rows, strict=True))


def check_acceptable(runs: Runs, tables: Any) -> None:
    """Compare what counts as right in each run with what a plan at its means calls acceptable."""
    problem, procedure = runs.study.problem, runs.study.procedure
    right = []
    for table, answer in zip(tables, runs.answer.tolist(), strict=True):
        question = question_of(problem, table, None, procedure.indifference, procedure.tolerance)
        right.append((answer if answer >= 0 else None) in question.acceptable)
    assert runs.correct.tolist() == right
    assert 20 < sum(right) < len(right)
