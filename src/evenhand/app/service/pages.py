"""The dashboard: experiments, one experiment, a planner. Pages are drawn here; the browser only swaps parts
of them.

A page says first what a person can act on. An operator sees the same pages without estimates and evidence.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from litestar import MediaType, Request, Response, get, post
from litestar.datastructures import Cookie
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, JSONBody
from litestar.response import ServerSentEvent
from litestar.response.sse import ServerSentEventMessage
from litestar.static_files import create_static_files_router

from evenhand.app.service.access import COOKIE, SESSION_SECONDS, key_of, role
from evenhand.app.service.drawings import Drawn, draw, theme
from evenhand.app.service.forms import LogIn
from evenhand.app.service.registry import Registry, blinded
from evenhand.app.service.routes import note_view

HERE = Path(__file__).parent
LOG_LINES = 50
LOOK_SECONDS = 0.5  # how often a stream looks for new events
REMEMBERED = 64

_environment = Environment(
    loader=PackageLoader("evenhand.app.service", "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
)


def page(template: str, **values: Any) -> Response[str]:
    """A page from its template; everything from users is escaped."""
    return Response(_environment.get_template(template).render(**values), media_type=MediaType.HTML)


class Panels:
    """The latest drawing of each experiment, by its head: many who watch cost as much as one."""

    def __init__(self) -> None:
        self._drawn: dict[tuple[str, str, bool], Drawn] = {}
        self._lock = threading.Lock()

    def of(self, registry: Registry, name: str, blind: bool) -> Drawn:
        trial = registry.get(name)
        address = (name, str(trial.head), blind)
        found = self._drawn.get(address)
        if found is None:
            status = trial.status()
            found = draw(trial, blinded(status) if blind else status, blind)
            with self._lock:
                if len(self._drawn) >= REMEMBERED:
                    self._drawn.pop(next(iter(self._drawn)))
                self._drawn[address] = found
        return found


panels = Panels()


@get("/", guards=[role("operator")], sync_to_thread=True, include_in_schema=False)
def home(request: Request[Any, Any, Any], registry: NamedDependency[Registry]) -> Response[str]:
    """The experiments."""
    found = [blinded(registry.get(name).status()) for name in registry.names()]
    return page("experiments.html", key=key_of(request), experiments=found)


@get("/experiments/{name:str}", guards=[role("operator")], sync_to_thread=True, include_in_schema=False)
def experiment(
    name: FromPath[str], request: Request[Any, Any, Any], registry: NamedDependency[Registry]
) -> Response[str]:
    """One experiment."""
    return page("experiment.html", key=key_of(request), id=name, panel=_panel(name, request, registry))


@get("/experiments/{name:str}/panel", guards=[role("operator")], sync_to_thread=True, include_in_schema=False)
def panel(
    name: FromPath[str], request: Request[Any, Any, Any], registry: NamedDependency[Registry]
) -> Response[str]:
    """The part of the page that changes."""
    return page("panel.html", drawn=_panel(name, request, registry), id=name, key=key_of(request))


@get("/experiments/{name:str}/log", guards=[role("analyst")], sync_to_thread=True, include_in_schema=False)
def log(
    name: FromPath[str],
    request: Request[Any, Any, Any],
    registry: NamedDependency[Registry],
    search: FromQuery[str] = "",
) -> Response[str]:
    """The latest events that hold the words searched for."""
    trial = registry.get(name)
    note_view(request, trial, "events")
    last = trial.head.seq
    found: list[tuple[int, str]] = []
    for row in trial.events(max(last - 5_000, 0)):
        text = row.record.body.decode()
        if search.lower() in text.lower():
            found.append((row.record.seq, text))
    return page("log.html", events=found[: -LOG_LINES - 1 : -1], total=last)


@get("/experiments/{name:str}/stream", guards=[role("operator")], include_in_schema=False)
async def stream(name: FromPath[str], registry: NamedDependency[Registry]) -> ServerSentEvent:
    """A line whenever the log has grown."""
    trial = await asyncio.to_thread(registry.get, name)

    async def grown() -> AsyncIterator[ServerSentEventMessage]:
        seen = -1
        while True:
            now = (await asyncio.to_thread(lambda: trial.head)).seq
            if now != seen:
                seen = now
                yield ServerSentEventMessage(event="grown", data=str(now))
            await asyncio.sleep(LOOK_SECONDS)

    return ServerSentEvent(grown())


@post(
    "/experiments/{name:str}/audit",
    guards=[role("analyst")],
    status_code=200,
    sync_to_thread=True,
    include_in_schema=False,
)
def audit(name: FromPath[str], registry: NamedDependency[Registry]) -> Response[str]:
    """Derive everything again from the log."""
    from evenhand.live.audit import audit as audited

    found = audited(registry.address, experiment=name)
    words = (
        f"Identical: {found.events:,} events, every decision derived again."
        if found.identical
        else found.first_difference
    )
    return page("audit.html", identical=found.identical, words=words, head=found.head)


@get("/experiments/{name:str}/report", guards=[role("analyst")], sync_to_thread=True, include_in_schema=False)
def report(
    name: FromPath[str], request: Request[Any, Any, Any], registry: NamedDependency[Registry]
) -> Response[str]:
    """The report as one file."""
    from evenhand.report.document import report as reported

    trial = registry.get(name)
    note_view(request, trial, "report")
    headers = {"Content-Disposition": f'attachment; filename="{name}.html"'}
    return Response(reported(trial).html(), media_type=MediaType.HTML, headers=headers)


@get("/planner", guards=[role("operator")], sync_to_thread=False, include_in_schema=False)
def planner(request: Request[Any, Any, Any]) -> Response[str]:
    """Plan and simulate without any experiment."""
    return page("planner.html", key=key_of(request))


@get("/login", sync_to_thread=False, include_in_schema=False)
def log_in_page() -> Response[str]:
    """Where a browser gives its key."""
    return page("login.html", key=None)


@post("/login", status_code=200, sync_to_thread=True, include_in_schema=False)
def log_in(data: JSONBody[LogIn], request: Request[Any, Any, Any]) -> Response[dict[str, str]]:
    """A session for a browser that knows a key."""
    client = request.client.host if request.client else "?"
    token = request.app.state.access.log_in(client, data.key)
    cookie = Cookie(key=COOKIE, value=token, max_age=SESSION_SECONDS, httponly=True, samesite="strict")
    return Response({"to": "/"}, cookies=[cookie])


@get("/theme.css", media_type="text/css", sync_to_thread=False, include_in_schema=False)
def theme_css() -> Response[str]:
    """The picture language's colours, light and dark."""
    return Response(theme(), media_type="text/css", headers={"Cache-Control": "max-age=3600"})


def handlers() -> list[Any]:
    """Everything the dashboard answers."""
    static = create_static_files_router("/static", directories=[HERE / "static"], include_in_schema=False)
    return [
        home,
        experiment,
        panel,
        log,
        stream,
        audit,
        report,
        planner,
        log_in_page,
        log_in,
        theme_css,
        static,
    ]


def _panel(name: str, request: Request[Any, Any, Any], registry: Registry) -> Drawn:
    blind = not key_of(request).may("analyst")
    if not blind:
        note_view(request, registry.get(name), "dashboard")
    return panels.of(registry, name, blind)
