"""Counter-based streams: the published vectors, and laws that have the mean and variance they claim."""

from __future__ import annotations

import math

import numpy as np
import pytest

from evenhand.procedure.randomness import philox
from evenhand.simulation import streams

DRAWS = 20_000


@pytest.mark.parametrize(
    ("seed", "counter", "words"),
    [
        (0, (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        # -1 is the 64-bit key with every bit set
        (-1, (0xFFFFFFFF,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            0x299F31D0A4093822,
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_words(
    seed: int, counter: tuple[int, ...], words: tuple[int, ...]
) -> None:
    assert tuple(int(word) for word in philox(seed, *counter)) == words


# law, its mean, its variance, and the support it must keep to
LAWS = {
    "normal": ({"law": streams.NORMAL, "sd": np.full((1, 1), 2.0)}, 0.7, 4.0),
    "coin": ({"law": streams.COIN}, 0.3, 0.3 * 0.7),
    "binomial": ({"law": streams.BINOMIAL, "trials": 40}, 12.0, 40 * 0.3 * 0.7),
    "binomial, rare": ({"law": streams.BINOMIAL, "trials": 5}, 0.1, 5 * 0.02 * 0.98),
    "poisson": ({"law": streams.POISSON}, 3.5, 3.5),
    "poisson, large": ({"law": streams.POISSON}, 400.0, 400.0),
    "exponential": ({"law": streams.GAMMA, "shape": 1.0}, 2.0, 4.0),
    "gamma": ({"law": streams.GAMMA, "shape": 3.7}, 2.0, 4.0 / 3.7),
    "gamma, peaked at 0": ({"law": streams.GAMMA, "shape": 0.4}, 2.0, 4.0 / 0.4),
    "ends": ({"law": streams.ENDS, "low": -1.0, "width": 3.0}, 0.5, 9 * 0.25),
    "data": ({"law": streams.DATA, "values": np.array([1.0, 2.0, 6.0])}, 3.0, 14 / 3),
}


@pytest.mark.parametrize("name", LAWS)
def test_an_outcome_has_the_mean_and_variance_of_its_law(name: str) -> None:
    parts, mean, variance = LAWS[name]
    x = draw_many(source_of(**parts), mean)
    fourth = np.mean((x - mean) ** 4)
    # 5.5 standard errors: a false alarm has chance below 1e-6 over all of these
    assert abs(x.mean() - mean) < 5.5 * math.sqrt(variance / DRAWS)
    assert abs(x.var() - variance) < 5.5 * math.sqrt(fourth / DRAWS)


def test_counts_follow_their_probabilities() -> None:
    x = draw_many(source_of(law=streams.BINOMIAL, trials=4), 1.2)
    shares = np.bincount(x.astype(int), minlength=5) / DRAWS
    chances = np.array([math.comb(4, k) * 0.3**k * 0.7 ** (4 - k) for k in range(5)])
    assert np.all(np.abs(shares - chances) < 5.5 * np.sqrt(chances * (1 - chances) / DRAWS))


def test_a_mean_on_the_edge_is_always_met() -> None:
    assert set(draw_many(source_of(law=streams.COIN), 1.0, 200)) == {1.0}
    assert set(draw_many(source_of(law=streams.COIN), 0.0, 200)) == {0.0}
    assert set(draw_many(source_of(law=streams.BINOMIAL, trials=7), 7.0, 200)) == {7.0}
    assert set(draw_many(source_of(law=streams.POISSON), 0.0, 200)) == {0.0}


def test_draws_differ_by_cell_draw_replication_and_seed_and_by_nothing_else() -> None:
    source = source_of(law=streams.NORMAL, means=np.zeros((1, 2, 2)), sd=np.ones((2, 2)))
    mean = np.zeros((2, 2))
    first = streams.outcome(source, mean, 0, 1, 5, 9, 3)
    assert first == streams.outcome(source, mean, 0, 1, 5, 9, 3)
    for k, g, draw, seed, replication in [
        (1, 1, 5, 9, 3),
        (0, 0, 5, 9, 3),
        (0, 1, 6, 9, 3),
        (0, 1, 5, 8, 3),
        (0, 1, 5, 9, 4),
    ]:
        assert first != streams.outcome(source, mean, k, g, draw, seed, replication)


def test_arrivals_come_by_their_shares() -> None:
    shares = np.array([0.2, 0.5, 0.3])
    came = np.bincount([streams.arrival(shares, ask, 1, 0) for ask in range(DRAWS)], minlength=3) / DRAWS
    assert np.all(np.abs(came - shares) < 5.5 * np.sqrt(shares * (1 - shares) / DRAWS))


def test_lag_and_dropout_stay_in_their_range() -> None:
    source = source_of(law=streams.COIN, lag_least=3, lag_most=6, dropout=0.25)
    assert {streams.lag(source, ask, 1, 0) for ask in range(200)} == {3, 4, 5, 6}
    lost = np.mean([streams.is_lost(source, ask, 1, 0) for ask in range(DRAWS)])
    assert abs(lost - 0.25) < 5.5 * math.sqrt(0.25 * 0.75 / DRAWS)


def test_scenario_numbers_belong_to_their_replication() -> None:
    assert np.array_equal(streams.scenario_uniforms(4, 2, 5), streams.scenario_uniforms(4, 2, 8)[:5])
    assert not np.any(streams.scenario_uniforms(4, 2, 5) == streams.scenario_uniforms(4, 3, 5))


def draw_many(source: streams.Source, mean: float, count: int = DRAWS) -> np.ndarray:
    table = np.full((1, 1), mean)
    return np.array([streams.outcome(source, table, 0, 0, draw, 11, 0) for draw in range(count)])


def source_of(law: int, **parts: object) -> streams.Source:
    blank: dict[str, object] = {
        "means": np.zeros((1, 1, 1)), "sd": np.ones((1, 1)), "trials": 1, "shape": 1.0, "low": 0.0,
        "width": 1.0, "values": np.zeros(0), "starts": np.array([0, 3]), "lag_least": 0, "lag_most": 0,
        "dropout": 0.0, "rail_law": np.zeros(0, dtype=np.int64), "rail_means": np.zeros((0, 1, 1)),
        "rail_sd": np.zeros((0, 1, 1)), "rail_trials": np.zeros(0, dtype=np.int64), "rail_shape": np.zeros(0),
        "rail_low": np.zeros(0), "rail_width": np.zeros(0), "rail_values": np.zeros((0, 0)),
    }  # fmt: skip
    if "sd" in parts:
        rails = np.zeros((0, *np.shape(parts["sd"])))
        blank |= {"rail_means": rails, "rail_sd": rails}
    return streams.Source(law=law, **(blank | parts))  # type: ignore[arg-type]
