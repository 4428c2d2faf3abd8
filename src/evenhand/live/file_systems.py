"""Which file system a file is on, and whether its locks and flushes can be relied on."""

from __future__ import annotations

import os
import re
from pathlib import Path

from evenhand.errors import StorageFailed

_REMOTE = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "drvfs", "fakeowner", "gfs", "gfs2", "glusterfs",
    "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "osxfs", "panfs", "prl_fs", "pvfs2",
    "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs",
})  # fmt: skip
# programs that present a local disk; every other one (sshfs, s3fs, rclone, gcsfuse, ...) is taken for remote
_LOCAL_FUSE = frozenset({
    "bindfs", "encfs", "exfat", "exfat-fuse", "ext2", "fuse-overlayfs", "fuse2fs", "fuseext2", "gocryptfs",
    "lklfuse", "mergerfs", "ntfs-3g", "overlayfs", "securefs",
})  # fmt: skip
_OCTAL = re.compile(rb"\\([0-7]{3})")  # how the table spells spaces, tabs, line ends and backslashes


def refuse_remote(journal: Path, mounts: Path) -> None:
    """Refuse a file that is not on a local disk; `mounts` is the system's table of what is mounted where."""
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
    """The kind of file system a file is on, where the system says so; `fuse` with its program's name."""
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
    """The kind; `fuse` alone is followed by what is mounted, which is often the program's name."""
    return f"fuse.{source}" if kind == "fuse" else kind
