"""`evenhand doctor`: what this installation is made of, and what may bite.

`evenhand warmup`: compile the kernels now, so that the first command does not wait for them.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import time
from pathlib import Path
from typing import Any

import click

from evenhand.cli.extras import installed_extras, version_of
from evenhand.cli.options import json_option, print_json

PACKAGES = ("evenhand", "numpy", "scipy", "numba", "llvmlite", "click", "rich", "msgspec", "highspy")
# SQLite's WAL-reset bug: in 3.7.0 to 3.51.2; fixed since, and in two older lines
FIXED, FIXED_LINES = (3, 51, 3), {(3, 44): 6, (3, 50): 7}
WAL_RESET = (
    "SQLite {version} can damage a file when two connections write and checkpoint at once (the WAL-reset "
    "bug, fixed in 3.51.3, 3.50.7 and 3.44.6). evenhand writes a journal over one connection and is not "
    "touched by it; other programs must not write to the file."
)
COLD = (
    "The kernels are not compiled yet, so the first command will wait for them. Compile now: evenhand warmup"
)


@click.command("doctor")
@json_option
def doctor_command(as_json: bool) -> None:
    """Versions, compiled kernels, SQLite and its risks, threads, extras.

    Paste what it prints into a report about something that went wrong. Nothing is changed. Neither
    PostgreSQL nor a browser is needed to use evenhand.
    """
    found = examine()
    if as_json:
        print_json(found)
    else:
        _print(found)


def examine() -> dict[str, Any]:
    """Everything the doctor knows, with notes on what deserves attention."""
    cache, sqlite, extras = kernel_cache(), sqlite_health(), installed_extras()
    notes = [] if cache["warm"] else [COLD]
    if not cache["writable"]:
        notes.append(
            f"{cache['path']} cannot be written, so every process compiles the kernels anew. Name another "
            "place in EVENHAND_CACHE."
        )
    if cache["damaged"]:
        notes.append(
            f"{cache['damaged']} of the files in {cache['path']} are damaged. What they held is compiled "
            "again when it is needed."
        )
    if not sqlite["wal_reset_fixed"]:
        notes.append(WAL_RESET.format(version=sqlite["version"]))
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: version_of(name) for name in PACKAGES},
        "kernels": cache,
        "sqlite": sqlite,
        "threads": threads(),
        "extras": extras,
        "notes": notes,
    }


def kernel_cache() -> dict[str, Any]:
    """Where compiled kernels lie, how much they take, whether those of this version are there and intact."""
    from evenhand.compile.cache import cache_directory, damaged_files
    from evenhand.warm_up import are_compiled

    place = cache_directory()
    return {
        "path": str(place),
        "bytes": sum(map(_size, place.rglob("*"))),
        "damaged": len(damaged_files()),
        "warm": are_compiled(),
        "writable": _writable(place),
    }


def sqlite_health(version: str = sqlite3.sqlite_version) -> dict[str, Any]:
    """SQLite's version, and whether it has the WAL-reset bug."""
    major, minor, patch = map(int, version.split(".")[:3])
    line = FIXED_LINES.get((major, minor))
    fixed = (major, minor, patch) >= FIXED or (line is not None and patch >= line)
    return {"version": version, "wal_reset_fixed": fixed}


def threads() -> dict[str, Any]:
    """Cores we may use, and what limits the threads of the libraries below us."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    # numba's own thread layer serves only parallel kernels, and we have none
    return {"cores": cores, "numba_layer": None, "limits": limits}


def _print(found: dict[str, Any]) -> None:
    from evenhand.cli.terminal import console, say, table

    out = console()
    notes = found["notes"]
    say(out, "All is well." if not notes else "It works; there is something to know.")
    for note in notes:
        say(out, f"Note: {note}", style="#E69F00")
    out.print()
    out.print(table(["part", "found"], _rows(found), numbers_from=2))
    out.print()
    say(out, f"Next: {'evenhand demo' if found['kernels']['warm'] else 'evenhand warmup'}")


def _rows(found: dict[str, Any]) -> list[list[str]]:
    cache, crew = found["kernels"], found["threads"]
    state = "compiled" if cache["warm"] else "not compiled yet"
    limits = ", ".join(f"{name}={value}" for name, value in crew["limits"].items() if value)
    rows = [
        ["python", f"{found['python']} on {found['platform']}"],
        *([name, version or "missing"] for name, version in found["packages"].items()),
        ["kernels", f"{state}; {cache['bytes'] / 1e6:,.0f} MB in {cache['path']}"],
        ["sqlite", found["sqlite"]["version"]],
        ["threads", f"{crew['cores']} cores; no numba thread layer is used; {limits or 'no limits set'}"],
    ]
    for name, extra in found["extras"].items():
        missing = ", ".join(extra["missing"])
        rows.append([f"extra {name}", f"misses {missing}" if missing else "installed"])
    return rows


def _size(file: Path) -> int:
    try:
        return file.stat().st_size if file.is_file() else 0
    except FileNotFoundError:
        return 0  # another process has just put its own in place


def _writable(place: Path) -> bool:
    """Can files be made here, or the folder itself?"""
    while not place.exists():
        place = place.parent
    return os.access(place, os.W_OK)


@click.command("warmup")
def warmup_command() -> None:
    """Compile and cache the kernels.

    Every command compiles what it needs when it first needs it. This compiles now what the default procedure
    needs, for every family and every requirement; other procedures then compile little more.
    """
    from rich.console import Console

    from evenhand.cli.extras import installed_extras
    from evenhand.warm_up import common_problems, load_kernels, load_live_kernels

    started = time.perf_counter()
    with Console(stderr=True).status("compiling") as line:
        for problem in common_problems():
            line.update(f"compiling for {problem.family.name} outcomes and {problem.constraint.kind}")
            load_kernels(problem)
            if installed_extras()["live"]["installed"]:
                load_live_kernels(problem)
    click.echo(f"The kernels are compiled and cached ({time.perf_counter() - started:.1f} s).")
    click.echo("Next: evenhand plan STUDY.toml")
