"""`evenhand demo`: the whole story, and as much of it as a base install can tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from evenhand.app import extras
from evenhand.app.cli import main
from evenhand.app.commands import demo
from evenhand.live.audit import audit


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "REPLICATIONS", 4)
    monkeypatch.setattr(demo, "BUDGET", 1_000)


def test_it_plans_simulates_runs_live_and_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "demo"
    assert main(["demo", "-o", str(folder)]) == 0
    out = capsys.readouterr().out
    told = [
        out.index(part)
        for part in ("fails the patients", "Plan.", "Simulate.", "Live run.", "Open ", "Next:")
    ]
    assert told == sorted(told)
    assert "Aspirin only is the answer" in out
    assert audit(str(folder / "trial.db")).identical
    assert "<html" in (folder / "report.html").read_text()


def test_a_base_install_hears_what_the_rest_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(extras, "version_of", lambda name: None if name in ("sqlalchemy", "jinja2") else "1")
    assert main(["demo", "-o", str(tmp_path / "demo")]) == 0
    out = capsys.readouterr().out
    assert "install evenhand[live,report]." in out
    assert not (tmp_path / "demo" / "trial.db").exists()


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "letters.txt").write_text("dear")
    assert main(["demo", "-o", str(tmp_path)]) == 2
    assert (tmp_path / "letters.txt").read_text() == "dear"
