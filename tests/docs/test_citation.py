"""The citation names this version."""

from __future__ import annotations

from pathlib import Path

import evenhand

ROOT = Path(__file__).resolve().parents[2]


def test_the_citation_names_this_version() -> None:
    assert f"\nversion: {evenhand.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"Version\n> {evenhand.__version__}" in (ROOT / "docs/cite.md").read_text()
