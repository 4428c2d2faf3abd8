"""Locks on files: one holder at a time, on every system that the package can be imported on."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import evenhand
from evenhand.files import try_lock, wait_for_lock

# Windows as far as the package can tell: no fcntl, no fork, and bytes that are locked as Windows locks them.
# Other packages are loaded before, for the system that they are installed on.
WINDOWS = """
import fcntl, importlib.util, os, pkgutil, sys, types

def import_all():
    import evenhand
    names = [module.name for module in pkgutil.walk_packages(evenhand.__path__, "evenhand.")]
    inspect = importlib.util.find_spec("inspect_ai") is not None  # the extra that its hook needs
    left_out = {"evenhand.__main__"} | (set() if inspect else {"evenhand.evaluation.inspect_hook"})
    for name in names:
        if name not in left_out:
            importlib.import_module(name)
    return names

def locking(file, mode, count):
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, count, 0, os.SEEK_CUR)

def become_windows():
    for name in [name for name in sys.modules if name.partition(".")[0] == "evenhand"]:
        del sys.modules[name]
    sys.modules["msvcrt"] = types.SimpleNamespace(LK_NBLCK=2, locking=locking)
    sys.modules["fcntl"] = None
    sys.platform = "win32"
    for name in ("register_at_fork", "pread", "pwrite", "O_CLOEXEC", "nice", "fork"):
        delattr(os, name)
"""


def windows(code: str, *arguments: str) -> str:
    """Run a script as on Windows; return what it prints."""
    command = [sys.executable, "-c", WINDOWS + code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_one_open_file_holds_the_lock_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("wb") as first, path.open("rb") as second:
        wait_for_lock(first.fileno())
        assert not try_lock(second.fileno())
        first.close()
        assert try_lock(second.fileno())


def test_every_module_can_be_imported_without_what_windows_does_not_have() -> None:
    found = windows("import_all(); become_windows(); print(len(import_all()))")
    assert int(found) > 150


def test_a_journal_has_one_writer_and_many_readers_there_too(tmp_path: Path) -> None:
    journal = str(tmp_path / "journal.db")
    second = """
from pathlib import Path
import sqlalchemy
become_windows()
from evenhand.errors import StorageFailed
from evenhand.live.writer_lock import FileLock, read_mark
try:
    FileLock(Path(sys.argv[1]))
except StorageFailed as refusal:
    print("refused" if "must have one writer" in str(refusal) else refusal)
print(read_mark(Path(sys.argv[1])))
"""
    Path(tmp_path / "second.py").write_text(WINDOWS + second)
    found = windows(
        """
import subprocess
from pathlib import Path
import sqlalchemy
become_windows()
from evenhand.live.writer_lock import FileLock, Mark
lock = FileLock(Path(sys.argv[1]))
lock.remember(Mark(1, 17, b"abc"))
sys.platform = "linux"  # for subprocess itself
print(subprocess.run([sys.executable, sys.argv[2], sys.argv[1]], capture_output=True, text=True).stdout)
lock.release()
""",
        journal,
        str(tmp_path / "second.py"),
    )
    assert found.splitlines() == ["refused", "Mark(experiment=1, seq=17, hash=b'abc')"]


def test_only_one_module_imports_what_one_system_has() -> None:
    root = Path(evenhand.__file__).parent
    found = {
        path.name for path in root.rglob("*.py") if re.search(r"import (fcntl|msvcrt)", path.read_text())
    }
    assert found == {"files.py"}
