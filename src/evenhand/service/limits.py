"""Limits on connections and requests, checked before any work: sizes, times, numbers, proxies.

`limited_protocol` guards connections: bytes and seconds until a request's headers are complete, seconds for
its body, connections per peer. `RequestLimits` guards requests: number and size of headers, requests in
progress, open streams of each key. Both answer with a sentence and `Retry-After` where a later request may
succeed.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from ipaddress import ip_address, ip_network
from typing import Any

from litestar.enums import ScopeType
from litestar.exceptions import HTTPException
from litestar.types import ASGIApp, Receive, Scope, Send

from evenhand.errors import BadInput
from evenhand.service.response_bodies import CODES

HEADER_BYTES, HEADERS = 32_768, 100  # of one request
HEADER_SECONDS = 10.0  # from the first byte, or from the connection, to the end of the headers
BODY_SECONDS, BODY_RATE = 30.0, 20_000  # seconds for a body, and one more for so many bytes
PER_PEER = 512  # connections from one address; named proxies have no such limit
IN_PROGRESS = 256  # requests in progress; further ones are refused
STREAMS, STREAMS_PER_KEY = 500, 50  # open streams of dashboards: of all keys, and of one
RETRY_SECONDS = 1
HEALTH = "/healthz"  # answered always; /readyz needs the storage and no key, so it is shed as well
REASONS = {408: "Request Timeout", 431: "Request Header Fields Too Large", 503: "Service Unavailable"}


class Proxies:
    """The proxies whose forwarding headers are believed: addresses or networks."""

    def __init__(self, named: tuple[str, ...]) -> None:
        try:
            self._networks = [ip_network(one, strict=False) for one in named]
        except ValueError:
            raise BadInput(
                f"a proxy must be an address or a network, as 10.0.0.0/8; one of {', '.join(named)} is not."
            ) from None

    def has(self, peer: str) -> bool:
        if not self._networks:
            return False
        try:
            address = ip_address(peer)
        except ValueError:
            return False
        return any(address in network for network in self._networks)

    def client_of(self, peer: str, forwarded: str) -> str:
        """Return the address that the nearest proxy that is not named saw, from X-Forwarded-For."""
        for one in reversed([part.strip() for part in forwarded.split(",")]):
            if not self.has(peer):
                break
            if not _is_address(one):
                break
            peer = one
        return peer


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


class RequestLimits:
    """ASGI middleware: accept named proxies, refuse too many headers and too many requests at once."""

    def __init__(self, proxies: Proxies) -> None:
        self._proxies = proxies
        self._counts = {"requests": 0, "streams": 0}
        self._streams_of: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def in_progress(self) -> int:
        return self._counts["requests"]

    def __call__(self, app: ASGIApp) -> ASGIApp:
        async def limited(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != ScopeType.HTTP:
                await app(scope, receive, send)
                return
            self._believe_proxy(scope)
            kind = "streams" if scope["path"].endswith("/stream") else "requests"
            most = STREAMS if kind == "streams" else IN_PROGRESS
            sizes = [len(name) + len(value) for name, value in scope["headers"]]
            if len(sizes) > HEADERS or sum(sizes) > HEADER_BYTES:
                await _refuse(send, 431, f"send at most {HEADERS} headers of {HEADER_BYTES:,} bytes in all.")
                return
            if self._counts[kind] >= most and scope["path"] != HEALTH:
                await _refuse(send, 503, f"the service answers {most} {kind} at once; try again.")
                return
            self._count(kind, 1)
            try:
                await app(scope, receive, send)
            finally:
                self._count(kind, -1)
                self._end_stream(scope)

        return limited

    def begin_stream(self, scope: Any, owner: str) -> None:
        """Count a stream of this key until its request ends; refuse one too many."""
        with self._lock:
            if self._streams_of[owner] >= STREAMS_PER_KEY:
                raise HTTPException(
                    f"one key may have {STREAMS_PER_KEY} open dashboards; close some first.", status_code=429
                )
            self._streams_of[owner] += 1
        scope["state"]["stream_of"] = owner

    def _end_stream(self, scope: Any) -> None:
        owner = scope.get("state", {}).pop("stream_of", None)
        if owner is None:
            return
        with self._lock:
            self._streams_of[owner] -= 1
            if not self._streams_of[owner]:
                del self._streams_of[owner]

    def _count(self, kind: str, change: int) -> None:
        with self._lock:
            self._counts[kind] += change

    def _believe_proxy(self, scope: Any) -> None:
        """Set the client's address and scheme from the headers of a named proxy; others are ignored."""
        peer = scope["client"][0] if scope.get("client") else ""
        if not self._proxies.has(peer):
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        if b"x-forwarded-for" in headers:
            scope["client"] = (self._proxies.client_of(peer, headers[b"x-forwarded-for"]), 0)
        if headers.get(b"x-forwarded-proto") in ("http", "https"):
            scope["scheme"] = headers[b"x-forwarded-proto"]


