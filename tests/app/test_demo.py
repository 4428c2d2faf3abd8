"""The demo's story: told to its end, on a study small enough for a test."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

import evenhand as eh
from evenhand.app.cli import main
from evenhand.app.story import tell_story
from evenhand.study import Study, Truth

EASY = Study(
    eh.Problem(["plain", "tempting", "poor"], {"many": 0.8, "few": 0.2}, eh.Bernoulli(), eh.Floors(0.6)),
    eh.Procedure(batch=50, initial=10),
    Truth(means=((0.85, 0.85), (0.98, 0.35), (0.5, 0.4))),
    "A small trial",
)


def test_the_story_ends_with_a_certified_answer_and_a_page(tmp_path: Path) -> None:
    told = io.StringIO()
    page = tell_story(Console(file=told, width=110), EASY, tmp_path, patients=240, replications=10)
    said = told.getvalue()
    assert "tempting has the best overall mean, and falls short in few." in said
    assert "Of those that do not, plain is the best." in said
    assert "plain is the answer: certified at risk 0.05" in said
    text = page.read_text(encoding="utf-8")
    for title in ("The experiment", "Procedures side by side", "The plan"):
        assert f">{title}</h2>" in text


def test_a_folder_that_holds_anything_else_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "stroke.toml").write_text("mine", encoding="utf-8")
    (tmp_path / "thesis.tex").write_text("mine too", encoding="utf-8")
    assert main(["demo", "-o", str(tmp_path)]) == 2
    assert "it holds thesis.tex" in capsys.readouterr().err
    assert (tmp_path / "stroke.toml").read_text(encoding="utf-8") == "mine"


@pytest.mark.slow
def test_the_demo_on_the_stroke_trial_runs_to_its_end_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):  # the second finds what the first left, and begins again
        assert main(["demo", "-o", str(tmp_path / "demo")]) == 0
        said = capsys.readouterr().out
        assert "Neither has the best overall mean, and falls short in 80 and over." in said
        assert "Aspirin only is the answer: certified at risk 0.05" in said
        assert f"Open {tmp_path / 'demo' / 'report.html'}" in said
