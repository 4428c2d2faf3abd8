"""Fault 25: what may be told as an outcome, at every door."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import BadInput
from evenhand.live.input_checks import checked_outcome, parsed_outcome
from tests.live.example_experiments import create

BAD = [
    math.nan, math.inf, -math.inf, 10**400, -0.0, "1", None, np.float64("nan"), [1], {},
    1j, b"1",
]  # fmt: skip
BAD_TEXT = [
    "nan", "NaN", "inf", "-inf", "infinity", "1e400", "-0.0", "-0", "yes", "null", "", " ", "1_0", "0x1",
    "1,0", "one", "1 2", "١",
]  # fmt: skip
FAMILIES = {
    eh.Bernoulli(): ([0, 1, 1.0, np.int64(1), True, False, np.bool_(True)], [2, -1, 0.5]),
    eh.Binomial(3): ([0, 3], [4, 1.5, -1]),
    eh.Poisson(): ([0, 17], [-1, 0.5]),
    eh.Exponential(): ([0.3, True], [0, -1, False]),
    eh.Gamma(2.0): ([0.3], [0, -1]),
    eh.Bounded(-1.0, 2.0): ([-1, 0.5, 2], [-1.01, 2.01]),
    eh.Gaussian(1.0): ([-3.5, 0], [1e101, -1e101]),
    eh.GaussianUnknown(): ([1e50], [1e200]),
}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_takes_its_own_numbers_and_no_others(family: object) -> None:
    good, bad = FAMILIES[family]
    for value in good:
        assert checked_outcome(value, family) == float(value)
        assert type(checked_outcome(value, family)) is float
        assert parsed_outcome(repr(float(value)), family) == float(value)
    for value in [*bad, *BAD]:
        with pytest.raises(BadInput):
            checked_outcome(value, family)
    for text in [*map(repr, bad), *BAD_TEXT]:
        with pytest.raises(BadInput):
            parsed_outcome(text, family)


@pytest.mark.parametrize("value", [*BAD, 2, -1, 0.5], ids=repr)
def test_nothing_is_written_when_an_outcome_is_refused(value: object) -> None:
    trial = create()
    ask = trial.ask()
    told = trial.ask()
    assert ask is not None
    assert told is not None
    trial.tell(told, 1)
    before = trial.head
    for refused in (
        lambda: trial.tell(ask, value),  # type: ignore[arg-type]
        lambda: trial.amend(told, value, reason="r", by="b"),  # type: ignore[arg-type]
        lambda: trial.import_data([("a", "x", 1.0), ("a", "x", value)]),  # type: ignore[list-item]
        lambda: trial.tell_all([(ask, value, None)]),  # type: ignore[list-item]
    ):
        with pytest.raises(BadInput):
            refused()
    assert trial.head == before
    assert trial.status().samples == 1


def test_the_refusal_says_what_must_hold_and_what_came(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"outcomes must be 0 or 1; this one is 2\."):
        checked_outcome(2, eh.Bernoulli())
