"""A benchmark's rows say what they must, and its history is kept and drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import history
from benchmarks.__main__ import SUBJECTS
from benchmarks.rows import Row, less, more


def test_a_ratio_says_how_many_times_better_whether_more_or_less_is_better() -> None:
    assert less("a time", ours=2.0, theirs=10.0, unit="s").ratio == 5.0
    assert more("a rate", ours=10.0, theirs=2.0, unit="1/s").ratio == 5.0


def test_a_promise_is_kept_by_its_ratio_and_no_promise_is_neither() -> None:
    assert less("a time", 2.0, 10.0, "s", least=5.0).kept is True
    assert less("a time", 2.0, 9.0, "s", least=5.0).kept is False
    assert less("a time", 2.0, 9.0, "s").kept is None


def test_a_line_holds_the_names_of_the_contract() -> None:
    line = json.loads(more("a rate", 1.0, 3.0, "1/s").line())
    assert (line["name"], line["ours"], line["theirs"], line["ratio"]) == ("a rate", 1.0, 3.0, 0.3333)


def test_runs_add_up_and_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "FOLDER", tmp_path)
    monkeypatch.setattr(history, "RUNS", tmp_path / "runs.jsonl")
    grows = Row("time over K", 0.7, 1.0, "exponent", 1.4, curve=((10.0, 0.1), (1000.0, 2.5)))
    for _ in range(2):
        written = history.keep(
            [less("kept", 1.0, 600.0, "ns", 500.0), less("missed", 3.0, 2.0, "s", 1.0), grows]
        )
    assert [path.name for path in written] == ["runs.jsonl", "promises.svg", "growth.svg"]
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == 2
    drawn = (tmp_path / "promises.svg").read_text()
    assert "kept" in drawn
    assert "missed" in drawn
    assert "0.70" in (tmp_path / "growth.svg").read_text()
    # a run of another subject leaves this curve in the chart
    history.keep([Row("time over L", 0.4, 1.0, "exponent", 2.5, curve=((2.0, 0.1), (8.0, 0.2)))])
    both = (tmp_path / "growth.svg").read_text()
    assert "time over K" in both
    assert "time over L" in both


def test_every_subject_is_found() -> None:
    assert {"live", "plan", "simulate"} <= set(SUBJECTS)
