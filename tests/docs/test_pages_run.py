"""Every page's Python and commands run as printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, Reader, blocks, name_of, printed_in_order

RUN = ("python", "console")
WITH_CODE = [page for page in PAGES if any(block.language in RUN for block in blocks(page))]


# the tutorial lets a trial of fifty thousand patients run to its end
SLOW = ROOT / "docs/tutorial.md"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if page == SLOW else (), id=name_of(page))
        for page in WITH_CODE
    ],
)
def test_the_page_runs_as_printed(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Reader(tmp_path, capsys).read(page)


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md", "docs/guides/live-python.md"])
def test_the_pages_that_matter_most_have_code_to_run(page: str) -> None:
    assert ROOT / page in WITH_CODE


def test_output_that_is_printed_must_come_in_order() -> None:
    assert printed_in_order(["a", "...", "c"], "a\nb\nc\n")
    assert printed_in_order(["a ...", "c"], "a b\nc")
    assert printed_in_order([""], "anything")
    assert not printed_in_order(["a", "c"], "a\nb\nc\n")
    assert not printed_in_order(["c", "...", "a"], "a\nb\nc\n")
