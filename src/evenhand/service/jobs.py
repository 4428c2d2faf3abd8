"""Background jobs: plans and simulations in a thread pool, with limits and progress."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as TookTooLong
from typing import Any

import msgspec

from evenhand.errors import BadInput, KeyReused, NotFound

AT_ONCE, REMEMBERED = 2, 200
REMEMBERED_KEYS = 10_000
PLAN_SECONDS = 30.0
MOST_CELLS = 10_000  # of a plan or simulation that the service accepts


class Stopped(Exception):
    """Raised inside a cancelled job."""


class Jobs:
    """A small thread pool and the state of the latest jobs."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="job")
        self._jobs: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._by_key: OrderedDict[str, str] = OrderedDict()
        self._requests: OrderedDict[str, bytes] = OrderedDict()  # digest of the request of each key
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    def refuse_other_request(self, key: str | None, what: str, form: msgspec.Struct) -> None:
        """Raise if this key was used for another request since the service started."""
        if key is None:
            return
        digest = hashlib.sha256(what.encode() + b" " + msgspec.json.encode(form, order="sorted")).digest()
        with self._lock:
            if self._requests.setdefault(key, digest) != digest:
                raise KeyReused(
                    f"the key {key!r} was used for another request; take a new key for a new request."
                )
            while len(self._requests) > REMEMBERED_KEYS:
                self._requests.popitem(last=False)

    def within(self, seconds: float, work: Callable[[], Any]) -> Any:
        """Return the result of some work; raise if it takes too long."""
        future: Future[Any] = self._pool.submit(work)
        try:
            return future.result(seconds)
        except TookTooLong:
            future.cancel()
            raise BadInput(
                f"this takes longer than {seconds:g} s here; use the command line for it."
            ) from None

    def start(
        self, total: int, work: Callable[[Callable[[int, int], None]], Any], key: str | None = None
    ) -> str:
        """Start work that reports `progress(done, total)`; return its id, the same for one key."""
        entry: dict[str, Any] = {
            "id": secrets.token_hex(8), "state": "running", "done": 0, "total": total,
            "result": None, "error": None,
        }  # fmt: skip
        job: str = entry["id"]
        with self._lock:
            if key is not None and self._by_key.setdefault(key, job) != job:
                return self._by_key[key]
            self._jobs[job] = entry
            for kept in (self._jobs, self._by_key):
                while len(kept) > REMEMBERED:
                    kept.popitem(last=False)
        self._pool.submit(self._run, entry, work)
        return job

    def look(self, job: str) -> dict[str, Any]:
        found = self._jobs.get(job)
        if found is None:
            raise NotFound("there is no such job.")
        return dict(found)

    def close(self) -> None:
        self._stopping.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, entry: dict[str, Any], work: Callable[[Callable[[int, int], None]], Any]) -> None:
        def progress(done: int, _: int) -> None:
            if self._stopping.is_set():
                raise Stopped
            entry["done"] = done

        try:
            entry["result"] = work(progress)
            entry["state"] = "done"
        except BadInput as problem:
            entry["error"], entry["state"] = str(problem), "failed"
        except Stopped:
            entry["error"], entry["state"] = "the service stopped", "failed"
        except Exception as problem:
            entry["error"], entry["state"] = f"an unexpected failure: {type(problem).__name__}", "failed"
            raise
