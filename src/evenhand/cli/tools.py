"""`evenhand doctor` and `warmup`: check installation and extras, compile the kernels."""

from __future__ import annotations

import os
import platform
import sqlite3
import time
from pathlib import Path
from typing import Any, TypedDict

import click

from evenhand.cli.options import json_option, print_json
from evenhand.versions import packages_by_extra, version_of

PACKAGES = ("evenhand", "numpy", "scipy", "llvmlite", "click", "rich", "msgspec", "highspy")
# SQLite's WAL-reset bug exists in 3.7.0 to 3.51.2; fixed in later versions and in two older branches
FIXED, FIXED_LINES = (3, 51, 3), {(3, 44): 6, (3, 50): 7}
WAL_RESET = (
    "SQLite {version} can damage a file when two connections write and checkpoint at once (the WAL-reset "
    "bug, fixed in 3.51.3, 3.50.7 and 3.44.6). evenhand writes a journal over one connection and is not "
    "affected; other programs must not write to the file."
)
NOT_INSTALLED = (
    "evenhand runs from a copy of its source and is not installed as a package, so it is not known which "
    "packages its extras need. Install evenhand to see them."
)
COLD = (
    "The kernels are not compiled yet, so the first command will be slow. Compile them now: evenhand warmup"
)


@click.command("doctor")
@json_option
def doctor_command(as_json: bool) -> None:
    """Show versions, compiled kernels, SQLite, threads and extras.

    Paste the output into a bug report. Nothing is changed. evenhand needs neither PostgreSQL nor a browser.
    """
    found = check_installation()
    if as_json:
        print_json(found)
    else:
        _print_checks(found)


def check_installation() -> dict[str, Any]:
    """Return everything that `doctor` prints, with notes on possible problems."""
    cache, sqlite, extras = kernel_cache(), sqlite_health(), installed_extras()
    notes = [] if cache["warm"] else [COLD]
    if not cache["writable"]:
        notes.append(
            f"{cache['path']} cannot be written, so every process compiles the kernels again. Set "
            "EVENHAND_CACHE to another folder."
        )
    if cache["damaged"]:
        notes.append(
            f"{cache['damaged']} of the files in {cache['path']} are damaged. Their kernels are compiled "
            "again when they are needed."
        )
    if packages_by_extra() is None:
        notes.append(NOT_INSTALLED)
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
    """Return the kernel cache: path, size, damaged files, whether this version is compiled, writable."""
    from evenhand.compile.cache import cache_directory, damaged_files
    from evenhand.warm_up import are_compiled

    cache = cache_directory()
    return {
        "path": str(cache),
        "bytes": sum(map(_size, cache.rglob("*"))),
        "damaged": len(damaged_files()),
        "warm": are_compiled(),
        "writable": _writable(cache),
    }


def sqlite_health(version: str = sqlite3.sqlite_version) -> dict[str, Any]:
    """Return SQLite's version and whether the WAL-reset bug is fixed in it."""
    major, minor, patch = map(int, version.split(".")[:3])
    line = FIXED_LINES.get((major, minor))
    fixed = (major, minor, patch) >= FIXED or (line is not None and patch >= line)
    return {"version": version, "wal_reset_fixed": fixed}


def threads() -> dict[str, Any]:
    """Return the number of usable cores and the thread limits set in the environment."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    return {"cores": cores, "limits": limits}


def _print_checks(found: dict[str, Any]) -> None:
    from evenhand.cli.terminal import console, print_sentence, table

    out = console()
    notes = found["notes"]
    print_sentence(out, "No problems found." if not notes else "evenhand works; see the notes.")
    for note in notes:
        print_sentence(out, f"Note: {note}", style="#E69F00")
    out.print()
    out.print(table(["part", "found"], _rows(found), numbers_from=2))
    out.print()
    print_sentence(out, f"Next: {'evenhand demo' if found['kernels']['warm'] else 'evenhand warmup'}")


def _rows(found: dict[str, Any]) -> list[list[str]]:
    cache, threading = found["kernels"], found["threads"]
    state = "compiled" if cache["warm"] else "not compiled yet"
    limits = ", ".join(f"{name}={value}" for name, value in threading["limits"].items() if value)
    rows = [
        ["python", f"{found['python']} on {found['platform']}"],
        *([name, version or "missing"] for name, version in found["packages"].items()),
        ["kernels", f"{state}; {cache['bytes'] / 1e6:,.0f} MB in {cache['path']}"],
        ["sqlite", found["sqlite"]["version"]],
        ["threads", f"{threading['cores']} cores; {limits or 'no limits set'}"],
    ]
    for name, extra in found["extras"].items():
        missing = ", ".join(extra["missing"])
        rows.append([f"extra {name}", f"missing: {missing}" if missing else "installed"])
    return rows


def _size(file: Path) -> int:
    try:
        return file.stat().st_size if file.is_file() else 0
    except FileNotFoundError:
        return 0  # another process has just replaced the file


def _writable(folder: Path) -> bool:
    """Return whether files can be created in this folder, or the folder itself."""
    while not folder.exists():
        folder = folder.parent
    return os.access(folder, os.W_OK)


@click.command("warmup")
def warmup_command() -> None:
    """Compile and cache the kernels.

    Commands compile a kernel when they first use it. This command compiles the kernels of the default
    procedure now, for every family and every requirement; other procedures then compile only a few more.
    """
    from rich.console import Console

    from evenhand.warm_up import common_problems, load_kernels, load_live_kernels

    started = time.perf_counter()
    with Console(stderr=True).status("compiling") as line:
        for problem in common_problems():
            line.update(f"compiling for {problem.family.name} outcomes and {problem.constraint.kind}")
            load_kernels(problem)
            if not lacks_extra("live"):
                load_live_kernels(problem)
    click.echo(f"The kernels are compiled and cached ({time.perf_counter() - started:.1f} s).")
    click.echo("Next: evenhand plan STUDY.toml")


NOT_FOR_USERS = ("dev", "all")


class Extra(TypedDict):
    installed: bool
    missing: list[str]


def installed_extras() -> dict[str, Extra]:
    """Return each extra with its packages that are not installed; nothing if the extras are not known."""
    found: dict[str, Extra] = {}
    for name, packages in (packages_by_extra() or {}).items():
        if name not in NOT_FOR_USERS:
            missing = [package for package in packages if version_of(package) is None]
            found[name] = {"installed": not missing, "missing": missing}
    return found


def lacks_extra(name: str) -> bool:
    """Return whether a package of the extra is known to be missing."""
    extra = installed_extras().get(name)
    return extra is not None and not extra["installed"]
