"""Who may come in: keys, roles, the Host header, and a limit on wrong keys."""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.exceptions import HTTPException, NotAuthorizedException, PermissionDeniedException
from litestar.handlers import BaseRouteHandler

from evenhand.app.service.keys import Key, Keys

NOBODY_ELSE = Key("loopback", "admin", "this machine")  # who asks while no key exists
LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")
WRONG_KEYS, WINDOW = 20, 10.0  # so many wrong keys within so many seconds, and an address waits
SESSION_SECONDS = 12 * 3600
COOKIE = "evenhand_session"


class Access:
    """Keys, sessions of browsers, and a memory of wrong keys."""

    def __init__(self, keys: Keys, hosts: tuple[str, ...]) -> None:
        self._keys = keys
        self._hosts = {*LOOPBACK, *hosts}
        self._wrong: dict[str, deque[float]] = {}
        self._sessions: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()

    def who(self, connection: ASGIConnection) -> Key:  # type: ignore[type-arg]
        """Whose request this is; refused without a good key, once any key exists."""
        self._check_host(connection)
        if not self._keys.exist():
            return NOBODY_ELSE
        client = connection.client.host if connection.client else "?"
        scheme, _, text = connection.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and text:
            return self._good(client, text.strip())
        kept = self._sessions.get(connection.cookies.get(COOKIE, ""))
        if kept is not None and kept[1] > time.monotonic():
            _refuse_forged(connection)
            return self._good(client, kept[0])
        raise NotAuthorizedException("a key is needed: send it as 'Authorization: Bearer KEY'.")

    def log_in(self, client: str, text: str) -> str:
        """A session for a browser that knows a key."""
        self._good(client, text)
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._sessions[token] = (text, time.monotonic() + SESSION_SECONDS)
        return token

    def _good(self, client: str, text: str) -> Key:
        if self._is_waiting(client):
            raise HTTPException("too many wrong keys; wait a little.", status_code=429)
        found = self._keys.find(text)
        if found is None:
            with self._lock:
                self._wrong.setdefault(client, deque(maxlen=WRONG_KEYS)).append(time.monotonic())
            raise NotAuthorizedException("the key is wrong, revoked or expired.")
        return found

    def _is_waiting(self, client: str) -> bool:
        wrong = self._wrong.get(client)
        return wrong is not None and len(wrong) == WRONG_KEYS and time.monotonic() - wrong[0] < WINDOW

    def _check_host(self, connection: ASGIConnection) -> None:  # type: ignore[type-arg]
        """A page of another site that points its name at this machine must not reach us."""
        host = connection.headers.get("host", "")
        name = host if host.endswith("]") else host.rsplit(":", 1)[0] if ":" in host else host
        if name not in self._hosts:
            raise HTTPException("this service does not answer to that Host.", status_code=400)


def _refuse_forged(connection: ASGIConnection) -> None:  # type: ignore[type-arg]
    """A cookie alone changes nothing: a request that does must come from our own page and say so."""
    if connection.scope.get("method") in ("GET", "HEAD"):
        return
    origin = connection.headers.get("origin", "")
    own = origin.split("://", 1)[-1] == connection.headers.get("host", "")
    if not own or connection.headers.get("x-evenhand") != "page":
        raise PermissionDeniedException("a browser's session acts only from the dashboard's own pages.")


def role(needed: str):  # type: ignore[no-untyped-def]
    """A guard that lets this role and those above it in, and remembers who it was."""

    def guard(connection: ASGIConnection, _: BaseRouteHandler) -> None:  # type: ignore[type-arg]
        key = connection.app.state.access.who(connection)
        connection.state.key = key
        if not key.may(needed):
            raise PermissionDeniedException(f"this needs the role {needed}; the key has {key.role}.")

    return guard


def key_of(request: Request) -> Key:  # type: ignore[type-arg]
    """Whose request it is, after the guard."""
    found: Key = request.state.key
    return found
