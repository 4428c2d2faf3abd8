"""Recording of views: requests that see outcomes before the end are logged as events."""

from __future__ import annotations

import threading
import time
from typing import Any

from litestar import Request

from evenhand.live.experiment import Experiment
from evenhand.service.auth import key_of
from evenhand.service.experiments import blinded

Asked = Request[Any, Any, Any]
VIEW_SECONDS = 60.0


class Views:
    """Recent views: at most one view event per user, page and minute."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str, str], float] = {}
        self._lock = threading.Lock()

    def is_new(self, experiment: str, who: str, what: str) -> bool:
        now, key = time.monotonic(), (experiment, who, what)
        with self._lock:
            fresh = now - self._seen.get(key, -VIEW_SECONDS) >= VIEW_SECONDS
            if fresh:
                self._seen = {k: at for k, at in self._seen.items() if now - at < VIEW_SECONDS}
                self._seen[key] = now
            return fresh


def seen_by(request: Asked, trial: Experiment, what: str) -> dict[str, Any]:
    """Return the status as this key may see it; an unblinded view is recorded first."""
    if not key_of(request).may("analyst"):
        return blinded(trial.status())
    note_view(request, trial, what)
    forecasts = request.app.state.forecasts
    return trial.status(lambda view: forecasts.latest(trial.protocol.experiment, view)).to_dict()


def note_view(request: Asked, trial: Experiment, what: str) -> None:
    """Record a view of outcomes before the end, at most once per user, page and minute."""
    who = key_of(request)
    if trial.is_over:
        return  # nothing is blinded any more, and the log of a finished experiment stays as published
    if request.app.state.views.is_new(trial.protocol.experiment, who.id, what):
        trial.view(who.name, what)
