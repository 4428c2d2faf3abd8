"""Time of the first commands, which compile kernels, and of later commands, which load them.

    python -m benchmarks compile

A time is the processor time of the command plus that of its busiest compiling process. The compiling
processes run in parallel, so with enough idle cores this is the elapsed time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import psutil

from benchmarks.rows import Row, less

SCALING = str(Path(__file__).parents[1] / "examples" / "scaling.toml")
PLAN, SIMULATE = ("plan", SCALING), ("simulate", SCALING, "--replications", "100")
IMPORTS = "import numpy, scipy.optimize"  # what any numerical program in Python has to load
INTERVAL = 0.01  # seconds between readings of the processor times


def rows() -> Iterator[Row]:
    for name, command, cold in (("plan", PLAN, 4.0), ("simulate", SIMULATE, 12.0)):
        with tempfile.TemporaryDirectory() as folder:
            yield less(f"first {name}, with an empty cache", seconds(command, folder), cold, "s", 1.0)
            if name == "plan":
                yield from later("plan", least(command, folder), 0.8)
    with tempfile.TemporaryDirectory() as folder:
        yield from live(folder)


def live(folder: str) -> Iterator[Row]:
    """Measure the commands of a live experiment after their kernels are compiled."""
    journal = str(Path(folder, "trial.db"))
    seconds(("new", journal, SCALING, "--seed", "1"), folder)
    seconds(("ask", journal), folder)
    first, second = (ticket(journal, folder) for _ in range(2))
    for command in (("tell", journal, first, "0.5"), ("status", journal)):
        seconds(command, folder)
    yield from later("ask", least(("ask", journal), folder), 1.0)
    yield from later("tell", seconds(("tell", journal, second, "0.5"), folder), 1.0)
    yield from later("status", least(("status", journal), folder), 1.0)


def ticket(journal: str, folder: str) -> str:
    """Return the code of a new ticket."""
    printed = subprocess.run(
        [sys.executable, "-m", "evenhand", "ask", journal, "--json"],
        stdout=subprocess.PIPE, env=os.environ | {"EVENHAND_CACHE": folder}, check=True,
    )  # fmt: skip
    return str(json.loads(printed.stdout)[0]["ticket"])


def later(name: str, took: float, limit: float) -> Iterator[Row]:
    """Compare a command that loads its kernels with its limit, and with the imports of NumPy and SciPy."""
    yield less(f"every later {name}", took, limit, "s", 1.0)
    yield less(f"every later {name}, against `{IMPORTS}`", took, imports_seconds(), "s")


@cache
def imports_seconds() -> float:
    """Return the processor time of a Python process that imports NumPy and scipy.optimize only."""
    return min(processor_seconds([sys.executable, "-c", IMPORTS], "") for _ in range(3))


def least(command: Sequence[str], cache: str, repeats: int = 3) -> float:
    return min(seconds(command, cache) for _ in range(repeats))


def seconds(command: Sequence[str], cache: str) -> float:
    """Return the processor time of a command plus that of the busiest process that it started."""
    return processor_seconds([sys.executable, "-m", "evenhand", *command], cache)


def processor_seconds(command: Sequence[str], cache_folder: str) -> float:
    """Return the processor time of a process plus that of the busiest process that it started."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=os.environ | {"EVENHAND_CACHE": cache_folder},
    )  # fmt: skip
    used: dict[int, float] = {}
    while process.poll() is None:
        try:
            own = psutil.Process(process.pid)
            for each in (own, *own.children()):
                times = each.cpu_times()
                used[each.pid] = times.user + times.system
        except psutil.NoSuchProcess:
            continue
        time.sleep(INTERVAL)
    if process.returncode not in (0, 3):
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    own_time = used.pop(process.pid)
    return own_time + max(used.values(), default=0.0)


if __name__ == "__main__":
    for row in rows():
        print(row.line(), flush=True)
