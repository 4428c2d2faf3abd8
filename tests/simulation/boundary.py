"""How often a procedure decides wrongly on instances near the boundary of its question."""

from __future__ import annotations

from typing import Any

from scipy import stats

from evenhand.model.problem import Problem
from evenhand.procedure.spec import Procedure
from evenhand.simulation.simulate import simulate
from evenhand.study import Truth

RISK, RUNS, CONFIDENCE = 0.1, 2000, 0.999
TINY = 1e-3


def most_errors(problem: Problem, means: Any, horizon: int = 1500, runs: int = RUNS, **wider: Any) -> float:
    """The exact upper bound on the chance of a wrong decision within so many samples.

    `wider` holds an indifference, a tolerance, a sampling rule, or the means of guard-rails.
    """
    guardrails = wider.pop("guardrails", None)
    procedure = Procedure(delta=RISK, max_samples=horizon, **wider)
    truth = Truth(means=tuple(map(tuple, means)), guardrails=guardrails)
    found = simulate(problem, truth, procedure, runs, seed=17)
    wrong = int(found.wrong.sum())
    return float(stats.beta.ppf(CONFIDENCE, wrong + 1, runs - wrong))
