"""Values are frozen, can be hashed, print as what makes them again, and can be replaced."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest

import evenhand as eh

GROUPS = {"young": 0.6, "old": 0.4}
TABLE = [[0.1, 0.2], [0.3, 0.4]]
NAMED_COUNTS = {"a": {"old": 2, "young": 1}, "b": {"young": 3, "old": 4}}
NAMED = {"a": {"old": 0.2, "young": 0.1}, "b": {"young": 0.3, "old": 0.4}}

FAMILIES = [
    eh.Bernoulli(),
    eh.Binomial(np.int64(3)),
    eh.Bounded(-1, np.float64(2.5)),
    eh.Exponential(),
    eh.Gamma(2.0),
    eh.Gaussian(np.float64(0.5)),
    eh.Gaussian(np.array(TABLE)),
    eh.Gaussian(NAMED),
    eh.GaussianUnknown(),
    eh.Poisson(),
]
REQUIREMENTS = [
    eh.NoConstraint(),
    eh.Floors(np.float64(0.5)),
    eh.Floors(TABLE),
    eh.Floors(NAMED),
    eh.Floors({"young": 0.1, "old": 0.2}),
    eh.Floors(relative_to="a", margin={"young": 0.1, "old": 0.0}),
    eh.Caps(0.5),
    eh.Caps(relative_to="a", ratio=[1.1, 1.2]),
    eh.Gap(np.float64(0.1)),
    eh.Ratio(np.float64(0.8)),
    eh.Quota(0.5, groups=np.int64(1)),
    eh.Quota([0.5, 0.6], share=np.float64(0.5)),
    eh.Dispersion(np.float64(0.1), True),
    eh.Dispersion(0.1, np.True_),
    eh.Caps(relative_to=np.str_("a"), margin=0.1),
    eh.Polyhedron([[1, -1]], [-0.5]),
    eh.All((eh.Floors(0.1), eh.Gap(0.2))),
    eh.Penalty(0.5, {"young": 1, "old": 2}),
]
PROCEDURES = [
    eh.Procedure(),
    eh.Procedure(delta=np.float64(0.1), leader=np.float64(0.3)),
    eh.Procedure("uniform", eh.Budget(100)),
    eh.Procedure(eh.TrackAndStop(np.float64(2.0), 3, True), eh.Calibrated(np.float64(3.5))),
    eh.Procedure(indifference=0.01, tolerance={"young": 0.1, "old": 0.0}),
    eh.Procedure(initial=NAMED_COUNTS, initial_order="random", evidence="linear-bets"),
    eh.Procedure(interval=eh.Intervals(volume={"young": 60, "old": np.int64(40)}, delay="1d", length="6h")),
    eh.Procedure(stopping=eh.Budget(np.int64(100)), batch=np.int64(2), max_samples=np.int64(500)),
    eh.Procedure(eh.TrackAndStop(1.0, np.int64(2), np.True_), delta=np.float32(0.25)),
]
INTERVALS = [eh.Intervals(volume=np.float64(100.0), floor=np.float64(0.01), salt="example-1")]
SHARES = [
    eh.Shares.of({"young": {"a": 0.25, "b": 0.75}}, salt="example-1"),
    eh.Shares({"young": [["a", np.int64(65536)]]}, "example-1", np.int64(2), "2026-01-01T00:00:00Z"),
]
PROBLEMS = [
    eh.Problem(["a", "b"], GROUPS, eh.Bernoulli()),
    eh.Problem(
        ["a", "b"],
        GROUPS,
        eh.Gaussian(NAMED),
        eh.Floors(NAMED),
        mode="agnostic",
        arrivals={"old": 0.5, "young": 0.5},
        costs={"a": 2.0},
        guardrails=[eh.Guardrail("harm", eh.Poisson(), eh.Caps(1.5))],
        max_policies=5,
    ),
    eh.Problem(["a"], GROUPS, eh.Bernoulli(), eh.Floors(0.5), goal="screen"),
    eh.Problem(np.array(["a", "b"]), pd.Series(GROUPS), eh.Bernoulli()),
]
TRUTHS = [
    eh.Truth(means=TABLE),
    eh.Truth(means=NAMED, lag=[1, 3], dropout=np.float64(0.1), sd=2, guardrails={"harm": TABLE}),
    eh.Truth(data="d.csv", folder="some/where"),
    eh.Truth(cells="c.csv", outcomes="bernoulli"),
    eh.Truth(means=TABLE, lag=np.int64(3), agreement=np.float64(0.9)),
    eh.Truth(means=TABLE, lag=[np.int64(1), np.int64(3)]),
]
STUDIES = [eh.Study(PROBLEMS[0], PROCEDURES[3], TRUTHS[1], 'A title\'s "quotes"\n'), eh.Study(PROBLEMS[1])]
RAILS = [
    eh.Guardrail(np.str_("cost"), eh.Poisson(), eh.Caps(1.5)),
    eh.Guardrail("harm", eh.Poisson(), eh.Caps(1.5)),
]
VALUES: list[Any] = [
    *FAMILIES, *REQUIREMENTS, *PROCEDURES, *PROBLEMS, *TRUTHS, *STUDIES, *RAILS, *INTERVALS, *SHARES,
]  # fmt: skip
each_value = pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__}")


def evaluated(text: str) -> Any:
    """Return the value of the text after `from evenhand import *`."""
    names: dict[str, Any] = {}
    exec("from evenhand import *", names)
    return eval(text, names)


@each_value
def test_a_repr_makes_the_value_again(value: Any) -> None:
    again = evaluated(repr(value))
    assert again == value
    assert type(again) is type(value)
    assert repr(again) == repr(value)
    assert "np." not in repr(value)  # can be evaluated without NumPy
    if isinstance(value, eh.Truth):
        assert again.folder == value.folder


@each_value
def test_a_value_can_be_hashed_copied_and_pickled(value: Any) -> None:
    for again in (evaluated(repr(value)), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert again == value
        assert hash(again) == hash(value)
    assert {value: 1}[copy.copy(value)] == 1


@each_value
def test_a_value_can_be_replaced_and_not_changed(value: Any) -> None:
    assert dataclasses.replace(value) == value
    for part in dataclasses.fields(value):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, part.name, None)


def test_the_parts_of_a_problem_cannot_be_changed() -> None:
    problem = PROBLEMS[1]
    before = hash(problem)
    with pytest.raises(TypeError):
        problem.groups["young"] = 0.9  # type: ignore[index]
    with pytest.raises(TypeError):
        problem.arrivals["young"] = 0.9  # type: ignore[index]
    for array in (problem.shares, problem.arrival_shares, problem.sampling_costs):
        array[:] = 7.0  # a new array every time
    assert problem.shares.tolist() == [0.6, 0.4]
    assert problem.sampling_costs.tolist() == [[2.0, 2.0], [1.0, 1.0]]
    assert hash(problem) == before
    with pytest.raises(TypeError):
        TRUTHS[1].guardrails["harm"] = None  # type: ignore[index]


def test_replacing_a_part_checks_it() -> None:
    assert dataclasses.replace(
        PROBLEMS[0], constraint=eh.Floors({"old": 0.1, "young": 0.2})
    ).constraint == eh.Floors([0.2, 0.1])
    with pytest.raises(eh.BadInput):
        dataclasses.replace(PROBLEMS[0], groups={"young": 0.9})
    assert dataclasses.replace(eh.Bounded(0, 2), high=3.0).width == 3.0


def test_results_can_be_replaced() -> None:
    plan = eh.plan(PROBLEMS[0], [[0.9, 0.8], [0.5, 0.4]], gap=0.1)
    assert dataclasses.replace(plan, warnings=("x",)).warnings == ("x",)
    verdict = eh.judge(PROBLEMS[0], {"a": {"young": [1]}}, replications=0)
    assert dataclasses.replace(verdict) == verdict
    assert hash(verdict) == hash(dataclasses.replace(verdict))
    with pytest.raises(TypeError):
        verdict.more[0.5] = 7  # type: ignore[index]
    with eh.Experiment.create(":memory:", PROBLEMS[0], seed=1) as trial:
        status = trial.status()
    assert dataclasses.replace(status, title="y").title == "y"
    assert hash(status) == hash(eh.Status.from_dict(status.to_dict()))
    with pytest.raises(TypeError):
        status.counts["told"] = 7  # type: ignore[index]
    report = eh.report(plan)
    assert dataclasses.replace(report, title="y").title == "y"
