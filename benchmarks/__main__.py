"""Run all benchmarks and compare them with other software and with the targets.

    python -m benchmarks [plan] [live] ... [--forget]

Prints JSON lines on standard output and a table on standard error at the end. Appends the run to
benchmarks/history/runs.jsonl and redraws the charts in that folder, unless --forget is given.
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
    """Run the benchmarks, print the results and add them to the history."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument(
        "subjects", nargs="*", metavar="subject", help=f"of {', '.join(SUBJECTS)}; default: all"
    )
    parser.add_argument("--forget", action="store_true", help="do not add the run to the history")
    asked = parser.parse_args()
    if unknown := set(asked.subjects) - set(SUBJECTS):
        parser.error(f"a subject must be one of {', '.join(SUBJECTS)}; got {', '.join(sorted(unknown))}")
    # one thread for every library; must be set before the libraries are loaded
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
    """Return a table of the measured values and the targets."""
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
