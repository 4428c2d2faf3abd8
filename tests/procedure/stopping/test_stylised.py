"""The stylised threshold is the paper's formula, and nothing else."""

from __future__ import annotations

import math

import pytest

from evenhand.procedure.stopping import stylised


@pytest.mark.parametrize(("told", "delta"), [(1, 0.05), (100, 0.2), (10**6, 0.001)])
def test_the_threshold_is_ln_of_one_plus_ln_t_over_delta(told: int, delta: float) -> None:
    assert stylised.threshold(told, delta) == pytest.approx(math.log((1 + math.log(told)) / delta), rel=1e-14)


def test_before_any_outcome_it_is_that_of_one() -> None:
    assert stylised.threshold(0, 0.1) == stylised.threshold(1, 0.1) == pytest.approx(math.log(10))
