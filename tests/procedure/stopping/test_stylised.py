"""The stylised threshold is the paper's formula, and nothing else."""

from __future__ import annotations

import math

import pytest

from evenhand.procedure.evidence.thresholds import stylised_threshold


@pytest.mark.parametrize(("samples", "delta"), [(1, 0.05), (100, 0.2), (10**6, 0.001)])
def test_the_threshold_is_ln_of_one_plus_ln_t_over_delta(samples: int, delta: float) -> None:
    assert stylised_threshold(samples, delta) == pytest.approx(
        math.log((1 + math.log(samples)) / delta), rel=1e-14
    )


def test_before_any_outcome_it_is_that_of_one() -> None:
    assert stylised_threshold(0, 0.1) == stylised_threshold(1, 0.1) == pytest.approx(math.log(10))
