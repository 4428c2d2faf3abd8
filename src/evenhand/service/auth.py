"""Authentication: keys, roles, sessions, the Host header, and a limit on wrong keys."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from ipaddress import ip_address
from typing import Any

import sqlalchemy as sa
from litestar import Request
from litestar.connection import ASGIConnection
from litestar.exceptions import HTTPException, NotAuthorizedException, PermissionDeniedException
from litestar.handlers import BaseRouteHandler

from evenhand.live import schema
from evenhand.live.journal import Journal
from evenhand.service.keys import Key, KnownKeys

NOBODY_ELSE = Key("loopback", "admin", "this machine")  # the identity of requests while no key exists
LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")
# headers that proxies add, by their beginning
FORWARDING = (
    b"forwarded",
    b"via",
    b"x-real-ip",
    b"x-forwarded-",
    b"x-client-ip",
    b"true-client-ip",
    b"cf-connecting-ip",
)
WRONG_KEYS, WINDOW = 20, 10.0  # this many wrong keys within this many seconds block an address
ADDRESSES, SESSIONS = 10_000, 10_000  # maximum number of entries kept
SESSION_SECONDS = 12 * 3600
SESSION_STALE = 2.0  # seconds until a session that was ended elsewhere is noticed
COOKIE = "evenhand_session"

Connection = ASGIConnection[Any, Any, Any, Any]


class Sessions:
    """Browser sessions, stored in the journal as hashes, so that every process that serves it has them."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known: OrderedDict[bytes, tuple[str | None, float]] = OrderedDict()  # key id, when it was read
        self._lock = threading.Lock()

    def begin(self, key: str) -> str:
        """Store a new session of the key with this id; return its cookie."""
        cookie, now = secrets.token_urlsafe(32), time.time()
        row = {"digest": _digest(cookie), "key": key, "expires": now + SESSION_SECONDS}
        table = schema.sessions
        with self._journal.writing() as connection:
            connection.execute(sa.delete(table).where(table.c.expires <= now))
            count = sa.select(sa.func.count()).select_from(table)
            if int(connection.execute(count).scalar_one()) >= SESSIONS:
                raise HTTPException("too many sessions; log out elsewhere.", status_code=429)
            connection.execute(sa.insert(table), row)
        return cookie

    def end(self, cookie: str) -> None:
        with self._journal.writing() as connection:
            connection.execute(sa.delete(schema.sessions).where(schema.sessions.c.digest == _digest(cookie)))
        with self._lock:
            self._known.pop(_digest(cookie), None)

    def is_due(self, cookie: str) -> bool:
        """Return whether the session must be read again; a session ended elsewhere is noticed then."""
        _, at = self._known.get(_digest(cookie), (None, -SESSION_STALE))
        return time.monotonic() - at >= SESSION_STALE

    def read(self, cookie: str) -> None:
        table, digest = schema.sessions, _digest(cookie)
        query = sa.select(table.c.key).where(table.c.digest == digest, table.c.expires > time.time())
        with self._journal.reading() as connection:
            key = connection.execute(query).scalar_one_or_none()
        with self._lock:
            self._known[digest] = (key, time.monotonic())
            self._known.move_to_end(digest)
            while len(self._known) > SESSIONS:
                self._known.popitem(last=False)

    def key_of(self, cookie: str) -> str | None:
        """Return the id of the key of a session that was read; None if there is no such session."""
        return self._known.get(_digest(cookie), (None, 0.0))[0]


def _digest(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode("utf-8", "replace")).digest()


