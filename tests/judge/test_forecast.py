"""Forecasts: the same procedure, carried on from the data at hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import evenhand as eh
from evenhand.judge.forecast import forecast
from evenhand.judge.tally import ready
from evenhand.judge.verdict import judge
from evenhand.procedure.spec import compile_spec
from evenhand.procedure.state import new_state

PROBLEM = eh.Problem(["a", "b"], {"x": 0.6, "y": 0.4}, eh.Gaussian(0.5), eh.Floors(0.0))


def table(n: list[list[int]], means: list[list[float]], problem: eh.Problem = PROBLEM) -> pl.DataFrame:
    cells = [
        (p, g, n[k][i], means[k][i])
        for k, p in enumerate(problem.policies)
        for i, g in enumerate(problem.group_names)
    ]
    return pl.DataFrame(cells, schema=["policy", "group", "n", "mean"], orient="row")


def test_the_chances_come_in_order_and_the_shares_add_up() -> None:
    verdict = judge(PROBLEM, table([[30, 30], [30, 30]], [[0.4, 0.3], [0.2, 0.1]]))
    assert verdict.more is not None
    values = [verdict.more[c] for c in (0.5, 0.7, 0.8, 0.9)]
    assert values == sorted(values)
    assert values[0] > 0
    assert verdict.next is not None
    assert verdict.next.sum() == pytest.approx(1.0)
    assert (verdict.next >= 0).all()


def test_the_same_data_give_the_same_forecast() -> None:
    frame = table([[30, 30], [30, 30]], [[0.4, 0.3], [0.2, 0.1]])
    assert judge(PROBLEM, frame).more == judge(PROBLEM, frame).more
    assert judge(PROBLEM, frame, seed=1).more != judge(PROBLEM, frame).more


def test_more_data_of_the_same_kind_leave_less_to_do() -> None:
    few = judge(PROBLEM, table([[20, 20], [20, 20]], [[0.4, 0.3], [0.2, 0.1]])).more
    many = judge(PROBLEM, table([[80, 80], [80, 80]], [[0.4, 0.3], [0.2, 0.1]])).more
    assert few is not None
    assert many is not None
    assert many[0.5] < few[0.5]


def test_striding_from_nothing_agrees_with_the_simulator() -> None:
    """With the truth known, runs in strides stop when runs sample by sample do, within 5%."""
    means = [[0.5, 0.4], [0.2, 0.1]]
    exact = eh.simulate(PROBLEM, means, eh.Procedure(), replications=400, seed=3, workers=1)
    spec = compile_spec(PROBLEM, eh.Procedure())
    state = new_state(spec)
    found = forecast(PROBLEM, spec, state, replications=400, seed=3, means=means)
    assert found.more[0.5] == pytest.approx(exact.quantile(0.5), rel=0.05)
    assert found.more[0.9] == pytest.approx(exact.quantile(0.9), rel=0.08)


def test_a_budget_is_forecast_to_the_sample() -> None:
    procedure = eh.Procedure(stopping=eh.Budget(500))
    verdict = judge(PROBLEM, table([[30, 30], [30, 30]], [[0.4, 0.3], [0.2, 0.1]]), procedure=procedure)
    assert verdict.more == dict.fromkeys((0.5, 0.7, 0.8, 0.9), 380)


FAMILIES = [
    (eh.Bernoulli(), 0.5), (eh.Binomial(4), 2.0), (eh.Bounded(0, 2), 1.0), (eh.Poisson(), 2.0),
    (eh.Gaussian(1.0), 0.0),
]  # fmt: skip


@pytest.mark.parametrize("mode", ["active", "proportional", "agnostic"])
@pytest.mark.parametrize(("family", "floor"), FAMILIES, ids=lambda x: getattr(x, "name", ""))
def test_every_family_and_mode_is_forecast(family: Any, floor: float, mode: str) -> None:
    problem = eh.Problem(["a", "b"], {"x": 0.6, "y": 0.4}, family, eh.Floors(floor), mode=mode)
    up, down = floor + 0.3, floor - 0.1
    verdict = judge(problem, table([[9, 0], [9, 9]], [[up, up], [down, down]], problem), replications=20)
    assert verdict.more is not None
    assert verdict.more[0.5] >= 0


def test_unknown_variance_and_exponential_outcomes_are_forecast_from_rows() -> None:
    rng = np.random.default_rng(1)
    for family, draw in ((eh.GaussianUnknown(), rng.normal), (eh.Exponential(), None)):
        problem = eh.Problem(["a", "b"], {"x": 0.6, "y": 0.4}, family, eh.Floors(0.5))
        rows = [
            (p, g, float(draw(m, 0.3)) if draw is not None else float(rng.exponential(m)))
            for p, m in (("a", 1.5), ("b", 0.9))
            for g in ("x", "y")
            for _ in range(15)
        ]
        frame = pl.DataFrame(rows, schema=["policy", "group", "outcome"], orient="row")
        verdict = judge(problem, frame, replications=20)
        assert verdict.more is not None
        state = ready(compile_spec(problem, eh.Procedure()), judge_state_of(problem, frame))
        assert state.n.sum() == 60


def judge_state_of(problem: eh.Problem, frame: pl.DataFrame):  # type: ignore[no-untyped-def]
    from evenhand.judge.read import read

    return read(problem, frame).state
