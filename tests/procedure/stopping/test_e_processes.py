"""On the boundary of every null, sampling in favour of high estimates, no e-value exceeds 1/alpha too often.

The probability that it ever does is at most alpha (Ville). A count is flagged when the binomial law with
alpha would give so many with a chance below one in a million. A wrong rule is flagged by the same test.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.crossed import crossed
from tests.procedure.stopping.nulls import (
    ALPHA,
    BY_MIXTURE,
    FAMILIES,
    REQUIREMENTS,
    crossings,
    is_too_often,
)

N0 = 4.0
EVERY = (*FAMILIES, BY_MIXTURE)


@crossed("family", EVERY, "requirement", REQUIREMENTS)
def test_an_e_value_rarely_exceeds_what_it_may(family: str, requirement: str) -> None:
    found = crossings(family, requirement, runs=150, horizon=100, seed=7)
    assert not is_too_often(found.ahead, found.runs)
    assert not is_too_often(found.fails, found.runs)
    assert not is_too_often(found.meets, found.runs)


@pytest.mark.slow
@pytest.mark.parametrize("requirement", REQUIREMENTS)
@pytest.mark.parametrize("family", EVERY)
def test_an_e_value_rarely_exceeds_what_it_may_in_the_long_run(family: str, requirement: str) -> None:
    found = crossings(family, requirement, runs=1500, horizon=800, seed=11)
    assert not is_too_often(found.ahead, found.runs)
    assert not is_too_often(found.fails, found.runs)
    assert not is_too_often(found.meets, found.runs)


@pytest.mark.parametrize(("weight", "flagged"), [("shrunken", False), ("plain", True)])
def test_a_rule_with_plain_weights_is_flagged(weight: str, flagged: bool) -> None:
    runs, n = 4000, np.arange(1, 401)
    walk = np.random.default_rng(0).normal(size=(runs, n.size)).cumsum(axis=1)
    # ln of the mixture over shifts N(0, 1/N0) has n^2/(n + N0) in front of mean^2/2, not n
    shrunken = walk**2 / (2 * (n if weight == "plain" else n + N0))
    evidence = shrunken - np.log1p(n / N0) / 2
    crossed = int((evidence.max(axis=1) >= math.log(1 / ALPHA)).sum())
    assert is_too_often(crossed, runs) is flagged
