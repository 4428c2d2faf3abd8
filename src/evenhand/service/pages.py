"""The dashboard pages: experiments, one experiment, planner. Rendered on the server.

The browser only replaces parts of pages. An operator sees the same pages without estimates and evidence.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

from litestar import MediaType, Request, Response, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter
from litestar.response import ServerSentEvent
from litestar.response.sse import ServerSentEventMessage
from litestar.static_files import create_static_files_router

from evenhand.service import worker_processes
from evenhand.service.auth import key_of, role
from evenhand.service.experiments import Registry, blinded
from evenhand.service.panels import Audited, Drawn, Panels
from evenhand.service.rendering import page, render
from evenhand.service.request_bodies import SaveForm, study_of
from evenhand.service.view_log import note_view
from evenhand.service.worker_processes import Studio

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
    drawn = panels.of(name, _is_blind(name, request, registry))
    return page("experiment.html", key=key_of(request), id=name, **_shown(name, drawn, panels))


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
        name, blind, lambda drawn: render("panel.html", id=name, **_shown(name, drawn, panels))
    )
    return Response(text, media_type=MediaType.HTML)


@get("/experiments/{name:str}/log", guards=[role("operator")], sync_to_thread=True, include_in_schema=False)
def log(
    name: FromPath[str],
    request: Asked,
    registry: NamedDependency[Registry],
    studio: NamedDependency[Studio],
    search: Search = "",
) -> Response[str]:
    """Return the latest events that contain the search words."""
    trial, blind = registry.get(name), not key_of(request).may("analyst")
    if not blind:
        note_view(request, trial, "events")
    last = trial.head.seq
    lines = studio.quick.do(worker_processes.search, registry.address, name, last, search, LOG_LINES, blind)
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
        seen: Drawn | None = None
        while not request.app.state.stopping.is_set():
            drawn = await asyncio.to_thread(panels.of, name, blind)
            if drawn is not seen:
                seen = drawn
                yield ServerSentEventMessage(event="drawn", data=str(drawn.head))
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
    studio: NamedDependency[Studio],
    panels: NamedDependency[Panels],
) -> Response[str]:
    """Audit the log and return the result."""
    registry.get(name)
    found = studio.long.do(worker_processes.audit, registry.address, name)
    panels.audits[name] = Audited(time.time(), found.identical, found.events)
    return page("audit.html", found=found)


@get("/experiments/{name:str}/report", guards=[role("analyst")], sync_to_thread=True, include_in_schema=False)
def report(
    name: FromPath[str],
    request: Asked,
    registry: NamedDependency[Registry],
    studio: NamedDependency[Studio],
) -> Response[str]:
    """Return the report as one file."""
    note_view(request, registry.get(name), "report")
    text = studio.long.do(worker_processes.report, registry.address, name)
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


def _shown(name: str, drawn: Drawn, panels: Panels) -> dict[str, Any]:
    return {"drawn": drawn, "audited": panels.audits.get(name), "now": time.time()}
