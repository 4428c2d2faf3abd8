"""Cache of the latest forecast of each experiment, computed in a worker process.

A forecast is kept until the data have changed, and all viewers share it.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field

from evenhand.errors import StorageFailed
from evenhand.live.projection import View
from evenhand.service import worker_processes
from evenhand.service.worker_processes import WorkerProcesses
from evenhand.verdicts.forecast_statement import IN_PROGRESS, Forecast, settled_forecast

GROWN = 1.1  # a new forecast is computed when the samples have grown by this factor,
RENEWED_SECONDS = 30.0  # or when the data have changed and the last one began this long ago
REMEMBERED = 200
log = logging.getLogger("evenhand.service")


@dataclass
class _Entry:
    """One experiment's forecast, and the next one while it is computed."""

    made: Forecast | None = None
    data: bytes = b""  # digest of the outcomes of the latest forecast, finished or begun
    begun: float = 0.0
    samples: int = 0
    future: Future[Forecast] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class Forecasts:
    """Forecasts by experiment."""

    def __init__(self, workers: WorkerProcesses) -> None:
        self._workers = workers
        self._entries: dict[str, _Entry] = {}
        self._lock = threading.Lock()

    def latest(self, name: str, view: View, begin: bool = True) -> Forecast:
        """Return the latest forecast without waiting; `begin`: start a new one if needed.

        It may be based on fewer samples than the view holds: see `Forecast.samples`.
        """
        settled = settled_forecast(view)
        if settled is not None:
            return settled
        entry = self._entry(name)
        with entry.lock:
            self._collect(entry)
            data, samples = digest_of(view), int(view.state.n.sum())
            if begin and entry.future is None and data != entry.data and self._is_due(entry, samples):
                try:
                    entry.future = self._workers.long.start(worker_processes.forecast, view)
                except StorageFailed as problem:  # the next call tries again
                    return entry.made or Forecast(samples, why_none=str(problem).rstrip("."))
                entry.data, entry.samples, entry.begun = data, samples, time.monotonic()
            return entry.made or Forecast(samples, why_none=IN_PROGRESS)

    def _is_due(self, entry: _Entry, samples: int) -> bool:
        if entry.made is None or samples >= GROWN * entry.samples:
            return True
        return time.monotonic() - entry.begun >= RENEWED_SECONDS

    def _entry(self, name: str) -> _Entry:
        with self._lock:
            entry = self._entries.pop(name, None) or _Entry()
            self._entries[name] = entry  # least recently used first
            while len(self._entries) > REMEMBERED:
                self._entries.pop(next(iter(self._entries)))
            return entry

    @staticmethod
    def _collect(entry: _Entry) -> None:
        """Take over a finished forecast; report one that failed."""
        if entry.future is None or not entry.future.done():
            return
        future, entry.future = entry.future, None
        if future.cancelled():
            entry.data = b""
        elif (problem := future.exception()) is None:
            entry.made = future.result()
        else:
            log.error("a forecast failed", exc_info=problem)
            entry.made = Forecast(entry.samples, why_none="making it failed; the service's log says why")


def digest_of(view: View) -> bytes:
    """Return a digest of all that a forecast depends on: one protocol's outcomes."""
    digest = hashlib.blake2b(view.protocol.hash, digest_size=16)
    for table in (view.state.n, view.state.s, view.state.bets):
        digest.update(table.tobytes())
    return digest.digest()
