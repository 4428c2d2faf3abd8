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
from functools import lru_cache
from pathlib import Path

from litestar import Litestar
from litestar.datastructures import State
from litestar.di import Provide
from litestar.enums import ScopeType
from litestar.exceptions import HTTPException
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from evenhand.errors import EvenhandError
from evenhand.service import pages, responses
from evenhand.service.auth import Access, Sessions
from evenhand.service.experiments import RecentViews, Registry
from evenhand.service.forecasts import Forecasts
from evenhand.service.jobs import Jobs
from evenhand.service.keys import KnownKeys
from evenhand.service.limits import Proxies, RequestLimits
from evenhand.service.notifications import Notifications
from evenhand.service.openapi import description
from evenhand.service.panels import Panels
from evenhand.service.path_prefix import below, checked_prefix
from evenhand.service.responses import (
    add_headers,
    checked_request,
    refuse_http,
    refuse_ours,
    refuse_unexpected,
    refuse_waiting,
)
from evenhand.service.routes import routers
from evenhand.service.server import warm
from evenhand.service.webhooks import Webhooks
from evenhand.service.worker_processes import TooManyWait, WorkerProcesses

BODY_BYTES = 1_000_000
WARM_AFTER = 0.5  # seconds: the first requests are answered before
AT_ONCE = 64  # concurrent requests; others wait
log = logging.getLogger("evenhand.service")


@dataclass(frozen=True)
class Settings:
    """The settings of the service."""

    journal: str = field(repr=False)  # an address may contain a password
    hosts: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()  # addresses or networks whose X-Forwarded headers are believed
    webhooks: tuple[str, ...] = ()  # origins that the service may call
    prefix: str = ""  # the path below which users reach the service, as /trials
    warm: bool = False  # load kernels and start worker processes at startup, not on first use


def create_app(settings: Settings) -> Litestar:
    """Return the application for one journal."""
    limits, path = RequestLimits(Proxies(settings.proxies)), checked_prefix(settings.prefix)
    responses.in_progress.set_function(lambda: limits.in_progress)
    registry, workers = Registry(settings.journal), WorkerProcesses()
    jobs = Jobs(registry.journal)
    is_file = not registry.journal.shared and settings.journal != ":memory:"
    keys = KnownKeys(registry.journal, Path(settings.journal).resolve() if is_file else None)
    forecasts, webhooks = Forecasts(workers), Webhooks(registry.journal, settings.webhooks)
    notifications = Notifications(registry, webhooks)
    panels = Panels(registry, workers, forecasts)

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        # one thread per concurrent request; they mostly wait for the group commit
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(AT_ONCE))
        warming = threading.Timer(WARM_AFTER, warm, args=(workers,))
        warming.daemon = True
        notifications.start()
        if settings.warm:
            warming.start()
        try:
            yield
        finally:
            warming.cancel()  # a service that is stopped early starts no workers
            notifications.close()
            jobs.close()
            workers.close()
            registry.close()

    shared = {"registry": registry, "jobs": jobs, "workers": workers, "panels": panels, "webhooks": webhooks}
    app = Litestar(
        route_handlers=[
            *routers, *pages.handlers(), pages.log_in_page, pages.log_in_request, pages.log_out,
        ],
        state=State({
            "access": Access(keys, Sessions(registry.journal), settings.hosts),
            "views": RecentViews(),
            "forecasts": forecasts,
            "limits": limits,
            "stopping": threading.Event(),  # streams end when it is set
        }),
        dependencies={
            name: _given(part)
            for name, part in shared.items()
        },
        lifespan=[lifespan],
        before_request=checked_request,
        request_max_body_size=BODY_BYTES,
        exception_handlers={
            EvenhandError: refuse_ours, HTTPException: refuse_http, TooManyWait: refuse_waiting,
            Exception: refuse_unexpected,
        },
        middleware=[limits, _measure],
        openapi_config=description(path),
        debug=False,
    )  # fmt: skip
    app.asgi_handler = below(app.asgi_handler, path)
    return app


def _given(part: object) -> Provide:
    """Return a dependency that is the same object for every request."""
    return Provide(lambda: part, sync_to_thread=False)


def _measure(app: ASGIApp) -> ASGIApp:
    """Count, time and log every request, without query, body or headers; add the security headers."""
    counters = lru_cache(1_000)(responses.requests.labels)  # methods, routes and codes are few
    timers = lru_cache(200)(responses.seconds.labels)
    beginnings = lru_cache(1_000)(_beginning_of_line)

    async def measured(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await app(scope, receive, send)
            return
        started, code, method = time.perf_counter(), 500, str(scope.get("method"))

        async def watching(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
                add_headers(message)
            await send(message)

        try:
            await app(scope, receive, watching)
        finally:
            took, route = time.perf_counter() - started, scope.get("path_template") or "other"
            counters(method, route, code).inc()
            timers(route).observe(took)
            if log.isEnabledFor(logging.INFO):
                log.info('%s, "seconds": %.4f}', beginnings(method, route, code), took)

    return measured


def _beginning_of_line(method: str, route: str, status: int) -> str:
    """Return the line that the log has of a request, up to what differs between equal requests."""
    return json.dumps({"method": method, "route": route, "status": status}).removesuffix("}")


def structured_logs() -> None:
    """Write logs as one JSON object per line on standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    log.addHandler(handler)
    # the lines have neither thread nor place in the code: finding those costs as much as writing a line
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None
    log.setLevel(logging.INFO)
    log.propagate = False
