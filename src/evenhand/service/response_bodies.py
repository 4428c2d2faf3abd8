"""Types of response bodies, for the OpenAPI description and for clients in other languages.

The service builds these bodies as plain tables; tests decode every answer into its type here. A field that is
`UNSET` by default is left out where it does not apply, as outcomes for an operator before the end.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

ErrorCode = Literal[
    "bad_input", "bad_request", "closed", "compilation_failed", "conflict", "forbidden", "headers_too_large",
    "integrity_failed", "key_reused", "method_not_allowed", "name_taken", "not_computed", "not_found",
    "not_json", "overloaded", "storage_failed", "timeout", "too_large", "too_many_requests", "unauthorized",
    "undecidable", "unexpected",
]  # fmt: skip
# by status, for refusals that are no error of evenhand's own
CODES: dict[int, ErrorCode] = {
    400: "bad_request", 401: "unauthorized", 403: "forbidden", 404: "not_found", 405: "method_not_allowed",
    408: "timeout", 409: "conflict", 413: "too_large", 415: "not_json", 422: "bad_input",
    429: "too_many_requests", 431: "headers_too_large", 500: "unexpected", 503: "overloaded",
}  # fmt: skip


class Refusal(Struct, forbid_unknown_fields=True):
    """Why a request was refused: what must hold, what was received, what to do."""

    error: str
    code: ErrorCode  # stays the same when the sentence changes
    kind: str | UnsetType = UNSET  # the class in `evenhand.errors` that a local experiment raises


class Created(Struct, forbid_unknown_fields=True):
    """A new experiment; `created` is false if it existed with the same protocol."""

    id: str
    head: str  # hash of its first event
    created: bool


class Ticket(Struct, forbid_unknown_fields=True):
    """Apply this policy to one unit of this group, then tell the outcome."""

    ticket: str
    policy: str  # empty if several policies answer a shared item
    group: str | None  # null if it becomes known only with the outcome
    policies: list[str] | UnsetType = UNSET  # that answer a shared item


class Receipt(Struct, forbid_unknown_fields=True):
    """How an outcome was recorded."""

    ticket: str
    outcome: float | dict[str, float | None]  # on a shared item by policy; null where one is missing
    counted: bool  # false if it was late: stored, not counted
    why: str | None = None  # why it was late


class Dropped(Struct, forbid_unknown_fields=True):
    """A ticket that will have no outcome."""

    ticket: str
    dropped: bool


class Imported(Struct, forbid_unknown_fields=True):
    """The number of outcomes that an import has added."""

    imported: int


class Paused(Struct, forbid_unknown_fields=True):
    """Whether the experiment is paused now."""

    paused: bool


class Finished(Struct, forbid_unknown_fields=True):
    """The result of an experiment that was ended."""

    closed: bool
    experiment: str
    state: str
    decided: bool
    answer: str | None
    allowed: list[str]


class PolicyChanged(Struct, forbid_unknown_fields=True):
    """A policy that joined or left."""

    policy: str
    added: bool | UnsetType = UNSET
    withdrawn: bool | UnsetType = UNSET


class Health(Struct, forbid_unknown_fields=True):
    """Whether the experiment runs as designed, each finding as a number; null where a key may not see it."""

    well: bool
    sample_ratio_p: float | None
    starved: list[dict[str, Any]]
    oldest_pending: str | None
    oldest_pending_seconds: float | None
    pending_too_long: bool
    clock_back: int
    volume_ratio: float | None  # units of the last interval over the expected number
    overdue: int | None  # an interval whose counts are late by more than an interval


class Listed(Struct, forbid_unknown_fields=True):
    """An experiment in the list: enrolment, no outcomes; the result once it has ended."""

    experiment: str
    title: str
    state: Literal["running", "paused", "decided", "exhausted", "futile", "closed"]
    samples: int
    pending: int  # open tickets
    late: int
    events: int
    counts: dict[str, int]  # events by kind
    head: str  # hash of the last event; empty for an operator
    health: Health
    answer: str | UnsetType | None = UNSET
    decided: bool | UnsetType = UNSET
    allowed: list[str] | UnsetType = UNSET
    failed: list[str] | UnsetType = UNSET
    open: list[str] | UnsetType = UNSET
    intervals: dict[str, Any] | UnsetType = UNSET  # of an experiment in intervals


class Status(Listed, forbid_unknown_fields=True):
    """The status of an experiment; an operator gets the fields of the list only."""

    sentence: str | UnsetType = UNSET  # the status in words
    leader: str | UnsetType | None = UNSET
    evidence: float | UnsetType | None = UNSET
    needed: float | UnsetType | None = UNSET
    more: dict[str, int | None] | UnsetType = UNSET  # further samples, by the chance to finish with them
    horizon: int | UnsetType | None = UNSET
    unfinished: float | UnsetType | None = UNSET
    forecast: dict[str, Any] | UnsetType | None = UNSET
    spent: float | UnsetType | None = UNSET
    corrected: dict[str, Any] | UnsetType | None = UNSET
    policies: list[dict[str, Any]] | UnsetType = UNSET
    cells: list[dict[str, Any]] | UnsetType = UNSET
    guardrails: list[dict[str, Any]] | UnsetType = UNSET
    joined: list[dict[str, Any]] | UnsetType = UNSET
    withdrawn: list[dict[str, Any]] | UnsetType = UNSET
    method: str | UnsetType = UNSET


class Shares(Struct, forbid_unknown_fields=True):
    """The document by which servers assign units: see the guide on warehouses."""

    salt: str
    version: int
    valid_from: str | None
    ranges: dict[str, list[tuple[str, int]]]


class IntervalReceipt(Struct, forbid_unknown_fields=True):
    """How the counts of an interval were recorded."""

    interval: int
    outcomes: int
    counted: bool  # false if the experiment was over: stored, not counted
    closed: bool
    why: str | None = None  # why the counts do not count


class Bets(Struct, forbid_unknown_fields=True):
    """The linear bets on an interval, as policy, group, number, slope and centre."""

    interval: int
    rows: list[tuple[str, str, int, float, float]]
    # where every policy serves every unit: policy, other policy, group, number, slope and centre
    pairs: list[tuple[str, str, str, int, float, float]] | UnsetType = UNSET
    needed: bool | UnsetType = UNSET  # whether counts must hold the sums of these bets


class Event(Struct):
    """An event of the log; further fields depend on its kind, see the reference of events."""

    seq: int
    hash: str
    kind: str
    at: str


class Plan(Struct):
    """The lower bound on the cost of a study, and how samples should be allocated."""

    answer: str | None
    answer_index: int | None
    feasible: list[str]
    acceptable: list[str | None]
    easiest: str | None
    time_low: float
    time_high: float
    allocation: list[list[float]]
    delta: float
    samples_at_least: float
    binding: list[dict[str, Any]]
    why_none: Any
    warnings: list[str]


class JobStarted(Struct, forbid_unknown_fields=True):
    """A simulation that was queued."""

    id: str


class ListedJob(Struct, forbid_unknown_fields=True):
    """A simulation without its result."""

    id: str
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    done: int
    total: int


class Job(ListedJob, forbid_unknown_fields=True):
    """A simulation; `result` is that of `evenhand simulate --json`."""

    result: dict[str, Any] | None
    error: str | None


class State(Struct, forbid_unknown_fields=True):
    """Whether the service runs and is ready."""

    status: Literal["ok", "ready"]


class Webhook(Struct, forbid_unknown_fields=True):
    """An address that gets messages about ends and alarms; the secret is shown once, when it is created."""

    id: str
    url: str
    experiment: str | None  # null: all experiments
    events: list[str]
    made: str
    by: str
    secret: str | UnsetType = UNSET


class Message(Struct, forbid_unknown_fields=True):
    """A message to a webhook."""

    id: str
    event: str
    state: Literal["waiting", "delivered", "failed"]
    attempts: int
    made: str
    again: str | None  # when it is tried next
    answer: str | None  # to the last attempt


class Queued(Struct, forbid_unknown_fields=True):
    """A message that was queued."""

    id: str
    event: str


class Deleted(Struct, forbid_unknown_fields=True):
    """Something that was deleted."""

    id: str
    deleted: bool
