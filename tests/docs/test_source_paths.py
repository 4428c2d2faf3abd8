"""Pages name source files relative to src/evenhand or tests; every such file exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, name_of

SOURCE = ROOT / "src" / "evenhand"
FILE = re.compile(r"`([\w./]+\.(?:py|js))`")
PLACEHOLDER = "NAME.py"  # in the instructions for a new sampling rule


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "CHANGELOG.md"], ids=name_of)
def test_source_files_that_a_page_names_exist(page: Path) -> None:
    roots = (SOURCE, SOURCE.parent, ROOT / "tests", ROOT)
    named = {
        name for name in FILE.findall(page.read_text(encoding="utf-8")) if Path(name).name != PLACEHOLDER
    }
    assert [name for name in sorted(named) if not any((root / name).exists() for root in roots)] == []
