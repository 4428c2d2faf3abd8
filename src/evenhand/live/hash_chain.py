"""The hash chain: an event's hash covers its bytes and the previous hash.

    hash of event n  =  SHA-256( hash of event n-1  followed by  the bytes of event n )
    hash of event 0  =  SHA-256( "evenhand journal 1", a line end, the experiment's name )

An event's bytes are canonical JSON in UTF-8: keys sorted, no spaces, floats as the shortest text that reads
back as the same number, neither NaN nor infinity. The hashes are over the stored bytes, so they can be
verified without parsing JSON.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from evenhand.errors import BadInput, IntegrityFailed


class Head(NamedTuple):
    """The head of a log: the number and hash of its last event."""

    seq: int
    hash: bytes

    def __str__(self) -> str:
        return self.hash.hex()


class Record(NamedTuple):
    """One event as it is stored."""

    seq: int
    body: bytes
    hash: bytes


class Difference(IntegrityFailed):
    """The first event that is not what it must be.

    If an earlier event may be the one that was changed, `since` is the first candidate.
    """

    def __init__(self, seq: int, message: str, since: int | None = None) -> None:
        super().__init__(f"event {seq} {message}")
        self.seq = seq
        self.reason = message
        self.since = seq if since is None else since


def genesis(experiment: str) -> Head:
    """Return the head of an empty log."""
    return Head(0, hashlib.sha256(b"evenhand journal 1\n" + experiment.encode()).digest())


def link(previous: bytes, body: bytes) -> bytes:
    """Return the hash of an event with these bytes after the event with that hash."""
    return hashlib.sha256(previous + body).digest()


# one encoder for all values: `json.dumps` makes another for each
_to_text = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def canonical(value: Any) -> bytes:
    """Return a value as canonical JSON."""
    try:
        return _to_text(value).encode()
    except (ValueError, TypeError) as problem:
        raise BadInput(f"a log holds finite numbers, text, lists and tables only: {problem}.") from None


def extend(head: Head, bodies: Iterable[bytes]) -> list[Record]:
    """Return these bodies as the next records after `head`."""
    records = []
    seq, previous = head
    for body in bodies:
        seq, previous = seq + 1, hashlib.sha256(previous + body).digest()  # as `link`, inlined for speed
        records.append(Record(seq, body, previous))
    return records


def verified(records: Iterable[Record], head: Head) -> Iterator[Record]:
    """Yield the same records after checking each hash; the error names the first wrong one."""
    seq, previous = head
    for record in records:
        seq += 1
        if record.seq != seq:
            raise Difference(seq, f"is missing: event {record.seq} is in its place.")
        body = record.body
        if type(body) is not bytes or hashlib.sha256(previous + body).digest() != record.hash:
            raise Difference(
                seq, f"was changed: its hash does not follow from its content and event {seq - 1}."
            )
        previous = record.hash
        yield record
