"""An earlier commit of evenhand in a worktree of its own, to be measured beside this one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMIT = "62a5ef4"  # the last one whose kernels were not specialised


@contextmanager
def worktree(commit: str = COMMIT) -> Iterator[Path]:
    """The files of a commit, removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "tree")
        _git("worktree", "add", "--quiet", "--detach", str(place), commit)
        try:
            yield place
        finally:
            _git("worktree", "remove", "--force", str(place))


def output(module: str, *arguments: str, tree: Path = ROOT) -> str:
    """What a module of these benchmarks prints, run with the evenhand of a tree."""
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
