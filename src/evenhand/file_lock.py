"""Exclusive locks on open files, on Linux, macOS and Windows.

A lock belongs to the open file and ends with it, however its process ends. On Windows, where other processes
cannot read bytes that are locked, a byte far behind the end of the file is locked instead of the file.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    import msvcrt
    import os
    import time

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
