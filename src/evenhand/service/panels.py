"""An experiment as a page shows it: plain values that a helper process sends back.

The latest drawing of each experiment: many who watch cost as much as one; nobody waits for a redraw.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from markupsafe import Markup

from evenhand.service import worker_processes
from evenhand.service.experiments import Registry
from evenhand.service.forecasts import Forecasts
from evenhand.service.worker_processes import Studio
from evenhand.verdicts.forecast_statement import Forecast


@dataclass(frozen=True)
class Picture:
    """A drawing with its title and the sentence that says what it shows."""

    name: str
    title: str
    says: str
    wide: Markup | None  # where there is a version for wide screens
    narrow: Markup


@dataclass(frozen=True)
class Ticket:
    """A ticket that is out or whose outcome came late, as people see it."""

    ticket: str
    what: str
    who: str
    seconds: float
    outcome: float | None = None


@dataclass(frozen=True)
class Drawn:
    """The page's content as of one event."""

    head: int
    status: dict[str, Any]
    sentence: str
    progress: float | None = None
    pictures: tuple[Picture, ...] = ()
    cells: tuple[dict[str, Any], ...] = ()
    evidence: dict[str, Any] | None = None  # columns of the curve
    says_evidence: str = ""
    behind: int = 0  # events that the curve does not hold yet
    out: tuple[Ticket, ...] = ()  # the oldest
    late: tuple[Ticket, ...] = ()  # the latest


@dataclass(frozen=True)
class Line:
    """One event of the log, in words."""

    seq: int
    at: str
    kind: str
    says: str


REDRAW_SECONDS = 1.0  # a drawing is at most so much older than the log
REMEMBERED = 200
log = logging.getLogger("evenhand.service")


class Audited(NamedTuple):
    """What the last audit found, and when."""

    at: float
    identical: bool
    events: int


@dataclass
class _Panel:
    """One experiment for one kind of reader."""

    drawn: Drawn | None = None
    begun: float = 0.0
    future: Future[Drawn] | None = None
    forecast: Forecast | None = None  # that the latest drawing shows
    text: str = ""  # as HTML
    shows: tuple[Drawn, Audited | None] | None = None  # what the text was written from
    written: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


class Panels:
    """Drawings by experiment and reader."""

    def __init__(self, registry: Registry, studio: Studio, forecasts: Forecasts) -> None:
        self._registry = registry
        self._studio = studio
        self._forecasts = forecasts
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
        drawn = panel.drawn
        # somebody waits for the first drawing: it goes before the forecast
        forecast = None if blind else self._forecasts.latest(name, view, begin=drawn is not None)
        is_new = drawn is None or drawn.head != view.head.seq or drawn.behind or forecast != panel.forecast
        if not is_new:
            return
        panel.begun, panel.forecast = time.monotonic(), forecast
        panel.future = self._studio.quick.start(
            worker_processes.draw, self._registry.address, view, time.time(), forecast, blind
        )

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
