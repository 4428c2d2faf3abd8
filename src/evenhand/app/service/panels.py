"""The latest drawing of each experiment: many who watch cost as much as one; nobody waits for a redraw."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple

from evenhand.app.service import tasks
from evenhand.app.service.drawn import Drawn
from evenhand.app.service.registry import Registry
from evenhand.app.service.studio import Studio
from evenhand.live.view import View
from evenhand.procedure.state import TOLD

REDRAW_SECONDS = 1.0  # a drawing is at most so much older than the log
GROWN = 1.1  # a forecast is made anew when the samples have grown by this factor
REMEMBERED = 200
log = logging.getLogger("evenhand.service")


class Audited(NamedTuple):
    """What the last audit found, and when."""

    at: float
    identical: bool
    events: int


class Forecast(NamedTuple):
    """How many samples in all, by chance, as forecast at so many samples."""

    samples: int  # when the latest was begun
    in_all: Mapping[str, int]

    def more(self, samples: int) -> dict[str, int]:
        return {chance: max(total - samples, 0) for chance, total in self.in_all.items()}


NO_FORECAST = Forecast(0, {})


@dataclass
class _Panel:
    """One experiment for one kind of reader."""

    drawn: Drawn | None = None
    begun: float = 0.0
    future: Future[Drawn] | None = None
    forecast: Forecast = NO_FORECAST
    forecasting: Future[dict[str, int]] | None = None
    text: str = ""  # as HTML
    shows: tuple[Drawn, Audited | None] | None = None  # what the text was written from
    written: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


class Panels:
    """Drawings by experiment and reader."""

    def __init__(self, registry: Registry, studio: Studio) -> None:
        self._registry = registry
        self._studio = studio
        self._panels: dict[tuple[str, bool], _Panel] = {}
        self._lock = threading.Lock()
        self.audits: dict[str, Audited] = {}

    def of(self, name: str, blind: bool) -> Drawn:
        """The latest drawing; a newer one is begun where the log has grown. Only the first is waited for."""
        panel = self._panel(name, blind)
        with panel.lock:
            self._collect(panel)
            is_old = time.monotonic() - panel.begun >= REDRAW_SECONDS
            if panel.future is None and (panel.drawn is None or is_old):
                self._begin(panel, name, blind)
            first = panel.future if panel.drawn is None else None
            if first is None:
                assert panel.drawn is not None
                return panel.drawn
        return self._studio.quick.wait(first)

    def text(self, name: str, blind: bool, write: Callable[[Drawn], str]) -> str:
        """The latest drawing as HTML, written once for all who ask within a moment."""
        drawn, panel = self.of(name, blind), self._panel(name, blind)
        shows, is_old = (drawn, self.audits.get(name)), time.monotonic() - panel.written >= REDRAW_SECONDS
        if is_old or panel.shows is None or any(a is not b for a, b in zip(panel.shows, shows, strict=True)):
            panel.text, panel.shows, panel.written = write(drawn), shows, time.monotonic()
        return panel.text

    def _panel(self, name: str, blind: bool) -> _Panel:
        self._registry.get(name)  # refuses what is no experiment
        with self._lock:
            panel = self._panels.pop((name, blind), None) or _Panel()
            self._panels[name, blind] = panel  # the latest used is the last
            while len(self._panels) > REMEMBERED:
                self._panels.pop(next(iter(self._panels)))
            return panel

    def _begin(self, panel: _Panel, name: str, blind: bool) -> None:
        """Begin a drawing, unless nothing is new."""
        view = self._registry.get(name).present()
        forecast_came = self._take_forecast(panel)
        drawn = panel.drawn
        if drawn is not None and drawn.head == view.head.seq and not drawn.behind and not forecast_came:
            return
        panel.begun = time.monotonic()
        samples = int(view.state.clock[TOLD])
        if not blind:
            self._begin_forecast(panel, view, samples)
        more = panel.forecast.more(samples)
        panel.future = self._studio.quick.start(
            tasks.draw, self._registry.address, view, time.time(), more, blind
        )

    def _begin_forecast(self, panel: _Panel, view: View, samples: int) -> None:
        """Where the last one is old; off the way of the drawing."""
        is_running = view.stop is None and not view.closed
        if is_running and panel.forecasting is None and samples >= max(GROWN * panel.forecast.samples, 1):
            panel.forecast = panel.forecast._replace(samples=samples)
            panel.forecasting = self._studio.long.start(tasks.forecast, view)

    def _take_forecast(self, panel: _Panel) -> bool:
        """Has a forecast come? The next drawing says it."""
        coming = panel.forecasting
        if coming is None or not coming.done():
            return False
        panel.forecasting = None
        if (problem := coming.exception()) is not None:
            log.error("a forecast failed", exc_info=problem)
            return False
        then = panel.forecast.samples
        panel.forecast = Forecast(then, {chance: then + more for chance, more in coming.result().items()})
        return True

    @staticmethod
    def _collect(panel: _Panel) -> None:
        if panel.future is not None and panel.future.done():
            future, panel.future = panel.future, None
            if (problem := future.exception()) is None:
                panel.drawn = future.result()
            else:
                log.error("a drawing failed", exc_info=problem)
                if panel.drawn is None:
                    raise problem
