"""Authentication: keys, roles, sessions, the Host header, and a limit on wrong keys."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Any

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.exceptions import HTTPException, NotAuthorizedException, PermissionDeniedException
from litestar.handlers import BaseRouteHandler

from evenhand.service.keys import Key, KnownKeys

NOBODY_ELSE = Key("loopback", "admin", "this machine")  # the identity of requests while no key exists
LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")
# headers that proxies add
FORWARDING = ("forwarded", "via", "x-real-ip", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto")
WRONG_KEYS, WINDOW = 20, 10.0  # this many wrong keys within this many seconds block an address
ADDRESSES, SESSIONS = 10_000, 10_000  # maximum number of entries kept
SESSION_SECONDS = 12 * 3600
COOKIE = "evenhand_session"

Connection = ASGIConnection[Any, Any, Any, Any]


class Access:
    """Keys, browser sessions and counts of wrong keys."""

    def __init__(self, keys: KnownKeys, hosts: tuple[str, ...]) -> None:
        self._keys = keys
        self._hosts = {*LOOPBACK, *hosts}
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()
        self._sessions: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._lock = threading.Lock()

    async def read_keys(self) -> None:
        """Read the keys again if they are stale, outside the event loop."""
        if self._keys.is_due:
            await asyncio.to_thread(self._keys.read)

    def who(self, connection: Connection) -> Key:
        """Return the key of a request; refuse it without a valid key, once any key exists."""
        self.check_host(connection)
        if not self._keys.exist():
            _refuse_foreign(connection)
            _refuse_remote(connection)
            return NOBODY_ELSE
        scheme, _, text = connection.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and text:
            return self._good(connection, text.strip())
        kept = self._sessions.get(connection.cookies.get(COOKIE, ""))
        if kept is not None and kept[1] > time.monotonic():
            _refuse_forged(connection)
            return self._good(connection, kept[0])
        raise NotAuthorizedException("a key is needed: send it as 'Authorization: Bearer KEY'.")

    def log_in(self, connection: Connection, text: str) -> str:
        """Return a new session for a browser with a valid key."""
        self.check_host(connection)
        self._good(connection, text)
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._sessions[token] = (text, time.monotonic() + SESSION_SECONDS)
            while len(self._sessions) > SESSIONS:
                self._sessions.popitem(last=False)
        return token

    def log_out(self, connection: Connection) -> None:
        with self._lock:
            self._sessions.pop(connection.cookies.get(COOKIE, ""), None)

    def check_host(self, connection: Connection) -> None:
        """Refuse unknown Host headers, which prevents DNS rebinding."""
        if _host_of(connection) not in self._hosts:
            raise HTTPException("this service does not answer to that Host.", status_code=400)

    def _good(self, connection: Connection, text: str) -> Key:
        """Return the key of this text; valid keys are accepted from blocked addresses too."""
        found = self._keys.find(text)
        if found is not None:
            return found
        client = connection.client.host if connection.client else "?"
        if self._is_waiting(client):
            raise HTTPException("too many wrong keys; wait a little.", status_code=429)
        with self._lock:
            self._wrong.setdefault(client, deque(maxlen=WRONG_KEYS)).append(time.monotonic())
            self._wrong.move_to_end(client)
            while len(self._wrong) > ADDRESSES:
                self._wrong.popitem(last=False)
        raise NotAuthorizedException("the key is wrong, revoked or expired.")

    def _is_waiting(self, client: str) -> bool:
        wrong = self._wrong.get(client)
        return wrong is not None and len(wrong) == WRONG_KEYS and time.monotonic() - wrong[0] < WINDOW


def _refuse_forged(connection: Connection) -> None:
    """Refuse a changing request with a session cookie unless it is from our own pages."""
    if connection.scope.get("method") in ("GET", "HEAD"):
        return
    if not _is_own_page(connection) or connection.headers.get("x-evenhand") != "page":
        raise PermissionDeniedException("a browser's session acts only from the dashboard's own pages.")


def _refuse_foreign(connection: Connection) -> None:
    """Refuse requests from other sites' pages while no key exists."""
    if "origin" in connection.headers and not _is_own_page(connection):
        raise PermissionDeniedException("requests from other sites' pages are refused.")


def _refuse_remote(connection: Connection) -> None:
    """Refuse, while no key exists, every request that may come from another machine.

    A proxy on this machine connects from loopback; it is known by its headers or by the Host it passes on.
    """
    peer = connection.client.host if connection.client else ""
    forwarded = [name for name in FORWARDING if name in connection.headers]
    if not _is_loopback(peer) or forwarded or _host_of(connection) not in LOOPBACK:
        raise NotAuthorizedException(
            "until a key exists the service answers this machine only, and no proxy. Create one with "
            "`evenhand keys --journal JOURNAL create --role admin --name YOU`."
        )


def _is_loopback(peer: str) -> bool:
    try:
        return ip_address(peer).is_loopback
    except ValueError:
        return False


def _host_of(connection: Connection) -> str:
    """Return the name in the Host header, without the port."""
    host: str = connection.headers.get("host", "").lower()
    return host if host.endswith("]") else host.rsplit(":", 1)[0]


def _is_own_page(connection: Connection) -> bool:
    origin: str = connection.headers.get("origin", "")
    return origin.split("://", 1)[-1] == connection.headers.get("host", "")


def role(needed: str) -> Callable[[Connection, BaseRouteHandler], Awaitable[None]]:
    """Return a guard that requires this role or a higher one, and stores the key.

    It runs on the event loop, because a thread per key check would be slower.
    """

    async def guard(connection: Connection, _: BaseRouteHandler) -> None:
        access: Access = connection.app.state.access
        await access.read_keys()
        key = access.who(connection)
        connection.state.key = key
        if not key.may(needed):
            raise PermissionDeniedException(f"this needs the role {needed}; the key has {key.role}.")

    return guard


def key_of(request: Request) -> Key:  # type: ignore[type-arg]
    """Return the key of a request, stored by the guard."""
    found: Key = request.state.key
    return found
