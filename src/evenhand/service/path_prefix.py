"""The path below which users reach the service, as /trials behind a proxy of several services.

The application is written for paths from "/". A request below the prefix is handled without it; pages,
redirects and cookies get it from `prefix`. Requests without it are handled too: a proxy may remove it.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import Any

from litestar.types import ASGIApp, Receive, Scope, Send

from evenhand.errors import BadInput

prefix: ContextVar[str] = ContextVar("prefix", default="")
_FORM = re.compile(r"(/[A-Za-z0-9._~-]+)*")


def checked_prefix(text: str) -> str:
    """Return a prefix without a slash at its end; refuse what is no plain path."""
    found = text.rstrip("/")
    if not _FORM.fullmatch(found) or "/." in found:
        raise BadInput(f"a path prefix must be a plain path such as /trials; it is {text!r}.")
    return found


def below(handler: ASGIApp, path: str) -> ASGIApp:
    """Return a handler that takes requests with and without this prefix."""

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        changed: Any = scope
        if path and (scope["path"] == path or scope["path"].startswith(f"{path}/")):
            rest = scope["path"].removeprefix(path) or "/"
            changed = scope | {"path": rest, "raw_path": rest.encode()}
        token = prefix.set(path)
        try:
            await handler(changed, receive, send)
        finally:
            prefix.reset(token)

    return handle
