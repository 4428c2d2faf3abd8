"""The table "Where is it?" in CONTRIBUTING.md names files and functions that exist."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT

SECTION = re.compile(r"^## Where is it\?\n(.*?)^## ", re.S | re.M)
ROW = re.compile(r"^\| (?P<question>[^|]+\?) \| (?P<answer>[^|]+) \|$", re.M)
PATH = re.compile(r"`((?:src|paper)/[\w./-]+\.\w+)`(?: \(([^)]*)\))?")


def answers() -> dict[str, list[tuple[str, list[str]]]]:
    """Return question -> [(path, names that the answer says are in it)]."""
    section = SECTION.search((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert section is not None
    return {
        row["question"]: [
            (path, re.findall(r"`(\w+)`", names or "")) for path, names in PATH.findall(row["answer"])
        ]
        for row in ROW.finditer(section[1])
    }


def test_the_map_has_ten_questions() -> None:
    assert len(answers()) == 10


@pytest.mark.parametrize("question", answers())
def test_the_files_and_functions_of_an_answer_exist(question: str) -> None:
    found = answers()[question]
    assert found
    for path, names in found:
        text = (ROOT / path).read_text(encoding="utf-8")
        for name in names:
            assert re.search(rf"\b(?:def|class|function) {name}\b", text), f"{name} is not in {path}"


def test_the_page_on_journals_names_what_a_storage_defines() -> None:
    from evenhand.live.journal import Journal

    page = (ROOT / "docs/contributing/journal.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(_\w+|shared|missing|claims|transaction|read)`", page)) - {"__init__"}
    assert len(named) >= 10
    assert [name for name in sorted(named) if not hasattr(Journal, name)] == []
