"""The reliability page keeps its word: every fault has a row, and every test that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "reliability.md"
# `faults/test_kills.py`: *a thousand random kills lose and double nothing*
NAMED = re.compile(r"`([\w/]+\.py)`: ((?:\*[^*]+\*(?: \([^)]+\))?(?:; )?)+)")


def test_every_test_that_the_page_names_is_there() -> None:
    named = [
        (file, words)
        for file, all_words in NAMED.findall(PAGE.read_text())
        for words in re.findall(r"\*([^*]+)\*", all_words)
    ]
    assert len(named) > 40
    for file, words in named:
        name = "test_" + re.sub(r"\W+", "_", words).lower()
        assert f"def {name}(" in (TESTS / file).read_text(), (file, name)


def test_every_fault_has_a_row_with_a_test() -> None:
    rows = re.findall(r"^\| (\d+) [^|]+\| ([^|]+) \|", PAGE.read_text(), re.M)
    numbers = [int(number) for number, _ in rows]
    assert numbers == sorted(set(numbers))
    assert set(numbers) == {*range(1, 59)}
    assert all(NAMED.search(tests) for _, tests in rows)
