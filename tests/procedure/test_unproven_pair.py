"""kaufmann-koolen with unknown variances: not delta-correct, so refused wherever something would be begun."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import evenhand as eh
from evenhand.procedure.compile_spec import compile_spec
from evenhand.procedure.spec import BadInput

PROBLEM = eh.Problem(["a", "b"], {"x": 1.0}, eh.GaussianUnknown(), eh.Floors(0.0))
PROCEDURE = eh.Procedure("uniform", stopping="kaufmann-koolen", delta=0.001, max_samples=1000)
SAID = "kaufmann-koolen.*gaussian-unknown.*certified"


def test_it_is_compiled_for_no_new_use() -> None:
    with pytest.raises(BadInput, match=SAID):
        compile_spec(PROBLEM, PROCEDURE)
    assert compile_spec(PROBLEM, PROCEDURE, recorded=True).unknown_variance


def test_no_simulation_begins() -> None:
    with pytest.raises(eh.BadInput, match=SAID):
        eh.simulate(PROBLEM, [[-0.001], [-0.5]], PROCEDURE, replications=1)


def test_no_experiment_is_created_and_no_file_written(tmp_path: Path) -> None:
    with pytest.raises(eh.BadInput, match=SAID):
        eh.Experiment.create(str(tmp_path / "t.db"), PROBLEM, PROCEDURE, seed=1)
    assert list(tmp_path.iterdir()) == []


def test_no_data_are_judged_but_a_fixed_sample_is() -> None:
    frame = pl.DataFrame(
        {"policy": ["a", "b"] * 6, "group": ["x"] * 12, "outcome": [0.3, -0.4] * 5 + [0.1, 0]}
    )
    with pytest.raises(eh.BadInput, match=SAID):
        eh.judge(PROBLEM, frame, procedure=PROCEDURE, replications=0)
    assert eh.judge(PROBLEM, frame, procedure=PROCEDURE, fixed=True, replications=0).fixed


def test_every_other_pair_is_taken() -> None:
    assert compile_spec(eh.Problem(["a", "b"], {"x": 1.0}, eh.Gaussian(1.0)), PROCEDURE).stopping == 2
    for stopping in ("certified", "stylised", eh.Budget(500), eh.Calibrated(3.0)):
        compile_spec(PROBLEM, eh.Procedure(stopping=stopping))


def test_a_plan_does_not_ask_for_a_stopping_rule() -> None:
    assert eh.plan(PROBLEM, [[0.5], [-0.5]]).answer == "a"
