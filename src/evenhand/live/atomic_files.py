"""Files that appear whole or not at all, and what is left of them when their writer was killed.

A file is written under another name that ends with ``.part``, and locked meanwhile. A part that nobody has
locked was left by a process that was killed; the next that opens a journal or writes an export in its folder
removes it.
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
EXPORT = b'{"evenhand":"export"'  # how an export begins
_OURS = re.compile(r"\.[0-9a-f]{16}\.part")  # version 0.1 wrote NAME.part


@contextmanager
def whole_file(target: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `target` at the end of the block."""
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
    """Remove the parts of exports that nobody writes any more; what cannot be removed stays."""
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
        file.close()  # taken for a part left over, in the moment before it was locked


def _remove_if_left(part: Path) -> None:
    if Path(f"{part}.lock").exists():
        return  # a journal of this name: opening it here would drop the locks that this process has on it
    with suppress(OSError), part.open("rb") as file:
        if not try_lock(file.fileno()):
            return  # its writer lives
        begins = file.read(len(EXPORT))
        if begins == EXPORT or (begins == b"" and _OURS.search(part.name)):
            part.unlink()
