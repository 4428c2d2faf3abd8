"""The shares of the next interval follow the sampling rule; mismatches of shares are found at any time."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

import evenhand as eh
from evenhand.errors import BadInput

SALT = "example-1"
PROBLEM = eh.Problem(["a", "b", "c"], {"x": 0.6, "y": 0.4}, eh.Bernoulli(), eh.Floors(0.6))
MEANS = {"a": 0.8, "b": 0.78, "c": 0.3}


def outcomes(n: int = 400) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {k: {g: (rng.random(n) < mean).astype(int).tolist() for g in "xy"} for k, mean in MEANS.items()}


FIRST = eh.next_shares(PROBLEM, None, salt=SALT)


def test_the_first_shares_are_equal() -> None:
    assert [FIRST.share(g, k) for g in "xy" for k in "abc"] == pytest.approx([1 / 3] * 6, abs=1 / 65_536)
    assert FIRST.version == 1


def test_a_policy_that_is_refuted_keeps_only_its_floor() -> None:
    found = eh.next_shares(PROBLEM, outcomes(), FIRST, volume=10_000, valid_from="2026-11-16T12:00:00Z")
    assert (found.version, found.salt, found.valid_from) == (2, SALT, "2026-11-16T12:00:00Z")
    for group in "xy":
        assert found.share(group, "c") == pytest.approx(0.02, abs=0.01)
        assert min(found.share(group, "a"), found.share(group, "b")) > 0.25


def test_the_same_arguments_give_the_same_shares() -> None:
    one, two, other = (
        eh.next_shares(PROBLEM, outcomes(), FIRST, volume=10_000, seed=seed) for seed in (1, 1, 2)
    )
    assert one == two
    assert one != other


def test_shares_follow_the_rule_whatever_the_volume_by_group() -> None:
    uniform = eh.Procedure(sampling="uniform")
    uneven = {"a": {"x": [1] * 300, "y": [1] * 100}, "b": {"x": [1] * 100, "y": [1] * 100}}
    problem = eh.Problem(["a", "b"], {"x": 0.6, "y": 0.4}, eh.Bernoulli(), eh.Floors(0.1))
    first = eh.next_shares(problem, None, salt=SALT)
    found = eh.next_shares(problem, uneven, first, volume={"x": 400, "y": 200}, procedure=uniform, floor=0.0)
    # in x the uniform rule levels 300 and 100 with 400 further units: 100 and 300; in y 100 and 100 each
    assert found.share("x", "a") == pytest.approx(0.25, abs=0.01)
    assert found.share("y", "a") == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"volume": 0}, "volume must be"),
        ({"volume": None}, "volume must be"),
        ({"volume": True}, "volume must be"),
        ({"volume": {"x": 10}}, "for the groups 'x', 'y'"),
        ({"volume": {"x": 10, "y": "many"}}, "volume must be"),
        ({"volume": 10, "floor": 0.4}, "floor must be from 0 to 1/3"),
        ({"volume": 10, "floor": -0.1}, "floor must be"),
        ({"volume": 10, "seed": -1}, "seed"),
        ({"volume": 10, "shares": None}, "those of the interval before"),
        ({"volume": 10, "data": None}, "outcomes under the shares so far"),
        ({"shares": None, "data": None}, "needs a salt"),
        ({"volume": 10, "shares": eh.Shares.of({"z": {"a": 1.0}}, SALT)}, "for the groups 'z'"),
    ],
)
def test_bad_arguments_are_refused(options: dict[str, Any], words: str) -> None:
    given = {"data": {"a": {"x": [1]}}, "shares": FIRST} | options
    with pytest.raises(BadInput, match=words):
        eh.next_shares(PROBLEM, given.pop("data"), given.pop("shares"), **given)


def test_a_mismatch_is_seldom_claimed_at_any_look_and_found_where_it_is() -> None:
    rng, shares = np.random.default_rng(3), eh.Shares.of({"x": {"a": 0.2, "b": 0.8}}, SALT)
    alarms = 0
    for _ in range(500):
        n = np.cumsum(rng.multinomial(200, [0.2, 0.8], size=50), axis=0)
        alarms += min(eh.sample_ratios(shares, {"x": {"a": int(a), "b": int(b)}})["x"] for a, b in n) <= 0.05
    # by Ville's inequality at most 5% of the runs at any of 50 looks; P(Binomial(500, .05) > 52) < 1e-6
    assert alarms <= 52
    n = rng.multinomial(100_000, [0.21, 0.79])
    assert eh.sample_ratios(shares, {"x": {"a": int(n[0]), "b": int(n[1])}})["x"] < 1e-6
    assert eh.sample_ratios(shares, {"x": {"a": 0, "b": 10, "z": 1}})["x"] == 0.0
    assert eh.sample_ratios(shares, {"x": {}})["x"] == 1.0
    with pytest.raises(BadInput, match="there is no group 'y'"):
        eh.sample_ratios(shares, {"y": {"a": 1}})
    with pytest.raises(BadInput, match="the number of units of 'a' in 'x'"):
        eh.sample_ratios(shares, {"x": {"a": -1}})


# ---- the whole loop, with servers that assign by hash and a warehouse that counts ----

TRUTH = {
    ("a", "x"): 0.80,
    ("a", "y"): 0.70,
    ("b", "x"): 0.78,
    ("b", "y"): 0.66,
    ("c", "x"): 0.85,
    ("c", "y"): 0.55,
}
SERVERS, MINUTES, UNITS = 4, 10, 25_000  # units of a server in a minute: 1e6 in all


def serve(server: int, minute: int, document: dict[str, Any], folder: str) -> dict[str, dict[str, int]]:
    """Assign a minute's units of a server by hash, and write their outcomes to a Parquet file."""
    import polars as pl

    rng = np.random.default_rng([server, minute])
    units = (minute * SERVERS + server) * UNITS + np.arange(UNITS)
    groups = np.where(rng.random(UNITS) < 0.6, "x", "y")
    policies = eh.assign(units, groups, document)
    means = np.array([TRUTH[k, g] for k, g in zip(policies, groups, strict=True)])
    rows = pl.DataFrame(
        {
            "unit": units,
            "policy": policies,
            "group": groups,
            "outcome": (rng.random(UNITS) < means).astype(int),
        }
    )
    rows.write_parquet(Path(folder, f"{minute:02}-{server}.parquet"))
    return {g: {k: int(((policies == k) & (groups == g)).sum()) for k in "abc"} for g in "xy"}


