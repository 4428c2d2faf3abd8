"""The audit: recompute allocations, estimates, evidence and the stop from the log.

The result is "identical" or the first event that does not follow from those before it. The audit makes every
check that the writer makes. With another build of the numerical libraries the last digits of probabilities
may differ; these events are counted separately and are not a difference while all decisions are the same.
If a changed event shows only at a later one, `located` finds the event that was changed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from evenhand.errors import BadInput, IntegrityFailed
from evenhand.live import events as ev
from evenhand.live.event_checks import check_event
from evenhand.live.events import Amended, AnyEvent, BuildChanged, Created, decode
from evenhand.live.export import Export
from evenhand.live.hash_chain import Difference, Head, Record, genesis, verified
from evenhand.live.journal import Position, open_journal
from evenhand.live.load_log import only_experiment
from evenhand.live.projection import Fold
from evenhand.live.protocol import Protocol
from evenhand.live.requests import KeySet
from evenhand.live.schema import Index, index_of
from evenhand.live.sequence_checks import check_complete
from evenhand.live.ticket_history import TicketHistory
from evenhand.live.transaction import StoredEvent
from evenhand.live.writer_lock import Missing

_AT_ONCE = 10_000  # events per batch of arithmetic
_NO_DIFFERENCE = Index(part=-1)  # for records from a file, which has no index


class Audit(NamedTuple):
    """The result of an audit."""

    events: int  # number of events read before the end or the first difference
    identical: bool
    first_difference: str | None
    first_different_event: int | None
    head: str  # hash of the last event read
    same_build: bool  # whether every event was written by the build that runs this audit
    other_digits: int  # asks and snapshots whose probabilities differ in the last digits
    builds: int = 1  # 1 + the number of build changes in the log
    close_decisions: int = 0  # decisions of other builds that follow only with other last digits


def audit(address: str, head: str | None = None, experiment: str | None = None) -> Audit:
    """Audit a journal or an export; `head` is a hash noted earlier that the log must contain."""
    wanted = None if head is None else _hash(head)
    if not is_journal(address):
        return _audit_export(Path(address), wanted)
    journal = open_journal(address, write=False, allow_missing=True)
    try:
        if journal.missing is not None and not journal.experiments():
            raise IntegrityFailed(f"{journal.missing.what}: the journal holds nothing any more.")
        name = only_experiment(journal, experiment)
        end = LogEnd(journal.position(name), journal.missing)
        return _audit(name, lambda: journal.read(name, 0, end.position.head.seq), wanted, end)
    finally:
        journal.close()


def _audit_export(path: Path, wanted: bytes | None) -> Audit:
    try:
        export = Export(path)
    except IntegrityFailed as problem:
        return _Auditor("", tuple, wanted).result(problem)
    return _audit(
        export.experiment,
        lambda: (StoredEvent(record, _NO_DIFFERENCE) for record in export.read()),
        wanted,
        None,
    )


class LogEnd(NamedTuple):
    """Where a log ends according to the journal's own table."""

    position: Position
    missing: Missing | None


def _audit(
    name: str, read: Callable[[], Iterable[StoredEvent]], wanted: bytes | None, end: LogEnd | None
) -> Audit:
    run = _Auditor(name, read, wanted)
    difference: IntegrityFailed | None = None
    try:
        run.read_all()
        run.check_end(end)
    except IntegrityFailed as problem:
        difference = run.earliest(problem)
    return run.result(difference)


