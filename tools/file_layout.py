"""Print the number and size of the Python files of each package, and pairs of modules that could be one file.

A pair is listed if one module imports the other, both are in one package, the file would have at most 400
lines, and no chain of imports leads from one to the other through a third module: the merged file would be
in a cycle. Needs grimp, which comes with import-linter.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

import grimp

MOST_LINES = 400
SOURCE = Path(__file__).parents[1] / "src"


def main() -> None:
    """Print one line per package, the total, and the pairs."""
    lines = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in SOURCE.rglob("*.py")}
    by_package: dict[str, list[int]] = {}
    for file, count in lines.items():
        package, *inner = file.relative_to(SOURCE / "evenhand").parts
        by_package.setdefault(package if inner else "other", []).append(count)
    for name, counts in [*sorted(by_package.items()), ("all", list(lines.values()))]:
        median = statistics.median(counts)
        print(f"{name:11} {len(counts):4} files {sum(counts):6} lines, median {median:.0f}")
    for lines_together, one, other in sorted(_pairs(lines)):
        print(f"{lines_together} lines together: {one} and {other}")


def _pairs(lines: dict[Path, int]) -> Iterator[tuple[int, str, str]]:
    graph = grimp.build_graph("evenhand")
    sizes = {".".join(file.relative_to(SOURCE).with_suffix("").parts): count for file, count in lines.items()}
    for one in sorted(sizes.keys() & graph.modules):
        for other in sorted(graph.find_modules_directly_imported_by(one)):
            same_package = one.split(".")[:-1] == other.split(".")[:-1] and one.count(".") > 1
            together = sizes[one] + sizes.get(other, MOST_LINES)
            if same_package and together <= MOST_LINES and not _chain(graph, one, other):
                yield together, one, other


def _chain(graph: grimp.ImportGraph, one: str, other: str) -> bool:
    """Return whether imports lead from one module to the other through a third."""
    steps = graph.find_modules_directly_imported_by(one) - {other}
    return any(graph.chain_exists(step, other) for step in steps)


if __name__ == "__main__":
    main()
