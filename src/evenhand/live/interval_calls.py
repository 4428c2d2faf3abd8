"""The operations publish_shares, tell_counts, correct_counts and close_interval.

All checks are made before any event is written. The counts of an interval can be repeated; other numbers are
refused, unless they are a correction with a reason and an author while the interval is open.
"""

from __future__ import annotations

from typing import Any

import msgspec

from evenhand.errors import BadInput, Closed, Conflict, NotFound, shown
from evenhand.live import events as ev
from evenhand.live.clock import checked_time, seconds_of, utc
from evenhand.live.events import decode
from evenhand.live.hash_chain import Head
from evenhand.live.interval_arithmetic import closing, publication
from evenhand.live.interval_bets import check_logs
from evenhand.live.interval_counts import Cells, other_counts, total
from evenhand.live.interval_pairs import counts_of
from evenhand.live.intervals import (
    MOST_OPEN,
    IntervalLog,
    IntervalReceipt,
    OpenInterval,
    counts_digest,
    intervals_of,
    policies_of,
    shares_of,
)
from evenhand.live.projection import Fold
from evenhand.live.protocol import Protocol
from evenhand.live.transaction import Session
from evenhand.procedure.assignment import Shares


def publish_shares(session: Session, valid_from: str | None = None, after: int | None = None) -> Shares:
    """Begin the next interval: derive its shares from the counts so far and publish them.

    `after` is the version that must be the latest; another process may have published the next one.
    """
    log = intervals_of(session.fold.intervals)
    _refuse_if_over(session.fold, "publish shares")
    if after is not None and after != log.version:
        raise Conflict(f"the latest shares are version {log.version}, not {after}: others were published.")
    if len(log.open) >= MOST_OPEN:
        raise BadInput(f"{len(log.open):,} intervals are open, and no more may be; close some first.")
    return _publish(session, valid_from)


def tell_counts(
    session: Session, interval: int, counts: Any, close: bool = False, valid_from: str | None = None
) -> IntervalReceipt:
    """Record the counts of an interval, and close it if asked for."""
    fold = session.fold
    log = intervals_of(fold.intervals)
    found = _begun(log, interval)
    if found is None:
        return _again(session, interval, counts)
    cells = counts_of(counts, fold.protocol, policies_of(found.shares))
    if found.cells is not None:
        _refuse_blind_repetition(session, interval)
    if found.cells is not None and found.cells != cells:
        raise other_counts(interval, found.cells, cells, closed=False)
    late = fold.why_late if fold.is_over else None
    if late is None:
        check_logs(fold.protocol, fold.replay.state, log, interval, cells)
    if close and late is None:
        _refuse_to_close(log, interval, has_counts=True)
    if found.cells is None:
        counts = counts_digest(log.digest, interval, cells)
        session.emit(ev.Counted(interval=interval, cells=cells, counts=counts, late=late, **session.stamp()))
    if close and late is None:
        _close(session, interval, valid_from)
    return IntervalReceipt(interval, total(cells), late is None, close and late is None, late)


def correct_counts(session: Session, interval: int, counts: Any, reason: str, by: str) -> IntervalReceipt:
    """Replace the counts of an interval that is not closed."""
    fold = session.fold
    log = intervals_of(fold.intervals)
    found = _begun(log, interval)
    _refuse_if_over(fold, "take a correction")
    if found is None:
        raise Conflict(f"interval {interval} is closed, and its counts are final.")
    if found.cells is None:
        raise BadInput(f"interval {interval} has no counts to correct; tell them instead.")
    cells = counts_of(counts, fold.protocol, policies_of(found.shares))
    if cells != found.cells:
        check_logs(fold.protocol, fold.replay.state, log, interval, cells)
        counts = counts_digest(log.digest, interval, cells)
        session.emit(
            ev.CountsCorrected(
                interval=interval, cells=cells, counts=counts, reason=reason, by=by, **session.stamp()
            )
        )
    return IntervalReceipt(interval, total(cells), True, False)


def close_interval(
    session: Session, interval: int | None = None, valid_from: str | None = None
) -> IntervalReceipt:
    """Close the next interval: its counts are final, and the stopping rule is evaluated."""
    fold = session.fold
    log = intervals_of(fold.intervals)
    number = log.closed + 1 if interval is None else interval
    found = _begun(log, number)
    if found is None:
        return IntervalReceipt(number, total(_recorded(session, number)), True, True)
    _refuse_if_over(fold, "close an interval")
    _refuse_to_close(log, number, found.cells is not None)
    _close(session, number, valid_from)
    return IntervalReceipt(number, total(found.cells or ()), True, True)


def publish_after_change(session: Session) -> None:
    """Publish shares for other policies at once, where the experiment has intervals and continues."""
    if session.fold.intervals is not None and not session.fold.is_over:
        _publish(session, None)


def first_publication(event: ev.Created) -> list[ev.SharesPublished]:
    """Return the second event of an experiment in intervals, its first shares; nothing for tickets."""
    protocol = Protocol.read(event, b"")
    if protocol.procedure.interval is None:
        return []
    made = publication(Fold(protocol, Head(1, b"")), event.at, event.at)
    salt = None if event.salt is None else ev.new_salt()
    return [msgspec.structs.replace(made, salt=salt, actor=event.actor)]


