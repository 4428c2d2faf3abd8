"""Outcomes that were sorted by size are found; those in their true order hardly ever are."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from scipy import stats

import evenhand as eh
from evenhand.procedure.outcome_order import FALSE_ALARM, TESTS, log_chance, new_order, note_order
from tests.live.example_experiments import SetClock, create

Array = NDArray[np.float64]
FAMILIES = {
    "exponential": eh.Exponential(),
    "gamma": eh.Gamma(2.0),
    "gaussian-unknown": eh.GaussianUnknown(),
}
ORDER_FREE = {"gaussian": eh.Gaussian(1.0), "bounded": eh.Bounded(0.0, 50.0), "poisson": eh.Poisson()}
SAID = "sorted by size.*order in which they were observed"


def chance(outcomes: Array) -> float:
    """The log of the chance of the least likely thing about the order of one cell's outcomes."""
    order, zeros = new_order((1, 1)), np.zeros(len(outcomes), dtype=np.int64)
    note_order(order, zeros, zeros, np.asarray(outcomes, dtype=float))
    return log_chance(order, 0, 0)


def rows(outcomes: Array) -> pl.DataFrame:
    """Two policies in one group, both with these outcomes in this order."""
    return pl.DataFrame(
        {"policy": ["a", "b"] * len(outcomes), "group": ["x"] * 2 * len(outcomes),
         "outcome": np.repeat(outcomes, 2)}
    )  # fmt: skip


def judged(family: eh.Bernoulli, outcomes: Array, **options: object) -> eh.Verdict:
    problem = eh.Problem(["a", "b"], {"x": 1.0}, family, eh.Floors(0.1))
    return eh.judge(problem, rows(outcomes), replications=0, **options)


@pytest.mark.parametrize("values", [[1, 2, 3, 4, 5, 6, 7], [1, 1, 2, 2, 2, 3, 4], [1, 1, 1, 1, 1, 1, 2]])
def test_no_order_is_called_rare_more_often_than_its_chance_says(values: list[int]) -> None:
    """Every order of the same values, equally likely: each of the tests alone is exact or a bound."""
    found = np.array([chance(np.array(order)) for order in itertools.permutations(values)])
    for level in np.unique(found):
        assert (found <= level + 1e-12).mean() <= TESTS * math.exp(level) + 1e-12


def test_sorted_outcomes_have_the_chance_of_their_one_order() -> None:
    assert chance(np.arange(20.0)) == pytest.approx(-math.lgamma(21))
    assert chance(-np.arange(20.0)) == pytest.approx(-math.lgamma(21))
    # five 1s, three 2s and a 3: 9! / (5! 3!) orders
    ties = np.array([1, 1, 1, 1, 1, 2, 2, 2, 3])
    assert chance(ties) == pytest.approx(math.log(math.factorial(5) * math.factorial(3) / math.factorial(9)))
    assert chance(np.full(50, 2.0)) == 0.0


def test_pairs_are_bounded_by_chernoffs_bound_on_the_binomial_tail() -> None:
    rng = np.random.default_rng(0)
    xs = np.sort(rng.exponential(size=4000)) + 0.001 * rng.normal(size=4000)
    pairs = np.diff(xs)[::2]
    exact = stats.binom.logsf((pairs > 0).sum() - 1, pairs.size, 0.5)
    assert exact <= chance(xs) + 1e-9 < math.log(FALSE_ALARM / TESTS)


def test_outcomes_in_their_true_order_are_not_called_sorted() -> None:
    rng = np.random.default_rng(1)
    for draw in (rng.exponential, rng.normal, lambda size: rng.poisson(0.3, size=size)):
        least = min(chance(draw(size=n)) for n in (2, 5, 20, 100, 3000) for _ in range(200))
        assert least > math.log(1e-6 / TESTS)  # of a thousand cells, with a budget of one in a thousand


@pytest.mark.parametrize("down", [1.0, -1.0])
@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_sorted_rows_are_refused_where_their_order_matters(family: eh.Bernoulli, down: float) -> None:
    xs = np.random.default_rng(2).exponential(2.0, size=40)
    assert judged(family, xs).rows == 80
    with pytest.raises(eh.BadInput, match=SAID):
        judged(family, down * np.sort(down * xs))


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_nearly_sorted_rows_are_refused_as_well(family: eh.Bernoulli) -> None:
    rng = np.random.default_rng(3)
    xs = np.sort(rng.exponential(2.0, size=500))
    swapped = rng.choice(500, size=40, replace=False)
    xs[swapped] = xs[rng.permutation(swapped)]
    with pytest.raises(eh.BadInput, match=SAID):
        judged(family, xs)


@pytest.mark.parametrize("family", ORDER_FREE.values(), ids=ORDER_FREE)
def test_sorted_rows_are_taken_where_their_order_does_not_matter(family: eh.Bernoulli) -> None:
    xs = np.sort(np.round(np.random.default_rng(4).exponential(2.0, size=40)))
    verdict = judged(family, xs)
    assert not any("depends on their order" in sentence for sentence in verdict.words())
    assert judged(family, xs[::-1]).evidence == pytest.approx(
        verdict.evidence, rel=1e-12
    )  # a sum rounds by its order


def test_sorted_rows_are_taken_by_rules_that_have_no_order() -> None:
    xs = np.sort(np.random.default_rng(5).exponential(2.0, size=40))
    for options in ({"fixed": True}, {"procedure": eh.Procedure(stopping="stylised")}):
        verdict = judged(eh.Exponential(), xs, **options)
        assert not any("depends on their order" in sentence for sentence in verdict.words())


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_a_verdict_says_that_its_evidence_depends_on_the_order(family: eh.Bernoulli) -> None:
    xs = np.random.default_rng(6).exponential(2.0, size=40)
    said = [sentence for sentence in judged(family, xs).words() if "order" in sentence]
    assert len(said) == 1
    assert family.name in said[0]
    assert said[0] in judged(family, xs).to_dict()["words"]


def test_an_import_of_sorted_rows_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    study = eh.Problem(["a", "b"], {"x": 1.0}, eh.Exponential(), eh.Floors(0.1))
    xs = np.random.default_rng(7).exponential(2.0, size=40)
    with create(str(tmp_path / "t.db"), study=study, clock=SetClock()) as trial:
        before = trial.head
        with pytest.raises(eh.BadInput, match=SAID):
            trial.import_data([("a", "x", float(x)) for x in np.sort(xs)])
        assert trial.head == before
        assert trial.import_data([("a", "x", float(x)) for x in xs]) == 40
