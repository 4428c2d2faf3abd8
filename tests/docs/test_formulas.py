"""The formulas on the pages: each can be written as MathML, which browsers show without a script."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docutils.utils.math.latex2mathml import tex2mathml

from tests.docs.pages import FENCE, PAGES, ROOT, name_of

BLOCK, INLINE = re.compile(r"\$\$(.+?)\$\$", re.S), re.compile(r"(?<![\\$])\$([^$\n]+)\$")


def formulas(page: Path) -> list[tuple[str, bool]]:
    """Return the formulas of a page outside code, and whether each is on lines of its own."""
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text(encoding="utf-8")))
    own = [(found, True) for found in BLOCK.findall(text)]
    return own + [(found, False) for found in INLINE.findall(BLOCK.sub("", text))]


WITH_FORMULAS = [page for page in PAGES if page.is_relative_to(ROOT / "docs") and formulas(page)]


@pytest.mark.parametrize("page", WITH_FORMULAS, ids=name_of)
def test_every_formula_of_a_page_can_be_written_as_mathml(page: Path) -> None:
    for formula, on_its_own in formulas(page):
        assert tex2mathml(formula.strip(), as_block=on_its_own).startswith("<math")


def test_the_pages_with_the_theory_have_formulas() -> None:
    names = {page.name for page in WITH_FORMULAS}
    assert {"characteristic-time.md", "glossary.md", "notation.md", "box-calibration.md"} <= names


def test_the_documentation_does_not_load_a_script_for_formulas() -> None:
    settings = (ROOT / "docs/conf.py").read_text(encoding="utf-8")
    assert 'html_math_renderer = "mathml"' in settings
    assert "mathjax" not in settings