def copy_minute(url: str, folder: Path, minute: int) -> None:
    """Load a minute's files into PostgreSQL."""
    import polars as pl

    with psycopg.connect(url) as connection:
        connection.execute(
            'CREATE TABLE IF NOT EXISTS outcomes (unit bigint, policy text, "group" text, outcome integer)'
        )
        with connection.cursor().copy("COPY outcomes FROM STDIN") as copy:
            for row in pl.read_parquet(folder / f"{minute:02}-*.parquet").iter_rows():
                copy.write_row(row)


@pytest.mark.slow
@pytest.mark.parametrize("warehouse", ["files", "postgresql"])
def test_a_million_units_are_served_by_four_processes_and_judged_where_the_data_are(
    warehouse: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    source: dict[str, Any] = {"data": str(tmp_path / "*.parquet")}
    if warehouse == "postgresql":
        source = {"data": request.getfixturevalue("postgres_url"), "table": "outcomes"}
    means = [[TRUTH[k, g] for g in "xy"] for k in "abc"]
    assert PROBLEM.policies[PROBLEM.answer(means)] == "a"  # c is better overall and misses its floor in y
    shares, answers = FIRST, []
    with multiprocessing.get_context("spawn").Pool(SERVERS) as pool:
        for minute in range(MINUTES):
            work = [(server, minute, shares.to_dict(), str(tmp_path)) for server in range(SERVERS)]
            counts = pool.starmap(serve, work)
            total = {g: {k: sum(one[g][k] for one in counts) for k in "abc"} for g in "xy"}
            assert min(eh.sample_ratios(shares, total).values()) > 1e-6
            if warehouse == "postgresql":
                copy_minute(source["data"], tmp_path, minute)
            verdict = eh.judge(PROBLEM, delta=0.05, replications=0, **source)
            assert verdict.rows == SERVERS * UNITS * (minute + 1)
            answers.append(verdict.answer)
            shares = eh.next_shares(PROBLEM, shares=shares, volume=SERVERS * UNITS, **source)
    assert answers[-1] == "a"
    assert set(answers) <= {"a", None}
    assert shares.version == MINUTES + 1
