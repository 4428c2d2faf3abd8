"""An installation without extras: what works, and the messages for what is missing."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

import evenhand as eh
from evenhand.cli import tools
from evenhand.cli.demo import run_demo
from evenhand.cli.main import group, main
from evenhand.study import Study, Truth

OTHERS = ("sqlalchemy", "jinja2", "matplotlib", "narwhals", "uvicorn")


@pytest.fixture(autouse=True)
def base_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "version_of", lambda name: None if name in OTHERS else "1")


def test_the_demo_shows_the_first_half_and_names_what_the_second_needs(tmp_path: Path) -> None:
    problem = eh.Problem(["plain", "poor"], {"many": 0.8, "few": 0.2}, eh.Bernoulli(), eh.Floors(0.6))
    study = Study(problem, eh.Procedure(batch=50), Truth(means=((0.85, 0.85), (0.5, 0.4))))
    printed = io.StringIO()
    assert (
        run_demo(
            Console(file=printed, width=110, markup=False), study, tmp_path, patients=100, replications=2
        )
        is None
    )
    assert "install evenhand[live,report]." in printed.getvalue()
    assert list(tmp_path.iterdir()) == []


def test_a_command_whose_extra_is_missing_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'sqlalchemy'", name="sqlalchemy.pool")

    monkeypatch.setattr(group, "main", absent)
    assert main(["new", "a.db", "b.toml"]) == 2
    assert "install evenhand[live]." in capsys.readouterr().err


def test_a_module_of_ours_that_is_missing_is_not_blamed_on_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'evenhand.gone'", name="evenhand.gone")

    monkeypatch.setattr(group, "main", absent)
    with pytest.raises(ModuleNotFoundError):
        main(["doctor"])


def test_each_extra_names_what_is_missing() -> None:
    found = tools.installed_extras()
    assert found["live"] == {"installed": False, "missing": ["sqlalchemy"]}
    assert found["dask"] == {"installed": True, "missing": []}
    assert not {"dev", "all"} & set(found)
