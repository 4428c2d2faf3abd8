"""Functions that take a problem take a study in its place, and then its own truth and procedure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import evenhand as eh

MEANS = ((0.8, 0.7), (0.6, 0.4))
PROBLEM = eh.Problem(["a", "b"], {"x": 0.6, "y": 0.4}, eh.Bernoulli(), eh.Floors(0.3))
PROCEDURE = eh.Procedure(delta=0.2, initial=2)
STUDY = eh.Study(PROBLEM, PROCEDURE, eh.Truth(means=MEANS), title="Two")
GROUPS = ["x", "y"] * 2
COUNTS = {"policy": [*"aabb"], "group": GROUPS, "n": [40] * 4, "successes": [32, 28, 24, 16]}


def test_a_plan_of_a_study_is_that_of_its_problem_and_means() -> None:
    assert eh.plan(STUDY).to_dict(0.05) == eh.plan(PROBLEM, MEANS).to_dict(0.05)
    other = np.array(MEANS) - 0.1
    assert eh.plan(STUDY, other).time_low == eh.plan(PROBLEM, other).time_low


def test_a_simulation_of_a_study_has_its_truth_and_procedure() -> None:
    whole = eh.simulate(STUDY, replications=20, seed=3)
    apart = eh.simulate(PROBLEM, MEANS, PROCEDURE, replications=20, seed=3)
    assert np.array_equal(whole.samples, apart.samples)
    assert whole.study == STUDY
    stricter = eh.simulate(STUDY, procedure=eh.Procedure(delta=0.01), replications=20, seed=3)
    assert stricter.study.procedure.delta == 0.01


def test_a_judgement_by_a_study_is_by_its_procedure() -> None:
    import pandas as pd

    frame = pd.DataFrame(COUNTS)
    assert eh.judge(STUDY, frame, replications=0) == eh.judge(
        PROBLEM, frame, procedure=PROCEDURE, replications=0
    )
    assert eh.judge(STUDY, frame, delta=0.01, replications=0).procedure == eh.Procedure(delta=0.01, initial=2)


def test_an_experiment_of_a_study_has_its_procedure_and_title() -> None:
    with eh.Experiment.create(":memory:", STUDY, seed=1) as trial:
        recorded = replace(PROCEDURE, initial_order="random")  # the default of live experiments
        assert (trial.protocol.procedure, trial.status().title) == (recorded, "Two")
    with eh.Experiment.create(":memory:", STUDY, eh.Procedure(delta=0.1), seed=1, title="New") as trial:
        assert (trial.protocol.procedure.delta, trial.status().title) == (0.1, "New")


WRONG: dict[str, Any] = {
    "a plan of text": lambda: eh.plan("study.toml", MEANS),  # type: ignore[arg-type]
    "a plan without means": lambda: eh.plan(PROBLEM),
    "a plan of a study without means": lambda: eh.plan(eh.Study(PROBLEM)),
    "a simulation without a truth": lambda: eh.simulate(PROBLEM),
    "a simulation of nothing": lambda: eh.simulate(None, MEANS),  # type: ignore[arg-type]
    "a judgement by a number": lambda: eh.judge(7, "data.csv"),  # type: ignore[arg-type]
    "an experiment of a table": lambda: eh.Experiment.create(":memory:", {}, seed=1),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_neither_is_refused_in_one_sentence(what: str) -> None:
    with pytest.raises(eh.BadInput, match=r"^[^\n]+\.$"):
        WRONG[what]()


def test_a_study_file_is_loaded_by_the_public_function(tmp_path: Any) -> None:
    from evenhand.study import dumps

    path = tmp_path / "study.toml"
    path.write_text(dumps(STUDY))
    assert eh.load(path) == STUDY


@pytest.mark.parametrize(
    ("procedure", "words"),
    [
        (eh.Procedure(initial={"a": {"x": 1, "y": 2}}), "initial by name must have a row for every policy"),
        (eh.Procedure(initial=[1, 2, 3]), "initial must have one number per group, 2; it has 3"),
        (eh.Procedure(tolerance={"x": 0.1, "z": 0.1}), "tolerance names an unknown group 'z'"),
    ],
)
def test_a_procedure_that_does_not_fit_the_problem_is_refused(procedure: eh.Procedure, words: str) -> None:
    with pytest.raises(eh.BadInput, match=words):
        eh.Study(PROBLEM, procedure)
    with pytest.raises(eh.BadInput, match=words):
        replace(STUDY, procedure=procedure)
