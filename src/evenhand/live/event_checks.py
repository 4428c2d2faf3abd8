"""Checks of a single event: readers refuse what the writer refuses.

The functions called here are those that the writer calls before it writes. Checks against the events before
are in `sequence_checks`, and those that need the whole history of a ticket in `ticket_history`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, get_args

from evenhand.errors import BadInput
from evenhand.live import events as ev
from evenhand.live import interval_checks
from evenhand.live.build import checked_build
from evenhand.live.clock import checked_time
from evenhand.live.events import AnyEvent, is_written_so
from evenhand.live.hash_chain import Difference, Record
from evenhand.live.input_checks import checked_metrics, checked_outcome, checked_text, optional_text
from evenhand.live.item_tickets import checked_item
from evenhand.live.protocol import LIMITS, Protocol, check_lease, refuse_newer_format
from evenhand.procedure.sampling.draw_cell import MAX_CELLS_WRITTEN

_DIGEST = re.compile(r"[0-9a-f]{16}")  # 64 bits
_REQUEST = re.compile(r"[0-9a-f]{32}")  # 128 bits
_LATE = ("stopped", "closed", "expired", "dropped", "withdrawn")
_SURE = 1.0 + 1e-9  # probability 1 as a rounded sum


def check_event(record: Record, event: AnyEvent, protocol: Protocol) -> None:
    """Refuse an event that no writer can have written, regardless of earlier events."""
    if not is_written_so(event, record.body):
        raise Difference(record.seq, "is not spelled as evenhand spells events.")
    try:
        checked_time(event.at)
        optional_text(event.key, "key")
        if event.request is not None and (event.key is None or not _REQUEST.fullmatch(event.request)):
            raise BadInput(f"a request must be 32 hexadecimal digits of a key; it is {event.request[:40]!r}.")
        if event.salt is not None and not _REQUEST.fullmatch(event.salt):
            raise BadInput(f"a salt must be 32 hexadecimal digits; it is {event.salt[:40]!r}.")
        if event.actor is not None:
            checked_text(event.actor.id, "actor id", LIMITS["name_characters"])
            checked_text(event.actor.name, "actor name", LIMITS["name_characters"])
        if event.part < 0 or (event.part and event.key is None):
            raise BadInput(f"a part must be a whole number from 0 on, of a key; it is {event.part}.")
        if check := _CHECKS.get(type(event)):
            check(event, protocol)
    except BadInput as problem:
        raise Difference(record.seq, f"cannot have been written: {problem}") from None
    if isinstance(event, ev.BuildChanged):
        refuse_newer_format(record.seq, event.format)


def _check_created(event: ev.Created, protocol: Protocol) -> None:
    optional_text(event.by, "by")


def _check_asked(event: ev.Asked, protocol: Protocol) -> None:
    _check_digest(event.state)
    _check_digest(event.chance)
    written_out = len(protocol.problem.policies) <= MAX_CELLS_WRITTEN
    if (event.p is not None) != written_out or not 0.0 <= (event.p or 0.0) <= _SURE:
        expected = "a number from 0 to 1" if written_out else "left out where there are so many policies"
        raise BadInput(f"the chance must be {expected}; it is {event.p}.")
    optional_text(event.worker, "worker")
    if event.lease is not None:
        check_lease(event.lease)


def _check_told(event: ev.Told | ev.Imported | ev.Amended, protocol: Protocol) -> None:
    _check_outcome(event, protocol)
    if event.sums is not None:
        _check_digest(event.sums)


def _check_late(event: ev.Late, protocol: Protocol) -> None:
    _check_outcome(event, protocol)
    if event.why not in _LATE:
        raise BadInput(f"an outcome is late because it came {', '.join(_LATE)}; not {event.why[:40]!r}.")


def _check_imported(event: ev.Imported, protocol: Protocol) -> None:
    _check_told(event, protocol)
    checked_text(event.source, "source")
    if not 1 <= event.row <= event.rows:
        raise BadInput(f"rows must be numbered from 1 to {event.rows}; this one is {event.row}.")


def _check_amended(event: ev.Amended, protocol: Protocol) -> None:
    _check_told(event, protocol)
    checked_text(event.reason, "reason")
    checked_text(event.by, "by", LIMITS["name_characters"])
    if event.sums is not None and not event.counted:
        raise BadInput("an outcome that does not count leads to no sums.")


def _check_outcome(
    event: ev.Told | ev.Late | ev.Amended | ev.Imported | ev.Refused, protocol: Protocol
) -> None:
    outcomes = [event.outcome]
    if isinstance(event, ev.Amended):
        outcomes.append(event.old)
    elif isinstance(event, ev.Refused):
        outcomes.append(event.kept)
    for outcome in outcomes:
        _check_number(outcome, protocol)
    checked_metrics(event.metrics, protocol.problem)


def _check_number(outcome: ev.Outcome, protocol: Protocol) -> None:
    """Refuse an outcome that the family cannot produce; on a shared item those of all its policies."""
    if not protocol.spec.shared_items:
        checked_outcome(outcome, protocol.problem.family)
    else:
        checked_item(outcome, protocol.problem)


def _check_digest(digest: str) -> None:
    if not _DIGEST.fullmatch(digest):
        raise BadInput(f"a digest must be 16 hexadecimal digits; it is {digest[:40]!r}.")


def _check_reason(event: ev.Dropped | ev.Paused | ev.Resumed | ev.Closed, protocol: Protocol) -> None:
    checked_text(event.reason, "reason")
    optional_text(event.by, "by")


def _check_policy_change(event: ev.PolicyChange, protocol: Protocol) -> None:
    checked_text(event.policy, "policy", LIMITS["name_characters"])
    checked_text(event.reason, "reason")
    checked_text(event.by, "by", LIMITS["name_characters"])


def _check_viewed(event: ev.Viewed, protocol: Protocol) -> None:
    checked_text(event.by, "by")
    checked_text(event.what, "what")


def _check_answered(event: ev.Answered, protocol: Protocol) -> None:
    if event.key is None:
        raise BadInput("an answer must have the key of its request; it has none.")


def _check_build(event: ev.BuildChanged, protocol: Protocol) -> None:
    checked_build(event.versions)


_CHECKS: dict[type, Callable[[Any, Protocol], None]] = {
    ev.Created: _check_created, ev.Asked: _check_asked, ev.Told: _check_told, ev.Late: _check_late,
    ev.Dropped: _check_reason, ev.Amended: _check_amended, ev.Imported: _check_imported,
    ev.Refused: _check_outcome, ev.Paused: _check_reason, ev.Resumed: _check_reason, ev.Closed: _check_reason,
    ev.Viewed: _check_viewed, ev.PolicyAdded: _check_policy_change, ev.PolicyWithdrawn: _check_policy_change,
    ev.Answered: _check_answered, ev.BuildChanged: _check_build,
    **dict.fromkeys(get_args(ev.IntervalEvent), interval_checks.check_event),
}  # fmt: skip
