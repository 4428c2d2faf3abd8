"""The writer lock of an SQLite journal, and detection of missing events and remote file systems.

The lock is the operating system's, so it ends with its process. The lock file also stores the last event
written, after each commit: a journal without that event is an older copy or has lost events
(`missing_event`). Continuing from it would fork the log, so writers refuse it, and readers report it.
Journals on file systems without reliable locks and flushes are refused.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import NamedTuple

import sqlalchemy as sa

from evenhand.errors import IntegrityFailed, StorageFailed
from evenhand.files import try_lock, unlock
from evenhand.live import schema

MOUNTS = Path("/proc/self/mountinfo")  # the mount table, on Linux
_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)  # where the system has them
_SIZE = 128  # bytes; constant, so that overwriting needs no free space


class HasWriter(StorageFailed):
    """Another process, or another object of this one, writes to the journal."""


class Mark(NamedTuple):
    """The last event written: experiment, number and hash."""

    experiment: int
    seq: int
    hash: bytes


class FileLock:
    """An exclusive lock, held from creation to `release` or the end of the process."""

    def __init__(self, journal: Path, wait: float = 0.0) -> None:
        self.path = lock_of(journal)
        refuse_remote(journal, MOUNTS)
        self._process = os.getpid()
        self._acquire(journal, wait)
        _, self.mark = _read(self._file)

    @property
    def is_in_place(self) -> bool:
        """Return whether the locked file is still the one at its path."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._file))
        except OSError:
            return False

    def remember(self, mark: Mark | None) -> None:
        """Store the last event written, after it was committed."""
        text = "" if mark is None else f"{mark.experiment} {mark.seq} {mark.hash.hex()}"
        os.lseek(self._file, 0, os.SEEK_SET)
        os.write(self._file, f"{os.getpid()} {text}".ljust(_SIZE - 1).encode() + b"\n")
        self.mark = mark

    def release(self) -> None:
        """End the lock; a forked process closes only its handle, because its parent still holds the lock."""
        if os.getpid() == self._process:
            unlock(self._file)  # closing does not suffice while a new child has not closed its own handle yet
        os.close(self._file)

    def _acquire(self, journal: Path, wait: float) -> None:
        deadline = time.monotonic() + wait
        while True:
            self._file = self._opened()
            if try_lock(self._file):
                if self.is_in_place:
                    return
                os.close(self._file)  # the file was removed between opening and locking: try again
                continue
            holder, _ = _read(self._file)
            os.close(self._file)
            if time.monotonic() >= deadline:
                raise HasWriter(
                    f"{journal} must have one writer; process {holder or 'unknown'} is writing it. "
                    "Send your calls to that process, or stop it first."
                )
            time.sleep(0.02)

    def _opened(self) -> int:
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o644)
        except OSError as problem:
            raise StorageFailed(f"{self.path} cannot be written: {problem.strerror}.") from None


def lock_of(journal: Path) -> Path:
    """Return the path of a journal's lock file."""
    return journal.with_name(journal.name + ".lock")


def read_mark(journal: Path) -> Mark | None:
    """Return the last event written to a journal from its lock file, without locking."""
    path = lock_of(journal)
    try:
        file = os.open(path, os.O_RDONLY | _FLAGS)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise StorageFailed(f"{path} cannot be read: {problem.strerror}.") from None
    try:
        return _read(file)[1]
    finally:
        os.close(file)


def _read(file: int) -> tuple[str, Mark | None]:
    """Return the process that holds or held the lock, and the last event written."""
    os.lseek(file, 0, os.SEEK_SET)
    words = os.read(file, _SIZE).decode("ascii", "replace").split()
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


