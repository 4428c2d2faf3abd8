"""Dashboard content of each experiment: value types, and a cache of the latest version.

Content is computed in a worker process. All viewers share the latest version, and
requests do not wait for updates.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from markupsafe import Markup

from evenhand.errors import StorageFailed
from evenhand.live.compute_status import state_word
from evenhand.live.projection import View
from evenhand.procedure.state import TOLD
from evenhand.service import worker_processes
from evenhand.service.experiments import Registry
from evenhand.service.forecasts import Forecasts
from evenhand.service.worker_processes import DRAW_SECONDS, WorkerProcesses, too_long
from evenhand.verdicts.forecast_statement import Forecast


@dataclass(frozen=True)
class PanelFigure:
    """A figure with its title and caption."""

    name: str
    title: str
    says: str
    wide: Markup | None  # if there is a version for wide screens
    narrow: Markup
    large: bool = False  # needs the wide column


@dataclass(frozen=True)
class ListedTicket:
    """An open ticket, or one whose outcome was late, as users see it."""

    ticket: str
    what: str
    who: str
    seconds: float
    outcome: str | None = None


@dataclass(frozen=True)
class PanelContent:
    """The page's content as of one event."""

    head: int
    status: dict[str, Any]
    sentence: str
    progress: float | None = None
    pictures: tuple[PanelFigure, ...] = ()
    cells: tuple[dict[str, Any], ...] = ()
    all_cells: int = 0  # how many there are; the table has fewer of a large problem
    guardrails: tuple[tuple[str, int, tuple[dict[str, Any], ...]], ...] = ()  # name, missing, cells
    evidence: dict[str, Any] | None = None  # columns of the curve
    says_evidence: str = ""
    behind: int = 0  # events that the curve does not contain yet
    open_tickets: tuple[ListedTicket, ...] = ()  # the oldest open tickets
    late: tuple[ListedTicket, ...] = ()  # the latest late outcomes
    protocol: tuple[tuple[str, str], ...] = ()  # what was fixed before the first sample
    alarms: tuple[str, ...] = ()  # what needs attention
    evidence_words: str = ""  # the share of the evidence, and the open question
    expected: str = ""  # when it will have ended
    blame: tuple[str, ...] = ()  # where no policy meets the requirement: why, and what one would meet
    ending: tuple[str, ...] = ()  # who ended or paused it, when and why
    next_steps: tuple[str, ...] = ()
    names: tuple[str, ...] = ()  # of policies, groups and guard-rails
    waiting: bool = False  # the first content is still being computed


@dataclass(frozen=True)
class LogLine:
    """One event of the log as text."""

    seq: int
    at: str
    kind: str
    says: str


FIRST_SECONDS = 1.5  # that a request waits for the first content
REDRAW_SECONDS = 1.0  # maximum age of the content when the log has grown
REMEMBERED = 200
log = logging.getLogger("evenhand.service")


class Audited(NamedTuple):
    """The result and time of the last audit."""

    at: float
    identical: bool
    events: int


@dataclass
class _Panel:
    """The content of one experiment for one kind of user."""

    content: PanelContent | None = None
    begun: float = 0.0
    future: Future[PanelContent] | None = None
    forecast: Forecast | None = None  # shown by the latest content
    text: str = ""  # as HTML
    shows: tuple[PanelContent, Audited | None] | None = None  # what the text was rendered from
    written: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


class Panels:
    """Content by experiment and kind of user."""

    def __init__(self, registry: Registry, workers: WorkerProcesses, forecasts: Forecasts) -> None:
        self._registry = registry
        self._workers = workers
        self._forecasts = forecasts
        self._panels: dict[tuple[str, bool], _Panel] = {}
        self._lock = threading.Lock()
        self.audits: dict[str, Audited] = {}

    def of(self, name: str, blind: bool) -> PanelContent:
        """Return the latest content; start an update if the log has grown.

        The first content is waited for briefly; until it is there, the content is enrolment only.
        """
        panel = self._panel(name, blind)
        with panel.lock:
            self._collect(panel)
            is_old = time.monotonic() - panel.begun >= REDRAW_SECONDS
            if panel.future is None and (panel.content is None or is_old):
                self._begin(panel, name, blind)
            if panel.content is not None:
                return panel.content
            first = panel.future
        assert first is not None
        found = self._workers.quick.wait_briefly(first, FIRST_SECONDS)
        return _unfinished(self._registry.get(name).present()) if found is None else found

    def text(self, name: str, blind: bool, write: Callable[[PanelContent], str]) -> str:
        """Return the latest content as HTML, rendered at most once per `REDRAW_SECONDS`."""
        content, panel = self.of(name, blind), self._panel(name, blind)
        if content.waiting:
            return write(content)
        shows, is_old = (content, self.audits.get(name)), time.monotonic() - panel.written >= REDRAW_SECONDS
        if is_old or panel.shows is None or any(a is not b for a, b in zip(panel.shows, shows, strict=True)):
            panel.text, panel.shows, panel.written = write(content), shows, time.monotonic()
        return panel.text

    def _panel(self, name: str, blind: bool) -> _Panel:
        self._registry.get(name)  # raises if there is no such experiment
        with self._lock:
            panel = self._panels.pop((name, blind), None) or _Panel()
            self._panels[name, blind] = panel  # least recently used first
            while len(self._panels) > REMEMBERED:
                self._panels.pop(next(iter(self._panels)))
            return panel

    def _begin(self, panel: _Panel, name: str, blind: bool) -> None:
        """Start computing the content if there are new events."""
        view = self._registry.get(name).present()
        content = panel.content
        # a user waits for the first content: compute it before the forecast
        forecast = None if blind else self._forecasts.latest(name, view, begin=content is not None)
        is_new = (
            content is None or content.head != view.head.seq or content.behind or forecast != panel.forecast
        )
        if not is_new:
            return
        panel.begun, panel.forecast = time.monotonic(), forecast
        panel.future = self._workers.quick.start(
            worker_processes.panel_content_task, self._registry.address, view, time.time(), forecast, blind
        )

    def _collect(self, panel: _Panel) -> None:
        if panel.future is None:
            return
        if not panel.future.done() and time.monotonic() - panel.begun > DRAW_SECONDS:
            self._workers.quick.give_up(panel.future)
        if not panel.future.done():
            return
        future, panel.future = panel.future, None
        problem = CancelledError() if future.cancelled() else future.exception()
        if problem is None:
            panel.content = future.result()
            return
        log.error("a drawing failed", exc_info=problem)
        if panel.content is not None:
            return  # it is shown until a newer one succeeds
        if time.monotonic() - panel.begun > DRAW_SECONDS:
            raise too_long(DRAW_SECONDS)
        if isinstance(problem, (BrokenProcessPool, CancelledError)):
            raise StorageFailed("a worker process of the service ended; try again.")
        raise problem


def _unfinished(view: View) -> PanelContent:
    """Return the content before any was computed: what every user may see at once."""
    status: dict[str, Any] = {
        "title": view.protocol.study.title, "state": state_word(view), "samples": int(view.state.clock[TOLD]),
        "pending": view.pending, "late": view.counts["late"],
    }  # fmt: skip
    return PanelContent(
        view.head.seq, status, "The page is being computed and appears here by itself.", waiting=True
    )
