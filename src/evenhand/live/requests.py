"""Keys of requests: a repeated request is recognised by its key, and a key stands for one request.

The first event of a request carries its key and, where the caller gave the key, a digest of the request. On a
storage whose reply to a commit can be lost every other write gets a key of its own, so that trying again
writes nothing twice. A request that is refused and writes nothing leaves its key free.

A set of request keys in little memory.
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
from evenhand.live.operation_checks import optional_text


class RequestKey(NamedTuple):
    """What a request is recognised by."""

    key: str
    operation: str  # "ask", "tell", ...
    details: Mapping[str, Any]  # what it asks for
    is_given: bool  # by the caller; otherwise made here, for this request alone

    @property
    def digest(self) -> str | None:
        """Of what is asked for; None for a key that nobody else can know."""
        return digest_of(self.operation, self.details) if self.is_given else None


def request_key(
    given: object, can_lose_replies: bool, operation: str, details: Mapping[str, Any]
) -> RequestKey | None:
    """The key of a request: the caller's; else a new one where a reply can be lost; else none."""
    key = checked_key(given)
    if key is not None:
        return RequestKey(key, operation, details, True)
    return RequestKey(secrets.token_hex(8), operation, details, False) if can_lose_replies else None


def checked_key(value: object) -> str | None:
    """A key that every storage can hold, or None."""
    key = optional_text(value, "key")
    if key is not None and "\0" in key:
        raise BadInput("key must not hold a NUL character; leave it out.")
    return key


def digest_of(operation: str, details: Mapping[str, Any]) -> str:
    """128 bits of SHA-256 over an operation and what it asks for, in hexadecimal digits."""
    return hashlib.sha256(canonical([operation, dict(details)])).hexdigest()[:32]


def refuse_other_request(request: RequestKey, events: Sequence[ev.AnyEvent]) -> None:
    """Raise where the events that carry this key answer another request."""
    if not request.is_given:
        return
    written = next((event.request for event in events if event.request is not None), None)
    same = _seems_same(request, events) if written is None else written == request.digest
    if not same:
        raise KeyReused(
            f"the key {request.key!r} was used for another request; take a new key for a new request."
        )


def _seems_same(request: RequestKey, events: Sequence[ev.AnyEvent]) -> bool:
    """Do events of version 0.1, which wrote no digest, fit the request?"""
    first, wanted = events[0], request.details
    if isinstance(first, ev.Asked):
        fits = (first.worker, first.lease) == (wanted.get("worker"), wanted.get("lease"))
        return request.operation == "ask" and fits and len(events) <= wanted["n"]
    if isinstance(first, ev.Amended):
        names = ("ticket", "outcome", "reason", "by")
        return request.operation == "amend" and all(getattr(first, n) == wanted[n] for n in names)
    return isinstance(first, ev.Imported) and request.operation == "import" and first.rows == wanted["rows"]


_WAITING = 20_000  # keys looked up one by one before they are sorted in


class KeySet:
    """Keys and their parts, 8 bytes each: a digest of 64 bits stands for each."""

    def __init__(self) -> None:
        self._sorted = np.zeros(0, dtype=np.uint64)
        self._waiting: set[int] = set()

    def add(self, key: str, part: int) -> bool:
        """Add a key and a part of it; return whether they are new.

        Two of a million keys have the same digest with a chance of 3e-8.
        """
        text = f"{part} {key}".encode()
        digest = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
        place = int(np.searchsorted(self._sorted, np.uint64(digest)))
        if digest in self._waiting or (place < len(self._sorted) and self._sorted[place] == digest):
            return False
        self._waiting.add(digest)
        if len(self._waiting) == _WAITING:
            self._sorted = np.sort(np.append(self._sorted, np.array(list(self._waiting), dtype=np.uint64)))
            self._waiting.clear()
        return True
