"""What is estimated from the outcomes of a cell."""

from __future__ import annotations

import numpy as np
import pytest

import evenhand as eh
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.estimates import dispersion, pooled_variance, refresh
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import NONE, State, Work, new_state, new_work, record


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


def test_estimates_are_the_means_of_the_outcomes_told_and_name_the_best_feasible_policy() -> None:
    problem = eh.Problem(["a", "b", "c"], {"x": 0.7, "y": 0.3}, eh.Gaussian(1.0), eh.Floors(0.2))
    spec = compile_spec(problem, eh.Procedure())
    state, work = new_state(spec), new_work(spec)
    rng = np.random.default_rng(2)
    outcomes: dict[tuple[int, int], list[float]] = {(k, g): [] for k in range(3) for g in range(2)}
    answers = set()
    for step in range(300):
        k, g = (step % 3, step // 3 % 2) if step < 6 else (int(rng.integers(3)), int(rng.integers(2)))
        outcomes[k, g].append(float(rng.normal(0.3)))
        record(spec, state, work, k, g, outcomes[k, g][-1], False)
        if step < 5:
            continue
        leader = refresh(spec, state, work, True)
        means = np.array([[np.mean(outcomes[k, g]) for g in range(2)] for k in range(3)])
        np.testing.assert_allclose((state.s / state.n).T, means, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(work.mean.T, means, rtol=1e-12, atol=1e-14)
        # the definition: the largest overall mean among the policies that reach 0.2 in both groups
        overall = {k: 0.7 * means[k, 0] + 0.3 * means[k, 1] for k in range(3) if means[k].min() >= 0.2}
        assert leader == (max(overall, key=overall.__getitem__) if overall else NONE)
        answers.add(leader)
    assert NONE in answers
    assert len(answers) == 3  # no policy, and two policies in turn
