"""The event types of an experiment, and their encoding. Only events change an experiment.

Policies and groups are stored by name, so that a log can be read without the program. Tickets are integers
here; users see them with a check code (`tickets`).
"""

from __future__ import annotations

import secrets
from typing import Any, NamedTuple

import msgspec

from evenhand.live.hash_chain import Difference, Record, canonical

# Version of the event format, written in `created` and `build_changed`. From 2 on a change of build is an
# event, outcomes that count carry a digest of the sums they lead to, the time of event one is included when
# clocks are compared, and an expiry that is early by the wall clock says so.
FORMAT = 2


# the outcomes of the guard-rails by name, null where one is missing; None in a problem without guard-rails
Metrics = dict[str, float | None] | None
# the outcome of a sample; on a shared item those of its policies by name, null where one is missing
Outcome = float | dict[str, float | None]


class Actor(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """The key of the service that made a request."""

    id: str
    name: str


class Event(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    gc=False,
    tag_field="kind",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """The fields of all events."""

    at: str  # UTC by the writer's clock; for users and leases, not for the order
    back: float = 0.0  # seconds by which that clock was behind the latest time in the log
    key: str | None = None  # the request this event answers; used to recognise a repeated request
    part: int = 0  # position of this event among those of the request
    request: str | None = None  # digest of the request, in its first event, if the caller gave the key
    actor: Actor | None = None  # who made the request, if it came through the service
    salt: str | None = None  # 128 random bits of the service, so that the hash gives no outcome away


def new_salt() -> str:
    """Return the random digits of one event."""
    return secrets.token_hex(16)


class Created(Event, frozen=True, kw_only=True, tag="created"):
    """Event one: the protocol, fixed for the whole experiment."""

    experiment: str
    study: str  # the study file with all defaults written out
    seed: int
    lease: float | None  # seconds after which a ticket without an outcome expires; None: never
    format: int
    versions: dict[str, str]
    limits: dict[str, int]
    by: str | None = None
    evidence: int = 1  # version of the evidence bounds; version 1 was not written


class Asked(Event, frozen=True, kw_only=True, gc=False, tag="asked"):
    """A ticket was issued: decision number `decision`, drawn with probability `p`."""

    ticket: int
    policy: str  # empty if several policies answer a shared item
    group: str | None  # None if it becomes known only with the outcome
    decision: int
    state: str  # digest of the counts and sums used for the decision
    chance: str  # digest of the rule's memory and of the probabilities it drew from
    p: float | None = None  # None if there are too many policies to list all probabilities
    worker: str | None = None
    lease: float | None = None  # if it differs from the protocol's
    policies: tuple[str, ...] = ()  # that answer a shared item


class Told(Event, frozen=True, kw_only=True, gc=False, tag="told"):
    """The first outcome of a ticket; it counts."""

    ticket: int
    outcome: Outcome
    metrics: Metrics = None
    group: str | None = None  # if it was not known before
    sums: str | None = None  # digest of the sums of its cell after it (`replay.Sums`); None in format 1


class Late(Event, frozen=True, kw_only=True, tag="late"):
    """An outcome after the stop or for a dropped or expired ticket: stored, not counted."""

    ticket: int
    outcome: Outcome
    why: str  # "stopped", "closed", "expired", "dropped" or "withdrawn"
    metrics: Metrics = None
    group: str | None = None


class Dropped(Event, frozen=True, kw_only=True, gc=False, tag="dropped"):
    """A ticket that will have no outcome."""

    ticket: int
    reason: str
    by: str | None = None


class Expired(Event, frozen=True, kw_only=True, gc=False, tag="expired"):
    """A ticket whose lease has expired."""

    ticket: int
    early: float = 0.0  # seconds left on the lease by the wall clock, if that clock had been set back


class Amended(Event, frozen=True, kw_only=True, tag="amended"):
    """A correction: `outcome` replaces `old` from here on, and `metrics` replace `old_metrics`."""

    ticket: int
    policy: str
    group: str
    outcome: Outcome
    old: Outcome
    metrics: Metrics = None
    old_metrics: Metrics = None
    counted: bool  # False if the outcome was late
    reason: str
    by: str
    sums: str | None = None  # as in `told`; None if the outcome does not count


class Imported(Event, frozen=True, kw_only=True, gc=False, tag="imported"):
    """An outcome collected before the experiment; row `row` of `rows` of one import."""

    ticket: int
    policy: str
    group: str
    outcome: float
    metrics: Metrics = None
    row: int
    rows: int
    source: str
    sums: str | None = None  # as in `told`


class Refused(Event, frozen=True, kw_only=True, tag="refused"):
    """A second, different outcome for a ticket was refused; `kept` still counts."""

    ticket: int
    outcome: Outcome
    kept: Outcome
    metrics: Metrics = None
    kept_metrics: Metrics = None


class Paused(Event, frozen=True, kw_only=True, tag="paused"):
    """No tickets are issued from here on; outcomes are still accepted."""

    reason: str
    by: str | None = None


class Resumed(Event, frozen=True, kw_only=True, tag="resumed"):
    """Tickets are issued again."""

    reason: str
    by: str | None = None


class Stopped(Event, frozen=True, kw_only=True, tag="stopped"):
    """The stopping rule fired, or the samples are exhausted."""

    why: str  # "decided", "exhausted" or "futile"
    answer: str | None  # the policy; None: no policy meets the requirement, or there is no decision
    samples: int
    evidence: float | None
    needed: float | None  # None if the rule needs no evidence
    weakest: int
    allowed: list[str] | None = None  # with the goal "screen": the policies that meet the requirement


class Closed(Event, frozen=True, kw_only=True, tag="closed"):
    """The experiment was ended by a user, decided or not."""

    reason: str
    by: str | None = None


class Viewed(Event, frozen=True, kw_only=True, tag="viewed"):
    """A user viewed outcomes before the end."""

    by: str
    what: str


class PolicyAdded(Event, frozen=True, kw_only=True, tag="policy_added"):
    """A policy joined: it is sampled from here on and can be the answer."""

    policy: str
    reason: str
    by: str


class PolicyWithdrawn(Event, frozen=True, kw_only=True, tag="policy_withdrawn"):
    """A policy left: it is not sampled from here on and cannot be the answer; its open tickets end."""

    policy: str
    reason: str
    by: str


PolicyChange = PolicyAdded | PolicyWithdrawn


class PairCounts(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """The differences of two policies' outcomes on the units of a cell, as sums in the units of the user."""

    sum: float
    squares: float
    logs: tuple[float, ...] | None = None  # sums of ln(1 + a (x - c)) for the bets of the interval


class CellCounts(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """The outcomes of one cell in one interval, as sums in the units of the user."""

    policy: str
    group: str
    n: int
    sum: float
    squares: float | None = None  # sum of squares; for gaussian-unknown outcomes and for linear bets
    metrics: dict[str, tuple[int, float]] | None = None  # number and sum of each guard-rail's outcomes
    logs: tuple[float, ...] | None = None  # sums of ln(1 + a (x - c)) for the bets of the interval
    metric_squares: dict[str, float] | None = None  # sums of squares of gaussian-unknown guard-rails
    pairs: dict[str, PairCounts] | None = (
        None  # with shared units: differences to the policies after this one
    )


class SharesPublished(Event, frozen=True, kw_only=True, tag="shares_published"):
    """An interval began: servers assign units by these shares from `valid_from` on."""

    version: int  # number of the shares and of the interval
    valid_from: str
    hash_salt: str  # of the hash that assigns units
    ranges: dict[str, tuple[tuple[str, int], ...]]  # by group, the end of each policy's points
    state: str  # digest of the counts that the shares were derived from


class Counted(Event, frozen=True, kw_only=True, tag="counted"):
    """The counts of an interval; they count when it is closed."""

    interval: int
    cells: tuple[CellCounts, ...]  # cells without outcomes are left out
    counts: str  # digest of all counts recorded so far (`intervals.counts_digest`)
    late: str | None = None  # "stopped" or "closed", if the experiment was over: the counts do not count


class CountsCorrected(Event, frozen=True, kw_only=True, tag="counts_corrected"):
    """Other counts replace those of an interval that is not closed."""

    interval: int
    cells: tuple[CellCounts, ...]
    counts: str  # as in `counted`
    reason: str
    by: str


class IntervalClosed(Event, frozen=True, kw_only=True, tag="interval_closed"):
    """The counts of an interval are final and count from here on; the stopping rule was evaluated."""

    interval: int
    outcomes: int  # of this interval
    samples: int  # outcomes that count, of all intervals so far
    sums: str  # digest of the sums of all cells
    leader: str | None  # the best policy of those that seem to meet the requirement; None: no policy
    evidence: float | None  # None before every cell has an outcome
    needed: float | None
    weakest: int  # the weakest comparison, as in `stopped`


IntervalEvent = SharesPublished | Counted | CountsCorrected | IntervalClosed


class Answered(Event, frozen=True, kw_only=True, tag="answered"):
    """The answer to a request with a key, if its other events do not contain it."""

    answer: list[Any] | None = None


class BuildChanged(Event, frozen=True, kw_only=True, tag="build_changed"):
    """The events from here on were written by another build than those before."""

    versions: dict[str, str]
    format: int


class Snapshot(Event, frozen=True, kw_only=True, tag="snapshot"):
    """The fold of all events before; opening the log starts from the latest one."""

    fold: dict[str, Any]


AnyEvent = (
    Created | Asked | Told | Late | Dropped | Expired | Amended | Imported | Refused
    | Paused | Resumed | Stopped | Closed | Viewed | PolicyAdded | PolicyWithdrawn | Answered | BuildChanged
    | Snapshot | SharesPublished | Counted | CountsCorrected | IntervalClosed
)  # fmt: skip


class Sample(NamedTuple):
    """The outcome of a sample and those of its guard-rails."""

    outcome: Outcome
    metrics: Metrics = None


def number(outcome: Outcome) -> float:
    """Return the outcome of a ticket that one policy answers."""
    assert not isinstance(outcome, dict)
    return outcome


def by_policy(outcome: Outcome) -> dict[str, float | None]:
    """Return the outcomes of a ticket for a shared item, by the names of the policies."""
    assert isinstance(outcome, dict)
    return outcome


def outcome_text(outcome: Outcome) -> str:
    """Return an outcome for a message; on a shared item those of all its policies."""
    if not isinstance(outcome, dict):
        return f"{outcome:g}"
    return ", ".join(
        f"{name} {'missing' if x is None else format(x, 'g')}" for name, x in sorted(outcome.items())
    )


def sample_of(event: Told | Late | Imported | Amended) -> Sample:
    """Return the outcomes that an event records."""
    return Sample(event.outcome, event.metrics)


_decoder = msgspec.json.Decoder(AnyEvent)
_encoder = msgspec.json.Encoder(order="sorted")


def encode(event: Event) -> bytes:
    """Return the event as JSON bytes."""
    return canonical(plain(event))


def plain(event: Event) -> dict[str, Any]:
    """Return the event as dicts, lists and numbers."""
    table: dict[str, Any] = msgspec.to_builtins(event)
    return table


def stopped(table: dict[str, Any]) -> Stopped:
    """Return the `Stopped` event that `plain` wrote."""
    return msgspec.convert(table, Stopped)


def policy_change(table: dict[str, Any]) -> PolicyChange:
    """Return the change of policies that `plain` wrote."""
    event: PolicyChange = msgspec.convert(table, PolicyChange)
    return event


class LogEntry(NamedTuple):
    """An event of the log with its number and its hash in hexadecimal digits.

    Attributes
    ----------
    seq : int
        The number of the event; the first is 1.
    hash : str
        The hash of the event and of all events before it.
    event : Event
        The event itself.

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["a", "b"], {"x": 0.5, "y": 0.5}, eh.Bernoulli(), eh.Floors(0.3))
    >>> trial = eh.Experiment.create(":memory:", problem, seed=7)
    >>> [(entry.seq, type(entry.event).__name__) for entry in trial.events()]
    [(1, 'Created')]
    """

    seq: int
    hash: str
    event: AnyEvent

    @classmethod
    def of(cls, record: Record) -> LogEntry:
        """Return the entry of a stored record."""
        return cls(record.seq, record.hash.hex(), decode(record))

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as a JSON object."""
        return plain(self.event) | {"seq": self.seq, "hash": self.hash}

    @classmethod
    def from_dict(cls, table: dict[str, Any]) -> LogEntry:
        """Return the entry that `to_dict` wrote."""
        event = {name: value for name, value in table.items() if name not in ("seq", "hash")}
        return cls(table["seq"], table["hash"], msgspec.convert(event, AnyEvent))


def decode(record: Record) -> AnyEvent:
    """Return the event of a record; the error for invalid bytes gives the event's number."""
    try:
        event: AnyEvent = _decoder.decode(record.body)
        return event
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        damage = f"cannot be read ({problem}); it was damaged, or written by a newer version of evenhand."
        raise Difference(record.seq, damage) from None


def is_written_so(event: AnyEvent, body: bytes) -> bool:
    """Return whether these are exactly the bytes that a writer writes for this event."""
    if _encoder.encode(event) == body:
        return True
    table = plain(event)
    if canonical(table) == body:  # the fast encoder formats numbers such as 1e-07 differently
        return True
    lease = table.get("lease")
    return lease is not None and canonical(table | {"lease": int(lease)}) == body  # format 1 may contain this
