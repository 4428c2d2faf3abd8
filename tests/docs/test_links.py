"""Links between pages, and names of files, lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import FENCE, PAGES, ROOT, name_of

LINK = re.compile(r"\[[^\]\[]*\]\((?!https?://|mailto:)([^)\s]+)\)")
FILE = re.compile(r"`((?:src|tests|docs|examples|paper|tools|benchmarks)/[\w./-]+\.\w+)`")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_and_anchors_resolve(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    broken = []
    for target in LINK.findall(text):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_are_named_exist(page: Path) -> None:
    named = FILE.findall(page.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_page_can_be_reached_from_the_first() -> None:
    reached = {ROOT / "docs/index.md"}
    waiting = list(reached)
    while waiting:
        page = waiting.pop()
        for tree in re.findall(r"^```\{toctree\}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.S | re.M):
            entries = [line for line in tree.splitlines() if line and not line.startswith(":")]
            fresh = {(page.parent / f"{entry}.md").resolve() for entry in entries} - reached
            reached |= fresh
            waiting += fresh
    docs = {page for page in PAGES if (ROOT / "docs") in page.parents}
    assert docs - reached == set()


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the builder makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.M)
    return {re.sub(r"[^\w\s-]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