def answer_of(operation: str, events: list[ev.AnyEvent]) -> Any:
    """Return the answer of a request from its events."""
    if operation == "publish_shares":
        return next(shares_of(event) for event in events if isinstance(event, ev.SharesPublished))
    closed = any(isinstance(event, ev.IntervalClosed) for event in events)
    for event in events:
        if isinstance(event, (ev.Counted, ev.CountsCorrected)):
            late = event.late if isinstance(event, ev.Counted) else None
            return IntervalReceipt(event.interval, total(event.cells), late is None, closed, late)
        if isinstance(event, ev.IntervalClosed):
            return IntervalReceipt(event.interval, event.outcomes, True, True)
    return None


def _close(session: Session, interval: int, valid_from: str | None) -> None:
    """Write the closing, the stop if the rule fires, and otherwise the next shares."""
    fold = session.fold
    log = intervals_of(fold.intervals)
    if interval == log.version:
        _next_time(session, valid_from)  # refuses a time that cannot be used before anything is written
    after = closing(fold.protocol, fold.replay.state, log.open[interval])
    session.emit_derived(
        ev.IntervalClosed(
            interval=interval, outcomes=after.outcomes, samples=after.samples, sums=after.sums,
            leader=after.leader, evidence=after.evidence, needed=after.needed, weakest=after.weakest,
            **session.stamp(),
        ),
        after,
    )  # fmt: skip
    if interval == log.version and not fold.is_over:
        _publish(session, valid_from)


def _publish(session: Session, valid_from: str | None) -> Shares:
    start = _next_time(session, valid_from)
    stamp = session.stamp()
    event = publication(session.fold, start, stamp["at"], stamp.get("back", 0.0))
    session.emit_derived(ev.SharesPublished(**{name: getattr(event, name) for name in _OWN}, **stamp))
    return shares_of(event)


_OWN = ("version", "valid_from", "hash_salt", "ranges", "state")


def _next_time(session: Session, valid_from: str | None) -> str:
    """Return from when the next shares are valid: as given, or now; refuse a time before the latest."""
    latest = intervals_of(session.fold.intervals).latest
    before = "" if latest is None else latest.valid_from or ""
    if valid_from is None:
        now = session.time()["at"]
        return now if now > before else utc(seconds_of(before) + 1e-6)
    if valid_from <= before:
        raise BadInput(
            f"the shares would be older than those of the log, which are valid from {before}; they are valid "
            f"from {valid_from}. Give a later time."
        )
    return valid_from


def _begun(log: IntervalLog, number: int) -> OpenInterval | None:
    """Return an interval that is open, None for one that is closed; refuse one that has not begun."""
    if number > log.version:
        raise NotFound(
            f"interval {number} has not begun: the latest shares are version {log.version}. Count units "
            "under the version of the shares that assigned them."
        )
    return log.open.get(number)


def _again(session: Session, interval: int, counts: Any) -> IntervalReceipt:
    """Return the receipt of a closed interval whose counts are repeated; refuse other counts."""
    _refuse_blind_repetition(session, interval)
    kept = _recorded(session, interval)
    policies = list(dict.fromkeys([cell.policy for cell in kept] + list(session.fold.protocol.policies)))
    cells = counts_of(counts, session.fold.protocol, policies)
    if _by_cell(cells) != _by_cell(kept):
        raise other_counts(interval, kept, cells, closed=True)
    return IntervalReceipt(interval, total(kept), True, True)


def _refuse_blind_repetition(session: Session, interval: int) -> None:
    """Refuse counts of a blind caller for an interval that others have counted."""
    caller = session.caller
    if caller is None or not caller.is_blind:
        return
    for record in session.by_ticket(interval):
        event = decode(record)
        if isinstance(event, (ev.Counted, ev.CountsCorrected)) and (
            event.actor is None or event.actor.id != caller.id
        ):
            raise Conflict(f"interval {interval} has counts already; nothing was written.")


def _by_cell(cells: Cells) -> dict[tuple[str, str], ev.CellCounts]:
    return {(cell.policy, cell.group): cell for cell in cells}


def _recorded(session: Session, interval: int) -> Cells:
    """Return the counts of a closed interval, from its events."""
    cells: Cells = ()
    for record in session.by_ticket(interval):
        event = decode(record)
        if isinstance(event, (ev.Counted, ev.CountsCorrected)):
            cells = event.cells
    return cells


def _refuse_to_close(log: IntervalLog, interval: int, has_counts: bool) -> None:
    if interval != log.closed + 1:
        raise Conflict(
            f"intervals are closed in order, so that closing cannot depend on outcomes; the next is "
            f"{log.closed + 1}, not {interval}."
        )
    if not has_counts:
        raise BadInput(f"interval {interval} has no counts yet; tell them first.")


def _refuse_if_over(fold: Fold, what: str) -> None:
    if fold.is_over:
        raise Closed(f"the experiment is {fold.why_late} and cannot {what}.")


def checked_valid_from(value: str | None) -> str | None:
    """Return a time as the log writes it; refuse what is none."""
    if value is None:
        return None
    from datetime import datetime

    try:
        found = datetime.fromisoformat(value)
        return checked_time(utc(found.timestamp())) if found.tzinfo is not None else _refused_time(value)
    except (TypeError, ValueError):
        return _refused_time(value)


def _refused_time(value: object) -> str:
    raise BadInput(
        f"valid_from must be a time with its zone, such as 2030-01-31T12:00:00Z; it is {str(value)[:40]!r}."
    )


def checked_interval(value: object) -> int:
    """Return the number of an interval; refuse what is none."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**63:
        raise BadInput(
            f"an interval is a whole number from 1, the version of its shares; it is {shown(value)}."
        )
    return value
