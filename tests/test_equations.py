"""The equation index is true: what it lists exists and is tagged, and what is tagged is listed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
INDEX = ROOT / "docs" / "equations.md"
PAPER = ROOT.parent / "shared" / "paper.tex"
LABEL = re.compile(r"\b(?:alg|cor|def|eq|lemma|thm):[A-Za-z_0-9-]+")
ROW = re.compile(r"^\| `([^`]+)` \| [^|]+ \| `([^`]+)` \| `([^`]+)` \|$", re.MULTILINE)


class Entry(NamedTuple):
    label: str
    function: str
    test: str


def entries() -> list[Entry]:
    return [Entry(*row) for row in ROW.findall(INDEX.read_text())]


def tags() -> Iterator[tuple[str, str]]:
    """Every label in the first docstring line of a function or class of the package, with its dotted name."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        for name, node in definitions(ast.parse(path.read_text())):
            first_line = (ast.get_docstring(node) or "").split("\n")[0]
            for label in LABEL.findall(first_line):
                yield label, f"{module}.{name}"


def definitions(node: ast.AST, outer: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.ClassDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            yield outer + child.name, child
            yield from definitions(child, f"{outer}{child.name}.")


def test_every_tagged_function_is_listed_and_every_listed_one_is_tagged() -> None:
    listed = {(entry.label, entry.function) for entry in entries()}
    assert listed == set(tags())


def test_every_row_of_the_index_is_understood() -> None:
    rows = [line for line in INDEX.read_text().splitlines() if line.startswith("| `")]
    assert len(rows) == len(entries()) > 0


@pytest.mark.parametrize("test", sorted({entry.test for entry in entries()}))
def test_every_listed_test_exists(test: str) -> None:
    path, _, name = test.partition("::")
    names = {name for name, _ in definitions(ast.parse((ROOT / path).read_text()))}
    assert name in names


@pytest.mark.skipif(not PAPER.exists(), reason="the paper is not on this machine")
def test_every_label_is_one_of_the_papers() -> None:
    labels = set(re.findall(r"\\label\{([^}]+)\}", PAPER.read_text()))
    assert {entry.label for entry in entries()} <= labels
