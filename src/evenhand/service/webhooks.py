"""Webhooks: addresses that get messages about ends and alarms of experiments, and these messages.

Webhooks and messages are stored in the journal, so that any process that serves it queues and sends them, and
none is lost when a process ends. Only addresses below the origins that the service was started with are
called, so that a key cannot make the service call other machines of its network.

Messages are signed as in "Standard Webhooks": the header `webhook-signature` has the HMAC-SHA256 of
"ID.TIMESTAMP.BODY" under the secret of the webhook, which is shown once.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
import urllib.parse
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from litestar.exceptions import HTTPException

from evenhand.errors import BadInput, KeyReused, NotFound
from evenhand.live import schema
from evenhand.live.clock import utc
from evenhand.live.journal import Journal

ENDED, ALARM = "ended", "alarm"
EVENTS = (ENDED, ALARM)  # what a webhook can ask for
MOST = 50  # webhooks of a journal
REMEMBERED = 1_000  # messages kept that were delivered or failed
SECRET_FORM = "whsec_"
_hooks, _notices, _messages = schema.webhooks, schema.webhook_notices, schema.deliveries


@dataclass(frozen=True)
class Webhook:
    """An address and what it is told about."""

    id: str
    url: str
    secret: bytes
    experiment: str | None  # None: all experiments
    events: tuple[str, ...]
    made: float
    by: str

    def shown(self) -> dict[str, Any]:
        """Return the webhook as administrators see it: without its secret."""
        return {
            "id": self.id, "url": self.url, "experiment": self.experiment, "events": list(self.events),
            "made": utc(self.made), "by": self.by,
        }  # fmt: skip


def checked_origins(texts: tuple[str, ...]) -> frozenset[str]:
    """Return origins such as https://hooks.example.org; refuse anything more."""
    for text in texts:
        if origin_of(text) != text.rstrip("/").lower():
            raise BadInput(f"a webhook's origin must be as https://hooks.example.org; it is {text!r}.")
    return frozenset(text.rstrip("/").lower() for text in texts)


def origin_of(url: str) -> str | None:
    """Return the scheme, host and port of an address; None for anything but plain HTTP or HTTPS."""
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + ("" if port is None else f":{port}")


class Webhooks:
    """The webhooks of one journal."""

    def __init__(self, journal: Journal, origins: tuple[str, ...] = ()) -> None:
        self._journal = journal
        self.origins = checked_origins(origins)

    def create(
        self, url: str, experiment: str | None, events: tuple[str, ...], by: str, request: str | None = None
    ) -> tuple[Webhook, str]:
        """Store a webhook; return it and its secret. The same `request` gets the same webhook again."""
        self.refuse_other_origins(url)
        identity = (
            secrets.token_hex(8) if request is None else hashlib.sha256(request.encode()).hexdigest()[:16]
        )
        made = Webhook(identity, url, secrets.token_bytes(32), experiment, events, time.time(), by)
        with self._journal.writing() as connection:
            earlier = connection.execute(sa.select(_hooks).where(_hooks.c.id == identity)).mappings().first()
            if earlier is not None:
                return _same(_read(earlier), made), _shown_secret(_read(earlier))
            count = connection.execute(sa.select(sa.func.count()).select_from(_hooks)).scalar_one()
            if int(count) >= MOST:
                raise HTTPException(f"a journal has at most {MOST} webhooks; delete one.", status_code=429)
            row = vars(made) | {"events": " ".join(made.events)}
            connection.execute(sa.insert(_hooks), row)
        return made, _shown_secret(made)

    def refuse_other_origins(self, url: str) -> None:
        """Raise unless the service may call this address."""
        if not self.origins:
            raise BadInput("this service calls no addresses; start it with --webhook https://HOST.")
        origin = origin_of(url)
        if origin is None or origin.lower() not in self.origins:
            raise BadInput(
                f"the address of a webhook must begin with {' or '.join(sorted(self.origins))}, as the "
                "service was started with --webhook."
            )

    def all(self) -> list[Webhook]:
        """Return all webhooks, oldest first."""
        with self._journal.reading() as connection:
            rows = connection.execute(sa.select(_hooks).order_by(_hooks.c.made)).mappings().all()
        return [_read(row) for row in rows]

    def get(self, identity: str) -> Webhook:
        found = next((hook for hook in self.all() if hook.id == identity), None)
        if found is None:
            raise NotFound("there is no such webhook.")
        return found

    def delete(self, identity: str) -> None:
        """Delete a webhook with its messages."""
        self.get(identity)
        with self._journal.writing() as connection:
            connection.execute(sa.delete(_hooks).where(_hooks.c.id == identity))
            for table in (_notices, _messages):
                connection.execute(sa.delete(table).where(table.c.webhook == identity))

    def messages(self, identity: str, most: int = 100) -> list[dict[str, Any]]:
        """Return the latest messages of a webhook, newest first."""
        self.get(identity)
        query = sa.select(_messages).where(_messages.c.webhook == identity)
        with self._journal.reading() as connection:
            rows = connection.execute(query.order_by(_messages.c.made.desc()).limit(most)).mappings().all()
        return [_shown_message(row) for row in rows]

    def test(self, identity: str) -> dict[str, Any]:
        """Queue a message that says nothing but that the webhook works."""
        hook = self.get(identity)
        with self._journal.writing() as connection:
            made = queue(connection, hook.id, "test", {"webhook": hook.id})
        return {"id": made, "event": "test"}


def _read(row: Any) -> Webhook:
    return Webhook(**{**row, "events": tuple(row["events"].split())})


def _shown_secret(hook: Webhook) -> str:
    return SECRET_FORM + base64.b64encode(hook.secret).decode()


def _same(earlier: Webhook, asked: Webhook) -> Webhook:
    """Return the webhook that an earlier request made, if the later one asks for the same."""
    about = ("url", "experiment", "events")
    if any(getattr(earlier, part) != getattr(asked, part) for part in about):
        raise KeyReused("the key was used for another webhook; take a new key for a new request.")
    return earlier


def _shown_message(row: Any) -> dict[str, Any]:
    again = utc(row["due"]) if row["state"] == "waiting" else None
    return {
        "id": row["id"], "event": row["event"], "state": row["state"], "attempts": row["attempts"],
        "made": utc(row["made"]), "again": again, "answer": row["answer"],
    }  # fmt: skip


def queue(connection: sa.Connection, webhook: str, event: str, data: dict[str, Any]) -> str:
    """Store a message to be sent at once; return its id."""
    now, identity = time.time(), f"msg_{secrets.token_hex(12)}"
    body = json.dumps({"type": event, "timestamp": utc(now), "data": data}, ensure_ascii=False)
    connection.execute(sa.insert(_messages), {
        "id": identity, "webhook": webhook, "event": event, "body": body, "made": now, "due": now,
        "attempts": 0, "state": "waiting", "answer": None,
    })  # fmt: skip
    done = sa.select(_messages.c.id).where(_messages.c.state != "waiting")
    old = connection.execute(done.order_by(_messages.c.made.desc()).offset(REMEMBERED).limit(1_000)).scalars()
    if found := list(old):
        connection.execute(sa.delete(_messages).where(_messages.c.id.in_(found)))
    return identity


def signed_headers(secret: bytes, identity: str, body: bytes, now: float) -> dict[str, str]:
    """Return the headers of a message with its signature."""
    at = str(int(now))
    digest = hmac.new(secret, f"{identity}.{at}.".encode() + body, hashlib.sha256).digest()
    return {
        "Content-Type": "application/json", "User-Agent": "evenhand", "webhook-id": identity,
        "webhook-timestamp": at, "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }  # fmt: skip
