"""The routes of experiments in intervals: publish shares, record counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from litestar.di import NamedDependency
from litestar.params import JSONBody

from evenhand.errors import Conflict, KeyReused
from evenhand.live.interval_pairs import PairIntervalBets
from evenhand.service import response_bodies as bodies
from evenhand.service.auth import key_of, role
from evenhand.service.experiments import Asked, Registry, note_view
from evenhand.service.request_bodies import (
    CloseIntervalForm,
    CorrectCountsForm,
    PublishSharesForm,
    TellCountsForm,
)
from evenhand.service.route_parts import (
    BATCH_BYTES,
    Id,
    IdempotencyKey,
    api_get,
    api_post,
    author,
    trial_of,
)

TAG = "intervals"


@api_get("/experiments/{name:str}/shares", TAG, bodies.Shares, guards=[role("operator")])
def shares(name: Id, registry: NamedDependency[Registry]) -> dict[str, Any]:
    """Return the shares that were published last: the document by which servers assign units."""
    return registry.get(name).shares().to_dict()


@api_post("/experiments/{name:str}/publish-shares", TAG, bodies.Shares, guards=[role("operator")])
def publish_shares(
    name: Id,
    data: JSONBody[PublishSharesForm],
    request: Asked,
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Begin the next interval before the last one is closed, where outcomes take time; return its shares."""
    trial = trial_of(request, registry, name)
    return trial.publish_shares(valid_from=data.valid_from, after=data.after, key=idempotency_key).to_dict()


@api_post(
    "/experiments/{name:str}/tell-counts", TAG, bodies.IntervalReceipt, guards=[role("operator")],
    request_max_body_size=BATCH_BYTES,
)  # fmt: skip
def tell_counts(
    name: Id,
    data: JSONBody[TellCountsForm],
    request: Asked,
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Record the counts of an interval, and close it if asked for.

    Repeating the same counts has no effect; others are refused with 409. An operator may repeat only what the
    same API key told.
    """
    trial = trial_of(request, registry, name)
    with _blinded(request):
        receipt = trial.tell_counts(
            data.interval, data.counts, close=data.close, valid_from=data.valid_from, key=idempotency_key
        )
    return receipt._asdict()


@api_post(
    "/experiments/{name:str}/correct-counts", TAG, bodies.IntervalReceipt, guards=[role("admin")],
    request_max_body_size=BATCH_BYTES,
)  # fmt: skip
def correct_counts(
    name: Id,
    data: JSONBody[CorrectCountsForm],
    request: Asked,
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Replace the counts of an interval that is not closed; the old ones stay in the log."""
    trial, by = trial_of(request, registry, name), author(request, data.by)
    receipt = trial.correct_counts(data.interval, data.counts, reason=data.reason, by=by, key=idempotency_key)
    return receipt._asdict()


@api_post("/experiments/{name:str}/close-interval", TAG, bodies.IntervalReceipt, guards=[role("operator")])
def close_interval(
    name: Id,
    data: JSONBody[CloseIntervalForm],
    request: Asked,
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Close the oldest open interval; if it is the last one, the next shares are published."""
    trial = trial_of(request, registry, name)
    return trial.close_interval(data.interval, valid_from=data.valid_from, key=idempotency_key)._asdict()


@api_get("/experiments/{name:str}/bets", TAG, bodies.Bets, guards=[role("analyst")])
def bets(name: Id, request: Asked, registry: NamedDependency[Registry]) -> dict[str, Any]:
    """Return the linear bets on the next interval; they show estimates, so it is a view.

    Where every policy serves every unit they are on the differences of two policies, `pairs`.
    """
    trial = registry.get(name)
    note_view(request, trial, "bets")
    found = trial.bets()
    if isinstance(found, PairIntervalBets):
        pairs = [list(bet) for bet in found.rows]
        return {"interval": found.interval, "rows": [], "pairs": pairs, "needed": found.needed}
    return {"interval": found.interval, "rows": [list(bet) for bet in found.rows]}


handlers: list[Any] = [shares, publish_shares, tell_counts, correct_counts, close_interval, bets]


@contextmanager
def _blinded(request: Asked) -> Iterator[None]:
    """Replace refusals that contain counts by a sentence without them, for a blind caller."""
    try:
        yield
    except Conflict as refusal:
        if isinstance(refusal, KeyReused) or key_of(request).may("analyst"):
            raise
        raise Conflict(
            "the interval has counts already, or is not the next one to be closed; nothing was written."
        ) from None
