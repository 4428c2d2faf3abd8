"""What is estimated from the outcomes of a cell."""

from __future__ import annotations

import numpy as np
import pytest

import evenhand as eh
from evenhand.procedure.estimates import dispersion, refresh
from evenhand.procedure.spec import compile_spec
from evenhand.procedure.state import NONE, new_state, new_work, record


@pytest.mark.parametrize("middle", [0.0, 1e8, -1e12])
def test_an_unknown_variance_is_estimated_as_well_far_from_zero_as_near_it(middle: float) -> None:
    spec = compile_spec(eh.Problem(["a", "b"], {"x": 1.0}, eh.GaussianUnknown()), eh.Procedure())
    state, work = new_state(spec), new_work(spec)
    outcomes = middle + np.round(np.random.default_rng(1).normal(size=100), 3)
    for x in outcomes:
        record(spec, state, work, 0, 0, x, False)
    assert dispersion(spec, state, 0, 0) == pytest.approx(np.var(outcomes - middle, ddof=1), rel=1e-9)


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
    assert len(answers) == 3  # nobody, and two policies in turn
