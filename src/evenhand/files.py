"""Locks on files, atomic writes of files, paths that users give, and text in CSV files.

A file is written under a temporary name that ends with ``.part`` and is locked while it is written. A
``.part`` file without a lock was left by a process that was killed; it is removed when a journal is opened or
an export is written in its folder.

A lock is exclusive, belongs to the open file and ends with it, however its process ends. On Windows other
processes cannot read bytes that are locked, so a byte far behind the end of the file is locked instead of the
file; and an open file can be neither renamed nor removed.

Text that a spreadsheet would read as a formula is written with an apostrophe and read without it.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from evenhand.errors import BadInput, shown

SUFFIX = ".part"
EXPORT = b'{"evenhand":"export"'  # first bytes of an export
MOVES_OPEN_FILES = sys.platform != "win32"  # then a file is renamed or removed under its lock
_OURS = re.compile(r"\.[0-9a-f]{16}\.part")  # version 0.1 wrote NAME.part


def file_path(value: Any, name: str = "the path of a file") -> Path:
    """Return the value as a path, refused unless it is text or a path."""
    if not isinstance(value, (str, os.PathLike)) or not isinstance(os.fspath(value), str):
        raise BadInput(f"{name} must be text or a Path; it is {shown(value)}.")
    return Path(value)


@contextmanager
def whole_file(target: Path) -> Iterator[BinaryIO]:
    """Yield a file to write to; it replaces `target` at the end of the block."""
    if not target.name:  # "", "." or "/"
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    remove_unfinished(target.parent)
    part, file = _new_part(target)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if MOVES_OPEN_FILES:
                os.replace(part, target)
        if not MOVES_OPEN_FILES:
            os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def remove_unfinished(folder: Path) -> None:
    """Remove unfinished exports that no process is writing; skip those that cannot be removed."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(SUFFIX) and entry.is_file(follow_symlinks=False):
                _remove_if_left(Path(entry.path))


def _new_part(target: Path) -> tuple[Path, BinaryIO]:
    while True:
        part = target.with_name(f"{target.name}.{secrets.token_hex(8)}{SUFFIX}")
        file = part.open("xb")
        wait_for_lock(file.fileno())
        if part.exists():
            return part, file
        file.close()  # another process removed it as unfinished before it was locked


def _remove_if_left(part: Path) -> None:
    if Path(f"{part}.lock").exists():
        return  # a journal of this name: opening it here would drop this process's locks on it
    with suppress(OSError):
        with part.open("rb") as file:
            if not try_lock(file.fileno()):
                return  # its writer is running
            begins = file.read(len(EXPORT))
            left = begins == EXPORT or (begins == b"" and _OURS.search(part.name) is not None)
            if left and MOVES_OPEN_FILES:
                part.unlink()
        if left and not MOVES_OPEN_FILES:
            part.unlink()


if sys.platform == "win32":
    import msvcrt

    _BYTE = 1 << 30  # beyond what any file that is locked holds
    _RETRY_SECONDS = 0.01

    def try_lock(file: int) -> bool:
        """Lock an open file and return True; return False where another open file holds the lock."""
        place = os.lseek(file, 0, os.SEEK_CUR)
        os.lseek(file, _BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(file, place, os.SEEK_SET)
        return True

    def wait_for_lock(file: int) -> None:
        """Lock an open file; wait for as long as another open file holds the lock."""
        while not try_lock(file):
            time.sleep(_RETRY_SECONDS)

    def unlock(file: int) -> None:
        """Release the lock of an open file; here that happens when the file is closed."""

else:
    import fcntl

    def try_lock(file: int) -> bool:
        """Lock an open file and return True; return False where another open file holds the lock."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def wait_for_lock(file: int) -> None:
        """Lock an open file; wait for as long as another open file holds the lock."""
        fcntl.flock(file, fcntl.LOCK_EX)

    def unlock(file: int) -> None:
        """Release the lock of an open file, also for forked processes that share the open file."""
        fcntl.flock(file, fcntl.LOCK_UN)


POLL = 0.005  # seconds between attempts to take a lock that another process holds


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of this name; continue without it where locks are not supported.

    A lock ends with its process in every case. Without one, two processes may do the same work at once.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:
        yield
        return
    try:
        while not _lock_if_free(file):
            time.sleep(POLL)
        yield
    finally:
        os.close(file)  # which releases the lock


def _lock_if_free(file: int) -> bool:
    """Take the lock if it is free; return True also where this file system has no locks."""
    try:
        return try_lock(file)
    except OSError:
        return True


# a field that starts with one of these is a formula to a spreadsheet
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\0")
T = TypeVar("T")


def escaped(field: T) -> T | str:
    """Return a field as it is written into a CSV file: text that looks like a formula is marked."""
    return f"'{field}" if isinstance(field, str) and field.startswith(FORMULA) else field


def unescaped(field: str) -> str:
    """Return a field without the apostrophe that `escaped` or a spreadsheet put before it."""
    return field[1:] if field.startswith("'") and field[1:].startswith(FORMULA) else field
