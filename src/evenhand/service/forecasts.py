"""The latest forecast of each experiment, made in a helper process and kept until the data have changed.

Everybody who looks gets the same one, so that a page that many watch costs one forecast.
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
from evenhand.service.worker_processes import Studio
from evenhand.verdicts.forecast_statement import IN_PROGRESS, Forecast, settled_forecast

GROWN = 1.1  # a new forecast is made when the samples have grown by this factor,
RENEWED_SECONDS = 30.0  # or when the data have changed at all and the last one began so long ago
REMEMBERED = 200
log = logging.getLogger("evenhand.service")


@dataclass
class _Entry:
    """One experiment's forecast, and the next one while it is being made."""

    made: Forecast | None = None
    data: bytes = b""  # digest of the outcomes that the latest one, made or begun, is of
    begun: float = 0.0
    samples: int = 0
    future: Future[Forecast] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class Forecasts:
    """Forecasts by experiment."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio
        self._entries: dict[str, _Entry] = {}
        self._lock = threading.Lock()

    def latest(self, name: str, view: View, begin: bool = True) -> Forecast:
        """Return the latest forecast and (`begin`) start another where the data call for it; never waits.

        It may be of fewer samples than the view holds: `Forecast.samples` tells.
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
                    entry.future = self._studio.long.start(worker_processes.forecast, view)
                except StorageFailed as problem:  # the next look tries again
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
            self._entries[name] = entry  # the latest used is the last
            while len(self._entries) > REMEMBERED:
                self._entries.pop(next(iter(self._entries)))
            return entry

    @staticmethod
    def _collect(entry: _Entry) -> None:
        """Take over a forecast that has come; one that failed says so."""
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
