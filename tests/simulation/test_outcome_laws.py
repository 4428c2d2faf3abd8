"""Truths as kernels see them: which law, whose spread, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from evenhand.errors import BadInput
from evenhand.model.families import (
    Bernoulli,
    Binomial,
    Bounded,
    Exponential,
    Family,
    Gamma,
    Gaussian,
    GaussianUnknown,
    Poisson,
)
from evenhand.model.requirements import Floors, NoConstraint
from evenhand.simulation import streams
from evenhand.simulation.outcome_laws import compile_truth
from evenhand.study import Truth
from tests.simulation.studies import problem_of

LAWS = [
    (Gaussian(2.0), streams.NORMAL),
    (GaussianUnknown(), streams.NORMAL),
    (Bernoulli(), streams.COIN),
    (Binomial(4), streams.BINOMIAL),
    (Poisson(), streams.POISSON),
    (Exponential(), streams.GAMMA),
    (Gamma(2.5), streams.GAMMA),
    (Bounded(-1.0, 3.0), streams.ENDS),
]


@pytest.mark.parametrize(("family", "law"), LAWS, ids=lambda value: getattr(value, "name", value))
def test_every_family_has_outcomes_that_it_admits(family: Family, law: int) -> None:
    problem = problem_of(2, 2, family, NoConstraint())
    source = compile_truth(problem, Truth(means=((0.3, 0.4), (0.5, 0.6))))
    assert source.law == law
    x = [streams.outcome(source, source.means[0], 1, 0, draw, 3, 0) for draw in range(500)]
    assert np.all(family.admits(x))


def test_a_gaussian_has_the_spread_of_its_family_cell_by_cell() -> None:
    problem = problem_of(2, 2, Gaussian([[1.0, 2.0], [3.0, 4.0]]), NoConstraint())
    source = compile_truth(problem, Truth(means=((0.0, 0.0), (0.0, 0.0))))
    assert source.sd.tolist() == [[1.0, 3.0], [2.0, 4.0]]


def test_an_unknown_variance_is_accepted() -> None:
    problem = problem_of(2, 2, GaussianUnknown(), NoConstraint())
    means = ((0.0, 0.0), (0.0, 0.0))
    assert np.all(compile_truth(problem, Truth(means=means)).sd == 1.0)
    assert np.all(compile_truth(problem, Truth(means=means, sd=0.2)).sd == 0.2)
    table = Truth.from_dict({"means": means, "sd": [[1, 2], [3, 4]]}, problem)
    assert compile_truth(problem, table).sd.tolist() == [[1.0, 3.0], [2.0, 4.0]]
    assert Truth.from_dict(table.to_dict(), problem) == table


def test_cell_counts_are_drawn_with_replacement_as_coins(tmp_path: Path) -> None:
    lines = ["policy,group,n,successes", "p1,g1,10,9", "p1,g2,20,5", "p2,g1,40,10", "p2,g2,8,4"]
    (tmp_path / "cells.csv").write_text("\n".join(lines))
    source = compile_truth(
        problem_of(2, 2, Bernoulli(), Floors(0.2)), Truth(cells="cells.csv", folder=tmp_path)
    )
    assert source.law == streams.COIN
    assert source.means[0].tolist() == [[0.9, 0.25], [0.25, 0.5]]


def test_outcomes_are_drawn_with_replacement_from_their_own_cell(tmp_path: Path) -> None:
    cells = {("p1", "g1"): [1, 2], ("p1", "g2"): [3], ("p2", "g1"): [4, 5, 6], ("p2", "g2"): [7]}
    lines = [f"{p},{g},{x}" for (p, g), values in cells.items() for x in values]
    (tmp_path / "outcomes.csv").write_text("\n".join(["policy,group,outcome", *lines]))
    problem = problem_of(2, 2, Gaussian(1.0), Floors(0.0))
    source = compile_truth(problem, Truth(data="outcomes.csv", folder=tmp_path))
    assert source.means[0].tolist() == [[1.5, 5.0], [3.0, 7.0]]
    for k, policy in enumerate(("p1", "p2")):
        for g, group in enumerate(("g1", "g2")):
            drawn = {streams.outcome(source, source.means[0], k, g, d, 1, 0) for d in range(60)}
            assert drawn == set(map(float, cells[policy, group]))


def test_coins_under_another_family_must_have_means_between_0_and_1() -> None:
    problem = problem_of(2, 2, Gaussian(1.0), NoConstraint())
    with pytest.raises(BadInput, match=r"must lie in \[0, 1\]; one is 1.5"):
        compile_truth(problem, Truth(means=((0.5, 1.5), (0.1, 0.2)), outcomes="bernoulli"))


def test_coins_are_refused_by_a_family_without_zeros() -> None:
    problem = problem_of(2, 2, Exponential(), NoConstraint())
    with pytest.raises(BadInput, match="must be positive finite numbers"):
        compile_truth(problem, Truth(means=((0.5, 0.5), (0.1, 0.2)), outcomes="bernoulli"))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"lag": [5, 2]}, "lag must be a whole number"),
        ({"lag": [1, 2, 3]}, "lag must be a whole number"),
        ({"lag": 1.5}, "lag must be a whole number"),
        ({"outcomes": "poisson"}, 'can only be "bernoulli"'),
        ({"sd": -1}, "must be a positive number"),
        ({"sd": [[1, 2]]}, "must be a positive number"),
    ],
)
def test_a_truth_that_cannot_be_is_refused(table: dict, words: str) -> None:
    problem = problem_of(2, 2, GaussianUnknown(), NoConstraint())
    with pytest.raises(BadInput, match=words):
        Truth.from_dict({"means": [[0.1, 0.2], [0.3, 0.4]]} | table, problem)


def test_a_lag_survives_being_written_down() -> None:
    problem = problem_of(2, 2, Bernoulli(), NoConstraint())
    truth = Truth(means=((0.1, 0.2), (0.3, 0.4)), lag=(3, 9), dropout=0.1, outcomes="bernoulli")
    assert Truth.from_dict(truth.to_dict(), problem) == truth
    source = compile_truth(problem, truth)
    assert (source.lag_least, source.lag_most, source.dropout) == (3, 9, 0.1)
