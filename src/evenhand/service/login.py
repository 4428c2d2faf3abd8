"""Login and logout of browsers."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, get, post
from litestar.datastructures import Cookie
from litestar.params import JSONBody

from evenhand.service.auth import COOKIE, SESSION_SECONDS, role
from evenhand.service.rendering import page
from evenhand.service.request_bodies import LogIn


@get("/login", sync_to_thread=False, include_in_schema=False)
def log_in_page() -> Response[str]:
    """Return the page on which a user enters a key."""
    return page("login.html", key=None)


@post("/login", status_code=200, sync_to_thread=True, include_in_schema=False)
def log_in(data: JSONBody[LogIn], request: Request[Any, Any, Any]) -> Response[dict[str, str]]:
    """Begin a session for a browser with a valid key."""
    token = request.app.state.access.log_in(request, data.key)
    secure = request.url.scheme == "https"
    cookie = Cookie(
        key=COOKIE, value=token, max_age=SESSION_SECONDS, httponly=True, samesite="strict", secure=secure
    )
    return Response({"to": "/"}, cookies=[cookie])


@post("/logout", guards=[role("operator")], status_code=200, sync_to_thread=False, include_in_schema=False)
def log_out(request: Request[Any, Any, Any]) -> Response[dict[str, str]]:
    """End a browser's session."""
    request.app.state.access.log_out(request)
    return Response({"to": "/login"}, cookies=[Cookie(key=COOKIE, value="", max_age=0, httponly=True)])
