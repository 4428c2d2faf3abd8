"""`help` is complete: docstrings of the public surface have sections, and their examples run."""

from __future__ import annotations

import doctest
import inspect
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import evenhand as eh
from tests.docs.pages import ROOT
from tools import reference

RESULTS = (
    "Plan", "Runs", "Comparison", "Calibration", "BoxCalibration", "Scan", "Verdict", "Evaluation", "Report",
)  # fmt: skip
RECORDS = (
    "Ask", "CellRow", "IntervalBets", "IntervalReceipt", "ItemPlan", "LogEntry", "PairIntervalBets",
    "PolicyRow", "Receipt", "Status",
)  # made by evenhand, read by users  # fmt: skip
ERRORS = [n for n in eh.__all__ if inspect.isclass(getattr(eh, n)) and issubclass(getattr(eh, n), Exception)]
NAMES = [name for name in eh.__all__ if name not in ERRORS]
each_name = pytest.mark.parametrize("name", NAMES)


def sections(found: Any) -> set[str]:
    lines = (inspect.getdoc(found) or "").splitlines()
    return {line for line, rule in pairwise(lines) if rule and set(rule) == {"-"}}


@each_name
def test_a_docstring_has_the_sections_of_numpydoc(name: str) -> None:
    found = getattr(eh, name)
    needed = {"Examples", "Attributes"} if name in RECORDS else {"Examples"}
    if name not in (*RESULTS, *RECORDS) and [p for p in inspect.signature(found).parameters if p != "self"]:
        needed |= {"Parameters", "Raises"}
    if inspect.isfunction(found) and name != "assert_meets":
        needed |= {"Returns"}
    assert needed <= sections(found)


@each_name
def test_every_parameter_is_described(name: str) -> None:
    found = getattr(eh, name)
    if name in RESULTS:
        return
    doc = inspect.getdoc(found) or ""
    described = [line.split(" : ")[0] for line in doc.splitlines() if line and not line.startswith(" ")]
    names = {part.strip().lstrip("*") for line in described for part in line.split(",")}
    assert set(inspect.signature(found).parameters) <= names


@pytest.mark.parametrize("name", eh.__all__)
def test_a_docstring_begins_with_a_short_sentence(name: str) -> None:
    first = (inspect.getdoc(getattr(eh, name)) or "").splitlines()[0]
    assert 10 < len(first) <= 100, first
    assert first.endswith((".", "?", ":"))


@each_name
def test_the_examples_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    found = getattr(eh, name)
    tests = [
        test for test in doctest.DocTestFinder(recurse=False).find(found, name, module=False) if test.examples
    ]
    assert tests
    for test in tests:
        results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test)
        assert results.failed == 0


def test_the_reference_page_shows_parameters_and_examples() -> None:
    page = reference.python()
    section = page.split("### `simulate`\n")[1].split("\n### ")[0]
    assert "- `replications` (int): The number of runs." in section
    assert "```pycon\n>>> import evenhand as eh" in section
    assert "- `BadInput`: If the truth does not fit the problem" in section
    assert "`to_frame()`" in page.split("### `Plan`\n")[1].split("\n### ")[0]


def test_the_readme_passes_a_strict_type_check(tmp_path: Path) -> None:
    from mypy import api

    from tests.docs.pages import blocks

    source = next(block.text for block in blocks(ROOT / "README.md") if block.language == "python")
    (tmp_path / "readme.py").write_text(source, encoding="utf-8")
    report, errors, status = api.run(
        ["--strict", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(tmp_path / "cache"),
         str(tmp_path / "readme.py")]
    )  # fmt: skip
    assert (status, errors) == (0, ""), report
