"""Paired bets on intervals, summed where the data are: the bets on single items, and the right answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import numpy as np
import polars as pl
import psycopg
import pytest
from scipy.special import betaincinv

import evenhand as eh
from evenhand.errors import BadInput, Conflict
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.evidence.interval_pairs import PairBets, PairSums
from evenhand.procedure.evidence.linear_bets import MATCHED
from evenhand.procedure.state import ready
from evenhand.verdicts.read_data import read
from evenhand.verdicts.shared_items import Comparisons

PROBLEM = eh.Problem(["a", "b", "c"], {"x": 0.6, "y": 0.4}, eh.Bernoulli(), eh.Floors(0.3))
Rows = list[tuple[int, str, str, float]]  # unit, policy, group, outcome
Engine = tuple[Callable[[str], list[Any]], Callable[[Rows], None]]


def scores(units: range, means: dict[str, float], agreement: float = 0.8, seed: int = 0) -> Rows:
    """Return outcomes of all policies on these units, which mostly agree."""
    rng = np.random.default_rng([seed, units.start])
    found: Rows = []
    for unit in units:
        easy, group = rng.random(), "x" if rng.random() < 0.6 else "y"
        for policy, mean in means.items():
            level = easy if rng.random() < agreement else rng.random()
            found.append((unit, policy, group, float(level < mean)))
    return found


@pytest.fixture(params=["duckdb", "postgresql"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Yield a function that runs SQL, and one that adds rows to the table `scores`."""
    connection: Any
    if request.param == "duckdb":
        connection, mark = duckdb.connect(), "?"
    else:
        connection, mark = psycopg.connect(request.getfixturevalue("postgres_url"), autocommit=True), "%s"
    connection.execute('CREATE TABLE scores (unit int, policy text, "group" text, outcome double precision)')

    def add(rows: Rows) -> None:
        cursor = connection.cursor()
        if rows:
            cursor.executemany(f"INSERT INTO scores VALUES ({mark}, {mark}, {mark}, {mark})", rows)

    yield (lambda sql: connection.execute(sql).fetchall()), add
    connection.close()


def test_intervals_of_one_unit_are_the_bets_on_single_items(engine: Engine) -> None:
    run, add = engine
    rows = scores(range(30), {"a": 0.8, "b": 0.6, "c": 0.4})
    add(rows)
    paired = eh.PairedIntervals(PROBLEM)
    for unit in range(30):
        assert paired.add(unit + 1, run, "scores", where=f"unit = {unit}") == 1
    table = pl.DataFrame(rows, ["item", "policy", "group", "outcome"], orient="row")
    spec, found = compile_spec(PROBLEM, eh.Procedure()), read(PROBLEM, table)
    assert found.items is not None
    alone = Comparisons(spec, ready(spec, found.state), found.items)
    for i, first in enumerate("abc"):
        for k, second in enumerate("abc"):
            if i != k:
                assert paired.ahead(first, second) == pytest.approx(alone.ahead(i, k), rel=1e-9, abs=1e-9)


def test_the_answer_needs_fewer_units_than_without_pairs(engine: Engine) -> None:
    run, add = engine
    means = {"a": 0.85, "b": 0.8, "c": 0.5}
    paired, number = eh.PairedIntervals(PROBLEM, eh.Procedure(delta=0.05)), 0
    while not (verdict := paired.verdict()).decided:
        number += 1
        add(scores(range(number * 500, number * 500 + 500), means, agreement=0.95))
        assert paired.add(number, run, "scores", where=f"unit / 500 >= {number}") == 500
    assert verdict.answer == "a"
    assert verdict.method == "paired linear bets on shared items"
    assert verdict.samples == 3 * 500 * number
    rows = run('SELECT policy, "group", outcome FROM scores')
    table = pl.DataFrame(rows, ["policy", "group", "outcome"], orient="row")
    assert not eh.judge(PROBLEM, table, replications=0).decided


