"""The dashboard pages, rendered on the server: experiments, planner, login.

The browser only replaces parts of pages. An operator sees the same pages without estimates and evidence.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import partial
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

from evenhand.errors import EvenhandError
from evenhand.live.compute_status import state_word
from evenhand.service import worker_processes
from evenhand.service.auth import COOKIE, SESSION_SECONDS, key_of, role
from evenhand.service.experiment_facts import (
    SORTS,
    STATES,
    expected_end,
    isolated,
    list_row,
    manage_choices,
    matches,
    sorted_rows,
    work_question,
)
from evenhand.service.experiments import Registry, note_view
from evenhand.service.panels import Audited, PanelContent, Panels
from evenhand.service.path_prefix import prefix
from evenhand.service.request_bodies import LogIn, PlanReportForm, SaveForm, study_of
from evenhand.service.worker_processes import WorkerProcesses
from evenhand.verdicts.forecast_statement import IN_PROGRESS, more_by_name

STATIC = Path(__file__).parent / "static"
LOG_LINES = 50
LIST_LINES = 50
MOST_LISTED = 500  # experiments that a filter or another order looks at
FORECASTS_AT_ONCE = 3  # that one view of the list begins
LOOK_SECONDS = 0.5  # how often a stream checks for new content
SIGN_SECONDS = 15.0  # a stream sends something at least so often, so that a client that is gone is noticed
Asked = Request[Any, Any, Any]
Search = Annotated[str, QueryParameter(max_length=200)]
Offset = Annotated[int, QueryParameter(ge=0, le=1_000_000)]


@get("/", guards=[role("operator")], sync_to_thread=True, include_in_schema=False)
def home(
    request: Asked,
    registry: NamedDependency[Registry],
    start: Offset = 0,
    show: Search = "",
    sort: Search = "newest",
    find: Search = "",
) -> Response[str]:
    """Return the list of experiments; leaders that it shows are recorded as viewed."""
    blind, now, names = not key_of(request).may("analyst"), time.time(), registry.names()
    chosen = bool(show or find) or sort != "newest"
    looked = names[:MOST_LISTED] if chosen else names[start : start + LIST_LINES]
    found = [list_row(registry.get(name).present(), registry.journal, now, blind) for name in looked]
    rows, total = sorted_rows([row for row in found if matches(row, show, find)], sort), len(names)
    if chosen:
        total, rows = len(rows), rows[start : start + LIST_LINES]
    _add_expected_ends(request, registry, rows, now)
    return page(
        "experiments.html", key=key_of(request), rows=rows, total=len(names), looked=len(looked),
        alarmed=sum(bool(row["alarms"]) for row in found), states=STATES, sorts=SORTS,
        show=show, sort=sort, find=find, more=start + LIST_LINES if total > start + LIST_LINES else None,
    )  # fmt: skip


def _add_expected_ends(request: Asked, registry: Registry, rows: list[dict[str, Any]], now: float) -> None:
    """Record that leaders are viewed, and add the expected ends that are known; begin a few forecasts."""
    begun = 0
    for row in rows:
        if row["progress"] is None and row["leader"] is None:
            continue
        trial = registry.get(row["experiment"])
        note_view(request, trial, "list")
        view = trial.present()
        ahead = request.app.state.forecasts.latest(row["experiment"], view, begin=begun < FORECASTS_AT_ONCE)
        begun += ahead.why_none == IN_PROGRESS
        row["expected"] = expected_end(more_by_name(ahead.more), row["samples"], view.protocol.at, now)


@get("/experiments/{name:str}", guards=[role("operator")], sync_to_thread=True, include_in_schema=False)
def experiment(
    name: FromPath[str],
    request: Asked,
    registry: NamedDependency[Registry],
    panels: NamedDependency[Panels],
) -> Response[str]:
    """Return the page of one experiment."""
    content, key = panels.of(name, _is_blind(name, request, registry)), key_of(request)
    manage = manage_choices(registry.get(name).present().protocol) if key.may("admin") else None
    return page("experiment.html", key=key, id=name, manage=manage, **_shown(name, content, panels))


@get("/experiments/{name:str}/work", guards=[role("operator")], sync_to_thread=True, include_in_schema=False)
def work(name: FromPath[str], request: Asked, registry: NamedDependency[Registry]) -> Response[str]:
    """Return the page on which a user asks for tickets and enters outcomes; it shows no outcome."""
    key, trial = key_of(request), registry.get(name)
    view = trial.present()
    count = partial(trial.count_open_tickets, owner=key.id)
    has_tickets = view.protocol.procedure.interval is None
    question = work_question(view.protocol, f"{key.name} ({key.id})", count) if has_tickets else None
    title, phase = view.protocol.study.title, state_word(view)
    return page("work.html", key=key, id=name, title=title, phase=phase, question=question)


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
    if search:
        found = workers.quick.do(
            worker_processes.search, registry.address, name, last, search, LOG_LINES, blind,
            owner=key_of(request).id,
        )  # fmt: skip
    else:  # the latest lines do not wait for a worker process
        found = list(
            worker_processes.log_lines(registry.journal, name, max(last - LOG_LINES, 0), last, blind)
        )
    return page("log.html", lines=found, total=last, searched=search)


@get("/experiments/{name:str}/stream", guards=[role("operator")], include_in_schema=False)
async def stream(
    name: FromPath[str],
    request: Asked,
    registry: NamedDependency[Registry],
    panels: NamedDependency[Panels],
) -> ServerSentEvent:
    """Send a message whenever there is new content."""
    await asyncio.to_thread(registry.get, name)
    key, access = key_of(request), request.app.state.access
    request.app.state.limits.begin_stream(request.scope, key.id)
    blind = not key.may("analyst")

    async def drawings() -> AsyncIterator[ServerSentEventMessage]:
        seen: PanelContent | None = None
        sent = time.monotonic()
        while not request.app.state.stopping.is_set():
            await access.read_keys()
            if not access.is_still_valid(key):
                return  # revoked or expired
            with suppress(EvenhandError):  # a drawing that failed or took too long is tried again
                content = await asyncio.to_thread(panels.of, name, blind)
                if content is not seen and not content.waiting:
                    seen, sent = content, time.monotonic()
                    yield ServerSentEventMessage(event="drawn", data=str(content.head))
            if time.monotonic() - sent >= SIGN_SECONDS:
                sent = time.monotonic()
                yield ServerSentEventMessage(comment="", data=None)
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
    request: Asked,
    registry: NamedDependency[Registry],
    workers: NamedDependency[WorkerProcesses],
    panels: NamedDependency[Panels],
) -> Response[str]:
    """Audit the log and return the result."""
    registry.get(name)
    found = workers.long.do(worker_processes.audit, registry.address, name, owner=key_of(request).id)
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
    text = workers.long.do(worker_processes.report, registry.address, name, owner=key_of(request).id)
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


@post(
    "/planner/report",
    guards=[role("analyst")],
    status_code=200,
    sync_to_thread=True,
    include_in_schema=False,
)
def plan_report(
    data: JSONBody[PlanReportForm], request: Asked, workers: NamedDependency[WorkerProcesses]
) -> Response[str]:
    """Return the report of a plan and its simulation, which is run again with the same seed."""
    study_of(data.study)
    text = workers.plan_reports.do(
        worker_processes.plan_report, data.study, data.replications, data.seed, owner=key_of(request).id
    )
    headers = {"Content-Disposition": 'attachment; filename="plan.html"'}
    return Response(text, media_type=MediaType.HTML, headers=headers)


def handlers() -> list[Any]:
    """Return all route handlers of the dashboard."""
    static = create_static_files_router(
        "/static", directories=[STATIC], include_in_schema=False, cache_control=None
    )
    return [
        home, experiment, work, panel, log, stream, audit, report, planner, save_study, plan_report, static,
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


def page(
    template: str, code: int = 200, headers: Mapping[str, str] | None = None, **values: Any
) -> Response[str]:
    """Return a page as a response."""
    text = render(template, **values)
    return Response(text, media_type=MediaType.HTML, status_code=code, headers=headers)


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


_environment.filters.update(count=_count, number=_number, age=_age, clock=_clock, bdi=isolated)
_environment.globals.update(symbols=SYMBOLS, base=prefix.get)


@get("/login", sync_to_thread=False, include_in_schema=False)
def log_in_page() -> Response[str]:
    """Return the page on which a user enters a key."""
    return page("login.html", key=None)


@post("/login", status_code=200, sync_to_thread=True, include_in_schema=False)
def log_in_request(data: JSONBody[LogIn], request: Request[Any, Any, Any]) -> Response[dict[str, str]]:
    """Begin a session for a browser with a valid key."""
    token = request.app.state.access.log_in(request, data.key)
    secure, path = request.url.scheme == "https", f"{prefix.get()}/"
    cookie = Cookie(
        key=COOKIE, value=token, max_age=SESSION_SECONDS, path=path, httponly=True, samesite="strict",
        secure=secure,
    )  # fmt: skip
    return Response({"to": path}, cookies=[cookie])


@post("/logout", guards=[role("operator")], status_code=200, sync_to_thread=True, include_in_schema=False)
def log_out(request: Request[Any, Any, Any]) -> Response[dict[str, str]]:
    """End a browser's session."""
    request.app.state.access.log_out(request)
    gone = Cookie(key=COOKIE, value="", max_age=0, path=f"{prefix.get()}/", httponly=True)
    return Response({"to": f"{prefix.get()}/login"}, cookies=[gone])
