"""Check all files for local paths, registry addresses, open notes and lock files."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# The patterns are split so that this file passes its own check.
REFUSED = {
    "a local path": re.compile(r"(?<![\w.])/(?:" + "|".join(["work", "root", "home"]) + r")/"),
    "the address of a package registry": re.compile(
        r"\b(?:"
        + "|".join(["pypi", "pythonhosted", "anaconda", "npmjs", "jsdelivr", "unpkg"])
        + r")\.(?:org|com|net)\b"
    ),
    "an open note": re.compile(r"\b(?:" + "|".join(["TO" + "DO", "FIX" + "ME"]) + r")\b"),
}
REFUSED_FILES = ("uv.lock",)


def main() -> int:
    faults = [fault for name in files() for fault in faults_of(name)]
    print("\n".join(faults) or "text: no forbidden text")
    return 1 if faults else 0


def files() -> list[str]:
    """Return the tracked files and the untracked files that git does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return sorted(name for name in listing.split("\0") if name and Path(name).is_file())


def faults_of(name: str) -> Iterator[str]:
    if Path(name).name in REFUSED_FILES:
        yield f"{name}: lock files hold registry addresses; keep them out of the repository"
    content = Path(name).read_bytes()
    # vendored files are not changed, and binary files are not text
    if b"\0" not in content and "vendor" not in Path(name).parts:
        yield from faults_in(name, content.decode("utf-8"))


def faults_in(name: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        for what, pattern in REFUSED.items():
            if pattern.search(line):
                yield f"{name}:{number}: {what}: {line.strip()[:100]}"


if __name__ == "__main__":
    sys.exit(main())
