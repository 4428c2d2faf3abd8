"""One writer per SQLite file: an exclusive lock beside it, which also remembers the last event written.

The lock is the operating system's, so it ends with its process however that ends. What it remembers is
written after each commit: a journal that does not hold that event is an older copy put in place of the newer
one, or has lost events. Going on from it would fork the log, so writers refuse it, and readers say so.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import NamedTuple

from evenhand.errors import IntegrityFailed, StorageFailed
from evenhand.live.file_systems import refuse_remote

MOUNTS = Path("/proc/self/mountinfo")  # what is mounted where, on Linux
_SIZE = 128  # bytes; always the same, so that overwriting needs no free space


class Mark(NamedTuple):
    """The last event written: of which experiment, which number, which hash."""

    experiment: int
    seq: int
    hash: bytes


class FileLock:
    """Held from creation to `release`, or to the end of the process."""

    def __init__(self, journal: Path, wait: float = 0.0) -> None:
        self.path = lock_of(journal)
        refuse_remote(journal, MOUNTS)
        self._acquire(journal, wait)
        _, self.mark = _read(self._file)

    @property
    def is_in_place(self) -> bool:
        """Is the file that is locked still the one that another process would find?"""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._file))
        except OSError:
            return False

    def remember(self, mark: Mark | None) -> None:
        """Write down the last event written, after it is safe on disk."""
        text = "" if mark is None else f"{mark.experiment} {mark.seq} {mark.hash.hex()}"
        os.pwrite(self._file, f"{os.getpid()} {text}".ljust(_SIZE - 1).encode() + b"\n", 0)
        self.mark = mark

    def release(self) -> None:
        """Close the file: that ends the lock, unless another process holds the same open file by a fork."""
        os.close(self._file)

    def _acquire(self, journal: Path, wait: float) -> None:
        deadline = time.monotonic() + wait
        while True:
            self._file = self._opened()
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self.is_in_place:
                    return
                os.close(self._file)  # somebody removed it between opening and locking: begin again
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    holder, _ = _read(self._file)
                    os.close(self._file)
                    raise StorageFailed(
                        f"{journal} must have one writer; process {holder or 'unknown'} is writing it. "
                        "Send your calls to that process, or stop it first."
                    ) from None
                os.close(self._file)
                time.sleep(0.02)

    def _opened(self) -> int:
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as problem:
            raise StorageFailed(f"{self.path} cannot be written: {problem.strerror}.") from None


def lock_of(journal: Path) -> Path:
    """Return where a journal's lock is."""
    return journal.with_name(journal.name + ".lock")


def read_mark(journal: Path) -> Mark | None:
    """Return the last event written to a journal, by the file beside it; nothing is locked."""
    path = lock_of(journal)
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise StorageFailed(f"{path} cannot be read: {problem.strerror}.") from None
    try:
        return _read(file)[1]
    finally:
        os.close(file)


def _read(file: int) -> tuple[str, Mark | None]:
    """The process that has or had the lock, and the last event written."""
    words = os.pread(file, _SIZE, 0).decode("ascii", "replace").split()
    if len(words) < 2:
        return (words[0] if words else ""), None  # nothing was written yet
    try:
        holder, experiment, seq, hash_ = words
        return holder, Mark(int(experiment), int(seq), bytes.fromhex(hash_))
    except ValueError:
        raise IntegrityFailed(
            "the file beside the journal that names its last event was damaged; remove it only if you know "
            "that the journal holds every event: compare its head with one noted elsewhere."
        ) from None
