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

MOUNTS = Path("/proc/self/mountinfo")  # what is mounted where, on Linux
_SIZE = 128  # bytes; always the same, so that overwriting needs no free space
_NETWORK = (
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "sshfs", "afs", "ceph", "glusterfs", "lustre", "gfs2", "ocfs2",
    "9p", "davfs",
)  # fmt: skip


class Mark(NamedTuple):
    """The last event written: of which experiment, which number, which hash."""

    experiment: int
    seq: int
    hash: bytes


class FileLock:
    """Held from creation to `release`, or to the end of the process."""

    def __init__(self, journal: Path, wait: float = 0.0) -> None:
        self.path = lock_of(journal)
        _refuse_network(journal)
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as problem:
            raise StorageFailed(f"{self.path} cannot be written: {problem.strerror}.") from None
        self._acquire(journal, wait)
        _, self.mark = _read(self._file)

    def remember(self, mark: Mark | None) -> None:
        """Write down the last event written, after it is safe on disk."""
        text = "" if mark is None else f"{mark.experiment} {mark.seq} {mark.hash.hex()}"
        os.pwrite(self._file, f"{os.getpid()} {text}".ljust(_SIZE - 1).encode() + b"\n", 0)
        self.mark = mark

    def release(self) -> None:
        os.close(self._file)

    def _acquire(self, journal: Path, wait: float) -> None:
        deadline = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    holder, _ = _read(self._file)
                    os.close(self._file)
                    raise StorageFailed(
                        f"{journal} must have one writer; process {holder or 'unknown'} is writing it. "
                        "Send your calls to that process, or stop it first."
                    ) from None
                time.sleep(0.02)


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


def _refuse_network(journal: Path) -> None:
    kind = _file_system(journal)
    if kind is not None and kind.removeprefix("fuse.") in _NETWORK:
        raise StorageFailed(
            f"{journal} is on a network file system ({kind}), where locks and writes are not reliable; "
            "keep the journal on a local disk, or use a postgresql:// address."
        )


def _file_system(journal: Path) -> str | None:
    """The kind of file system a file is on, where the system says so."""
    if not MOUNTS.exists():
        return None
    place = journal.resolve()
    best, kind = Path(""), None
    for line in MOUNTS.read_text(errors="replace").splitlines():
        left, _, right = line.partition(" - ")
        mount = Path(left.split()[4].encode().decode("unicode_escape"))
        if place.is_relative_to(mount) and len(mount.parts) >= len(best.parts):
            best, kind = mount, right.split()[0]
    return kind
