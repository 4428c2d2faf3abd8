"""Every figure that was promised, against peers, in one run.

    python -m benchmarks [plan] [live] ... [--forget]

JSON lines on standard output as they come, a table on standard error at the end. The run is appended to
benchmarks/history/runs.jsonl, and the charts beside it are drawn anew, unless it is to be forgotten.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.rows import Row

SUBJECTS = tuple(
    sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))
)


def main() -> None:
    """Measure, print, remember."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument(
        "subjects", nargs="*", metavar="subject", help=f"of {', '.join(SUBJECTS)}; default: all"
    )
    parser.add_argument("--forget", action="store_true", help="leave the history as it is")
    asked = parser.parse_args()
    if unknown := set(asked.subjects) - set(SUBJECTS):
        parser.error(f"a subject must be one of {', '.join(SUBJECTS)}; got {', '.join(sorted(unknown))}")
    # one thread for each side, whatever the library; before any is loaded
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    rows = []
    for subject in asked.subjects or SUBJECTS:
        for row in importlib.import_module(f"benchmarks.bench_{subject}").rows():
            print(row.line(), flush=True)
            rows.append(row)
    Console(stderr=True).print(table(rows))
    if not asked.forget:
        from benchmarks.history import keep

        for path in keep(rows):
            print(f"wrote {path.relative_to(Path.cwd())}", file=sys.stderr)


def table(rows: list[Row]) -> Table:
    """What was measured, beside what was promised."""
    shown = Table("", "ours", "theirs", "", "ratio", "promised", box=None, pad_edge=False)
    for column in (1, 2, 4, 5):
        shown.columns[column].justify = "right"
    for row in rows:
        symbol = {True: "[blue]●[/]", False: "[red]✕[/]", None: ""}[row.kept]
        least = "" if row.least is None else f"{row.least:,.4g} {symbol}"
        shown.add_row(
            row.name, f"{row.ours:,.4g}", f"{row.theirs:,.4g}", row.unit, f"{row.ratio:,.4g}", least
        )
    return shown


if __name__ == "__main__":
    main()
