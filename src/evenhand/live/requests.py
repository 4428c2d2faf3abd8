"""Request keys: recognise a repeated request; a key belongs to one request.

The first event of a request carries its key and, if the caller gave the key, a digest of the request. On a
storage where the reply to a commit can be lost, every other write gets an internal key, so that a retry
writes nothing twice. A request that is refused and writes nothing leaves its key unused. `KeySet` stores many
keys in little memory.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from evenhand.errors import BadInput, KeyReused
from evenhand.live import events as ev
from evenhand.live.hash_chain import canonical
from evenhand.live.input_checks import optional_text
from evenhand.live.protocol import LIMITS


class Caller(NamedTuple):
    """Who makes a request through the service: a key."""

    id: str
    name: str
    is_blind: bool = False  # may not learn outcomes before the end

    @property
    def actor(self) -> ev.Actor:
        """Return the caller as events name it."""
        return ev.Actor(self.id, self.name)


class RequestKey(NamedTuple):
    """The identity of a request."""

    key: str
    operation: str  # "ask", "tell", ...
    details: Mapping[str, Any]  # its arguments
    is_given: bool  # by the caller; otherwise an internal key for this request only
    shown: str = ""  # the key as the caller gave it

    @property
    def digest(self) -> str | None:
        """Return the digest of the request; None for an internal key."""
        return digest_of(self.operation, self.details) if self.is_given else None


def request_key(
    given: object,
    can_lose_replies: bool,
    operation: str,
    details: Mapping[str, Any],
    caller: Caller | None = None,
) -> RequestKey | None:
    """Return the caller's key, else an internal one if a reply can be lost, else None."""
    key = checked_key(given)
    if key is not None:
        return RequestKey(owned_key(key, caller), operation, details, True, key)
    return RequestKey(secrets.token_hex(8), operation, details, False) if can_lose_replies else None


def owned_key(key: str, caller: Caller | None) -> str:
    """Return a request's key as the log stores it: keys of different callers never meet."""
    if caller is None:
        return key
    owned = f"{caller.id} {key}"
    if len(owned) <= LIMITS["name_characters"]:
        return owned
    return f"{caller.id} sha256 {hashlib.sha256(key.encode()).hexdigest()}"


def checked_key(value: object) -> str | None:
    """Return a key that every storage can hold, or None."""
    key = optional_text(value, "key")
    if key is not None and "\0" in key:
        raise BadInput("key must not hold a NUL character; leave it out.")
    return key


def digest_of(operation: str, details: Mapping[str, Any]) -> str:
    """Return 128 bits of SHA-256 over an operation and its arguments, in hexadecimal."""
    return hashlib.sha256(canonical([operation, dict(details)])).hexdigest()[:32]


def refuse_other_request(request: RequestKey, events: Sequence[ev.AnyEvent]) -> None:
    """Raise if the events with this key answer another request."""
    if not request.is_given:
        return
    written = next((event.request for event in events if event.request is not None), None)
    same = _seems_same(request, events) if written is None else written == request.digest
    if not same:
        raise KeyReused(
            f"the key {request.shown!r} was used for another request; take a new key for a new request."
        )


def _seems_same(request: RequestKey, events: Sequence[ev.AnyEvent]) -> bool:
    """Return whether events of version 0.1, which have no digest, match the request."""
    first, wanted = events[0], request.details
    if isinstance(first, ev.Asked):
        fits = (first.worker, first.lease) == (wanted.get("worker"), wanted.get("lease"))
        return request.operation == "ask" and fits and len(events) <= wanted["n"]
    if isinstance(first, ev.Amended):
        names = ("ticket", "outcome", "reason", "by")
        return request.operation == "amend" and all(getattr(first, n) == wanted[n] for n in names)
    return isinstance(first, ev.Imported) and request.operation == "import" and first.rows == wanted["rows"]


_WAITING = 20_000  # keys in the unsorted buffer before it is merged


class KeySet:
    """A set of keys and parts; a 64-bit digest is stored for each."""

    def __init__(self) -> None:
        self._sorted = np.zeros(0, dtype=np.uint64)
        self._waiting: set[int] = set()

    def add(self, key: str, part: int) -> bool:
        """Add a key and part; return whether they are new.

        Among a million keys two have the same digest with probability 3e-8.
        """
        digest = _digest(key, part)
        if self._holds(digest):
            return False
        self._waiting.add(digest)
        if len(self._waiting) == _WAITING:
            self._sorted = np.sort(np.append(self._sorted, np.array(list(self._waiting), dtype=np.uint64)))
            self._waiting.clear()
        return True

    def holds(self, key: str, part: int) -> bool:
        """Return whether a key and part were added."""
        return self._holds(_digest(key, part))

    def _holds(self, digest: int) -> bool:
        place = int(np.searchsorted(self._sorted, np.uint64(digest)))
        return digest in self._waiting or (place < len(self._sorted) and self._sorted[place] == digest)


def _digest(key: str, part: int) -> int:
    return int.from_bytes(hashlib.blake2b(f"{part} {key}".encode(), digest_size=8).digest(), "big")
