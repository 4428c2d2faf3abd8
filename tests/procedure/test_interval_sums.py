"""Sums of whole intervals give the evidence of single outcomes where no scale is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import evenhand as eh
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.estimates import refresh, variance
from evenhand.procedure.evidence.by_family import cell_above, cell_below
from evenhand.procedure.evidence.certified import ahead
from evenhand.procedure.interval_steps import add_guardrail_sums, add_sums
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import (
    LEAP,
    LENGTH,
    SHIFTED,
    SQUARES,
    State,
    new_state,
    new_work,
    record,
    record_guardrail,
)

FAMILIES = {
    "gaussian-unknown": eh.GaussianUnknown(),
    "exponential": eh.Exponential(),
    "gamma": eh.Gamma(2.5),
}
ROWS = (LENGTH, LEAP, SHIFTED, SQUARES)


def spec_of(family: Any) -> Spec:
    rail = eh.Guardrail("rail", family, eh.Caps(3.0))
    problem = eh.Problem(["a", "b"], {"x": 1.0}, family, mode="proportional", guardrails=[rail])
    return compile_spec(problem, eh.Procedure())


def one_by_one(spec: Spec, outcomes: list[float]) -> State:
    """Return the state after these outcomes of the first policy, and twice as large ones of the second."""
    state, work = new_state(spec), new_work(spec)
    for k, factor in enumerate((1.0, 2.0)):
        for x in outcomes:
            record_guardrail(spec, state, 0, k, 0, factor * x)
            record(spec, state, work, k, 0, factor * x, False)
    return state


def in_intervals(spec: Spec, intervals: list[list[float]]) -> State:
    """Return the same state from sums of intervals."""
    state = new_state(spec)
    for outcomes in intervals:
        for k, factor in enumerate((1.0, 2.0)):
            x = factor * np.array(outcomes)
            n, s, ss = float(x.size), float(x.sum()), float(np.square(x).sum())
            add_guardrail_sums(spec, state, 0, k, 0, n, s, ss)
            add_sums(spec, state, k, 0, n, s, ss)
            for counts, sums in ((state.n, state.s), (state.rail_n[0], state.rail_s[0])):
                counts[0, k] += n
                sums[0, k] += s
    return state


def of_cells(spec: Spec, state: State) -> list[float]:
    return [side(spec, state, 0, 0, c) for c in (0.4, 1.0, 2.5) for side in (cell_above, cell_below)]


def comparison(spec: Spec, state: State) -> float:
    """Return the evidence that the second policy is ahead of the first."""
    work = new_work(spec)
    refresh(spec, state, work, False)
    return float(ahead(spec, state, work, 1, 0, 20.0))


@pytest.mark.parametrize("name", FAMILIES)
def test_an_opening_of_an_interval_is_that_of_single_outcomes(name: str) -> None:
    """The first interval is the opening of the single outcomes: two that differ, or the first one."""
    spec = spec_of(FAMILIES[name])
    outcomes = np.random.default_rng(1).gamma(2.0, 0.7, 40).tolist()
    opening = 2 if name == "gaussian-unknown" else 1
    single = one_by_one(spec, outcomes)
    for size in (1, 7, 38):
        rest = outcomes[opening:]
        parts = [rest[i : i + size] for i in range(0, len(rest), size)]
        whole = in_intervals(spec, [outcomes[:opening], *parts])
        assert of_cells(spec, whole) == pytest.approx(of_cells(spec, single), rel=1e-9)
        assert comparison(spec, whole) == pytest.approx(comparison(spec, single), rel=1e-9)
        np.testing.assert_allclose(whole.rail_bets[0], whole.bets)


def test_the_rows_of_an_opening_have_the_mean_and_the_variance_of_its_outcomes() -> None:
    spec = spec_of(eh.GaussianUnknown())
    outcomes = np.random.default_rng(2).normal(3.0, 2.0, 60)
    for first in (2, 5, 30):
        state = in_intervals(spec, [outcomes[:first].tolist(), outcomes[first:].tolist()])
        length, leap, shifted, squares = (state.bets[row, 0] for row in ROWS)
        assert length == first
        around = float(np.square(outcomes[:first] - outcomes[:first].mean()).sum())
        assert leap * leap * (1.0 - 1.0 / first) == pytest.approx(around)
        rest = outcomes[first:]
        mean = (shifted - leap) / rest.size
        assert (squares - leap * leap) / rest.size - mean * mean == pytest.approx(rest.var())
        assert variance(state, 0, 0) == pytest.approx(outcomes.var(ddof=1))


def test_equal_outcomes_extend_the_opening_until_two_differ() -> None:
    spec = spec_of(eh.GaussianUnknown())
    state = in_intervals(spec, [[0.1] * 3, [0.1]])
    assert state.bets[LENGTH, 0] == 0.0
    assert variance(state, 0, 0) == 0.0
    state = in_intervals(spec, [[0.1] * 3, [0.1], [0.1, 0.7], [0.3]])
    assert state.bets[LENGTH, 0] == 6.0
    assert variance(state, 0, 0) == pytest.approx(np.var([0.1] * 5 + [0.7, 0.3], ddof=1))


@pytest.mark.parametrize("name", FAMILIES)
def test_nothing_is_staked_on_the_first_interval(name: str) -> None:
    spec = spec_of(FAMILIES[name])
    outcomes = np.random.default_rng(3).gamma(2.0, 0.7, 400).tolist()
    assert comparison(spec, in_intervals(spec, [outcomes])) < 0.0
    assert comparison(spec, in_intervals(spec, [outcomes[:5], outcomes[5:]])) > 1.0
