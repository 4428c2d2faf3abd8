"""The demo runs to its end on a study small enough for a test."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console
from selenium import webdriver

import evenhand as eh
from evenhand.cli.demo import run_demo
from evenhand.cli.main import main
from evenhand.study import Study, Truth

EASY = Study(
    eh.Problem(["plain", "tempting", "poor"], {"many": 0.8, "few": 0.2}, eh.Bernoulli(), eh.Floors(0.6)),
    eh.Procedure(batch=50, initial=10),
    Truth(means=((0.85, 0.85), (0.98, 0.35), (0.5, 0.4))),
    "A small trial",
)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Return the printed text and the path of the report."""
    printed = io.StringIO()
    folder = tmp_path_factory.mktemp("demo")
    page = run_demo(Console(file=printed, width=110), EASY, folder, patients=240, replications=10)
    return printed.getvalue(), page


def test_the_demo_shows_the_cost_of_the_procedure_after_the_lower_bound(demo: tuple[str, Path]) -> None:
    said, _ = demo
    bound = re.search(r"needs at least ([\d,]+)\s+samples on average", said)
    cost = re.search(r"evenhand's rule needs ([\d,]+) samples on average", said)
    assert bound is not None
    assert cost is not None
    assert bound.start() < cost.start()
    assert int(bound[1].replace(",", "")) < int(cost[1].replace(",", ""))


def test_the_demo_ends_with_a_certified_answer_and_a_page(demo: tuple[str, Path]) -> None:
    said, page = demo
    assert "tempting has the best overall mean, but fails in few." in said
    assert "Of the policies that do not, plain is the best." in said
    assert "plain is the answer: certified at risk 5%" in said
    text = page.read_text(encoding="utf-8")
    for title in ("The experiment", "Procedures side by side", "The plan"):
        assert f">{title}</h2>" in text


@pytest.mark.parametrize("width", [1280, 390])
def test_its_page_opens_without_a_request_or_an_error(
    demo: tuple[str, Path], browser: webdriver.Chrome, width: int
) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(demo[1].as_uri())
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert [name for name in loaded if not name.startswith("data:")] == []
    assert browser.get_log("browser") == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert len(browser.find_elements("css selector", "figure table")) == 7


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
        assert "Neither has the best overall mean, but fails in 80 and over." in said
        assert "Aspirin only is the answer: certified at risk 5%" in said
        assert f"Open {tmp_path / 'demo' / 'report.html'}" in said
