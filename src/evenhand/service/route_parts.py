"""Parts that all routes of the API share: parameters, refusals, and decorators with their description."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, TypeVar, cast

from litestar.enums import HttpMethod
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import HeaderParameter, PathParameter, QueryParameter

from evenhand.live.experiment import Experiment
from evenhand.service.auth import Connection, key_of
from evenhand.service.experiments import Asked, Registry, caller_of
from evenhand.service.response_bodies import Refusal

PAGE = 1_000  # events per response
BATCH_BYTES = 32_000_000  # of a request with many outcomes
ID = "^[A-Za-z0-9_-]{1,64}$"
IdempotencyKey = Annotated[
    str | None, HeaderParameter(name="Idempotency-Key", min_length=1, max_length=200, pattern="^[!-~]+$")
]
Id = Annotated[str, PathParameter(pattern=ID)]
Only = Annotated[str | None, QueryParameter(pattern=ID)]
Limit = Annotated[int, QueryParameter(ge=1, le=PAGE)]
Start = Annotated[int, QueryParameter(ge=0, le=10**12)]

MEANINGS = {
    400: "the request is not of this kind; nothing was written",
    401: "no key, or a wrong one",
    403: "the key has not this role",
    404: "no such experiment, ticket, job or webhook",
    409: "another outcome or other counts were recorded before, the Idempotency-Key stands for another "
    "request, or the experiment is stopped, paused or closed",
    413: "the body is too large",
    415: "the body is no JSON",
    422: "the request cannot be used; nothing was written",
    429: "too many wrong keys, simulations, plans or webhooks; wait as Retry-After says",
    503: "the journal could not be written, or too many requests at once; send it again with the same key",
}
REFUSALS = {
    code: ResponseSpec(Refusal, description=says, generate_examples=False) for code, says in MEANINGS.items()
}
F = TypeVar("F", bound=Callable[..., Any])


class _Route(HTTPRouteHandler):
    """A route that hands itself to its guards, not a copy, which costs more than they do."""

    async def authorize_connection(self, connection: Connection) -> None:
        for guard in self.resolve_guards():
            await guard(connection, self)  # type: ignore[misc]


def api_get(path: str, tag: str, body: Any, **more: Any) -> Callable[[F], F]:
    """Return a decorator for a route that reads; `body` is the type of its response."""
    options = _described(200, tag, body) | more
    return cast(Callable[[F], F], _Route(path, http_method=HttpMethod.GET, **options))


def api_post(
    path: str | list[str], tag: str, body: Any, status_code: int = 200, **more: Any
) -> Callable[[F], F]:
    """Return a decorator for a route that changes something; `body` is the type of its response."""
    options = _described(status_code, tag, body) | more
    return cast(
        Callable[[F], F], _Route(path, http_method=HttpMethod.POST, status_code=status_code, **options)
    )


def _described(status_code: int, tag: str, body: Any) -> dict[str, Any]:
    """Return the arguments of a route that describe it."""
    found = (
        body
        if isinstance(body, ResponseSpec)
        else ResponseSpec(body, description="done", generate_examples=False)
    )
    return {"tags": [tag], "responses": REFUSALS | {status_code: found}, "sync_to_thread": True}


def author(request: Asked, by: str | None) -> str:
    """Return the author of a change: the person in `by`, then the name of the key."""
    name = key_of(request).name
    return name if by is None else f"{by} ({name})"


def trial_of(request: Asked, registry: Registry, name: str) -> Experiment:
    """Return an experiment for the requests of this caller."""
    return registry.get(name).called_by(caller_of(request))


async def opened(request: Asked, registry: Registry, name: str) -> Experiment:
    """Return an experiment for a request that runs on the event loop; its log is read in a thread."""
    trial = registry.known(name)
    if trial is None:
        trial = await asyncio.to_thread(registry.get, name)
    return trial.called_by(caller_of(request))
