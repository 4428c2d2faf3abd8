"""A kernel as plain Python: nothing is compiled, and the result is that of compiled code."""

from __future__ import annotations

import numpy as np
import pytest

import evenhand as eh
from evenhand.compile import dispatch, uncompiled
from evenhand.model import region as regions


def test_a_kernel_and_those_that_it_calls_run_as_plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = eh.Problem(["a", "b"], {"x": 0.5, "y": 0.5}, eh.Bernoulli(), eh.Floors(0.3))
    region, means = problem.standard.region, np.array([[0.8, 0.1 + 0.2], [0.4, 0.25]])
    compiled = [regions.margin(region, k, means) for k in range(2)]

    def refuse(*_: object) -> None:
        raise AssertionError("compiled code was called")

    monkeypatch.setattr(dispatch, "call", refuse)
    assert [uncompiled(regions.margin)(region, k, means) for k in range(2)] == compiled
    assert [regions.is_inside(region, k, means) for k in range(2)] == [True, False]
    with pytest.raises(AssertionError, match="compiled code was called"):
        regions.margin(region, 0, means)  # only calls within are plain
