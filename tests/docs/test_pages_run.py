"""Every page's Python and commands run as printed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import CELL, PAGES, ROOT, Reader, blocks, name_of, printed_in_order

RUN = ("python", "console", CELL)
WITH_CODE = [page for page in PAGES if any(block.language in RUN for block in blocks(page))]


# the tutorial lets a trial of fifty thousand patients run to its end; notebooks take several seconds each
GALLERY = sorted((ROOT / "docs/gallery").glob("[!i]*.md"))
QUICK = [ROOT / "docs/gallery/four-fifths.md", ROOT / "docs/gallery/screen-model.md"]
SLOW = [
    ROOT / "docs/tutorial.md",
    ROOT / "docs/guides/platform.md",
    *(page for page in GALLERY if page not in QUICK),
]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if page in SLOW else (), id=name_of(page))
        for page in WITH_CODE
    ],
)
def test_the_page_runs_as_printed(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Reader(tmp_path, capsys).read(page)


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md", "docs/guides/live-python.md"])
def test_the_pages_that_matter_most_have_code_to_run(page: str) -> None:
    assert ROOT / page in WITH_CODE


def test_the_gallery_has_its_notebooks_all_executed_and_listed() -> None:
    index = (ROOT / "docs/gallery/index.md").read_text(encoding="utf-8")
    assert len(GALLERY) >= 8
    assert set(GALLERY) <= set(WITH_CODE)
    assert [page.stem for page in GALLERY if f"({page.name})" not in index] == []


@pytest.mark.slow
def test_the_page_for_r_runs_in_r(tmp_path: Path) -> None:
    """All blocks of the page, in one R session; the virtual environment is the one of this test."""
    needed = 'stopifnot(requireNamespace("jsonlite"), requireNamespace("reticulate"))'
    if shutil.which("Rscript") is None or subprocess.run(["Rscript", "-e", needed]).returncode != 0:
        pytest.skip("R with jsonlite and reticulate is not installed")
    code = [block.text for block in blocks(ROOT / "docs/r-users.md") if block.language == "r"]
    assert len(code) == 2
    gate = next(block for block in blocks(ROOT / "docs/guides/judge.md") if block.file == "gate.toml")
    (tmp_path / "gate.toml").write_text(gate.text)
    script = "".join(code).replace('use_virtualenv("evenhand")\n', "")
    script += """
        stopifnot(verdict$answer == "candidate", is.null(code), file.exists("report.html"))
        trial <- eh$Experiment$create("trial.db", problem, seed = 7L)
        ask <- trial$ask()
        trial$tell(ask, 1)
        stopifnot(trial$status()$samples == 1)
    """
    (tmp_path / "page.R").write_text(script)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "RETICULATE_PYTHON": sys.executable}
    done = subprocess.run(
        ["Rscript", "page.R"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_output_that_is_printed_must_come_in_order() -> None:
    assert printed_in_order(["a", "...", "c"], "a\nb\nc\n")
    assert printed_in_order(["a ...", "c"], "a b\nc")
    assert printed_in_order([""], "anything")
    assert not printed_in_order(["a", "c"], "a\nb\nc\n")
    assert not printed_in_order(["c", "...", "a"], "a\nb\nc\n")
