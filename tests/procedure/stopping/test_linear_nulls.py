"""Under every true null linear bets rarely reach 1/alpha; each invalid variant of them does too often."""

import math

import numpy as np
import pytest
from scipy.special import logsumexp

from evenhand.procedure.evidence.linear_bets import BOTH, SPREAD, new_block
from evenhand.procedure.evidence.linear_minimum import Null, least, scratch
from tests.procedure.stopping.linear_nulls import (
    ALPHA,
    LUCKY,
    NEYMAN,
    OPTIMISTIC,
    RANDOM,
    UNLUCKY,
    Law,
    crossings,
    is_too_often,
    record_draws,
    unpaired_crosses,
)
from tests.procedure.stopping.test_linear_bets import log_mixture

EVEN, UNEVEN = [0.25] * 4, [0.55, 0.25, 0.15, 0.05]
TIE = Law([0.05] * 4, [0.05] * 4, [0.85] * 4)
TINY = Law([0.05] * 4, [0.051] * 4, [0.8] * 4)
MIXED = Law([0.3, 0.1, 0.2, 0.1], [0.1, 0.3, 0.1, 0.2], [0.4] * 4)  # differences .2, -.2, .1, -.1
OPPOSED = Law([0.45] * 4, [0.45] * 4, [0.05] * 4)  # one is right where the other is wrong
IN_POOL = Law([0.1, 0.05, 0.1, 0.05], [0.05, 0.1, 0.05, 0.1], [0.5] * 4)

CASES = {
    "tie": (TIE, EVEN, {}),
    "near": (TINY, UNEVEN, {}),
    "mixed": (MIXED, EVEN, {}),
    "one group": (Law([0.05], [0.05], [0.85]), [1.0], {}),
    "partly shared": (TIE, EVEN, {"shared": 0.6}),
    "partly shared, opposed": (OPPOSED, UNEVEN, {"shared": 0.5}),
    "not shared": (MIXED, EVEN, {"shared": 0.0}),
    "pool": (IN_POOL, EVEN, {"pool": 200.0}),
}
MODES = {"random": RANDOM, "optimistic": OPTIMISTIC, "unlucky": UNLUCKY, "lucky": LUCKY, "neyman": NEYMAN}


@pytest.mark.parametrize("mode", ["random", "lucky"])
@pytest.mark.parametrize("case", CASES)
def test_evidence_against_a_true_null_rarely_reaches_the_level(case, mode):
    law, q, options = CASES[case]
    assert not is_too_often(crossings(law, q, MODES[mode], 200, 500, seed=3, **options), 200)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES)
def test_evidence_against_a_true_null_rarely_reaches_the_level_in_the_long_run(case, mode):
    law, q, options = CASES[case]
    assert not is_too_often(crossings(law, q, MODES[mode], 1_000, 1_000, seed=4, **options), 1_000)


def test_a_false_null_is_refuted_as_a_control():
    law = Law([0.15] * 4, [0.03] * 4, [0.8] * 4)
    assert is_too_often(crossings(law, EVEN, RANDOM, 200, 500, seed=3), 200)


def test_the_expectation_is_at_most_1_at_a_fixed_time():
    rng, total = np.random.default_rng(0), []
    for _ in range(400):
        block, u = new_block(np.array([0.5, 0.5])), rng.random(60)
        differences = np.where(u < 0.1, 1.0, np.where(u > 0.9, -1.0, 0.0))
        record_draws(block, np.full(60, BOTH), np.arange(60) % 2, differences)
        total.append(log_mixture(block, np.zeros(2)))
    values = np.exp(total)
    assert values.mean() <= 1 + 5 * values.std() / math.sqrt(len(values))


# What is not valid. All runs of a variant at once, one group, a tie of 5% against 5%.


def differences(runs, horizon, seed, up=0.05, down=0.05):
    u = np.random.default_rng(seed).random((runs, horizon))
    return np.where(u < up, 1.0, np.where(u > 1 - down, -1.0, 0.0))


def share_crossing(d, variant, alpha=ALPHA):
    """The number of runs whose evidence against a mean of at most 0 ever reaches 1/alpha."""
    runs, horizon = d.shape
    sizes = 0.01 * 2.0 ** np.arange(8)
    w, n, s, v = np.zeros((runs, 8)), 0, np.zeros(runs), np.zeros(runs)
    widest = np.maximum(-d.min(axis=1), 1e-3)
    crossed = np.zeros(runs, dtype=bool)
    for t in range(horizon):
        estimate = s / (n + 1)
        f = np.sqrt((t + 1) / (0.25 + v))
        reach = widest + estimate if variant == "range from the data" else 1.0 + estimate
        tau = np.minimum(sizes * f[:, None], 0.9 / np.maximum(reach, 1e-3)[:, None])
        y = d[:, t] - estimate
        w += np.log1p(tau * y[:, None]) + tau * estimate[:, None]
        v += y * y
        s, n = s + d[:, t], n + 1
        value = w.max(axis=1) if variant == "largest tilt" else logsumexp(w, axis=1) - math.log(8)
        crossed |= value >= math.log(1 / alpha)
    return int(crossed.sum())


def test_the_valid_rule_passes_the_same_simulation():
    assert not is_too_often(share_crossing(differences(2_000, 600, 1), "valid"), 2_000)


def test_the_largest_of_the_tilts_is_not_valid():
    assert is_too_often(share_crossing(differences(4_000, 1_500, 1), "largest tilt"), 4_000)


def test_a_range_taken_from_the_data_is_not_valid():
    rare = differences(2_000, 400, 2, up=0.095, down=0.005)
    rare = np.where(rare < 0, -1.0, rare / 19)  # mean 0: rare large losses
    assert not is_too_often(share_crossing(rare, "valid"), 2_000)
    assert is_too_often(share_crossing(rare, "range from the data"), 2_000)


def test_to_ask_k_only_where_i_was_right_is_not_valid():
    rng, found = np.random.default_rng(4), 0
    work, runs = scratch(2), 100
    null = Null(np.full(2, 0.5), 0.0, np.array([-1.0, -1.0, 0.0, 0.0]), np.array([1.0, 1.0, 0.0, 0.0]))
    for _ in range(runs):
        block = new_block(np.array([0.5, 0.5]))
        x_i, x_k = (rng.random((2, 400)) < 0.9).astype(float)
        asked = x_i == 1.0
        record_draws(block, np.full(asked.sum(), BOTH), (np.arange(400) % 2)[asked], (x_i - x_k)[asked])
        found += least(block, null, SPREAD, 3.0, work) >= math.log(20)
    assert is_too_often(found, runs)


def test_the_unpaired_product_on_shared_items_is_not_valid():
    rng, found, runs = np.random.default_rng(5), 0, 1_200
    null, work = Null(np.ones(1), 0.0, np.zeros(2), np.ones(2)), scratch(1)
    for _ in range(runs):
        x_i = (rng.random(1_000) < 0.5).astype(float)
        x_k = 1.0 - x_i  # right exactly where i is wrong
        found += unpaired_crosses(new_block(np.ones(1)), null, x_i, x_k, SPREAD, math.log(20), work)
    assert is_too_often(found, runs), found
