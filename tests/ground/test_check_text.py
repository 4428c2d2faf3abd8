"""The text check refuses what it says, and only that."""

from __future__ import annotations

import pytest

from tools.check_text import faults_in


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("see /" + "home/ada/notes.txt", "a local path"),
        ("data = '/" + "root/x.csv'", "a local path"),
        ("index = https://" + "pypi" + ".org/simple", "the address of a package registry"),
        ("# TO" + "DO: later", "an open note"),
    ],
)
def test_text_that_does_not_belong_is_refused_with_its_place(line: str, what: str) -> None:
    assert [fault.split(": ")[:2] for fault in faults_in("a.md", f"fine\n{line}\n")] == [["a.md:2", what]]


@pytest.mark.parametrize("line", ["docs/home/index.md", "a network of /groups/", "the to-do list of a study"])
def test_text_that_only_resembles_it_is_left_alone(line: str) -> None:
    assert list(faults_in("a.md", line)) == []
