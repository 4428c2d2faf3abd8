"""Groups that are given by several columns of a data file, in every reader of data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import evenhand as eh
from evenhand.cli.main import main
from evenhand.study import data_files, dumps, loads
from evenhand.study.problem_tables import family_from_dict

GROUPS = {"north, young": 0.3, "north, old": 0.2, "south, young": 0.4, "south, old": 0.1}
PROBLEM = eh.Problem(["a", "b"], GROUPS, eh.Bernoulli(), eh.Floors(0.3), by=["region", "age"])
ROWS = [
    (policy, *group.split(", "), (i + j) % 2)
    for i, policy in enumerate("ab")
    for j, group in enumerate(GROUPS)
    for _ in range(4)
]


def a_file(folder: Path) -> Path:
    path = folder / "data.csv"
    lines = [",".join(map(str, row)) for row in ROWS]
    path.write_text("\n".join(["policy,region,age,outcome", *lines]), encoding="utf-8")
    return path


def test_a_file_and_a_frame_give_the_group_by_two_columns(tmp_path: Path) -> None:
    import pandas as pd

    path = a_file(tmp_path)
    frame = pd.DataFrame(ROWS, columns=["policy", "region", "age", "outcome"])
    for data in (path, frame):
        verdict = eh.judge(PROBLEM, data, replications=0)
        assert [(cell.policy, cell.group, cell.n) for cell in verdict.cells] == [
            (policy, group, 4) for policy in "ab" for group in GROUPS
        ]
        assert [cell.mean for cell in verdict.cells] == [0, 1, 0, 1, 1, 0, 1, 0]
    counted = data_files.outcomes(path, PROBLEM)
    assert [len(cell) for row in counted for cell in row] == [4] * 8


def test_a_study_file_records_the_columns_and_an_import_takes_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = eh.Study(PROBLEM, eh.Procedure())
    assert loads(dumps(study)).problem.by == ("region", "age")
    path, journal = tmp_path / "study.toml", str(tmp_path / "trial.db")
    path.write_text(dumps(study))
    assert main(["new", journal, str(path), "--seed", "1"]) == 0
    assert main(["import", journal, str(a_file(tmp_path))]) == 0
    with eh.Experiment.open(journal, write=False) as trial:
        assert [cell.n for cell in trial.status().cells] == [4] * 8
    capsys.readouterr()


@pytest.mark.parametrize(
    ("by", "message"),
    [
        (["region", "age", "sex"], "groups by region and age and sex are named by a value of each"),
        (["region"], "by must hold at least 2 names; there are 1"),
        ("region", "by must be a list of names"),
        (["region", "region"], "by must have different names"),
    ],
)
def test_wrong_columns_are_refused(by: Any, message: str) -> None:
    with pytest.raises(eh.BadInput, match=message):
        eh.Problem(["a", "b"], GROUPS, eh.Bernoulli(), by=by)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("policy,region,outcome\na,north,1\n")
    with pytest.raises(eh.BadInput, match=r"data\.csv needs a column 'age'"):
        eh.judge(PROBLEM, path, replications=0)


def test_families_by_group_and_overlapping_groups_get_a_hint() -> None:
    with pytest.raises(
        eh.BadInput, match="All groups have one family: give another kind of outcome as a guard"
    ):
        family_from_dict({"north": {"name": "bernoulli"}, "south": {"name": "poisson"}})
    with pytest.raises(eh.BadInput, match="All groups have one family"):
        eh.Problem(["a", "b"], GROUPS, {"north": eh.Bernoulli()})  # type: ignore[arg-type]
    with pytest.raises(eh.BadInput, match="If groups overlap, replace them by disjoint ones"):
        eh.Problem(["a", "b"], {"women": 0.6, "young": 0.6}, eh.Bernoulli())
