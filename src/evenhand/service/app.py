"""The application: routes, pages, shared objects, startup and shutdown."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from litestar import Litestar
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.di import Provide
from litestar.enums import ScopeType
from litestar.exceptions import HTTPException
from litestar.handlers import BaseRouteHandler
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from evenhand.errors import EvenhandError
from evenhand.service import login, pages, responses
from evenhand.service.auth import Access
from evenhand.service.experiments import Registry
from evenhand.service.forecasts import Forecasts
from evenhand.service.jobs import Jobs
from evenhand.service.keys import Keys, KnownKeys
from evenhand.service.openapi import description
from evenhand.service.panels import Panels
from evenhand.service.responses import checked_body, refuse_http, refuse_ours, refuse_unexpected, with_headers
from evenhand.service.routes import routers
from evenhand.service.server import warm
from evenhand.service.view_log import Views
from evenhand.service.worker_processes import Studio

BODY_BYTES = 1_000_000
WARM_AFTER = 0.5  # seconds: the first requests are answered before
AT_ONCE = 64  # concurrent requests; others wait
log = logging.getLogger("evenhand.service")


@dataclass(frozen=True)
class Settings:
    """The settings of the service."""

    journal: str = field(repr=False)  # an address may contain a password
    hosts: tuple[str, ...] = ()
    warm: bool = False  # load kernels and start worker processes at startup, not on first use


def create_app(settings: Settings) -> Litestar:
    """Return the application for one journal."""
    keys = Keys(settings.journal)
    registry, jobs, studio = Registry(settings.journal), Jobs(), Studio()
    forecasts = Forecasts(studio)
    panels = Panels(registry, studio, forecasts)

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        # one thread per concurrent request; they mostly wait for the group commit
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(AT_ONCE))
        warming = threading.Timer(WARM_AFTER, warm, args=(studio,))
        warming.daemon = True
        if settings.warm:
            warming.start()
        try:
            yield
        finally:
            warming.cancel()  # a service that is stopped early starts no workers
            jobs.close()
            studio.close()
            registry.close()

    shared = {"registry": registry, "jobs": jobs, "studio": studio, "panels": panels}
    return Litestar(
        route_handlers=[
            *routers, *pages.handlers(), login.log_in_page, login.log_in, login.log_out,
        ],
        state=State({
            "access": Access(KnownKeys(keys), settings.hosts),
            "views": Views(),
            "forecasts": forecasts,
            "stopping": threading.Event(),  # streams end when it is set
        }),
        guards=[_known_host],
        dependencies={
            name: _given(part)
            for name, part in shared.items()
        },
        lifespan=[lifespan],
        before_request=checked_body,
        after_request=with_headers,
        request_max_body_size=BODY_BYTES,
        exception_handlers={
            EvenhandError: refuse_ours, HTTPException: refuse_http, Exception: refuse_unexpected,
        },
        middleware=[_measure],
        openapi_config=description(),
        debug=False,
    )  # fmt: skip


def _given(part: object) -> Provide:
    """Return a dependency that is the same object for every request."""
    return Provide(lambda: part, sync_to_thread=False)


async def _known_host(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    connection.app.state.access.check_host(connection)


def _measure(app: ASGIApp) -> ASGIApp:
    """Count, time and log every request, without query, body or headers."""

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
            responses.requests.labels(method, route, str(code)).inc()
            responses.seconds.labels(route).observe(took)
            if log.isEnabledFor(logging.INFO):
                line = {"method": method, "route": route, "status": code, "seconds": round(took, 4)}
                log.info(json.dumps(line))

    return measured


def structured_logs() -> None:
    """Write logs as one JSON object per line on standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