_REMOTE = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "drvfs", "fakeowner", "gfs", "gfs2", "glusterfs",
    "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "osxfs", "panfs", "prl_fs", "pvfs2",
    "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs",
})  # fmt: skip
# FUSE programs that present a local disk; all others (sshfs, s3fs, rclone, gcsfuse, ...) count as remote
_LOCAL_FUSE = frozenset({
    "bindfs", "encfs", "exfat", "exfat-fuse", "ext2", "fuse-overlayfs", "fuse2fs", "fuseext2", "gocryptfs",
    "lklfuse", "mergerfs", "ntfs-3g", "overlayfs", "securefs",
})  # fmt: skip
_OCTAL = re.compile(rb"\\([0-7]{3})")  # spaces, tabs, line ends and backslashes in the table


def refuse_remote(journal: Path, mounts: Path) -> None:
    """Refuse a file that is not on a local disk; `mounts` is the system's mount table."""
    kind = _file_system(journal, mounts)
    if kind is not None and _is_remote(kind):
        raise StorageFailed(
            f"{journal} is on a network file system ({kind}), where locks and writes are not reliable; "
            "keep the journal on a local disk, or use a postgresql:// address."
        )


def _is_remote(kind: str) -> bool:
    driver, _, program = kind.lower().partition(".")
    if driver == "fuse":
        return program not in _LOCAL_FUSE
    return driver in _REMOTE


def _file_system(journal: Path, mounts: Path) -> str | None:
    """Return the type of a file's file system, None if unknown; for `fuse` with its program."""
    try:
        table = mounts.read_bytes()
    except OSError:
        return None
    place = journal.resolve()
    best, kind = Path(""), None
    for line in table.splitlines():
        left, _, right = line.partition(b" - ")
        fields, described = left.split(b" "), right.split(b" ")
        if len(fields) < 5 or len(described) < 2:
            continue
        mount = Path(os.fsdecode(_OCTAL.sub(lambda found: bytes([int(found[1], 8)]), fields[4])))
        if place.is_relative_to(mount) and len(mount.parts) >= len(best.parts):
            best, kind = mount, _named(os.fsdecode(described[0]), os.fsdecode(described[1]))
    return kind


def _named(kind: str, source: str) -> str:
    """Return the type; a plain `fuse` is followed by its source, often the program's name."""
    return f"fuse.{source}" if kind == "fuse" else kind


class Missing(NamedTuple):
    """The last event written, which is missing, and what the journal has instead."""

    mark: Mark
    experiment: str | None  # None if the journal does not have it
    last: int  # number of the last event that is present

    @property
    def first(self) -> int:
        """Return the number of the first event that is missing or different."""
        return min(self.last + 1, self.mark.seq)

    @property
    def what(self) -> str:
        """Return which events are missing."""
        seq = self.mark.seq
        if self.experiment is None:
            return f"an experiment is missing, to which event {seq} was written here"
        if self.last >= seq:
            return f"event {seq} of {self.experiment!r} is not the one that was written here"
        if self.first == seq:
            return f"event {seq} of {self.experiment!r} is missing, which was written here"
        return f"events {self.first} to {seq} of {self.experiment!r} are missing, which were written here"

    def sentence(self, journal: Path) -> str:
        """Return the message for the user who opens the journal."""
        return (
            f"{journal}: {self.what}. This is an older or another copy, or its last events or its -wal file "
            f"were removed. Put the newer file back; remove {lock_of(journal)} only if that is lost."
        )


def missing_event(connection: sa.Connection, mark: Mark) -> Missing | None:
    """Return what the journal lacks; None if the last event written is present."""
    events, experiments = schema.events.c, schema.experiments.c
    here = sa.select(events.hash).where(events.experiment == mark.experiment, events.seq == mark.seq)
    if connection.execute(here).scalar() == mark.hash:
        return None
    name = sa.select(experiments.name).where(experiments.number == mark.experiment)
    last = sa.select(sa.func.max(events.seq)).where(events.experiment == mark.experiment)
    return Missing(mark, connection.execute(name).scalar(), connection.execute(last).scalar() or 0)
