"""Error responses, security headers, body validation and Prometheus metrics."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from itertools import accumulate
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException
from litestar.response import Redirect
from litestar.types import HTTPResponseStartEvent, Receive, Scope, Send
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

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
from evenhand.service.auth import header
from evenhand.service.experiments import BadId
from evenhand.service.pages import page
from evenhand.service.path_prefix import prefix
from evenhand.service.response_bodies import CODES
from evenhand.service.worker_processes import TooManyWait

registry = CollectorRegistry()
requests = Counter("evenhand_requests", "Requests answered", ["method", "route", "status"], registry=registry)
seconds = Histogram("evenhand_request_seconds", "Time to answer", ["route"], registry=registry)
experiments = Gauge("evenhand_experiments", "Experiments in the journal", registry=registry)
tickets = Counter("evenhand_tickets", "Tickets by what happened to them", ["what"], registry=registry)
in_progress = Gauge("evenhand_requests_in_progress", "Requests being answered", registry=registry)
simulations = Gauge("evenhand_simulations", "Simulations of this process", ["state"], registry=registry)
ProcessCollector(registry=registry)


def exposition() -> bytes:
    """Return all metrics in Prometheus' text format."""
    found: bytes = generate_latest(registry)
    return found


log = logging.getLogger("evenhand.service")
Asked = Request[Any, Any, Any]
LONG_BODY = 100_000  # bytes
MAX_DEPTH = 100  # of nested objects and lists
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKET = re.compile(rb"[][{}]")

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
_AGAIN = "Send the request again with the same Idempotency-Key."
_SEE_LOG = "the reason is in the service's log."
INTERNAL: tuple[tuple[type[EvenhandError], str], ...] = (
    (StorageFailed, f"the journal could not be read or written; {_SEE_LOG} {_AGAIN}"),
    (CompilationFailed, f"a part of the service could not be compiled; {_SEE_LOG}"),
    (IntegrityFailed, f"the journal failed a check, and nothing was written; {_SEE_LOG}"),
    (NotComputed, f"this could not be computed; {_SEE_LOG}"),
)
ROUTE_MISSING = {  # what the framework says of a path or method that no route has
    "Not Found": "there is nothing at this address; /docs lists the routes.",
    "Method Not Allowed": "this address does not take this method; /docs lists the routes.",
}
RETRY_LATER = {429: "5", 503: "1"}  # seconds, unless the refusal says otherwise
HEADERS = {
    # figures have colours in style attributes; scripts and style sheets come from our own files only
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
_RAW_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]


