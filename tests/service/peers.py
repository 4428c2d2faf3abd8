"""Clients of a service in the test process, and the address from which their requests come."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from litestar import Litestar
from litestar.testing import TestClient

from evenhand.service.app import Settings, create_app
from evenhand.service.keys import Keys


def seen_from(app: Litestar, peer: str = "127.0.0.1") -> Litestar:
    """Let all requests to the application come from this address."""
    handler = app.asgi_handler

    async def handle(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope["client"] = (peer, 50_000)
        await handler(scope, receive, send)

    app.asgi_handler = handle
    return app


@contextmanager
def admin_client(journal: str) -> Iterator[TestClient[Any]]:
    """A client of a service on this journal, with the key of an administrator."""
    key = Keys(journal).create("admin", "admin")
    with TestClient(create_app(Settings(journal)), base_url="http://127.0.0.1") as client:
        client.headers["Authorization"] = f"Bearer {key}"
        yield client
