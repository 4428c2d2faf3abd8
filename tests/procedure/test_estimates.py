"""What is estimated from the outcomes of a cell."""

from __future__ import annotations

import numpy as np
import pytest

import evenhand as eh
from evenhand.procedure.estimates import dispersion
from evenhand.procedure.spec import compile_spec
from evenhand.procedure.state import new_state, new_work, record


@pytest.mark.parametrize("middle", [0.0, 1e8, -1e12])
def test_an_unknown_variance_is_estimated_as_well_far_from_zero_as_near_it(middle: float) -> None:
    spec = compile_spec(eh.Problem(["a", "b"], {"x": 1.0}, eh.GaussianUnknown()), eh.Procedure())
    state, work = new_state(spec), new_work(spec)
    outcomes = middle + np.round(np.random.default_rng(1).normal(size=100), 3)
    for x in outcomes:
        record(spec, state, work, 0, 0, x, False)
    assert dispersion(spec, state, 0, 0) == pytest.approx(np.var(outcomes - middle, ddof=1), rel=1e-9)
