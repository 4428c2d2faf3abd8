"""Helper processes for what takes long: drawings, searches, forecasts, reports, audits.

The process that serves keeps its time, and its interpreter lock, for asking and telling. One helper draws and
is soon done; the other is for what may take a minute. Both only read the journal.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import TimeoutError as TookTooLong
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from evenhand.errors import BadInput, StorageFailed

T = TypeVar("T")
DRAW_SECONDS, LONG_SECONDS = 60.0, 600.0


class Helper:
    """One process, started on first use and again should it die."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._pool: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()
        self._closed = False

    def start(self, work: Callable[..., T], *arguments: Any) -> Future[T]:
        """Begin some work: a function that can be imported, and what can be sent to it."""
        with self._lock:
            if self._closed:
                raise StorageFailed("the service is stopping.")
            if self._pool is None:
                # a fork would take along locks that other threads hold
                spawn = multiprocessing.get_context("spawn")
                self._pool = ProcessPoolExecutor(1, mp_context=spawn, initializer=_begin)
            try:
                return self._pool.submit(work, *arguments)
            except BrokenProcessPool:
                self._pool = None
                raise StorageFailed("a helper of the service died; try again.") from None

    def do(self, work: Callable[..., T], *arguments: Any) -> T:
        """The result of some work; waits for it."""
        return self.wait(self.start(work, *arguments))

    def wait(self, future: Future[T]) -> T:
        """The result of work begun."""
        try:
            return future.result(self._seconds)
        except TookTooLong:
            future.cancel()
            raise BadInput(
                f"this takes longer than {self._seconds:g} s here; use the command line for it."
            ) from None
        except BrokenProcessPool:
            with self._lock:
                self._pool = None
            raise StorageFailed("a helper of the service died; try again.") from None

    def close(self) -> None:
        """Stop the process; work that waits is given up."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is None:
            return
        processes = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()


class Studio:
    """The two helpers."""

    def __init__(self) -> None:
        self.quick = Helper(DRAW_SECONDS)
        self.long = Helper(LONG_SECONDS)

    def close(self) -> None:
        self.quick.close()
        self.long.close()


def _begin() -> None:
    """A helper gives way to the process that serves, which alone listens to Ctrl-C and ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.nice(5)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_leave_with, args=(parent.sentinel,), daemon=True).start()


def _leave_with(sentinel: int) -> None:
    """End when the process that serves has ended, however it ended."""
    multiprocessing.connection.wait([sentinel])
    os._exit(0)
