"""A client of the service with the same `ask` and `tell` as an experiment of one's own.

    trial = connect("http://127.0.0.1:8765", key).experiment("main")
    while ask := trial.ask():
        trial.tell(ask, outcome=treat(ask.policy, ask.group))

A request that fails on the way is sent again with the same Idempotency-Key: it is carried out once.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.parse
import uuid
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from evenhand.errors import BadInput, Conflict, EvenhandError, NotFound, StorageFailed

PATIENCE = 30.0  # seconds for which a request is sent again
FIRST_WAIT, LONGEST_WAIT = 0.1, 1.0  # between two tries; doubled in between
AGAIN = (429, 502, 503, 504)  # worth sending again, with the same Idempotency-Key
KINDS: dict[int, type[EvenhandError]] = {
    400: BadInput,
    401: BadInput,
    403: BadInput,
    404: NotFound,
    409: Conflict,
    413: BadInput,
    415: BadInput,
    422: BadInput,
    503: StorageFailed,
}


class Ticket(NamedTuple):
    """Give this policy to one unit of this group, then tell what came of it."""

    ticket: str
    policy: str
    group: str | None


class _Wire(http.client.HTTPConnection):
    """A connection that is closed when nobody needs it any more."""

    def __del__(self) -> None:
        self.close()


class _SecureWire(http.client.HTTPSConnection, _Wire):
    """The same with TLS."""


@dataclass(frozen=True)
class Service:
    """A running service, and the key to it."""

    url: str
    key: str | None = None
    seconds: float = 30.0
    _kept: threading.local = field(default_factory=threading.local, repr=False, compare=False)

    def experiments(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call("GET", "/api/experiments")
        return found

    def create(self, name: str, study: dict[str, Any], seed: int, lease: float | None = None) -> Remote:
        """A new experiment from a study as in the TOML file."""
        self.call("POST", "/api/experiments", {"id": name, "study": study, "seed": seed, "lease": lease})
        return self.experiment(name)

    def experiment(self, name: str) -> Remote:
        return Remote(self, name)

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """One request, sent again with the same key where the connection or the storage failed."""
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if method == "POST":
            headers["Idempotency-Key"] = uuid.uuid4().hex
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        data = None if body is None else json.dumps(body, allow_nan=False).encode()
        over, wait, kept = time.monotonic() + PATIENCE, FIRST_WAIT, True
        while True:
            try:
                code, answer = self._send(method, path, data, headers)
                if code < 400:
                    return json.loads(answer)
                if code not in AGAIN or time.monotonic() > over:
                    raise _error(code, answer)
            except (http.client.HTTPException, OSError) as failure:
                self._hang_up()
                if time.monotonic() > over:
                    raise StorageFailed(f"the service at {self.url} cannot be reached: {failure}.") from None
                if kept and isinstance(failure, http.client.RemoteDisconnected):
                    kept = False
                    continue  # a kept connection that the service has closed meanwhile
            time.sleep(wait)
            wait = min(2.0 * wait, LONGEST_WAIT)

    def _send(self, method: str, path: str, data: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        """One exchange over this thread's connection, which is kept for the next."""
        kept: http.client.HTTPConnection | None = getattr(self._kept, "connection", None)
        parts = urllib.parse.urlsplit(self.url)
        if kept is None:
            kind = _SecureWire if parts.scheme == "https" else _Wire
            kept = self._kept.connection = kind(parts.netloc, timeout=self.seconds)
        kept.request(method, parts.path.rstrip("/") + path, data, headers)
        answer = kept.getresponse()
        return answer.status, answer.read()

    def _hang_up(self) -> None:
        kept: http.client.HTTPConnection | None = getattr(self._kept, "connection", None)
        if kept is not None:
            kept.close()
            self._kept.connection = None


@dataclass(frozen=True)
class Remote:
    """One experiment of a service."""

    service: Service
    name: str

    def ask(self, group: str | None = None, worker: str | None = None) -> Ticket | None:
        """The next ticket; None when the experiment has stopped."""
        return next(iter(self.ask_many(1, group, worker)), None)

    def ask_many(self, n: int, group: str | None = None, worker: str | None = None) -> list[Ticket]:
        found = self._post("ask", {"n": n, "group": group, "worker": worker})
        return [Ticket(one["ticket"], one["policy"], one["group"]) for one in found]

    def tell(self, ticket: Ticket | str, outcome: float, group: str | None = None) -> dict[str, Any]:
        """The outcome of a ticket."""
        text = ticket if isinstance(ticket, str) else ticket.ticket
        found: dict[str, Any] = self._post("tell", {"ticket": text, "outcome": outcome, "group": group})
        return found

    def drop(self, ticket: Ticket | str, reason: str) -> None:
        """The ticket will have no outcome."""
        self._post("drop", {"ticket": ticket if isinstance(ticket, str) else ticket.ticket, "reason": reason})

    def amend(self, ticket: Ticket | str, outcome: float, reason: str) -> dict[str, Any]:
        """Correct an outcome; the old one stays in the log with the reason and the key's name."""
        text = ticket if isinstance(ticket, str) else ticket.ticket
        found: dict[str, Any] = self._post("amend", {"ticket": text, "outcome": outcome, "reason": reason})
        return found

    def close(self, reason: str = "closed") -> dict[str, Any]:
        """End the experiment for good."""
        found: dict[str, Any] = self._post("close", {"reason": reason})
        return found

    def status(self) -> dict[str, Any]:
        """Where it stands, as far as the key may see."""
        found: dict[str, Any] = self.service.call("GET", f"/api/experiments/{self.name}")
        return found

    def _post(self, verb: str, body: dict[str, Any]) -> Any:
        return self.service.call("POST", f"/api/experiments/{self.name}/{verb}", body)


def connect(url: str, key: str | None = None) -> Service:
    """A service at this address."""
    if not url.startswith(("http://", "https://")):
        raise BadInput(f"an address begins with http:// or https://; it is {url!r}.")
    return Service(url, key)


def _error(code: int, answer: bytes) -> EvenhandError:
    try:
        sentence = json.loads(answer)["error"]
    except (ValueError, KeyError, TypeError):
        sentence = f"the service answered {code}"
    return KINDS.get(code, EvenhandError)(sentence)