class Access:
    """Keys, browser sessions and counts of wrong keys."""

    def __init__(self, keys: KnownKeys, sessions: Sessions, hosts: tuple[str, ...]) -> None:
        self._keys = keys
        self._sessions = sessions
        self._hosts = {*LOOPBACK, *hosts}
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()
        self._lock = threading.Lock()
        # of its own: keys are read too while all threads of requests are busy
        self._readers = ThreadPoolExecutor(2, thread_name_prefix="keys")

    async def read_keys(self, connection: Connection | None = None) -> None:
        """Read keys and session again if they are stale, outside the event loop."""
        loop = asyncio.get_running_loop()
        if self._keys.is_due:
            await loop.run_in_executor(self._readers, self._keys.read)
        cookie = "" if connection is None or not header(connection, b"cookie") else _session(connection)
        if cookie and self._sessions.is_due(cookie):
            await loop.run_in_executor(self._readers, self._sessions.read, cookie)

    def who(self, connection: Connection) -> Key:
        """Return the key of a request; refuse it without a valid key, once any key exists."""
        self.check_host(connection)
        if not self._keys.exist():
            _refuse_foreign(connection)
            _refuse_remote(connection)
            return NOBODY_ELSE
        scheme, _, text = (header(connection, b"authorization") or "").partition(" ")
        if scheme.lower() == "bearer" and text:
            return self._good(connection, text.strip())
        identity = self._sessions.key_of(_session(connection))
        found = None if identity is None else self._keys.by_id(identity)
        if found is not None:
            _refuse_forged(connection)
            return found
        raise NotAuthorizedException("a key is needed: send it as 'Authorization: Bearer KEY'.")

    def is_still_valid(self, key: Key) -> bool:
        """Return whether a key that began a stream may continue it."""
        if key.id == NOBODY_ELSE.id:
            return not self._keys.exist()
        return self._keys.by_id(key.id) is not None

    def log_in(self, connection: Connection, text: str) -> str:
        """Return a new session for a browser with a valid key."""
        self.check_host(connection)
        return self._sessions.begin(self._good(connection, text).id)

    def log_out(self, connection: Connection) -> None:
        self._sessions.end(_session(connection))

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
            wait = {"Retry-After": f"{WINDOW:.0f}"}
            raise HTTPException("too many wrong keys; wait a little.", status_code=429, headers=wait)
        with self._lock:
            self._wrong.setdefault(client, deque(maxlen=WRONG_KEYS)).append(time.monotonic())
            self._wrong.move_to_end(client)
            while len(self._wrong) > ADDRESSES:
                self._wrong.popitem(last=False)
        raise NotAuthorizedException("the key is wrong, revoked or expired.")

    def _is_waiting(self, client: str) -> bool:
        wrong = self._wrong.get(client)
        return wrong is not None and len(wrong) == WRONG_KEYS and time.monotonic() - wrong[0] < WINDOW


def _session(connection: Connection) -> str:
    cookie: str = connection.cookies.get(COOKIE, "")
    return cookie


def _refuse_forged(connection: Connection) -> None:
    """Refuse a changing request with a session cookie unless it is from our own pages."""
    if connection.scope.get("method") in ("GET", "HEAD"):
        return
    if not _is_own_page(connection) or connection.headers.get("x-evenhand") != "page":
        raise PermissionDeniedException("a browser's session acts only from the dashboard's own pages.")


def _refuse_foreign(connection: Connection) -> None:
    """Refuse requests from other sites' pages while no key exists."""
    if header(connection, b"origin") is not None and not _is_own_page(connection):
        raise PermissionDeniedException("requests from other sites' pages are refused.")


def _refuse_remote(connection: Connection) -> None:
    """Refuse, while no key exists, every request that may come from another machine.

    A proxy on this machine connects from loopback; it is known by its headers or by the Host it passes on.
    Without any settings nginx adds no header and sends its own Host, but speaks HTTP/1.0, as no client does.
    """
    peer = connection.client.host if connection.client else ""
    forwarded = any(name.lower().startswith(FORWARDING) for name, _ in connection.scope["headers"])
    is_old = connection.scope.get("http_version") == "1.0"
    if not _is_loopback(peer) or forwarded or is_old or _host_of(connection) not in LOOPBACK:
        raise NotAuthorizedException(
            "until a key exists the service answers this machine only, and no proxy. Create one with "
            "`evenhand keys --journal JOURNAL create --role admin --name YOU`."
        )


@lru_cache(1024)
def _is_loopback(peer: str) -> bool:
    try:
        return ip_address(peer).is_loopback
    except ValueError:
        return False


def _host_of(connection: Connection) -> str:
    """Return the name in the Host header, without the port; what has no form of a Host as it is."""
    host = (header(connection, b"host") or "").lower()
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() and "@" not in name else host


def _is_own_page(connection: Connection) -> bool:
    origin, host = (header(connection, name) or "" for name in (b"origin", b"host"))
    return origin.split("://", 1)[-1] == host


def header(connection: Connection, wanted: bytes) -> str | None:
    """Return the first header of this name, which is in small letters; None if there is none.

    The framework builds a table of all headers first, which costs every request as much as its key.
    """
    for name, value in connection.scope["headers"]:
        if name.lower() == wanted:
            return value.decode("latin-1")
    return None


def role(needed: str) -> Callable[[Connection, BaseRouteHandler], Awaitable[None]]:
    """Return a guard that requires this role or a higher one, and stores the key.

    It runs on the event loop, because a thread per key check would be slower.
    """

    async def guard(connection: Connection, _: BaseRouteHandler) -> None:
        access: Access = connection.app.state.access
        await access.read_keys(connection)
        key = access.who(connection)
        connection.scope["state"]["key"] = key
        if not key.may(needed):
            raise PermissionDeniedException(f"this needs the role {needed}; the key has {key.role}.")

    return guard


def key_of(request: Request) -> Key:  # type: ignore[type-arg]
    """Return the key of a request, stored by the guard."""
    found: Key = request.scope["state"]["key"]
    return found
