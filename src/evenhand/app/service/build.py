"""The application: routes, pages, errors as sentences, limits, logs."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from litestar import Litestar, Request, Response
from litestar.datastructures import State
from litestar.di import Provide
from litestar.enums import ScopeType
from litestar.exceptions import HTTPException, ValidationException
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import RedocRenderPlugin, YamlRenderPlugin
from litestar.response import Redirect
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from evenhand import __version__
from evenhand.app.service import metrics, pages
from evenhand.app.service.access import Access
from evenhand.app.service.jobs import Jobs
from evenhand.app.service.keys import Keys
from evenhand.app.service.registry import Registry
from evenhand.app.service.routes import router
from evenhand.errors import (
    BadInput,
    Closed,
    Conflict,
    EvenhandError,
    IntegrityFailed,
    NotFound,
    StorageFailed,
)

BODY_BYTES = 1_000_000
VIEW_SECONDS = 60.0
log = logging.getLogger("evenhand.service")

STATUS: tuple[tuple[type[EvenhandError], int], ...] = (
    (NotFound, 404),
    (Conflict, 409),
    (Closed, 409),
    (StorageFailed, 503),
    (IntegrityFailed, 500),
    (BadInput, 422),
)
HEADERS = {
    # drawings carry their style in attributes; scripts come from our own files only
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "script-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Settings:
    """What the service runs on."""

    journal: str
    hosts: tuple[str, ...] = ()


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
                self._seen[key] = now
            return fresh


def create_app(settings: Settings) -> Litestar:
    """The service over one journal."""
    registry, jobs, keys = Registry(settings.journal), Jobs(), Keys(settings.journal)

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        try:
            yield
        finally:
            jobs.close()
            registry.close()

    return Litestar(
        route_handlers=[router, *pages.handlers()],
        state=State({"access": Access(keys, settings.hosts), "views": Views()}),
        dependencies={
            "registry": Provide(lambda: registry, sync_to_thread=False),
            "jobs": Provide(lambda: jobs, sync_to_thread=False),
        },
        lifespan=[lifespan],
        request_max_body_size=BODY_BYTES,
        exception_handlers={EvenhandError: _ours, HTTPException: _http, Exception: _unexpected},
        middleware=[_measure],
        openapi_config=OpenAPIConfig(
            "evenhand",
            __version__,
            path="/docs",
            render_plugins=[RedocRenderPlugin(), YamlRenderPlugin()],
            use_handler_docstrings=True,
        ),
        after_request=_with_headers,
        debug=False,
    )


def _with_headers(response: Response[Any]) -> Response[Any]:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def _ours(request: Request[Any, Any, Any], problem: EvenhandError) -> Response[dict[str, str]]:
    code = next(status for kind, status in STATUS if isinstance(problem, kind))
    return _sentence(str(problem), code)


def _http(request: Request[Any, Any, Any], problem: HTTPException) -> Response[Any]:
    if problem.status_code == 401 and _wants_page(request):
        return Redirect("/login")  # a browser without a session is shown where to give its key
    if isinstance(problem, ValidationException):
        found = problem.extra or ()
        details = "; ".join(
            f"{item.get('key', 'body')}: {item.get('message')}" for item in found if isinstance(item, dict)
        )
        return _sentence(f"the request does not fit its form: {details or problem.detail}", 422)
    return _sentence(problem.detail or "refused", problem.status_code)


def _wants_page(request: Request[Any, Any, Any]) -> bool:
    return "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/api")


def _unexpected(request: Request[Any, Any, Any], problem: Exception) -> Response[dict[str, str]]:
    log.error(
        json.dumps({"event": "failure", "path": request.url.path, "kind": type(problem).__name__}),
        exc_info=problem,
    )
    return _sentence("an unexpected failure; it is in the service's log", 500)


def _sentence(text: str, code: int) -> Response[dict[str, str]]:
    return Response({"error": text}, status_code=code, headers=dict(HEADERS))


def _measure(app: ASGIApp) -> ASGIApp:
    """Count and time every request; one line of log each, without query, body or headers."""

    async def measured(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await app(scope, receive, send)
            return
        started, code, method = time.perf_counter(), 500, str(scope.get("method"))

        async def watching(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
            await send(message)

        try:
            await app(scope, receive, watching)
        finally:
            took, route = time.perf_counter() - started, scope.get("path_template") or "other"
            metrics.requests.labels(method, route, str(code)).inc()
            metrics.seconds.labels(route).observe(took)
            log.info(
                json.dumps({"method": method, "route": route, "status": code, "seconds": round(took, 4)})
            )

    return measured


def structured_logs() -> None:
    """One JSON object per line on standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