def refused(change: Callable[[Rows], Rows], engine: Engine, words: str) -> None:
    run, add = engine
    paired = eh.PairedIntervals(PROBLEM)
    add(change(scores(range(20), {"a": 0.8, "b": 0.6, "c": 0.4})))
    with pytest.raises((BadInput, Conflict), match=words):
        paired.add(1, run, "scores")
    assert paired.closed == 0
    assert paired.verdict().samples == 0


CHANGES: dict[str, tuple[Callable[[Rows], Rows], str]] = {
    "a row twice": (lambda rows: [*rows, rows[0]], "serves a unit once"),
    "a row missing": (lambda rows: rows[1:], "every policy must serve every unit"),
    "no row": (lambda rows: [], "holds no row"),
    "an outcome of 2": (lambda rows: [(*rows[0][:3], 2.0), *rows[1:]], "outcomes must be 0 or 1"),
    "half an outcome": (lambda rows: [(*rows[0][:3], 0.5), *rows[1:]], "outcomes must be 0 or 1"),
    "no outcome": (lambda rows: [(*rows[0][:3], None), *rows[1:]], "miss an outcome"),  # type: ignore[list-item]
    "another policy": (lambda rows: [*rows, (1, "z", "x", 1.0)], "no policy 'z'"),
    "a unit in two groups": (
        lambda rows: [(rows[0][0], "a", "y" if rows[0][2] == "x" else "x", 1.0), *rows[1:]],
        "every policy must serve every unit",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_data_that_cannot_be_right_are_refused_and_not_added(name: str, engine: Engine) -> None:
    change, words = CHANGES[name]
    refused(change, engine, words)


def test_an_interval_is_added_once_and_in_order(engine: Engine) -> None:
    run, add = engine
    add(scores(range(20), {"a": 0.8, "b": 0.6, "c": 0.4}))
    paired = eh.PairedIntervals(PROBLEM)
    paired.add(1, run, "scores")
    for number in (1, 3, True):
        with pytest.raises(Conflict, match="added once and in order; the next is 2"):
            paired.add(number, run, "scores")


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (eh.Problem(["a", "b"], {"x": 1.0}, eh.Poisson()), "outcomes must be"),
        (eh.Problem([f"p{k}" for k in range(13)], {"x": 1.0}, eh.Bernoulli()), "at most 12 policies"),
    ],
)
def test_problems_without_paired_evidence_are_refused(problem: eh.Problem, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        eh.PairedIntervals(problem)


def test_wrong_claims_about_a_tie_are_as_rare_as_stated() -> None:
    """Two policies of equal means that mostly agree: the evidence of one rarely reaches ln(1 / delta)."""
    problem = eh.Problem(["a", "b"], {"x": 0.6, "y": 0.4}, eh.Bernoulli())
    rng, delta, runs, wrong = np.random.default_rng(3), 0.1, 500, 0
    for _ in range(runs):
        paired = eh.PairedIntervals(problem)
        for _interval in range(6):
            bets = paired.bets()
            sums = {((0, 1), g): sums_of(rng, n, bets[(0, 1), g]) for g, n in enumerate((60, 40))}
            paired.add_sums(bets, sums)
            if paired.ahead("a", "b") >= np.log(1.0 / delta):
                wrong += 1
                break
    assert betaincinv(wrong + 1, runs - wrong, 1 - 1e-6) <= delta


def sums_of(rng: np.random.Generator, n: int, bets: PairBets) -> PairSums:
    """Return the sums of n differences, -1, 0 or 1."""
    x = rng.choice([-1.0, 0.0, 1.0], n, p=[0.1, 0.8, 0.1])
    assert bets.slope.size == 2 * MATCHED.size
    logs = np.log1p(np.outer(bets.slope, x - bets.centre)).sum(axis=1)
    return PairSums(float(n), float(x.sum()), float(np.square(x).sum()), logs)
