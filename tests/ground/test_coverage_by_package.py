"""The lines that tests run are added up by package."""

from __future__ import annotations

from typing import Any

from tools.coverage_by_package import lines


def file(run: int, total: int) -> dict[str, Any]:
    return {"summary": {"covered_lines": run, "num_statements": total}}


def test_files_count_for_the_package_below_evenhand_and_modules_for_evenhand() -> None:
    files = {
        "src/evenhand/live/tickets.py": file(30, 40),
        "src/evenhand/live/parts/log.py": file(10, 60),
        "src/evenhand/errors.py": file(2_000, 2_000),
        "src/evenhand/paper/__init__.py": file(0, 0),
    }
    _, *found = lines(files)
    assert found == [
        "evenhand      2,000 of  2,000  100%",
        "live             40 of    100   40%",
        "paper             0 of      0    0%",
        "all           2,040 of  2,100   97%",
    ]
