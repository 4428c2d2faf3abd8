"""`simulate`, with questions wider than the best policy under fixed floors: what it prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evenhand.cli.main import main

STUDY = """[problem]
policies = ["Standard", "Short", "Video"]
groups = {{ new = 0.6, returning = 0.4 }}
family = {{ name = "gaussian", sd = 0.3 }}
constraint = {{ kind = "floors", relative_to = "Standard", margin = 0.1 }}
{problem}
[procedure]
delta = 0.1
max_samples = 3000
{procedure}
[truth]
means = [[0.30, 0.40], [0.65, 0.61], [0.65, -0.16]]
"""
RUNS = ("--replications", "20", "--seed", "1")


def written(folder: Path, problem: str = "", procedure: str = "") -> str:
    path = folder / "study.toml"
    path.write_text(STUDY.format(problem=problem, procedure=procedure))
    return str(path)


def test_an_indifference_is_reported_by_both_notions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, procedure="indifference = 0.1")
    assert main(["simulate", path, *RUNS]) == 0
    said = capsys.readouterr().out
    assert "The answer was acceptable in 100.0% of 20 runs" in said
    assert "It was exactly the best in 100.0%." in said
    assert main(["simulate", path, *RUNS, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["correct"]["rate"] == found["exactly_best"] == 1.0
    assert found["answers"]["Short"] == 1.0
    assert "cost" not in found


def test_costs_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, problem="costs = { Standard = 1.0, Short = 1.0, Video = 2.0 }")
    assert main(["simulate", path, *RUNS, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cost"]["mean"] > found["samples"]["mean"]
    assert main(["simulate", path, *RUNS]) == 0
    assert f"A run cost {found['cost']['mean']:,.6g} on average." in capsys.readouterr().out


def test_screening_names_the_policies_that_passed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, problem='goal = "screen"')
    assert main(["simulate", path, *RUNS]) == 0
    assert "Every policy was classified correctly in 100.0% of 20 runs" in capsys.readouterr().out
    assert main(["simulate", path, *RUNS, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["answers"] == {"Standard": 1.0, "Short": 1.0, "Video": 0.0, "none": 0.0}
    assert main(["simulate", path, "--seed", "1", "--trace", "0"]) == 0
    assert "the requirement is met by Standard, Short only (right)." in capsys.readouterr().out
    assert main(["simulate", path, "--seed", "1", "--trace", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["allowed"] == ["Standard", "Short"]
