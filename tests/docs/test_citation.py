"""The citation names this version."""

from __future__ import annotations

import re
from pathlib import Path

import evenhand

ROOT = Path(__file__).resolve().parents[2]


def test_the_citation_names_this_version() -> None:
    assert f"\nversion: {evenhand.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"Version\n> {evenhand.__version__}" in (ROOT / "docs/cite.md").read_text()


def test_every_source_that_the_paper_cites_is_in_its_bibliography_and_used() -> None:
    text = (ROOT / "paper.md").read_text(encoding="utf-8")
    keys = set(re.findall(r"^@\w+\{(\w+),$", (ROOT / "paper.bib").read_text(encoding="utf-8"), re.M))
    assert keys
    assert keys == set(re.findall(r"@(\w+)", text))
    sections = (
        "Summary",
        "Statement of need",
        "State of the field",
        "Software design",
        "Research impact statement",
    )
    places = [text.index(f"\n# {section}\n") for section in (*sections, "Acknowledgements", "References")]
    assert places == sorted(places)
    assert 750 <= len(text.split("---")[2].split()) <= 1_750  # as the journal asks
