"""Check out an earlier commit of evenhand in a separate worktree, to compare its speed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMIT = "de18d5a"  # the last commit before the work on specialised kernels began


@contextmanager
def worktree(commit: str = COMMIT) -> Iterator[Path]:
    """Check out a commit in a temporary worktree and remove it afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "tree")
        _git("worktree", "add", "--quiet", "--detach", str(place), commit)
        try:
            yield place
        finally:
            _git("worktree", "remove", "--force", str(place))


def output(module: str, *arguments: str, tree: Path = ROOT) -> str:
    """Return the output of a benchmark module that is run with the evenhand of this tree."""
    settings = {"PYTHONPATH": os.pathsep.join((str(tree / "src"), str(ROOT)))}
    if tree != ROOT:
        settings["EVENHAND_CACHE"] = str(tree / "cache")
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env=os.environ | settings, cwd=ROOT
    )
    return done.stdout


def _git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], check=True, cwd=ROOT, capture_output=True)
