"""Checks of an event against the events before it: readers refuse what no writer does.

The arithmetic (the rule's cell and its probability) is compared in `replay`, and what needs the whole history
of a ticket in `ticket_history`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from evenhand.errors import BadInput, EvenhandError
from evenhand.live import events as ev
from evenhand.live import interval_checks
from evenhand.live.clock import behind
from evenhand.live.events import AnyEvent
from evenhand.live.hash_chain import Difference
from evenhand.live.input_checks import changed_protocol, outcomes_out, told_group
from evenhand.live.stop_event import describe_stop, same_stop, stop_event
from evenhand.live.tickets import OpenTicket, seconds_left

if TYPE_CHECKING:
    from evenhand.live.projection import Fold, LogState

_MICROSECONDS = 2e-6  # tolerance for rounded times


def check_follows(fold: Fold, seq: int, event: AnyEvent) -> None:
    """Refuse an event that cannot be number `seq` after the state of the fold."""
    _check_uninterrupted(fold, seq, event)
    _check_clock(fold, seq, event)
    _CHECKS.get(type(event), _check_nothing)(fold, seq, event)


def stop_is_missing(seq: int) -> Difference:
    """Return the difference if the stopping rule fired with the event before."""
    return Difference(seq, "follows a moment at which the stopping rule fires, and does not say so.")


def check_complete(fold: Fold) -> None:
    """Refuse a log that ends where another event must follow."""
    if fold.must_stop:
        raise Difference(fold.head.seq + 1, "is missing: the stopping rule fired, and no event says so.")
    if fold.importing is not None:
        raise _import_is_cut(fold.head.seq, fold.importing)


def _check_uninterrupted(fold: Fold, seq: int, event: AnyEvent) -> None:
    """Refuse an event between the rows of an import, or before the `stopped` event that is due."""
    if fold.must_stop and type(event) is not ev.Stopped:
        raise stop_is_missing(seq)
    if fold.importing is not None and type(event) is not ev.Imported:
        raise _import_is_cut(seq - 1, fold.importing)


def _import_is_cut(seq: int, row: ev.Imported) -> Difference:
    return Difference(seq, f"is row {row.row} of {row.rows} of an import, and the next row does not follow.")


def _check_clock(fold: Fold, seq: int, event: AnyEvent) -> None:
    """Refuse a wrong `back` of a time before the latest one; times are in microseconds."""
    by = behind(event.at, fold.latest)
    if abs(event.back - by) > _MICROSECONDS:
        said = f"notes {event.back:g} seconds" if event.back else "does not say so"
        raise Difference(seq, f"is {by:.6f} seconds before the latest event by its clock, and {said}.")


def _check_asked(fold: Fold, seq: int, event: ev.Asked) -> None:
    _refuse_in_intervals(fold, seq)
    if fold.is_over or fold.paused:
        raise Difference(seq, "issues a ticket of an experiment that is stopped, paused or closed.")
    ticket, decision = fold.tickets + 1, fold.counts["asked"] + 1
    if (event.ticket, event.decision) != (ticket, decision):
        raise Difference(seq, f"must be ticket {ticket}, decision {decision}; it is not.")
    tickets = len(fold.open_tickets)
    if (
        outcomes_out(fold) >= fold.replay.spec.cap - _told(fold)
        or tickets >= fold.protocol.limits["tickets_out"]
    ):
        raise Difference(seq, f"issues a ticket while {tickets} are open, and no more may be.")
    if fold.replay.spec.shared_items:
        _check_answering(fold, seq, event)
    elif event.policies:
        raise Difference(seq, "names several policies, and the experiment has no shared items.")
    else:
        _check_policy(fold, seq, event.policy)
    if fold.protocol.problem.mode != "agnostic":
        _check_group(fold, seq, event.group)
    elif event.group is not None:
        raise Difference(seq, f"names group {event.group!r}, which is known only with the outcome.")


def _told(fold: Fold) -> int:
    """Return the number of outcomes that count; the arithmetic of the latest may be queued."""
    if fold.replay.spec.shared_items:
        return int(sum(sums.outcome.n for sums in fold.sums.values()))
    return fold.counts["told"] + fold.counts["imported"]


def _check_answering(fold: Fold, seq: int, event: ev.Asked) -> None:
    """Refuse a ticket for an item that does not name policies, each once and in their order."""
    numbers = [fold.protocol.policies.get(name, -1) for name in event.policies]
    if not numbers or event.policy or -1 in numbers or numbers != sorted(set(numbers)):
        raise Difference(seq, "must name the policies that answer an item, each once and in their order.")


def check_item_outcome(
    state: LogState,
    seq: int,
    event: ev.Told | ev.Late | ev.Amended | ev.Refused,
    answering: Sequence[int],
) -> None:
    """Refuse outcomes that do not name exactly the policies that answer the item of a ticket."""
    asked = sorted(state.protocol.members.names[k] for k in answering)
    if (sorted(event.outcome) if isinstance(event.outcome, dict) else []) != asked:
        raise Difference(seq, f"has outcomes of other policies than ticket {event.ticket} asks for.")


def _refuse_in_intervals(fold: Fold, seq: int) -> None:
    if fold.intervals is not None:
        raise Difference(seq, "is about a ticket or an import, and the experiment has intervals.")


def _check_told(fold: Fold, seq: int, event: ev.Told) -> None:
    if fold.is_over:
        raise Difference(seq, "counts an outcome of an experiment that is over.")
    out = _out(fold, seq, event.ticket)
    check_told_group(fold, seq, out.group, event.group)
    check_item_outcome(fold, seq, event, out.policies)


def _check_late(fold: Fold, seq: int, event: ev.Late) -> None:
    out = fold.open_tickets.get(event.ticket)
    if out is None:
        if event.why in ("stopped", "closed"):
            raise Difference(
                seq, f"is about ticket {event.ticket}, which is not open, and gives the reason {event.why}."
            )
        return  # the ticket was dropped or has expired: see `ticket_history`
    if not fold.is_over:
        raise Difference(seq, f"calls the outcome of ticket {event.ticket} late, and it is not.")
    if event.why != fold.why_late:
        raise Difference(seq, f"is late because the experiment is {fold.why_late}; it says {event.why}.")
    check_told_group(fold, seq, out.group, event.group)
    check_item_outcome(fold, seq, event, out.policies)


def _check_dropped(fold: Fold, seq: int, event: ev.Dropped) -> None:
    _out(fold, seq, event.ticket)


def _check_expired(fold: Fold, seq: int, event: ev.Expired) -> None:
    out = _out(fold, seq, event.ticket)
    if out.lease is None:
        raise Difference(seq, f"expires ticket {event.ticket}, which has no lease.")
    left = seconds_left(out, event.at) if fold.format >= 2 else 0.0  # format 1 does not record it
    if event.early != left:
        said = f"notes {event.early:g}" if event.early else "does not say so"
        raise Difference(seq, f"expires a lease {left:g} seconds early by the clock, and {said}.")


def _check_imported(fold: Fold, seq: int, event: ev.Imported) -> None:
    _refuse_in_intervals(fold, seq)
    if fold.replay.spec.shared_items:
        raise Difference(seq, "imports an outcome into an experiment on shared items.")
    if fold.is_over or fold.paused:
        raise Difference(seq, "imports into an experiment that is stopped, paused or closed.")
    before = fold.importing
    row = 1 if before is None else before.row + 1
    if event.ticket != fold.tickets + 1:
        raise Difference(seq, f"must be ticket {fold.tickets + 1}; it is not.")
    since = seq - 1 if event.row == 2 else seq  # if two rows disagree, either may be wrong
    if event.row != row:
        raise Difference(seq, f"must be row {row} of its import; it is row {event.row}.", since)
    if before is not None and (event.rows, event.source) != (before.rows, before.source):
        raise Difference(seq, f"is of another import than row {row - 1}, before it.", since)
    _check_policy(fold, seq, event.policy)
    _check_group(fold, seq, event.group)


def _check_amended(fold: Fold, seq: int, event: ev.Amended) -> None:
    if isinstance(event.outcome, dict):  # its names are compared with the ticket's in `ticket_history`
        if event.policy:
            raise Difference(seq, f"names {event.policy!r}, and corrects the outcomes on an item.")
    elif event.policy not in fold.protocol.policies or event.counted:  # others may have left
        _check_policy(fold, seq, event.policy)
    _check_group(fold, seq, event.group)
    if event.outcome == event.old and event.metrics == event.old_metrics:
        raise Difference(seq, f"corrects the outcome of ticket {event.ticket} to what it was.")


def _check_paused(fold: Fold, seq: int, event: ev.Paused) -> None:
    if fold.intervals is not None:
        raise Difference(seq, "pauses an experiment in intervals, whose servers assign without a call.")
    if fold.paused or fold.closed:
        raise Difference(seq, "pauses an experiment that is paused or closed.")


def _check_resumed(fold: Fold, seq: int, event: ev.Resumed) -> None:
    if not fold.paused or fold.closed:
        raise Difference(seq, "resumes an experiment that is not paused, or is closed.")


def _check_closed(fold: Fold, seq: int, event: ev.Closed) -> None:
    if fold.closed:
        raise Difference(seq, "closes an experiment that is closed.")


def _check_stopped(fold: Fold, seq: int, event: ev.Stopped) -> None:
    if not fold.must_stop:
        raise Difference(seq, "stops the experiment, and the stopping rule does not.")
    derived = stop_event(fold.protocol, fold.replay.state, event.at, event.back)
    if not same_stop(event, derived, fold.replay.same_build):
        raise Difference(
            seq, f"stops with {describe_stop(event)}; the rule stops with {describe_stop(derived)}."
        )


def _check_policy_change(fold: Fold, seq: int, event: ev.PolicyChange) -> None:
    try:
        changed_protocol(fold, event.policy, joins=isinstance(event, ev.PolicyAdded))
    except EvenhandError as problem:
        raise Difference(seq, f"cannot have been written: {problem}") from None


def _check_build_changed(fold: Fold, seq: int, event: ev.BuildChanged) -> None:
    if event.versions == fold.build or event.format < max(fold.format, 2):
        raise Difference(seq, "must name another build than the one before, and no older format.")


def _check_created(fold: Fold, seq: int, event: ev.Created) -> None:
    raise Difference(seq, "creates the experiment a second time.")


def _check_nothing(fold: Fold, seq: int, event: AnyEvent) -> None:
    """Accept any position; the content of a snapshot is compared when it is folded."""


def check_told_group(state: LogState, seq: int, asked: int, group: str | None) -> None:
    """Refuse a group with an outcome if it was known when asking, and its absence otherwise."""
    try:
        expected = told_group(state.protocol.problem, asked, group)
    except BadInput as problem:
        raise Difference(seq, f"cannot have been written: {problem}") from None
    if group != expected:
        raise Difference(seq, f"names group {group!r}, which its ticket says already.")


def _out(fold: Fold, seq: int, ticket: int) -> OpenTicket:
    out = fold.open_tickets.get(ticket)
    if out is None:
        raise Difference(seq, f"is about ticket {ticket}, which is not out.")
    return out


def _check_policy(fold: Fold, seq: int, policy: str) -> None:
    if fold.protocol.policies.get(policy) not in fold.protocol.columns:
        raise Difference(seq, f"names {policy!r}, which is no policy.")


def _check_group(fold: Fold, seq: int, group: str | None) -> None:
    if group not in fold.protocol.groups:
        raise Difference(seq, f"names {group!r}, which is no group.")


_CHECKS: dict[type, Callable[[Fold, int, Any], None]] = {
    ev.Asked: _check_asked, ev.Told: _check_told, ev.Late: _check_late, ev.Dropped: _check_dropped,
    ev.Expired: _check_expired, ev.Imported: _check_imported, ev.Amended: _check_amended,
    ev.Paused: _check_paused, ev.Resumed: _check_resumed, ev.Closed: _check_closed,
    ev.Stopped: _check_stopped, ev.PolicyAdded: _check_policy_change,
    ev.PolicyWithdrawn: _check_policy_change, ev.BuildChanged: _check_build_changed,
    ev.Created: _check_created, ev.SharesPublished: interval_checks.check_published,
    ev.Counted: interval_checks.check_counted, ev.CountsCorrected: interval_checks.check_corrected,
    ev.IntervalClosed: interval_checks.check_closed,
}  # fmt: skip
