"""Executors: serial, threads, processes or a Dask cluster, behind one interface.

Every job is a pure function of its arguments, so results do not depend on the executor, on the order, or on
restarts after a worker died.
"""

from __future__ import annotations

import concurrent.futures as futures
import multiprocessing
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeVar

from evenhand.errors import BadInput, EvenhandError

Job = TypeVar("Job")
Result = TypeVar("Result")

# jobs submitted per worker: enough to keep it busy, few enough to hold in memory
AHEAD = 3
# how often a process pool is rebuilt after one of its workers was killed
REBUILDS = 5


class Executor(Protocol):
    """Runs jobs and yields their results as they finish."""

    @property
    def workers(self) -> int:
        """Return the number of jobs that run at once."""
        ...

    def run(self, task: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[tuple[int, Result]]:
        """Yield the number and the result of each job, in the order they finish."""
        ...

    def __enter__(self) -> Executor: ...

    def __exit__(self, *_: object) -> bool | None: ...


def open_executor(workers: int | None = None, kind: str = "threads", dask: str | None = None) -> Executor:
    """Return an executor for this number of workers (default: one per core) or a Dask cluster.

    `dask` is `tcp://host:port`, or "local" for a cluster of processes on this machine.
    """
    if workers is not None and workers < 1:
        raise BadInput(f"workers must be at least 1; it is {workers}.")
    if dask is not None:
        return DaskCluster(dask, workers)
    if kind not in ("threads", "processes"):
        raise BadInput(f"workers are threads or processes; got {kind!r}.")
    count = workers or _cores()
    if kind == "processes":
        return Processes(count)
    return Threads(count) if count > 1 else Serial()


def given_or_new_executor(
    executor: Executor | None, workers: int | None, device: str = "cpu"
) -> AbstractContextManager[Executor]:
    """Yield the given executor, left open afterwards, or a new one, which is closed."""
    if executor is not None:
        return nullcontext(executor)
    # a GPU runs many replications at once; with two threads it runs one shard while another is copied
    return open_executor(workers if device == "cpu" else workers or 2)


class _Closing:
    """A context manager that closes on exit."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release all resources."""


class Serial(_Closing):
    """Runs one job after the other in this thread."""

    workers = 1

    def run(self, task: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[tuple[int, Result]]:
        for number, job in enumerate(jobs):
            yield number, task(job)


class Threads(_Closing):
    """Threads of this process; the kernels run without the interpreter lock."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._pool = futures.ThreadPoolExecutor(workers, thread_name_prefix="evenhand")

    def run(self, task: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[tuple[int, Result]]:
        yield from _in_window(self._pool, self.workers, task, list(enumerate(jobs)))

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


class Processes(_Closing):
    """Processes of this machine; the jobs of a killed worker run again."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._pool = self._new_pool()

    def run(self, task: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[tuple[int, Result]]:
        left = dict(enumerate(jobs))
        for attempt in range(REBUILDS + 1):
            try:
                for number, result in _in_window(self._pool, self.workers, task, list(left.items())):
                    del left[number]
                    yield number, result
                return
            except BrokenProcessPool:
                if attempt == REBUILDS:
                    raise EvenhandError(
                        f"worker processes died {REBUILDS + 1} times; look for a lack of memory, "
                        "or work with threads."
                    ) from None
                self._pool.shutdown()
                self._pool = self._new_pool()

    def _new_pool(self) -> futures.ProcessPoolExecutor:
        # a forked child would inherit the locks of running threads
        return futures.ProcessPoolExecutor(self.workers, mp_context=multiprocessing.get_context("spawn"))

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


class DaskCluster(_Closing):
    """A Dask cluster; the scheduler reassigns the jobs of a lost worker."""

    def __init__(self, address: str, workers: int | None = None) -> None:
        distributed = _distributed()
        if address != "local" and not re.fullmatch(r"((tcp|tls|ws|wss|ucx)://)?[^/]+:\d+", address):
            raise _no_scheduler(address, "it is no such address")
        if address == "local":
            self._cluster = distributed.LocalCluster(
                n_workers=workers or 2, threads_per_worker=1, processes=True, dashboard_address=None
            )
        else:
            self._cluster = None
        try:
            self._client = distributed.Client(self._cluster or address, timeout="5s", set_as_default=False)
        except (OSError, ValueError) as problem:
            raise _no_scheduler(address, f"it did not answer: {problem}") from None
        self._pool = self._client.get_executor(pure=False)

    @property
    def workers(self) -> int:
        return max(sum(self._client.nthreads().values()), 1)

    def run(self, task: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[tuple[int, Result]]:
        yield from _in_window(self._pool, self.workers, task, list(enumerate(jobs)))

    def close(self) -> None:
        self._pool.shutdown(wait=False)
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()


def _no_scheduler(address: str, why: str) -> BadInput:
    return BadInput(
        f"--dask must be the address of a running scheduler, such as tcp://host:8786, or 'local'; "
        f"{address!r} is not: {why}."
    )


def _in_window(
    pool: futures.Executor, workers: int, task: Callable[[Job], Result], jobs: list[tuple[int, Job]]
) -> Iterator[tuple[int, Result]]:
    """Submit a few jobs more than there are workers, and yield results as they finish."""
    waiting: dict[futures.Future[Result], int] = {}
    upcoming = iter(jobs)
    try:
        while True:
            while len(waiting) < workers * AHEAD and (job := next(upcoming, None)) is not None:
                waiting[pool.submit(task, job[1])] = job[0]
            if not waiting:
                return
            done, _ = futures.wait(waiting, return_when=futures.FIRST_COMPLETED)
            for future in done:
                yield waiting.pop(future), future.result()
    finally:
        for future in waiting:
            future.cancel()


def _cores() -> int:
    """Return the number of cores this process may use, or of all cores if unknown."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise BadInput("--dask needs the dask extra; install evenhand[dask].") from None
    return distributed
