"""Unblinded looks: who may see outcomes before the end, and that everybody who does is written down."""

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
    """Who looked at what within the last minute, so that a page that refreshes is one look."""

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
    """The status as this key may see it; an unblinded look is written down first."""
    if not key_of(request).may("analyst"):
        return blinded(trial.status())
    note_view(request, trial, what)
    forecasts = request.app.state.forecasts
    return trial.status(lambda view: forecasts.latest(trial.protocol.experiment, view)).to_dict()


def note_view(request: Asked, trial: Experiment, what: str) -> None:
    """Looking at outcomes before the end is an event; once a minute for each who looks at the same thing."""
    who = key_of(request)
    if trial.is_over:
        return  # nothing is blind any more, and the log of a decided experiment stays as it was published
    if request.app.state.views.is_new(trial.protocol.experiment, who.id, what):
        trial.view(who.name, what)