class _Auditor:
    """One pass over a log."""

    def __init__(self, name: str, read: Callable[[], Iterable[StoredEvent]], wanted: bytes | None) -> None:
        self._name = name
        self._read = read
        self._wanted = wanted
        self._head = genesis(name)
        self._keys = KeySet()
        self._builds = 1
        self._fold: Fold | None = None
        self._history: TicketHistory | None = None

    def read_all(self) -> None:
        """Check every event: hash chain, index columns, and that it follows from the log before it."""
        read, rows = itertools.tee(self._read())
        # in order: an unreadable record is reported after all records before it were checked
        for record, row in zip(verified((row.record for row in read), self._head), rows, strict=True):
            self._one(row)
            self._head = Head(record.seq, record.hash)
            if record.hash == self._wanted:
                self._wanted = None
            if record.seq % _AT_ONCE == 0 and self._fold is not None:
                self._fold.flush()
        if self._fold is not None:
            self._fold.flush()

    def _one(self, row: StoredEvent) -> None:
        record, event = row.record, decode(row.record)
        fold, history = self._fold, self._history
        if fold is None or history is None:
            if not isinstance(event, Created) or event.experiment != self._name:
                raise Difference(1, "must be the protocol of this experiment; it is not.")
            protocol = Protocol.read(event, record.hash)
            check_event(record, event, protocol)
            self._fold = Fold(protocol, Head(1, record.hash))
            self._history = TicketHistory(self._fold)
            return
        check_event(record, event, fold.protocol)
        if row.found_by is not _NO_DIFFERENCE and row.found_by != index_of(
            event, record.seq, fold.cell_of(event)
        ):
            raise Difference(record.seq, "is filed under another ticket, cell or key than its own.")
        self._check_request(record.seq, event)
        if isinstance(event, Amended):
            history.correct(record.seq, event)
        place = fold.step(record, event, lambda cell, _seq: history.of(cell))
        history.take(record.seq, event, place)
        self._builds += isinstance(event, BuildChanged)

    def _check_request(self, seq: int, event: AnyEvent) -> None:
        """Refuse a part of a request that was there before, or without the parts before it."""
        key, part = event.key, event.part
        if key is None:
            return
        if not self._keys.add(key, part):
            raise Difference(seq, f"answers the request {key!r} a second time.")
        if part > 0 and not self._keys.holds(key, part - 1):
            raise Difference(seq, f"is part {part} of the request {key!r}, and part {part - 1} is not there.")
        if part > 0 and event.request is not None:
            raise Difference(seq, f"has a digest of the request {key!r}, which only its first part has.")

    def check_end(self, end: LogEnd | None) -> None:
        """Check that the log is complete, contains the noted head and lacks no required event."""
        fold, seq = self._fold, self._head.seq
        if fold is None:
            raise Difference(1, "is missing: the log is empty.")
        if end is not None:
            self._check_position(fold, end.position)
        check_complete(fold)
        if end is not None and end.missing is not None:
            raise self._lost(end.missing)
        if self._wanted is not None:
            missing = f"no event has the hash {self._wanted.hex()}"
            raise Difference(seq + 1, f"is missing: {missing}; the log was cut off, or is another one.")

    def _check_position(self, fold: Fold, end: Position) -> None:
        """Check that the journal's table gives the same end as the log."""
        if end.head != self._head or not end.ends_there:
            raise Difference(
                self._head.seq + 1,
                f"is not where the log ends according to the journal's head, after event {end.head.seq}.",
            )
        if end.snapshot != fold.snapshot:
            raise Difference(end.snapshot, f"is noted as the latest snapshot; that is event {fold.snapshot}.")

    def _lost(self, missing: Missing) -> IntegrityFailed:
        """Return the difference for events that were written and are missing."""
        if missing.experiment != self._name:
            return IntegrityFailed(f"{missing.what}: the journal is an older or another copy.")
        if missing.last >= missing.mark.seq:
            return Difference(missing.first, "is not the one that was written here: the log was changed.")
        return Difference(
            missing.first,
            f"is missing: events up to {missing.mark.seq} were written here. The journal is an older copy, "
            "or its last events or its -wal file were removed.",
        )

    def earliest(self, problem: IntegrityFailed) -> IntegrityFailed:
        """Return the problem, or an earlier one from queued arithmetic; with the changed event."""
        if self._fold is None:
            return problem
        try:
            self._fold.flush()
        except Difference as waiting:
            if not isinstance(problem, Difference) or waiting.seq < problem.seq:
                problem = waiting
        if isinstance(problem, Difference) and problem.since < problem.seq:
            return located(problem, lambda: (row.record for row in self._read()))
        return problem

    def result(self, difference: IntegrityFailed | None) -> Audit:
        fold = self._fold
        return Audit(
            events=self._head.seq,
            identical=difference is None,
            first_difference=None if difference is None else str(difference),
            first_different_event=difference.seq if isinstance(difference, Difference) else None,
            head=str(self._head),
            same_build=fold is not None and fold.replay.same_build and self._builds == 1,
            other_digits=0 if fold is None else fold.replay.other_digits,
            builds=self._builds,
            close_decisions=0 if fold is None else fold.replay.close_decisions,
        )


def is_journal(address: str) -> bool:
    """Return whether the address is a journal, not an export."""
    if address.startswith(("postgresql://", "postgres://")):
        return True
    path = Path(address)
    if not path.is_file():
        raise BadInput(f"there is no file {address}; give a journal or an export.")
    from evenhand.live.sqlite import is_sqlite

    return is_sqlite(path)


def _hash(text: str) -> bytes:
    try:
        value = bytes.fromhex(text.strip())
    except ValueError:
        value = b""
    if len(value) != 32:
        raise BadInput(f"a head must be 64 hexadecimal digits, as `status` shows it; it is {text[:80]!r}.")
    return value


Read = Callable[[], Iterable[Record]]


def located(problem: Difference, read: Read) -> Difference:
    """Return the difference with the event that was changed, or the range that contains it."""
    events = [decode(record) for record in itertools.islice(read(), problem.since - 1, problem.seq + 1)]
    if isinstance(events[0], ev.Imported) and isinstance(events[problem.seq - problem.since], ev.Imported):
        return _wrong_row(problem, events)
    suspects = [problem.since + place for place, event in enumerate(events) if _may_be_wrong(event)]
    suspects = [seq for seq in suspects if seq < problem.seq]
    if not suspects:
        return problem
    others = f"event {suspects[0]}"
    if len(suspects) > 1:
        others = f"one of the events {suspects[0]} to {suspects[-1]}"
    return Difference(
        problem.seq, f"{problem.reason.rstrip('.')}: it was changed, or {others} was.", suspects[0]
    )


def _may_be_wrong(event: AnyEvent) -> bool:
    """Return whether the event changes counts and sums without a digest of the result."""
    if isinstance(event, (ev.Told, ev.Imported, ev.Amended)):
        return event.sums is None
    return isinstance(event, (ev.Dropped, ev.Expired))


def _wrong_row(problem: Difference, events: list[AnyEvent]) -> Difference:
    """Return which of an import's first two rows is wrong, judged by the event after them."""
    first, second, *rest = events
    after = rest[0] if rest else None
    if not isinstance(first, ev.Imported) or first.row != 1 or not isinstance(second, ev.Imported):
        return problem
    if isinstance(after, ev.Imported) and after.row > 1:
        second_is_right = after.row == 3 and (after.rows, after.source) == (second.rows, second.source)
    else:
        second_is_right = second.rows == 2  # the import has only these two rows
    if second_is_right:
        return Difference(problem.seq - 1, "is of another import than the rows that follow it.")
    return problem
