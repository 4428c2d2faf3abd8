"""Costs in simulations: what a run cost, and samples drawn by evidence per cost."""

from __future__ import annotations

import numpy as np
import pytest

from evenhand.model.families import Gaussian
from evenhand.model.problem import Problem
from evenhand.model.requirements import Constraint, Floors
from evenhand.procedure.spec import Procedure
from evenhand.simulation.simulate import follow, simulate
from evenhand.study import Study, Truth

GROUPS = {"x": 0.5, "y": 0.5}
MEANS = [[0.3, 0.4], [0.8, 0.8], [0.6, 0.5]]
COSTS = [[1.0, 1.0], [1.0, 8.0], [2.0, 2.0]]


def problem(constraint: Constraint | None = None, costs: object = None, mode: str = "active") -> Problem:
    return Problem(["a", "b", "c"], GROUPS, Gaussian(0.5), constraint or Floors(0.2), mode, costs=costs)  # type: ignore[arg-type]


def test_the_cost_of_a_run_is_the_sum_of_what_its_samples_cost() -> None:
    study = Study(problem(costs=COSTS), Procedure(max_samples=400), Truth(means=tuple(map(tuple, MEANS))))
    rows, trace = follow(study, seed=2, replication=0)
    assert rows.cost[0] == sum(COSTS[k][g] for k, g in zip(trace.policy, trace.group, strict=True))


def mean_cost(costs: object, price: list[list[float]], constraint: Constraint, stopping: str) -> float:
    """What runs cost at this price on average where the procedure is given `costs`."""
    procedure = Procedure(stopping=stopping, max_samples=5000)
    runs = simulate(problem(constraint, costs), MEANS, procedure, 300, seed=3)
    assert runs.correct.mean() > 0.9
    return float((runs.allocation * price).sum() * runs.samples.mean())


@pytest.mark.parametrize("constraint", [Floors(0.2), Floors(relative_to="a", margin=0.1)])
@pytest.mark.parametrize(
    ("stopping", "price"), [("stylised", COSTS), ("certified", [[1.0, 1.0], [6.0, 6.0], [1.0, 1.0]])]
)
def test_runs_cost_less_where_sampling_knows_the_price(
    stopping: str, price: list[list[float]], constraint: Constraint
) -> None:
    aware, unaware = (mean_cost(costs, price, constraint, stopping) for costs in (price, None))
    assert aware < unaware


@pytest.mark.parametrize("mode", ["active", "proportional", "agnostic"])
def test_the_cost_is_reported_where_there_are_costs(mode: str) -> None:
    runs = simulate(problem(costs=COSTS, mode=mode), MEANS, Procedure(max_samples=2000), 20, seed=3)
    blind = simulate(problem(mode=mode), MEANS, Procedure(max_samples=2000), 20, seed=3)
    assert runs.cost is not None
    assert runs.to_dict()["cost"]["mean"] == pytest.approx(runs.cost.mean())
    assert "cost" not in blind.to_dict()
    assert blind.cost is None


def test_the_same_price_everywhere_changes_nothing_but_the_cost() -> None:
    plain = simulate(problem(), MEANS, Procedure(max_samples=500), 20, seed=4)
    dear = simulate(problem(costs=np.full((3, 2), 3.0)), MEANS, Procedure(max_samples=500), 20, seed=4)
    assert np.array_equal(plain.samples, dear.samples)
    assert dear.cost is not None
    assert np.array_equal(dear.cost, 3.0 * plain.samples)
