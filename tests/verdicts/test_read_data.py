"""Data people already have come in whole, or are refused with one sentence that says where."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import evenhand as eh
from evenhand.errors import BadInput
from evenhand.verdicts.read_data import read

PROBLEM = eh.Problem(["aspirin", "neither"], {"young": 0.7, "old": 0.3}, eh.Bernoulli(), eh.Floors(0.8))
ROWS = [("aspirin", "young", 1), ("aspirin", "young", 0), ("neither", "old", 1), ("neither", "young", 1)]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def rows_csv(rows: list[tuple[object, ...]]) -> str:
    return "policy,group,outcome\n" + "".join(f"{p},{g},{x}\n" for p, g, x in rows)


def refusal(tmp_path: Path, text: str, problem: eh.Problem = PROBLEM, **options: str) -> str:
    with pytest.raises(BadInput) as caught:
        read(problem, write(tmp_path / "data.csv", text), **options)
    return str(caught.value)


def test_single_outcomes_are_counted_cell_by_cell(tmp_path: Path) -> None:
    data = read(PROBLEM, write(tmp_path / "data.csv", rows_csv(ROWS)))
    assert data.state.n.tolist() == [[2, 1], [0, 1]]  # (L, K): young, then old
    assert data.state.s.tolist() == [[1, 1], [0, 1]]
    assert (data.rows, data.missing, data.counts) == (4, 0, False)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pl.LazyFrame, pa.table])
def test_every_kind_of_frame_gives_the_same_counts(make: type) -> None:
    columns = dict(zip(("policy", "group", "outcome"), map(list, zip(*ROWS, strict=True)), strict=True))
    data = read(PROBLEM, make(columns))
    assert data.state.n.tolist() == [[2, 1], [0, 1]]
    assert data.state.s.tolist() == [[1, 1], [0, 1]]


def test_parquet_and_compressed_csv_give_the_same_counts(tmp_path: Path) -> None:
    pl.DataFrame(ROWS, schema=["policy", "group", "outcome"], orient="row").write_parquet(
        tmp_path / "d.parquet"
    )
    with gzip.open(tmp_path / "d.csv.gz", "wt", encoding="utf-8") as file:
        file.write(rows_csv(ROWS))
    for name in ("d.parquet", "d.csv.gz"):
        assert read(PROBLEM, tmp_path / name).state.n.tolist() == [[2, 1], [0, 1]]


def test_categories_and_whole_number_names_are_understood() -> None:
    problem = eh.Problem(["1", "2"], {"young": 0.7, "old": 0.3}, eh.Bernoulli())
    frame = pd.DataFrame(
        {"policy": [1, 2, 2], "group": pd.Categorical(["young", "old", "old"]), "outcome": [1.0, 0.0, 1.0]}
    )
    assert read(problem, frame).state.n.tolist() == [[1, 0], [0, 2]]


@pytest.mark.parametrize("third", ["successes", "mean"])
def test_counts_are_taken_as_counts(tmp_path: Path, third: str) -> None:
    value = {"successes": "80", "mean": "0.8"}[third]
    data = read(
        PROBLEM,
        write(tmp_path / "data.csv", f"policy,group,n,{third}\naspirin,young,100,{value}\nneither,old,0,\n"),
    )
    assert data.counts
    assert data.state.n.tolist() == [[100, 0], [0, 0]]
    np.testing.assert_allclose(data.state.s, [[80, 0], [0, 0]])


def test_bounded_outcomes_are_rescaled_to_the_unit_interval(tmp_path: Path) -> None:
    problem = eh.Problem(["a", "b"], {"g": 1.0}, eh.Bounded(-2, 2))
    data = read(
        problem, write(tmp_path / "data.csv", rows_csv([("a", "g", -2), ("a", "g", 2), ("b", "g", 0)]))
    )
    assert data.state.s.tolist() == [[1.0, 0.5]]


def test_semicolons_byte_order_mark_blank_lines_and_other_columns_are_fine(tmp_path: Path) -> None:
    text = "\ufeffnote;policy;group;outcome\n=SUM(A1);aspirin;young;1\n\n@x;neither;old;0\n"
    assert read(PROBLEM, write(tmp_path / "data.csv", text)).state.n.tolist() == [[1, 0], [0, 1]]


def test_a_name_like_a_formula_is_a_name(tmp_path: Path) -> None:
    problem = eh.Problem(["=cmd|' /C calc'!A0", "b"], {"g": 1.0}, eh.Bernoulli())
    assert (
        read(problem, write(tmp_path / "d.csv", "policy,group,outcome\n=cmd|' /C calc'!A0,g,1\n")).state.n[
            0, 0
        ]
        == 1
    )


def test_columns_may_have_other_names(tmp_path: Path) -> None:
    path = write(tmp_path / "data.csv", "arm,subpopulation,outcome\naspirin,old,1\n")
    assert read(PROBLEM, path, columns={"policy": "arm", "group": "subpopulation"}).state.n[1, 0] == 1


def test_an_unknown_name_is_refused_with_the_nearest_known_one(tmp_path: Path) -> None:
    words = refusal(tmp_path, rows_csv([*ROWS, ("asprin", "old", 1)]))
    assert words == "line 6: there is no policy 'asprin'; did you mean 'aspirin'?"
    assert "did you mean 'young'" in refusal(tmp_path, rows_csv([("aspirin", "yuong", 1)]))


def test_outcomes_outside_the_support_are_refused_with_their_lines(tmp_path: Path) -> None:
    words = refusal(tmp_path, rows_csv([*ROWS, ("aspirin", "old", 2), ("aspirin", "old", "inf")]))
    assert words == "outcomes must be 0 or 1; line 6 has 2, line 7 has inf. Correct them first."


def test_many_bad_outcomes_are_counted_and_five_are_named(tmp_path: Path) -> None:
    words = refusal(tmp_path, rows_csv([("aspirin", "old", 0.5)] * 12))
    assert words.count("line") == 5
    assert "and 7 more" in words


@pytest.mark.parametrize("hole", ["", "NA", "nan", "null"])
def test_missing_values_are_counted_and_never_dropped_unasked(tmp_path: Path, hole: str) -> None:
    text = rows_csv([*ROWS, ("aspirin", "old", hole), ("aspirin", "", 1)])
    words = refusal(tmp_path, text)
    assert words.startswith("2 of 6 rows miss a value (line 6, line 7).")
    data = read(PROBLEM, tmp_path / "data.csv", missing="drop")
    assert (data.rows, data.missing, data.state.n.sum()) == (6, 2, 4)


def test_missing_values_in_frames_are_found(tmp_path: Path) -> None:
    frame = pd.DataFrame({"policy": ["aspirin", None], "group": ["old", "old"], "outcome": [np.nan, 1.0]})
    assert read(PROBLEM, frame, missing="drop").missing == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("policy,group,outcome,outcome\na,b,1,1\n", "'outcome' comes twice"),
        ("policy,outcome\na,1\n", "needs a column 'group'"),
        ("policy,group\na,b\n", "needs a column 'outcome'"),
        ("policy,group,outcome,n,mean\na,b,1,2,.5\n", "at once"),
        ("policy,group,n,mean,successes\na,b,2,.5,1\n", "at once"),
        ("", "is empty"),
        ("policy,group,outcome\naspirin,old\n", "line 2: every line needs 3 fields"),
        ("policy,group,outcome\naspirin,old,yes\n", "line 2: an outcome must be a number; it is 'yes'"),
        ("policy,group,n,successes\naspirin,old,10,11\n", "the successes of 10 outcomes (0 or 1) is not 11"),
        ("policy,group,n,mean\naspirin,old,2.5,1\n", "line 2: n must be a whole number"),
        ("policy,group,n,mean\naspirin,old,2,1\naspirin,old,2,1\n", "line 3: every cell may come once"),
        ('policy,group,outcome\n"aspirin,old,1\n', "cannot be read as CSV"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_in_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    assert words in refusal(tmp_path, text)


def test_text_in_another_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_bytes("policy,group,outcome\nà,old,1\n".encode("latin-1"))
    with pytest.raises(BadInput, match="UTF-8"):
        read(PROBLEM, tmp_path / "d.csv")


def test_true_and_false_are_outcomes() -> None:
    frame = pl.DataFrame({"policy": ["aspirin"] * 3, "group": ["old"] * 3, "outcome": [True, False, True]})
    found = read(PROBLEM, frame).state
    assert (found.n.sum(), found.s.sum()) == (3, 2)


def test_counts_cannot_tell_an_unknown_variance(tmp_path: Path) -> None:
    problem = eh.Problem(["a", "b"], {"g": 1.0}, eh.GaussianUnknown())
    assert "single outcomes" in refusal(tmp_path, "policy,group,n,mean\na,g,10,1.5\n", problem)


def test_a_file_that_is_not_there_and_a_thing_that_is_no_frame_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no file"):
        read(PROBLEM, tmp_path / "nowhere.csv")
    with pytest.raises(BadInput, match="by policy, then by group"):
        read(PROBLEM, {"policy": []})


@pytest.mark.parametrize("large", [0, 10**9], ids=["by DuckDB", "row by row"])
def test_memory_does_not_grow_with_the_number_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    import tracemalloc

    monkeypatch.setattr("evenhand.verdicts.warehouse.LARGE", large)
    peaks = []
    for rows in (50_000, 200_000):
        path = write(
            tmp_path / f"{rows}.csv",
            "policy,group,outcome\n" + "aspirin,young,1\nneither,old,0\n" * (rows // 2),
        )
        read(PROBLEM, write(tmp_path / "warm.csv", rows_csv(ROWS)))
        tracemalloc.start()
        assert read(PROBLEM, path).rows == rows
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]
