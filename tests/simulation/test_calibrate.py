"""Calibration: the threshold bounds the error it was asked to bound, by ranks fixed beforehand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from evenhand.errors import BadInput
from evenhand.model.families import Bernoulli
from evenhand.model.problem import Problem
from evenhand.procedure.spec import Calibrated
from evenhand.simulation.calibrate import calibrate, load_scenarios, most_errors
from evenhand.simulation.simulate import simulate
from evenhand.study import Truth
from tests.simulation.studies import coins

HARD = Truth(means=((0.9, 0.299), (0.5, 0.5)))  # the better policy narrowly misses its floor of 0.3
EASY = Truth(means=((0.9, 0.9), (0.1, 0.1)))
HORIZON = 400


@pytest.fixture(scope="module")
def found():
    return calibrate(coins(delta=0.2), {"easy": EASY, "hard": HARD}, 300, 5, HORIZON, workers=2)


def test_the_worst_scenario_errs_at_most_delta_with_confidence(found) -> None:
    assert found.worst.name == "hard"
    # exactly as many of the 300 runs reach the threshold wrongly as still prove 20%: none smaller would do
    rank = most_errors(300, 0.2, 2)
    assert round(found.worst.error.rate * 300) == rank
    assert binom.cdf(rank, 300, 0.2) <= 0.025
    assert binom.cdf(rank + 1, 300, 0.2) > 0.025


def test_a_run_with_the_threshold_found_errs_no_more_than_calibration_said(found) -> None:
    """The same seeds again, now stopping for real: every wrong stop was counted beforehand."""
    study = coins(delta=0.2, stopping=Calibrated(found.threshold), max_samples=HORIZON)
    runs = simulate(study.problem, HARD, study.procedure, 300, 5, workers=2)
    assert np.count_nonzero(runs.wrong) <= round(found.worst.error.rate * 300)
    assert runs.wrong.any() or found.worst.error.rate == 0
    fresh = simulate(study.problem, HARD, study.procedure, 1000, 6, workers=2)
    assert binom.sf(np.count_nonzero(fresh.wrong) - 1, 1000, 0.2) > 1e-6


def test_the_scenario_that_needs_most_sets_the_threshold(found) -> None:
    needs = {one.name: one.needs for one in found.scenarios}
    assert found.threshold == max(needs.values()) == needs["hard"]
    assert needs["easy"] < needs["hard"]


def test_a_smaller_delta_needs_a_higher_threshold(found) -> None:
    strict = calibrate(coins(delta=0.05), {"easy": EASY, "hard": HARD}, 300, 5, HORIZON, workers=2)
    assert strict.threshold > found.threshold


def test_runs_in_which_a_group_never_came_say_nothing_about_the_threshold() -> None:
    study = coins(delta=0.2)
    rare = Problem(study.problem.policies, {"x": 0.99, "y": 0.01}, Bernoulli(), mode="proportional")
    found = calibrate(replace(study, problem=rare), {"easy": EASY}, 200, 5, 60, workers=2)
    assert found.threshold < 50.0


def test_too_few_replications_prove_nothing_and_are_refused() -> None:
    with pytest.raises(BadInput, match="need at least 72 replications"):
        calibrate(coins(delta=0.05), {"easy": EASY, "hard": HARD}, 71, 1, HORIZON)
    assert most_errors(72, 0.05, 2) == 0


def test_no_scenarios_are_refused() -> None:
    with pytest.raises(BadInput, match="at least one scenario"):
        calibrate(coins(), {}, 100, 1)


def test_the_result_has_the_keys_of_the_contract(found) -> None:
    table = found.to_dict()
    assert table["calibrated"] == found.threshold
    assert table["worst"]["scenario"] == "hard"
    assert set(table["worst"]["error"]) == {"rate", "low", "high"}


def test_scenarios_are_read_with_their_names(tmp_path: Path) -> None:
    path = tmp_path / "scenarios.toml"
    path.write_text(
        '[[scenario]]\nname = "hard"\nmeans = [[0.9, 0.299], [0.5, 0.5]]\n'
        "[[scenario]]\nmeans = [[0.9, 0.9], [0.1, 0.1]]\nlag = 3\n"
    )
    problem = coins().problem
    assert load_scenarios(path, problem) == {"hard": HARD, "scenario 2": replace(EASY, lag=3)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must hold"),
        ("scenario = 3", "must hold"),
        (
            "[[scenario]]\nmeans = [[0.5, 2], [0.4, 0.6]]",
            "scenario 'scenario 1': means must lie in the domain",
        ),
        ("[[scenario]]\nname = 5\nmeans = [[0.5, 0.2], [0.4, 0.6]]", "name must be text"),
        ("[[scenario]", "cannot be read"),
        ("scenario = [3]", "a scenario must be a table; number 1 is 3"),
        ('[[scenario]]\nname = "a"\nmeans = [[0.5, 0.2], [0.4, 0.6]]\n' * 2, "comes twice"),
    ],
)
def test_a_wrong_scenario_file_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "scenarios.toml"
    path.write_text(text)
    with pytest.raises(BadInput, match=words):
        load_scenarios(path, coins().problem)


def test_futility_does_not_end_the_runs_that_a_threshold_is_found_by() -> None:
    """No run decides during a calibration, so futility would end all of them before they can err."""
    plain, futile = (
        calibrate(coins(delta=0.2, futility=futility), {"hard": HARD}, 100, 5, HORIZON, workers=2).threshold
        for futility in (None, 0.1)
    )
    assert futile == plain > 0.1