async def checked_request(request: Asked) -> None:
    """Refuse another Host, and a body that is not JSON, is ambiguous JSON, or has text for a number."""
    request.app.state.access.check_host(request)
    if request.method != "POST":
        return
    kind = (header(request, b"content-type") or "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException("a body must be JSON, sent as Content-Type: application/json.", status_code=415)
    body = await request.body()
    form = request.route_handler.parsed_data_field  # the framework alone would accept "1" for 1
    annotation = None if form is None else form.annotation
    if len(body) > LONG_BODY:
        await asyncio.to_thread(_check_json, body, annotation)  # does not block other requests
    else:
        _check_json(body, annotation)


def _check_json(body: bytes, annotation: Any) -> None:
    try:
        if _depth(body) > MAX_DEPTH:
            raise _Ambiguous(f"it is nested more than {MAX_DEPTH} levels deep")
        _plain_json.decode(body.decode())
    except ValueError as problem:
        why = str(problem) if isinstance(problem, _Ambiguous) else "it is not"
        raise HTTPException(f"the body must be plain JSON: {why}.", status_code=400) from None
    if annotation is not None:
        try:
            msgspec.json.decode(body, type=annotation)
        except msgspec.MsgspecError as problem:
            raise HTTPException(f"the body does not fit its form: {problem}", status_code=422) from None


def _depth(body: bytes) -> int:
    """How deeply objects and lists are nested: counted before parsing, which would exhaust the stack."""
    brackets = body.count(b"{") + body.count(b"[")
    if brackets <= MAX_DEPTH:
        return brackets  # at most so deep
    steps = (1 if bracket in b"[{" else -1 for bracket in _BRACKET.findall(_STRING.sub(b"", body)))
    return max(accumulate(steps), default=0)


class _Ambiguous(ValueError):
    """JSON with a duplicate field, a non-standard value, or nested too deeply."""


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise _Ambiguous("a field is named twice")
    return table


def _refused_constant(name: str) -> float:
    raise _Ambiguous(f"{name} is no number")


_plain_json = json.JSONDecoder(object_pairs_hook=_once_each, parse_constant=_refused_constant)


class JsonAnswer:
    """A JSON response of status 200, as an ASGI application.

    Without the framework's handling of cookies, headers and background tasks, which costs an ask or a tell
    more than its answer.
    """

    def __init__(self, value: object) -> None:
        self._body = msgspec.json.encode(value)

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [
            (b"content-type", b"application/json"), (b"content-length", str(len(self._body)).encode()),
        ]  # fmt: skip
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": self._body, "more_body": False})


def add_headers(message: HTTPResponseStartEvent) -> None:
    """Add the security headers that the beginning of a response does not have."""
    there = [name.lower() for name, _ in message["headers"]]
    more = [pair for pair in _RAW_HEADERS if pair[0] not in there]
    message["headers"] = [*message["headers"], *more]


def refuse_ours(request: Asked, problem: EvenhandError) -> Response[Any]:
    """Return the response to an error of ours."""
    code = next(status for kind, status in STATUS if isinstance(problem, kind))
    if code >= 500:
        log.error(json.dumps({"event": "failure", "path": request.url.path, "says": str(problem)}))
    says = str(problem)
    if code >= 500:  # what a database says may name hosts, users and files
        says = next(sentence for kind, sentence in INTERNAL if isinstance(problem, kind))
    return _sentence(request, says, code, kind=public_kind(problem))


def public_kind(problem: EvenhandError) -> str:
    """Return the name of the class in `evenhand.errors` that an error belongs to."""
    return next(kind.__name__ for kind in type(problem).__mro__ if kind.__module__ == "evenhand.errors")


def error_code(status: int, kind: str | None) -> str:
    """Return the code of a refusal, by the class of the error or else by the status."""
    if kind is not None:
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind).lower()
    return CODES.get(status, "unexpected" if status >= 500 else "bad_request")


def refuse_http(request: Asked, problem: HTTPException) -> Response[Any]:
    """Return the response to an error of the framework."""
    if problem.status_code == 401 and _wants_page(request):
        return Redirect(f"{prefix.get()}/login")  # a browser without a session is asked for its key
    if isinstance(problem, ValidationException):
        found = problem.extra or ()
        details = "; ".join(
            f"{item.get('key', 'body')}: {item.get('message')}" for item in found if isinstance(item, dict)
        )
        code = 400 if "name" in {item.get("key") for item in found if isinstance(item, dict)} else 422
        return _sentence(request, f"the request does not fit its form: {details or problem.detail}", code)
    says = ROUTE_MISSING.get(problem.detail, problem.detail or "refused")
    return _sentence(request, says, problem.status_code, problem.headers)


def refuse_waiting(request: Asked, problem: TooManyWait) -> Response[Any]:
    """Return the response to a request that may succeed later."""
    return _sentence(request, str(problem), 429)


def refuse_unexpected(request: Asked, problem: Exception) -> Response[Any]:
    """Return the response to an unexpected error; details go to the log only."""
    line = {"event": "failure", "path": request.url.path, "kind": type(problem).__name__}
    log.error(json.dumps(line), exc_info=problem)
    return _sentence(request, "an unexpected failure; it is in the service's log", 500)


def _wants_page(request: Asked) -> bool:
    return "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/api")


def _sentence(
    request: Asked, text: str, code: int, headers: dict[str, str] | None = None, kind: str | None = None
) -> Response[Any]:
    if _wants_page(request):
        return page("error.html", code, headers=HEADERS, key=None, says=text)
    body = {"error": text, "code": error_code(code, kind)} | ({} if kind is None else {"kind": kind})
    retry = {"Retry-After": RETRY_LATER[code]} if code in RETRY_LATER else {}
    return Response(body, status_code=code, headers=HEADERS | retry | (headers or {}))
