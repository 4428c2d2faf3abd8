"""What is estimated from the outcomes of a cell."""

from __future__ import annotations

import numpy as np
import pytest

import evenhand as eh
from evenhand.procedure.estimates import dispersion, pooled_variance, refresh
from evenhand.procedure.spec import Spec, compile_spec
from evenhand.procedure.state import State, Work, new_state, new_work, record


@pytest.mark.parametrize("middle", [0.0, 1e8, -1e12])
def test_an_unknown_variance_is_estimated_as_well_far_from_zero_as_near_it(middle: float) -> None:
    spec = compile_spec(eh.Problem(["a", "b"], {"x": 1.0}, eh.GaussianUnknown()), eh.Procedure())
    state, work = new_state(spec), new_work(spec)
    outcomes = middle + np.round(np.random.default_rng(1).normal(size=100), 3)
    for x in outcomes:
        record(spec, state, work, 0, 0, x, False)
    assert dispersion(spec, state, 1.0, 0, 0) == pytest.approx(np.var(outcomes - middle, ddof=1), rel=1e-9)


def told(outcomes: list[list[float]], scale: float = 1.0) -> tuple[Spec, State, Work]:
    """One group, a list of outcomes for each policy."""
    names = [f"p{k}" for k in range(len(outcomes))]
    spec = compile_spec(eh.Problem(names, {"x": 1.0}, eh.GaussianUnknown()), eh.Procedure(initial=1))
    state, work = new_state(spec), new_work(spec)
    for k, cell in enumerate(outcomes):
        for x in cell:
            record(spec, state, work, k, 0, scale * x, False)
    refresh(spec, state, work, False)
    return spec, state, work


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_a_cell_without_a_variance_is_given_that_of_the_others(scale: float) -> None:
    # squared distances within cells: 1 + 1, 4 + 4 and 0, and a degree of freedom each
    spec, state, work = told([[1.0, 3.0], [2.0, 6.0], [7.0], [4.0, 4.0]], scale)
    assert pooled_variance(state) == pytest.approx(10 / 3 * scale**2)
    given = [dispersion(spec, state, work.pooled[0], 0, k) / scale**2 for k in range(4)]
    assert given == pytest.approx([2.0, 8.0, 10 / 3, 10 / 3 * 1e-12])
    assert work.v[0] * scale**2 == pytest.approx([2 / 2.0, 2 / 8.0, 1 / (10 / 3), 2 / (10 / 3 * 1e-12)])


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_where_no_cell_has_two_different_outcomes_all_outcomes_together_give_the_scale(scale: float) -> None:
    _, state, _ = told([[1.0], [2.0], [6.0]], scale)
    assert pooled_variance(state) == pytest.approx(np.var([1.0, 2.0, 6.0], ddof=1) * scale**2)


def test_what_a_cell_without_a_variance_is_given_does_not_depend_on_the_history() -> None:
    spec, state, work = told([[1.0, 3.0], [2.0, 6.0], [7.0]])
    for k, x in ((0, 4.0), (1, 9.0), (0, -2.0)):
        record(spec, state, work, k, 0, x, False)
        leader = refresh(spec, state, work, False)
        fresh = new_work(spec)
        assert refresh(spec, state, fresh, False) == leader
        assert np.array_equal(work.v, fresh.v)
        assert np.array_equal(work.spread, fresh.spread)
