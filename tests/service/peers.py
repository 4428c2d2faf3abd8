"""The address from which a test client's requests come: `TestClient` has a name that is no address."""

from __future__ import annotations

from typing import Any

from litestar import Litestar


def seen_from(app: Litestar, peer: str = "127.0.0.1") -> Litestar:
    """Let all requests to the application come from this address."""
    handler = app.asgi_handler

    async def handle(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope["client"] = (peer, 50_000)
        await handler(scope, receive, send)

    app.asgi_handler = handle
    return app
