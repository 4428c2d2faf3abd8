"""Atomic file writes, and removal of the unfinished files of killed processes.

A file is written under a temporary name that ends with ``.part`` and is locked while it is written. A
``.part`` file without a lock was left by a process that was killed; it is removed when a journal is opened or
an export is written in its folder.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from evenhand.file_lock import try_lock, wait_for_lock

SUFFIX = ".part"
EXPORT = b'{"evenhand":"export"'  # first bytes of an export
_OURS = re.compile(r"\.[0-9a-f]{16}\.part")  # version 0.1 wrote NAME.part


@contextmanager
def whole_file(target: Path) -> Iterator[BinaryIO]:
    """Yield a file to write to; it replaces `target` at the end of the block."""
    remove_unfinished(target.parent)
    part, file = _new_part(target)
    with file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
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
    with suppress(OSError), part.open("rb") as file:
        if not try_lock(file.fileno()):
            return  # its writer is running
        begins = file.read(len(EXPORT))
        if begins == EXPORT or (begins == b"" and _OURS.search(part.name)):
            part.unlink()
