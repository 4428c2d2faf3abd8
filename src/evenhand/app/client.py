"""A client of the service with the same `ask` and `tell` as an experiment of one's own.

    trial = connect("http://127.0.0.1:8765", key).experiment("main")
    while ask := trial.ask():
        trial.tell(ask, outcome=treat(ask.policy, ask.group))

A request that fails on the way is sent again with the same Idempotency-Key: it is carried out once.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
import uuid
from dataclasses import dataclass
from typing import Any, NamedTuple

from evenhand.errors import BadInput, Conflict, EvenhandError, NotFound, StorageFailed

TRIES, FIRST_WAIT = 8, 0.1
KINDS: dict[int, type[EvenhandError]] = {
    404: NotFound,
    409: Conflict,
    400: BadInput,
    422: BadInput,
    413: BadInput,
    503: StorageFailed,
}


class Ticket(NamedTuple):
    """Give this policy to one unit of this group, then tell what came of it."""

    ticket: str
    policy: str
    group: str | None


@dataclass(frozen=True)
class Service:
    """A running service, and the key to it."""

    url: str
    key: str | None = None
    seconds: float = 30.0

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
        request = urllib.request.Request(self.url.rstrip("/") + path, data, headers, method=method)
        for attempt in range(TRIES):
            try:
                with urllib.request.urlopen(request, timeout=self.seconds) as answer:
                    return json.loads(answer.read())
            except urllib.error.HTTPError as refusal:
                if refusal.code != 503 or attempt == TRIES - 1:
                    raise _error(refusal) from None
            except (urllib.error.URLError, ConnectionError, TimeoutError) as failure:
                if attempt == TRIES - 1:
                    raise StorageFailed(f"the service at {self.url} cannot be reached: {failure}.") from None
            time.sleep(FIRST_WAIT * 2**attempt)
        raise StorageFailed(f"the service at {self.url} did not answer.")


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

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.service.call("GET", f"/api/experiments/{self.name}")
        return found

    def _post(self, verb: str, body: dict[str, Any]) -> Any:
        return self.service.call("POST", f"/api/experiments/{self.name}/{verb}", body)


def connect(url: str, key: str | None = None) -> Service:
    """A service at this address."""
    if not url.startswith(("http://", "https://")):
        raise BadInput(f"an address begins with http:// or https://; it is {url!r}.")
    return Service(url, key)


def _error(refusal: urllib.error.HTTPError) -> EvenhandError:
    try:
        sentence = json.loads(refusal.read())["error"]
    except (ValueError, KeyError):
        sentence = f"the service answered {refusal.code}"
    return KINDS.get(refusal.code, EvenhandError)(sentence)
