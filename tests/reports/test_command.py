"""`evenhand report` as people type it, on real sources."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import evenhand as eh
from evenhand.cli.main import main
from evenhand.live.experiment import Experiment
from evenhand.reports.document import report
from evenhand.reports.dossier import Recipe, new_recipe
from evenhand.study import Study, Truth, dumps
from tests.reports.test_document import Page

PROBLEM = eh.Problem(["a", "b", "c"], {"x": 0.6, "y": 0.4}, eh.Gaussian(0.5), eh.Floors(0.0))
MEANS = ((0.5, 0.4), (0.3, 0.2), (0.9, -0.5))
STUDY = Study(PROBLEM, eh.Procedure(delta=0.1, max_samples=5000), Truth(means=MEANS), "A small study")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study, runs of it, data, and an experiment that has stopped."""
    home = tmp_path_factory.mktemp("sources")
    (home / "study.toml").write_text(dumps(STUDY), encoding="utf-8")
    runs = eh.simulate(
        PROBLEM, MEANS, STUDY.procedure, replications=60, seed=3, checkpoints=(50, 100), workers=1
    )
    runs.save(home / "runs.npz")
    lines = [
        "policy,group,n,mean",
        *(f"{p},{g},40,{MEANS[k][i]}" for k, p in enumerate("abc") for i, g in enumerate("xy")),
    ]
    (home / "data.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with Experiment.create(str(home / "trial.db"), STUDY, seed=5) as trial:
        while (ask := trial.ask()) is not None:
            assert ask.group is not None
            trial.tell(ask, MEANS["abc".index(ask.policy)]["xy".index(ask.group)])
    return home


def test_a_plan_runs_a_verdict_and_an_experiment_make_one_page(folder: Path, tmp_path: Path) -> None:
    names = ["trial.db", "runs.npz", "study.toml", "data.csv"]
    out = tmp_path / "page.html"
    figures = tmp_path / "figures"
    code = main(
        ["report", *(str(folder / name) for name in names), "-o", str(out), "--figures", str(figures)]
    )
    assert code == 0
    page = Page(out.read_text(encoding="utf-8"))
    text = " ".join("".join(page.text).split())
    for told in (
        "The experiment",
        "Simulated runs",
        "The plan",
        "What the data say",
        "head of the log",
        "a is the answer",
    ):
        assert told in text
    assert len(list(figures.glob("*.svg"))) == len(list(figures.glob("*.png"))) == page.count("figure")
    assert "NaN" not in text
    assert "inf" not in text.split()


def test_the_json_holds_the_numbers_of_the_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder / "study.toml"), str(folder / "runs.npz"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    plan, runs = told["sections"]
    assert plan["kind"] == "plan"
    assert plan["answer"] == "a"
    assert runs["runs"][0]["replications"] == 60
    assert told["studies"][0]["title"] == "A small study"


def test_a_live_run_is_reported_with_its_history(folder: Path) -> None:
    with Experiment.open(str(folder / "trial.db"), write=False) as trial:
        page = report(trial)
        status = trial.status()
    section = page.sections[0]
    assert [picture.name for picture in section.pictures] == ["floors", "evidence", "allocation"]
    history = section.numbers["history"]
    assert history[-1]["samples"] <= status.samples
    assert history[-1]["evidence"] >= 0.8 * history[-1]["needed"]
    assert ("head of the log", status.head) in page.facts


def test_data_need_a_study_before_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder / "data.csv"), "--json"]) == 2
    assert "give a STUDY.toml before" in capsys.readouterr().err


def test_a_report_must_go_somewhere(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder / "study.toml")]) == 2
    assert "a report needs an output" in capsys.readouterr().err


def test_a_dossier_rebuilds_bit_for_bit_from_its_own_file(folder: Path, tmp_path: Path) -> None:
    first, again = tmp_path / "dossier.html", tmp_path / "again.html"
    options = ["--replications", "20", "--max-samples", "400", "--seed", "9"]
    assert main(["report", "--dossier", str(folder / "study.toml"), "-o", str(first), *options]) == 0
    assert main(["report", "--dossier", str(first), "-o", str(again)]) == 0
    assert first.read_bytes() == again.read_bytes()
    text = " ".join("".join(Page(first.read_text(encoding="utf-8")).text).split())
    for told in (
        "design dossier",
        "What was fixed beforehand",
        "a narrowly misses its bound in y",
        "as assumed",
    ):
        assert told in text


def test_the_usual_grid_lies_where_answers_change() -> None:
    recipe = new_recipe(STUDY, replications=5)
    answers = {name: PROBLEM.answer(scenario.means) for name, scenario in recipe.scenarios.items()}
    assert answers["as assumed"] == 0
    assert answers["a narrowly misses its bound in x"] == 1
    assert answers["all policies narrowly miss the bound in y"] is None
    assert answers["b is slightly above a"] == 1
    assert answers["b is slightly below a"] == 0
    assert len(recipe.scenarios) >= 9
    assert recipe.study.procedure.max_samples <= STUDY.procedure.max_samples


def test_a_dossier_keeps_delays_and_dropout_of_the_assumed_truth() -> None:
    truth = eh.Truth(STUDY.truth.means, lag=(2, 5), dropout=0.1)
    recipe = new_recipe(replace(STUDY, truth=truth), replications=5)
    assert (recipe.study.truth.lag, recipe.study.truth.dropout) == ((2, 5), 0.1)


def test_with_guard_rails_scenarios_lie_slightly_beyond_their_bounds_too() -> None:
    rail = eh.Guardrail("errors", eh.Bernoulli(), eh.Caps(0.3))
    problem = replace(PROBLEM, guardrails=(rail,))
    errors = {"errors": [[0.1, 0.2]] * len(PROBLEM.policies)}
    truth = eh.Truth(STUDY.truth.means, guardrails=errors)
    recipe = new_recipe(replace(STUDY, problem=problem, truth=truth), replications=5)
    right = {name: problem.answer(*scenario) for name, scenario in recipe.scenarios.items()}
    assert right["as assumed"] == 0
    assert right["a narrowly misses its bound of errors in y"] == 1
    assert right["all policies narrowly miss the bound of errors in x"] is None
    again = Recipe.from_json(recipe.to_json())
    assert again.study == recipe.study
    assert list(again.scenarios) == list(recipe.scenarios)
    for name, (means, rails) in recipe.scenarios.items():
        assert np.array_equal(again.scenarios[name].means, means)
        assert np.array_equal(again.scenarios[name].guardrails["errors"], rails["errors"])


def test_a_page_without_a_recipe_is_no_dossier(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.html").write_text("<p>hello</p>", encoding="utf-8")
    assert main(["report", "--dossier", str(tmp_path / "x.html"), "--json"]) == 2
    assert "contains no recipe" in capsys.readouterr().err


def test_procedures_are_shown_side_by_side() -> None:
    other = Study(PROBLEM, eh.Procedure(sampling="uniform", delta=0.1, max_samples=5000), STUDY.truth)
    compared = eh.compare({"ts-ids": STUDY, "uniform": other}, replications=40, seed=1, workers=1)
    page = report(compared)
    assert "times as many" in page.to_dict()["summary"]
    assert page.to_dict()["sections"][0]["differences"][1]["against"] == "ts-ids"
    assert page.html()


def test_a_dossier_of_a_budget_runs_to_the_budget() -> None:
    study = replace(STUDY, procedure=eh.Procedure(stopping=eh.Budget(6000)))
    assert new_recipe(study, replications=5).study.procedure.max_samples >= 6000
