"""A lock between processes, by a file; on every platform."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evenhand.file_lock import try_lock

POLL = 0.05  # seconds between attempts to take a lock that another process holds


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
        while not _taken(file):
            time.sleep(POLL)
        yield
    finally:
        os.close(file)  # which releases the lock


def _taken(file: int) -> bool:
    """Take the lock if it is free; return True also where this file system has no locks."""
    try:
        return try_lock(file)
    except OSError:
        return True
