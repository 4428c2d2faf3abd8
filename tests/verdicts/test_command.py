"""`evenhand judge` as people type it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evenhand.cli.main import main

STUDY = """
title = "Stroke trial"
[problem]
policies = ["Aspirin only", "Heparin only", "Both", "Neither"]
groups = { "under 80" = 0.7177, "80 and over" = 0.2823 }
family = { name = "bernoulli" }
constraint = { kind = "floors", at_least = 0.8333333333333334 }
[procedure]
delta = 0.05
"""
CELLS = [
    ("Aspirin only", 3470, 3097, 1388, 1170), ("Heparin only", 3484, 3049, 1371, 1094),
    ("Both", 3499, 3046, 1363, 1069), ("Neither", 3496, 3151, 1364, 1125),
]  # fmt: skip
KEYS = {"answer", "decided", "cells", "policies", "evidence", "needed", "more", "next"}


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(STUDY, encoding="utf-8")
    return path


def counts(path: Path, times: int = 1, group: str = "group") -> Path:
    lines = [f"policy,{group},n,successes"]
    for policy, n1, s1, n2, s2 in CELLS:
        lines += [
            f"{policy},under 80,{times * n1},{times * s1}",
            f"{policy},80 and over,{times * n2},{times * s2}",
        ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_undecided_data_end_with_code_three_and_say_what_is_open(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["judge", str(study), str(counts(tmp_path / "d.csv")), "--replications", "20"]) == 3
    said = capsys.readouterr().out
    assert said.startswith("Undecided. Aspirin only leads.")
    assert "still open for 80 and over" in said
    assert "✕ failed" in said
    assert "Where to sample next" in said


def test_decided_data_end_with_code_zero(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["judge", str(study), str(counts(tmp_path / "d.csv", 100))]) == 0
    assert capsys.readouterr().out.startswith("Aspirin only is the answer (certified at risk 5%)")


def test_the_json_holds_what_the_contract_names(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["judge", str(study), str(counts(tmp_path / "d.csv")), "--json", "--replications", "20"])
    told = json.loads(capsys.readouterr().out)
    assert code == 3
    assert set(told) >= KEYS
    assert told["answer"] is None
    assert told["decided"] is False
    assert set(told["cells"][0]) >= {"policy", "group", "n", "mean", "low", "high", "verdict"}
    assert set(told["policies"][0]) >= {"policy", "mean", "verdict"}
    assert list(told["more"]) == ["0.5", "0.7", "0.8", "0.9"]
    assert len(told["next"]) == 4
    assert len(told["next"][0]) == 2


def test_other_columns_another_floor_another_risk_and_a_fixed_sample(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = counts(tmp_path / "d.csv", group="subpopulation")
    base = [
        "judge",
        str(study),
        str(data),
        "--column",
        "group=subpopulation",
        "--replications",
        "0",
        "--json",
    ]
    assert main([*base, "--floor", "0.95"]) == 0
    assert json.loads(capsys.readouterr().out)["answer"] is None  # none meets 0.95, and that is certain
    main([*base, "--delta", "0.2"])
    assert json.loads(capsys.readouterr().out)["needed"] == pytest.approx(2.9957322735539909)
    main([*base, "--fixed-sample"])
    assert json.loads(capsys.readouterr().out)["fixed_sample"] is True


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        ("policy,group,outcome\nAsprin only,under 80,1\n", [], "did you mean 'Aspirin only'?"),
        ("policy,group,outcome\nAspirin only,under 80,\n", [], "1 of 1 rows miss a value"),
        ("policy,group,outcome\nAspirin only,under 80,2\n", [], "outcomes must be 0 or 1; line 2 has 2"),
        (
            "policy,group,outcome\nAspirin only,under 80,1\n",
            ["--delta", "0.7"],
            "delta must lie strictly between",
        ),
        ("policy,group,outcome\nAspirin only,under 80,1\n", ["--column", "x"], "NAME=COLUMN"),
    ],
)
def test_bad_input_ends_with_code_two_and_one_sentence(
    study: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: str,
    options: list[str],
    words: str,
) -> None:
    data = tmp_path / "d.csv"
    data.write_text(content, encoding="utf-8")
    assert main(["judge", str(study), str(data), *options]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert words in told.err
    assert told.err.count("\n") == 1


def test_missing_values_can_be_left_out_and_are_counted(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "d.csv"
    data.write_text("policy,group,outcome\nBoth,under 80,1\nBoth,under 80,NA\n", encoding="utf-8")
    assert main(["judge", str(study), str(data), "--missing", "drop", "--replications", "0"]) == 3
    assert "1 of 2 rows were left out because a value was missing." in capsys.readouterr().out
