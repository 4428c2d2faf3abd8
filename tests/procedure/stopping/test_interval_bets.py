"""Linear bets on whole intervals: those of single outcomes where an interval is one, and never unfair."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import evenhand as eh
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.evidence.interval_bets import (
    CellSums,
    add_interval,
    bets_on,
    is_possible,
    sums_of_ones,
)
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import State, new_state, new_work, record

FAMILIES: dict[str, Any] = {"bernoulli": eh.Bernoulli(), "bounded": eh.Bounded()}


def spec_of(name: str) -> Spec:
    problem = eh.Problem(
        ["a", "b", "c"], {"x": 0.6, "y": 0.4}, FAMILIES[name], eh.Floors(0.5), mode="proportional"
    )
    return compile_spec(problem, eh.Procedure(evidence="linear-bets"))


def some_state(spec: Spec, outcomes: int = 60, seed: int = 0) -> State:
    rng, state, work = np.random.default_rng(seed), new_state(spec), new_work(spec)
    for _ in range(outcomes):
        k, g = int(rng.integers(3)), int(rng.integers(2))
        record(spec, state, work, k, g, float(rng.random() < 0.7), False)
    return state


@pytest.mark.parametrize("name", FAMILIES)
def test_intervals_of_one_outcome_are_the_bets_on_single_outcomes(name: str) -> None:
    spec, rng = spec_of(name), np.random.default_rng(1)
    one_by_one, work, intervals = new_state(spec), new_work(spec), new_state(spec)
    for _ in range(80):
        k, g = int(rng.integers(3)), int(rng.integers(2))
        x = float(rng.random() < 0.7) if name == "bernoulli" else float(rng.random())
        bets = bets_on(spec, intervals, k, g)
        sums = CellSums(1.0, x, x * x, np.log1p(bets.slope * (x - bets.centre)))
        assert is_possible(sums, bets)
        add_interval(spec, intervals, {(k, g): sums})
        intervals.n[g, k] += 1.0
        intervals.s[g, k] += x
        record(spec, one_by_one, work, k, g, x, False)
    np.testing.assert_allclose(intervals.bets, one_by_one.bets, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mean", [0.0, 0.3, 0.7, 1.0])
def test_no_bet_gains_on_average_at_the_true_mean(mean: float) -> None:
    """E exp(W - B m) over n outcomes is ((1 + a (m - c)) e^(-a (m - c)))^n, exactly, and at most 1."""
    spec = spec_of("bernoulli")
    state, n = some_state(spec), 40
    for k in range(3):
        for g in range(2):
            slope, centre = bets_on(spec, state, k, g)
            assert (1.0 + slope * (0.0 - centre) > 0.0).all()  # no outcome loses everything
            assert (1.0 + slope * (1.0 - centre) > 0.0).all()
            gain = n * (np.log1p(slope * (mean - centre)) - slope * (mean - centre))
            assert (gain <= 1e-12).all()


def test_counts_of_ones_are_the_sums_of_the_outcomes_in_any_order() -> None:
    spec = spec_of("bernoulli")
    bets = bets_on(spec, some_state(spec), 1, 0)
    outcomes = np.array([1.0] * 13 + [0.0] * 7)
    expected = np.log1p(np.outer(outcomes, bets.slope) - bets.slope * bets.centre).sum(axis=0)
    np.testing.assert_allclose(sums_of_ones(20, 13, bets).logs, expected, rtol=1e-12)


def test_sums_that_no_outcomes_can_have_are_found() -> None:
    spec = spec_of("bounded")
    bets = bets_on(spec, some_state(spec), 0, 1)
    x = np.random.default_rng(3).random(50)
    logs = np.log1p(np.outer(x, bets.slope) - bets.slope * bets.centre).sum(axis=0)
    sums = CellSums(50.0, float(x.sum()), float((x * x).sum()), logs)
    assert is_possible(sums, bets)
    assert not is_possible(sums._replace(logs=logs[:-1]), bets)
    assert not is_possible(sums._replace(logs=logs + 1.0), bets)
    assert not is_possible(sums._replace(logs=logs - 50.0), bets)
    assert not is_possible(sums._replace(logs=np.full(logs.size, np.nan)), bets)
