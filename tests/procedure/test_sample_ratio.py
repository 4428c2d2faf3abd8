"""The sequential test of published shares: seldom wrong at any number of looks, and it finds small losses."""

from __future__ import annotations

import numpy as np

import evenhand as eh
from evenhand.procedure.interval_steps import THETA, SampleRatios


def drawn(rng: np.random.Generator, share: float, units: int, kept: float = 1.0) -> dict[int, int]:
    """Units of two policies; of policy 0 a part is lost."""
    n = int(rng.binomial(units, share))
    return {0: int(rng.binomial(n, kept)), 1: units - n}


def test_a_mismatch_is_seldom_claimed_although_shares_follow_the_units_so_far() -> None:
    rng, alarms = np.random.default_rng(1), 0
    for _ in range(500):
        ratios, share = SampleRatios(1, 2), 0.5
        for _ in range(40):
            units = drawn(rng, share, 200)
            ratios.add(0, {0: share, 1: 1 - share}, units)
            share = min(max(units[0] / 200, 0.05), 0.95)  # the next shares depend on what was seen
        alarms += ratios.p_values[0] <= 0.05
    # by Ville's inequality at most 5% of the runs at any of 40 looks; P(Binomial(500, .05) > 52) < 1e-6
    assert alarms <= 52


def test_a_small_constant_loss_is_found_over_many_intervals() -> None:
    """Each interval alone shows nothing: the test of one version has to pay for its prior every time."""
    rng, ratios, single = np.random.default_rng(2), SampleRatios(1, 2), []
    for _ in range(150):
        units = drawn(rng, 0.5, 1_000, kept=0.95)
        ratios.add(0, {0: 0.5, 1: 0.5}, units)
        shares = eh.Shares.of({"x": {"a": 0.5, "b": 0.5}}, "example-1")
        single.append(eh.sample_ratios(shares, {"x": {"a": units[0], "b": units[1]}})["x"])
    assert ratios.p_values[0] < 1e-6
    assert np.median(single) > 0.05


def test_units_of_a_policy_without_a_share_are_impossible_and_groups_are_apart() -> None:
    ratios = SampleRatios(2, 3)
    ratios.add(0, {0: 0.5, 1: 0.5, 2: 0.0}, {0: 5, 1: 5, 2: 1})
    ratios.add(1, {0: 0.5, 1: 0.5}, {0: 5, 1: 5})
    assert ratios.p_values.tolist() == [0.0, 1.0]
    ratios.add(0, {0: 0.5, 1: 0.5}, {0: 5, 1: 5})
    assert ratios.p_values[0] == 0.0  # it stays impossible


def test_the_evidence_is_the_mean_of_likelihood_ratios() -> None:
    ratios = SampleRatios(1, 2)
    ratios.add(0, {0: 0.2, 1: 0.8}, {0: 30, 1: 70})
    parts = [
        (np.exp(theta) / (1 + share * np.expm1(theta))) ** n
        * (1 / (1 + share * np.expm1(theta))) ** (100 - n)
        for share, n in ((0.2, 30), (0.8, 70))
        for theta in THETA
    ]
    assert np.isclose(ratios.p_values[0], 1 / np.mean(parts), rtol=1e-12)
