"""The first answer to a repeated request, from the events that carry its key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evenhand.live import events as ev
from evenhand.live import interval_calls
from evenhand.live.ask_and_tell import second_outcome
from evenhand.live.events import decode
from evenhand.live.hash_chain import Record
from evenhand.live.input_checks import code
from evenhand.live.intervals import IntervalReceipt
from evenhand.live.projection import Fold
from evenhand.live.requests import RequestKey, refuse_other_request
from evenhand.live.tickets import Ask, Receipt

INTERVAL_OPERATIONS = ("publish_shares", "tell_counts", "correct_counts", "close_interval")


def recalled(fold: Fold, request: RequestKey, records: Sequence[Record]) -> Any:
    """Return the first answer, or raise its recorded refusal; refuse another request."""
    events = [decode(record) for record in records]
    refuse_other_request(request, events)
    written = next((event for event in events if isinstance(event, ev.Answered)), None)
    if written is not None:
        return _read(request.operation, written.answer)
    if request.operation in INTERVAL_OPERATIONS:
        return interval_calls.answer_of(request.operation, events)
    answers = [_answer_of(fold, event) for event in events]
    return answers if request.operation in ("ask", "tell_all") else answers[0]


def written_form(value: Any) -> list[Any] | None:
    """Return an answer in the form stored in an `answered` event."""
    if value is None:
        return None
    return [_fields(item) for item in value] if isinstance(value, list) else _fields(value)


def _fields(item: Any) -> list[Any]:
    """Return the fields of an ask or a receipt; an ask without shared items has three, as always."""
    return list(item[:3]) if isinstance(item, Ask) and not item.policies else list(item)


def _read(operation: str, answer: list[Any] | None) -> Any:
    if answer is None:
        return None
    if operation == "ask":
        return [_read_ask(*item) for item in answer]
    if operation in INTERVAL_OPERATIONS:
        return IntervalReceipt(*answer)
    return [Receipt(*item) for item in answer] if operation == "tell_all" else Receipt(*answer)


def _read_ask(ticket: str, policy: str, group: str | None, policies: Sequence[str] = ()) -> Ask:
    return Ask(ticket, policy, group, tuple(policies))


def _answer_of(fold: Fold, event: ev.AnyEvent) -> Any:
    """Return the answer that the caller got with this event."""
    if isinstance(event, ev.Asked):
        return Ask(code(fold, event.ticket), event.policy, event.group, event.policies)
    if isinstance(event, ev.Imported):
        return event.rows
    if isinstance(event, ev.Refused):
        kept, told = ev.Sample(event.kept, event.kept_metrics), ev.Sample(event.outcome, event.metrics)
        raise second_outcome(fold, event.ticket, kept, told)
    if isinstance(event, (ev.Told, ev.Late, ev.Amended)):
        counted = event.counted if isinstance(event, ev.Amended) else isinstance(event, ev.Told)
        why = event.why if isinstance(event, ev.Late) else None
        return Receipt(code(fold, event.ticket), event.outcome, counted, why)
    return None
