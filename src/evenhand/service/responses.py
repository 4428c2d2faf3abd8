"""Counters and durations in Prometheus' text format.

How the service speaks: errors as sentences, headers on every answer, and which bodies it reads at all.
"""

from __future__ import annotations

import json
import logging
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException
from litestar.response import Redirect
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from evenhand.errors import (
    BadInput,
    Closed,
    CompilationFailed,
    Conflict,
    EvenhandError,
    IntegrityFailed,
    NotComputed,
    NotFound,
    StorageFailed,
)
from evenhand.service.experiments import BadId
from evenhand.service.rendering import page

registry = CollectorRegistry()
requests = Counter("evenhand_requests", "Requests answered", ["method", "route", "status"], registry=registry)
seconds = Histogram("evenhand_request_seconds", "Time to answer", ["route"], registry=registry)
experiments = Gauge("evenhand_experiments", "Experiments in the journal", registry=registry)


def exposition() -> bytes:
    """Everything counted so far."""
    found: bytes = generate_latest(registry)
    return found


log = logging.getLogger("evenhand.service")
Asked = Request[Any, Any, Any]

STATUS: tuple[tuple[type[EvenhandError], int], ...] = (
    (NotFound, 404),
    (Conflict, 409),
    (Closed, 409),
    (StorageFailed, 503),
    (CompilationFailed, 503),
    (IntegrityFailed, 500),
    (NotComputed, 500),
    (BadId, 400),
    (BadInput, 422),
)
HEADERS = {
    # drawings carry their colours in style attributes; scripts and style sheets come from our own files only
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; font-src 'self'; "
    "img-src 'self' data:; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


async def checked_body(request: Asked) -> None:
    """Refuse a body that is no JSON, JSON that two readers may read differently, and text for a number."""
    if request.method != "POST":
        return
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException("a body must be JSON, sent as Content-Type: application/json.", status_code=415)
    body = await request.body()
    try:
        json.loads(body, object_pairs_hook=_once_each, parse_constant=_refused_constant)
    except (ValueError, RecursionError) as problem:
        why = str(problem) if isinstance(problem, _Ambiguous) else "it is not"
        raise HTTPException(f"the body must be plain JSON: {why}.", status_code=400) from None
    form = request.route_handler.parsed_data_field  # the framework alone would take "1" for 1
    if form is not None:
        try:
            msgspec.json.decode(body, type=form.annotation)
        except msgspec.MsgspecError as problem:
            raise HTTPException(f"the body does not fit its form: {problem}", status_code=422) from None


class _Ambiguous(ValueError):
    """JSON that names a field twice, or what only some readers take for JSON."""


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise _Ambiguous("a field is named twice")
    return table


def _refused_constant(name: str) -> float:
    raise _Ambiguous(f"{name} is no number")


def with_headers(response: Response[Any]) -> Response[Any]:
    """On every answer."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def refuse_ours(request: Asked, problem: EvenhandError) -> Response[Any]:
    """What we refuse on purpose, as its sentence."""
    code = next(status for kind, status in STATUS if isinstance(problem, kind))
    if code >= 500:
        log.error(json.dumps({"event": "failure", "path": request.url.path, "says": str(problem)}))
    return _sentence(request, str(problem), code)


def refuse_http(request: Asked, problem: HTTPException) -> Response[Any]:
    """What the framework refuses, as a sentence."""
    if problem.status_code == 401 and _wants_page(request):
        return Redirect("/login")  # a browser without a session is shown where to give its key
    if isinstance(problem, ValidationException):
        found = problem.extra or ()
        details = "; ".join(
            f"{item.get('key', 'body')}: {item.get('message')}" for item in found if isinstance(item, dict)
        )
        code = 400 if "name" in {item.get("key") for item in found if isinstance(item, dict)} else 422
        return _sentence(request, f"the request does not fit its form: {details or problem.detail}", code)
    return _sentence(request, problem.detail or "refused", problem.status_code, problem.headers)


def refuse_unexpected(request: Asked, problem: Exception) -> Response[Any]:
    """Anything else: said in the log, not to the client."""
    line = {"event": "failure", "path": request.url.path, "kind": type(problem).__name__}
    log.error(json.dumps(line), exc_info=problem)
    return _sentence(request, "an unexpected failure; it is in the service's log", 500)


def _wants_page(request: Asked) -> bool:
    return "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/api")


def _sentence(request: Asked, text: str, code: int, headers: dict[str, str] | None = None) -> Response[Any]:
    if _wants_page(request):
        return with_headers(page("error.html", code, key=None, says=text))
    return Response({"error": text}, status_code=code, headers=HEADERS | (headers or {}))