async def _refuse(send: Any, code: int, says: str) -> None:
    body = json.dumps({"error": says, "code": CODES[code]}).encode()
    headers = [
        (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"), *([(b"retry-after", str(RETRY_SECONDS).encode())] if code == 503 else []),
    ]  # fmt: skip
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def limited_protocol(base: type[asyncio.Protocol], proxies: Proxies) -> type[asyncio.Protocol]:
    """Return uvicorn's HTTP protocol with limits on slow and large requests and on connections."""
    per_peer: Counter[str] = Counter()

    class Limited(base):  # type: ignore[valid-type,misc]
        _peer = ""
        _timer: asyncio.TimerHandle | None = None
        _header_bytes = 0
        _body_bytes = 0
        _began = 0.0
        _request: object = None  # the last request whose headers were complete

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            address = transport.get_extra_info("peername")
            self._peer = str(address[0]) if address else ""
            per_peer[self._peer] += 1
            if per_peer[self._peer] > PER_PEER and not proxies.has(self._peer):
                self._end(503, f"one address may have {PER_PEER} connections; close some first.")
                return
            self._wait_for_headers()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            per_peer[self._peer] -= 1
            if per_peer[self._peer] <= 0:
                del per_peer[self._peer]
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            last: Any = self._request
            idle = last is None or (last.response_complete and not last.more_body)
            if idle and self._header_bytes == 0:
                self._wait_for_headers()
            super().data_received(data)
            if self.cycle is not self._request:
                self._request, self._header_bytes, self._body_bytes = self.cycle, 0, 0
                self._wait_for_body()
            elif idle:
                self._header_bytes += len(data)
                if self._header_bytes > HEADER_BYTES:
                    self._end(431, f"the headers of a request may have {HEADER_BYTES:,} bytes.")
            else:
                self._body_bytes += len(data)
            if self.cycle is not None and not self.cycle.more_body and self._header_bytes == 0:
                self._stop_timer()

        def _wait_for_headers(self) -> None:
            self._stop_timer()
            self._timer = self.loop.call_later(HEADER_SECONDS, self._end, 408, "the headers came too slowly.")

        def _wait_for_body(self) -> None:
            self._stop_timer()
            self._began = time.monotonic()
            self._timer = self.loop.call_later(BODY_SECONDS, self._check_body)

        def _check_body(self) -> None:
            """End a body that came too slowly; otherwise check again when its time has passed."""
            if self.cycle is None or not self.cycle.more_body:
                return
            left = self._began + BODY_SECONDS + self._body_bytes / BODY_RATE - time.monotonic()
            if left > 0:
                self._timer = self.loop.call_later(left, self._check_body)
            else:
                self.transport.abort()  # the request is being answered already: only its end can be refused

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _end(self, code: int, says: str) -> None:
            """Answer with a sentence and close the connection."""
            if self.transport.is_closing():
                return
            body = json.dumps({"error": says, "code": CODES[code]})
            retry = f"Retry-After: {RETRY_SECONDS}\r\n" if code == 503 else ""
            self.transport.write(
                f"HTTP/1.1 {code} {REASONS[code]}\r\nContent-Type: application/json\r\n{retry}"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
            )
            self.transport.close()

    return Limited
