"""The dashboard pages, rendered on the server: experiments, planner, login.

The browser only replaces parts of pages. An operator sees the same pages without estimates and evidence.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from litestar import MediaType, Request, Response, get, post
from litestar.datastructures import Cookie
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter
from litestar.response import ServerSentEvent
from litestar.response.sse import ServerSentEventMessage
from litestar.static_files import create_static_files_router

from evenhand.service import worker_processes
from evenhand.service.auth import COOKIE, SESSION_SECONDS, key_of, role
from evenhand.service.experiments import Registry, blinded, note_view
from evenhand.service.panels import Audited, PanelContent, Panels
from evenhand.service.request_bodies import LogIn, SaveForm, study_of
from evenhand.service.worker_processes import WorkerProcesses

STATIC = Path(__file__).parent / "static"
LOG_LINES = 50
LIST_LINES = 50
LOOK_SECONDS = 0.5  # how often a stream checks for new content
Asked = Request[Any, Any, Any]
Search = Annotated[str, QueryParameter(max_length=200)]
Offset = Annotated[int, QueryParameter(ge=0, le=1_000_000)]


@get("/", guards=[role("operator")], sync_to_thread=True, include_in_schema=False)
def home(request: Asked, registry: NamedDependency[Registry], start: Offset = 0) -> Response[str]:
    """Return the list of experiments, newest first."""
    names = registry.names()
    found = [blinded(registry.get(name).status()) for name in names[start : start + LIST_LINES]]
    more = start + LIST_LINES if len(names) > start + LIST_LINES else None
    return page("experiments.html", key=key_of(request), experiments=found, total=len(names), more=more)


@get("/experiments/{name:str}", guards=[role("operator")], sync_to_thread=True, include_in_schema=False)
def experiment(
    name: FromPath[str],
    request: Asked,
    registry: NamedDependency[Registry],
    panels: NamedDependency[Panels],
) -> Response[str]:
    """Return the page of one experiment."""
    content = panels.of(name, _is_blind(name, request, registry))
    return page("experiment.html", key=key_of(request), id=name, **_shown(name, content, panels))


@get("/experiments/{name:str}/panel", guards=[role("operator")], sync_to_thread=True, include_in_schema=False)
def panel(
    name: FromPath[str],
    request: Asked,
    registry: NamedDependency[Registry],
    panels: NamedDependency[Panels],
) -> Response[str]:
    """Return the part of the page that changes."""
    blind = _is_blind(name, request, registry)
    text = panels.text(
        name, blind, lambda content: render("panel.html", id=name, **_shown(name, content, panels))
    )
    return Response(text, media_type=MediaType.HTML)


@get("/experiments/{name:str}/log", guards=[role("operator")], sync_to_thread=True, include_in_schema=False)
def log(
    name: FromPath[str],
    request: Asked,
    registry: NamedDependency[Registry],
    workers: NamedDependency[WorkerProcesses],
    search: Search = "",
) -> Response[str]:
    """Return the latest events that contain the search words."""
    trial, blind = registry.get(name), not key_of(request).may("analyst")
    if not blind:
        note_view(request, trial, "events")
    last = trial.head.seq
    lines = workers.quick.do(worker_processes.search, registry.address, name, last, search, LOG_LINES, blind)
    return page("log.html", lines=lines, total=last, searched=search)


@get("/experiments/{name:str}/stream", guards=[role("operator")], include_in_schema=False)
async def stream(
    name: FromPath[str],
    request: Asked,
    registry: NamedDependency[Registry],
    panels: NamedDependency[Panels],
) -> ServerSentEvent:
    """Send a message whenever there is new content."""
    await asyncio.to_thread(registry.get, name)
    blind = not key_of(request).may("analyst")

    async def drawings() -> AsyncIterator[ServerSentEventMessage]:
        seen: PanelContent | None = None
        while not request.app.state.stopping.is_set():
            content = await asyncio.to_thread(panels.of, name, blind)
            if content is not seen:
                seen = content
                yield ServerSentEventMessage(event="drawn", data=str(content.head))
            await asyncio.sleep(LOOK_SECONDS)

    return ServerSentEvent(drawings())


@post(
    "/experiments/{name:str}/audit",
    guards=[role("analyst")],
    status_code=200,
    sync_to_thread=True,
    include_in_schema=False,
)
def audit(
    name: FromPath[str],
    registry: NamedDependency[Registry],
    workers: NamedDependency[WorkerProcesses],
    panels: NamedDependency[Panels],
) -> Response[str]:
    """Audit the log and return the result."""
    registry.get(name)
    found = workers.long.do(worker_processes.audit, registry.address, name)
    panels.audits[name] = Audited(time.time(), found.identical, found.events)
    return page("audit.html", found=found)


@get("/experiments/{name:str}/report", guards=[role("analyst")], sync_to_thread=True, include_in_schema=False)
def report(
    name: FromPath[str],
    request: Asked,
    registry: NamedDependency[Registry],
    workers: NamedDependency[WorkerProcesses],
) -> Response[str]:
    """Return the report as one file."""
    note_view(request, registry.get(name), "report")
    text = workers.long.do(worker_processes.report, registry.address, name)
    headers = {"Content-Disposition": f'attachment; filename="{name}.html"'}
    return Response(text, media_type=MediaType.HTML, headers=headers)


@get("/planner", guards=[role("operator")], sync_to_thread=False, include_in_schema=False)
def planner(request: Asked) -> Response[str]:
    """Return the planner page, which needs no experiment."""
    return page("planner.html", key=key_of(request))


@post(
    "/planner/study",
    guards=[role("operator")],
    status_code=200,
    sync_to_thread=True,
    include_in_schema=False,
)
def save_study(data: JSONBody[SaveForm]) -> Response[str]:
    """Return the planned study as a study file."""
    from evenhand.study import dumps

    headers = {"Content-Disposition": 'attachment; filename="study.toml"'}
    return Response(dumps(study_of(data.study)), media_type="application/toml", headers=headers)


def handlers() -> list[Any]:
    """Return all route handlers of the dashboard."""
    static = create_static_files_router(
        "/static", directories=[STATIC], include_in_schema=False, cache_control=None
    )
    return [
        home, experiment, panel, log, stream, audit, report, planner, save_study, static,
    ]  # fmt: skip


def _is_blind(name: str, request: Asked, registry: Registry) -> bool:
    """Return whether this user may see enrolment only; otherwise record the view."""
    blind = not key_of(request).may("analyst")
    if not blind:
        note_view(request, registry.get(name), "dashboard")
    return blind


def _shown(name: str, content: PanelContent, panels: Panels) -> dict[str, Any]:
    return {"content": content, "audited": panels.audits.get(name), "now": time.time()}


SYMBOLS = {"met": "●", "failed": "✕", "undecided": "○"}

_environment = Environment(
    loader=PackageLoader("evenhand.service", "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def page(template: str, code: int = 200, **values: Any) -> Response[str]:
    """Return a page as a response."""
    return Response(render(template, **values), media_type=MediaType.HTML, status_code=code)


def render(template: str, **values: Any) -> str:
    """Render a template; user input is escaped."""
    return _environment.get_template(template).render(**values)


def _count(value: float) -> str:
    """Return 1234 as 1,234."""
    return f"{value:,.0f}"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2e}" if 0 < abs(value) < 0.001 else f"{value:.4f}"


def _age(seconds: float) -> str:
    """Return the approximate age as text."""
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' * (count > 1)}"
    return f"{int(seconds)} s"


def _clock(at: str) -> str:
    """Return the time of an event to the second, day first."""
    return f"{at[:10]} {at[11:19]}"


_environment.filters.update(count=_count, number=_number, age=_age, clock=_clock)
_environment.globals.update(symbols=SYMBOLS)


@get("/login", sync_to_thread=False, include_in_schema=False)
def log_in_page() -> Response[str]:
    """Return the page on which a user enters a key."""
    return page("login.html", key=None)


@post("/login", status_code=200, sync_to_thread=True, include_in_schema=False)
def log_in_request(data: JSONBody[LogIn], request: Request[Any, Any, Any]) -> Response[dict[str, str]]:
    """Begin a session for a browser with a valid key."""
    token = request.app.state.access.log_in(request, data.key)
    secure = request.url.scheme == "https"
    cookie = Cookie(
        key=COOKIE, value=token, max_age=SESSION_SECONDS, httponly=True, samesite="strict", secure=secure
    )
    return Response({"to": "/"}, cookies=[cookie])


@post("/logout", guards=[role("operator")], status_code=200, sync_to_thread=False, include_in_schema=False)
def log_out(request: Request[Any, Any, Any]) -> Response[dict[str, str]]:
    """End a browser's session."""
    request.app.state.access.log_out(request)
    return Response({"to": "/login"}, cookies=[Cookie(key=COOKIE, value="", max_age=0, httponly=True)])
