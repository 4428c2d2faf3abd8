"""Print how many lines of each package the tests ran, from out/coverage.json."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def main() -> None:
    measured = json.loads((ROOT / "out/coverage.json").read_text(encoding="utf-8"))
    print("\n".join(lines(measured["files"])))


def lines(files: dict[str, Any]) -> list[str]:
    """Return a line for each package, and one for all of them."""
    run: dict[str, int] = defaultdict(int)
    all_lines: dict[str, int] = defaultdict(int)
    for name, file in files.items():
        summary = file["summary"]
        for place in (package_of(name), "all"):
            run[place] += summary["covered_lines"]
            all_lines[place] += summary["num_statements"]
    places = [*sorted(set(run) - {"all"}), "all"]
    head = "Lines that the tests run (compiled code counts where a test runs it as plain Python)"
    return [head, *(_line(place, run[place], all_lines[place]) for place in places)]


def package_of(name: str) -> str:
    """Return the package below evenhand that a file belongs to; "evenhand" for a module of its own."""
    parts = Path(name).parts
    below = parts[parts.index("evenhand") + 1 :]
    return below[0] if len(below) > 1 else "evenhand"


def _line(place: str, run: int, total: int) -> str:
    return f"{place:<12} {run:>6,} of {total:>6,}  {run / max(total, 1):>4.0%}"


if __name__ == "__main__":
    main()
