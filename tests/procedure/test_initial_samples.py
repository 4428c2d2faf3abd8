"""Initial samples: numbers per cell, rounds, and the random order within a round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import evenhand as eh
from evenhand.live import events as ev
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.initial_samples import initial_cell, rounds_of
from evenhand.procedure.randomness import shuffled
from evenhand.simulation.simulate import follow
from evenhand.study import Study, dumps, loads
from evenhand.study.truth import Truth
from tests.live.example_experiments import SetClock, log

PROBLEM = eh.Problem(["a", "b", "c"], {"x": 0.6, "y": 0.4}, eh.Bernoulli(), eh.Floors(0.35))
MEANS = [[0.8, 0.7], [0.5, 0.6], [0.4, 0.3]]


def cells_of(initial: Any, order: str = "declared", seed: int = 1) -> list[int]:
    spec = compile_spec(PROBLEM, eh.Procedure(initial=initial, initial_order=order))
    levels, cells = spec.initial_levels, spec.initial_cells
    return [initial_cell(levels, cells, spec.random_order, t, seed, 0) for t in range(spec.initial_total)]


@pytest.mark.parametrize("size", [1, 2, 3, 6, 16, 17, 100, 1000])
def test_shuffled_is_a_permutation_that_depends_on_seed_and_address(size: int) -> None:
    found = [shuffled(5, 0, 0, place, size) for place in range(size)]
    assert sorted(found) == list(range(size))
    if size >= 6:
        assert found != [shuffled(6, 0, 0, place, size) for place in range(size)]
        assert found != [shuffled(5, size, 0, place, size) for place in range(size)]


def test_every_place_is_equally_likely() -> None:
    """600 x 10 draws of the place of cell 0 among 6, chi-squared at 1e-6."""
    counts = np.bincount([shuffled(seed, 0, 0, 0, 6) for seed in range(6000)], minlength=6)
    assert stats.chisquare(counts).pvalue > 1e-6


def test_equal_numbers_come_in_rounds_in_the_order_of_the_problem() -> None:
    assert cells_of(2) == [*range(6), *range(6)]


def test_unequal_numbers_come_in_rounds_of_the_cells_that_still_lack_some() -> None:
    """x gets 1, y 3: cells 0-2 are x, cells 3-5 are y."""
    assert cells_of([1, 3]) == [0, 1, 2, 3, 4, 5, 3, 4, 5, 3, 4, 5]
    assert cells_of({"y": 3, "x": 1}) == cells_of([1, 3])
    table = [[1, 2], [2, 1], [1, 1]]
    assert cells_of(table) == [0, 1, 2, 3, 4, 5, 1, 3]
    assert cells_of({"a": {"x": 1, "y": 2}, "b": {"x": 2, "y": 1}, "c": {"x": 1, "y": 1}}) == cells_of(table)


def test_random_order_permutes_every_round_by_itself() -> None:
    found = cells_of([1, 3], "random")
    assert sorted(found[:6]) == list(range(6))
    assert sorted(found[6:9]) == sorted(found[9:]) == [3, 4, 5]
    assert any(cells_of(3, "random", seed)[:6] != cells_of(3, "random", seed)[6:12] for seed in range(3))


def test_rounds_count_what_the_table_asks_for() -> None:
    luck = np.random.default_rng(3)
    for _ in range(20):
        table = luck.integers(1, 5, size=(2, 4)).astype(float)
        rounds = rounds_of(table)
        drawn = [initial_cell(rounds.levels, rounds.cells, False, t, 0, 0) for t in range(rounds.total)]
        assert np.bincount(drawn, minlength=8).tolist() == table.ravel().tolist()


@pytest.mark.parametrize("order", ["declared", "random"])
def test_a_live_experiment_with_unequal_initial_samples_replays_the_simulation(
    order: str, tmp_path: Any
) -> None:
    procedure = eh.Procedure(max_samples=60, initial=[1, 3], initial_order=order)
    study = Study(PROBLEM, procedure, Truth.from_dict({"means": MEANS}, PROBLEM))
    assert loads(dumps(study)) == study
    rows, trace = follow(study, 3, 0, 60)
    first = [int(trace.group[t]) * 3 + int(trace.policy[t]) for t in range(12)]
    assert first == cells_of([1, 3], order, 3)
    address = str(tmp_path / "trial.db")
    with Experiment.create(address, study, seed=3, clock=SetClock()) as trial:
        for step in range(int(rows.samples[0])):
            ask = trial.ask()
            assert ask is not None
            assert (ask.policy, ask.group) == ("abc"[trace.policy[step]], "xy"[trace.group[step]]), step
            trial.tell(ask, float(trace.outcome[step]))
    assert audit(address).identical


def test_new_live_experiments_take_a_random_order_and_record_it() -> None:
    trial = Experiment.create(":memory:", PROBLEM, seed=1, clock=SetClock())
    created = log(trial)[0]
    assert isinstance(created, ev.Created)
    assert 'initial_order = "random"' in created.study
    assert not compile_spec(PROBLEM, eh.Procedure()).random_order


@pytest.mark.parametrize("mode", ["proportional", "agnostic"])
def test_where_groups_arrive_every_cell_gets_its_initial_samples(mode: str) -> None:
    problem = eh.Problem(["a", "b"], {"x": 0.5, "y": 0.5}, eh.Bernoulli(), eh.Floors(0.35), mode=mode)
    procedure = eh.Procedure(max_samples=400, initial=[[2, 5], [3, 1]], initial_order="random")
    study = Study(problem, procedure, Truth.from_dict({"means": [[0.5, 0.5], [0.5, 0.4]]}, problem))
    _, trace = follow(study, 2, 0, 400)
    counts = np.zeros((2, 2))
    for t in range(400):
        counts[trace.policy[t], trace.group[t]] += 1
    assert np.all(counts >= [[2, 5], [3, 1]])


@pytest.mark.parametrize(
    ("initial", "message"),
    [
        (0, "initial must be a whole number from 1"),
        (1.5, "initial must be a whole number from 1"),
        (True, "initial must be a whole number from 1"),
        ("2", "initial must be a whole number from 1"),
        ([1, 0], "initial must be a whole number from 1"),
        ({"x": 1, "z": 2}, "initial names an unknown group 'z'"),
        ([1, 2, 3], "initial must have one number per group, 2; it has 3"),
        ([[1, 2]], "initial must have a row per policy and a column per group, 3 x 2; it is 1 x 2"),
    ],
)
def test_wrong_initial_samples_are_refused(initial: Any, message: str) -> None:
    with pytest.raises(eh.BadInput, match=message):
        compile_spec(PROBLEM, eh.Procedure(initial=initial))
    with pytest.raises(eh.BadInput, match="initial_order must be one of declared, random; it is 'rnadom'"):
        eh.Procedure(initial_order="rnadom")
