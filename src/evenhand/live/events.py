"""What can happen in an experiment: a closed set of events, and nothing else ever changes it.

Names of policies and groups stand in the log as people wrote them, so that a log can be read without its
program. Tickets are whole numbers here; people see them with a check code (`tickets`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from evenhand.live.hash_chain import Difference, Record, canonical

# of the events, written in `created` and `build_changed`. From 2 on a change of build is an event, outcomes
# that count carry a digest of what they lead to, the time of event one counts when clocks are compared, and
# an expiry that the wall clock calls early says so.
FORMAT = 2


class Event(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    gc=False,
    tag_field="kind",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """What all events carry."""

    at: str  # UTC by the writer's clock; for people and leases, never for the order
    back: float = 0.0  # seconds by which that clock was behind the latest time in the log
    key: str | None = None  # the request this answers, so that a repeated request finds its answer
    part: int = 0  # which event of that request
    request: str | None = None  # digest of that request, in its first event, where the caller gave the key


class Created(Event, frozen=True, kw_only=True, tag="created"):
    """Event one: the protocol, frozen."""

    experiment: str
    study: str  # the study file, every default spelled out
    seed: int
    lease: float | None  # seconds after which a ticket without an outcome is given up; None: never
    format: int
    versions: dict[str, str]
    limits: dict[str, int]
    by: str | None = None
    evidence: int = 1  # version of the bounds of the evidence; before there were two, none was written


class Asked(Event, frozen=True, kw_only=True, gc=False, tag="asked"):
    """A ticket was handed out: decision number `decision`, drawn with chance `p`."""

    ticket: int
    policy: str
    group: str | None  # None where it is known only with the outcome
    decision: int
    state: str  # digest of the counts and sums the decision was made from
    chance: str  # digest of the rule's memory and of the probabilities it drew from
    p: float | None = None  # None where there are too many policies to write the probabilities out
    worker: str | None = None
    lease: float | None = None  # where it differs from the protocol's


class Told(Event, frozen=True, kw_only=True, gc=False, tag="told"):
    """The first outcome of a ticket; it counts."""

    ticket: int
    outcome: float
    group: str | None = None  # where it was not known before
    sums: str | None = None  # digest of what it leads to in its cell (`cell_sums`); None in format 1


class Late(Event, frozen=True, kw_only=True, tag="late"):
    """An outcome that came after the stop, or for a ticket given up: kept, never counted."""

    ticket: int
    outcome: float
    why: str  # "stopped", "closed", "expired" or "dropped"
    group: str | None = None


class Dropped(Event, frozen=True, kw_only=True, gc=False, tag="dropped"):
    """A ticket that will have no outcome."""

    ticket: int
    reason: str
    by: str | None = None


class Expired(Event, frozen=True, kw_only=True, gc=False, tag="expired"):
    """A ticket whose lease ran out."""

    ticket: int
    early: float = 0.0  # seconds that the lease had still to run by the wall clock, which had been set back


class Amended(Event, frozen=True, kw_only=True, tag="amended"):
    """A correction: `outcome` stands from here on in place of `old`."""

    ticket: int
    policy: str
    group: str
    outcome: float
    old: float
    counted: bool  # False where the outcome came late
    reason: str
    by: str
    sums: str | None = None  # as of `told`; None where it does not count


class Imported(Event, frozen=True, kw_only=True, gc=False, tag="imported"):
    """An outcome collected before; row `row` of `rows` of one import."""

    ticket: int
    policy: str
    group: str
    outcome: float
    row: int
    rows: int
    source: str
    sums: str | None = None  # as of `told`


class Refused(Event, frozen=True, kw_only=True, tag="refused"):
    """Somebody told a second, different outcome; `kept` still counts."""

    ticket: int
    outcome: float
    kept: float


class Paused(Event, frozen=True, kw_only=True, tag="paused"):
    """No tickets from here on; outcomes are still taken."""

    reason: str
    by: str | None = None


class Resumed(Event, frozen=True, kw_only=True, tag="resumed"):
    """Tickets again."""

    reason: str
    by: str | None = None


class Stopped(Event, frozen=True, kw_only=True, tag="stopped"):
    """The stopping rule fired, or the samples ran out."""

    why: str  # "decided" or "exhausted"
    answer: str | None  # the policy; None: none meets the requirement, or nothing was decided
    samples: int
    evidence: float | None
    needed: float | None  # None where the rule needs no evidence
    weakest: int


class Closed(Event, frozen=True, kw_only=True, tag="closed"):
    """The end for good, decided or not."""

    reason: str
    by: str | None = None


class Viewed(Event, frozen=True, kw_only=True, tag="viewed"):
    """Somebody looked at outcomes before the end."""

    by: str
    what: str


class Answered(Event, frozen=True, kw_only=True, tag="answered"):
    """The answer to a request with a key, where the request's other events do not give it."""

    answer: list[Any] | None = None


class BuildChanged(Event, frozen=True, kw_only=True, tag="build_changed"):
    """The events from here on were written by another build than those before."""

    versions: dict[str, str]
    format: int


class Snapshot(Event, frozen=True, kw_only=True, tag="snapshot"):
    """The fold of all events before, so that opening need not begin at event one."""

    fold: dict[str, Any]


AnyEvent = (
    Created | Asked | Told | Late | Dropped | Expired | Amended | Imported | Refused
    | Paused | Resumed | Stopped | Closed | Viewed | Answered | BuildChanged | Snapshot
)  # fmt: skip

_decoder = msgspec.json.Decoder(AnyEvent)
_encoder = msgspec.json.Encoder(order="sorted")


def encode(event: Event) -> bytes:
    """The event's bytes."""
    return canonical(plain(event))


def plain(event: Event) -> dict[str, Any]:
    """The event as tables and numbers."""
    table: dict[str, Any] = msgspec.to_builtins(event)
    return table


def stopped(table: dict[str, Any]) -> Stopped:
    """The stop that `plain` wrote."""
    return msgspec.convert(table, Stopped)


class LogEntry(NamedTuple):
    """An event of the log, its number and its hash in hexadecimal digits."""

    seq: int
    hash: str
    event: AnyEvent

    @classmethod
    def of(cls, record: Record) -> LogEntry:
        """Return the entry that a record stores."""
        return cls(record.seq, record.hash.hex(), decode(record))

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as JSON writes it."""
        return plain(self.event) | {"seq": self.seq, "hash": self.hash}

    @classmethod
    def from_dict(cls, table: dict[str, Any]) -> LogEntry:
        """Return the entry that `to_dict` wrote."""
        event = {name: value for name, value in table.items() if name not in ("seq", "hash")}
        return cls(table["seq"], table["hash"], msgspec.convert(event, AnyEvent))


def decode(record: Record) -> AnyEvent:
    """The event of a record; bytes that are no event are named by their number."""
    try:
        event: AnyEvent = _decoder.decode(record.body)
        return event
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        damage = f"cannot be read ({problem}); it was damaged, or written by a newer version of evenhand."
        raise Difference(record.seq, damage) from None


def is_written_so(event: AnyEvent, body: bytes) -> bool:
    """Are these the very bytes that a writer writes for this event?"""
    if _encoder.encode(event) == body:
        return True
    table = plain(event)
    if canonical(table) == body:  # the fast encoder spells numbers such as 1e-07 otherwise
        return True
    lease = table.get("lease")
    return lease is not None and canonical(table | {"lease": int(lease)}) == body  # format 1 may have it so
