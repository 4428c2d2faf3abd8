"""One transaction on one experiment, shared SQL queries, and the session of a call.

A call in a transaction uses its `Session` to read the fold, look up events and emit new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from evenhand.errors import IntegrityFailed, NotFound
from evenhand.live import events as ev
from evenhand.live import schema
from evenhand.live.build import present_build
from evenhand.live.clock import Clock, behind, utc
from evenhand.live.events import encode
from evenhand.live.fault_points import reach
from evenhand.live.hash_chain import Difference, Head, Record, extend
from evenhand.live.interval_arithmetic import Closing
from evenhand.live.projection import Fold, PlacedSample
from evenhand.live.replay import sums_digest
from evenhand.live.requests import Caller, RequestKey
from evenhand.live.schema import Index, index_of
from evenhand.live.snapshot import snapshot_of
from evenhand.live.stop_event import stop_event
from evenhand.live.ticket_history import corrected
from evenhand.live.tickets import Leases, seconds_left

Entry = tuple[bytes, Index]
Found = sa.Row[int, str, int, bytes, int]  # an experiment's row
Values = tuple[object, ...]  # of an event, in the order of the table's columns
Write = Callable[[sa.Connection, list[Values], dict[str, object]], None]  # inserts events, updates the head
PAGE = 20_000  # events per query: memory use does not grow with the log


class StoredEvent(NamedTuple):
    """A record and its index columns."""

    record: Record
    found_by: Index


class Transaction:
    """One transaction on one experiment, with its row locked."""

    def __init__(self, connection: sa.Connection, row: Found, write: Write) -> None:
        self._connection = connection
        self._write = write
        self.number = int(row.number)
        self.head = Head(row.seq, row.hash)
        self.snapshot = int(row.snapshot)
        self.wrote = False
        self._waiting: list[Values] = []
        self._of_keys: dict[str, list[Record]] = {}  # fetched by `look_up`

    def append(self, entries: Sequence[Entry]) -> list[Record]:
        """Add events; they are inserted at the latest when the transaction ends."""
        records = extend(self.head, [body for body, _ in entries])
        for record, (_, index) in zip(records, entries, strict=True):
            seq, body, hash_ = record
            self._waiting.append((self.number, seq, *index, body, hash_))
            if index.key is not None and index.key in self._of_keys:
                self._of_keys[index.key].append(record)
        if records:
            self.head = Head(records[-1].seq, records[-1].hash)
        return records

    def mark_snapshot(self) -> None:
        """Mark the last event appended as a snapshot."""
        self.snapshot = self.head.seq

    def by_ticket(self, ticket: int) -> list[Record]:
        """Return the events of a ticket, in the order of the log."""
        return sorted(self._found(schema.by_ticket, ticket))

    def look_up(self, keys: Sequence[str]) -> None:
        """Fetch the events of all these keys in one query, for `by_key`."""
        self._of_keys |= {key: [] for key in keys}
        rows = self._connection.execute(schema.by_keys, {"of": self.number, "what": list(set(keys))})
        for key, seq, body, hash_ in rows:
            self._of_keys[key].append(Record(seq, body, hash_))

    def by_key(self, key: str) -> list[Record]:
        """Return the events of a request; for an import only the first."""
        if key not in self._of_keys:
            self.flush()
            self.look_up([key])
        return list(self._of_keys[key])

    def by_cell(self, cell: int, until: int | None = None) -> list[Record]:
        """Return the events that change the counted outcomes of a cell, up to number `until`."""
        self.flush()
        return of_cell(self._connection, self.number, cell, self.head.seq if until is None else until)

    def hash_of(self, seq: int) -> bytes | None:
        """Return the hash of an event; None if there is no event of this number."""
        return hash_of(self._connection, self.number, seq)

    def read(self, after: int) -> Iterator[StoredEvent]:
        """Yield the events after number `after`, up to the head."""
        last = self.head.seq
        return in_pages(lambda after: page(self._connection, self.number, after, last), after, last)

    def flush(self) -> None:
        """Insert the appended events, without committing."""
        if not self._waiting:
            return
        reach("before write")
        seq, hash_ = self.head
        to: dict[str, object] = {
            "of": self.number, "to_seq": seq, "to_hash": hash_, "to_snapshot": self.snapshot,
        }  # fmt: skip
        self._write(self._connection, self._waiting, to)
        self._waiting.clear()
        self.wrote = True
        reach("after write")

    def _found(self, statement: sa.Select[int, bytes, bytes], what: object) -> list[Record]:
        self.flush()
        rows = self._connection.execute(statement, {"of": self.number, "what": what})
        return [Record(seq, body, hash_) for seq, body, hash_ in rows]


def in_pages(next_page: Callable[[int], list[StoredEvent]], after: int, last: int) -> Iterator[StoredEvent]:
    """Yield the events after one up to the last, fetched in pages."""
    while after < last:
        found = next_page(after)
        if not found:
            raise Difference(after + 1, f"is missing: the head says there are {last} events.")
        yield from found
        after = found[-1].record.seq


def find(connection: sa.Connection, statement: sa.Select[int, str, int, bytes, int], name: str) -> Found:
    """Return an experiment's row."""
    return checked(connection.execute(statement, {"name": name}).one_or_none(), name)


def checked(row: Found | None, name: str) -> Found:
    """Return the row of an experiment; refuse one that is missing or malformed."""
    if row is None:
        raise NotFound(f"the journal holds no experiment {name!r}.")
    if not isinstance(row.seq, int) or not isinstance(row.hash, bytes) or not isinstance(row.snapshot, int):
        raise IntegrityFailed(f"the head of {name!r} was changed: it names no event.")
    return row


def page(connection: sa.Connection, number: int, after: int, until: int) -> list[StoredEvent]:
    """Return the next page of events after one."""
    rows = connection.execute(schema.page, {"of": number, "after": after, "until": until, "most": PAGE})
    return [StoredEvent(Record(row[1], row[7], row[8]), Index._make(row[2:7])) for row in rows.fetchall()]


def hash_of(connection: sa.Connection, number: int, seq: int) -> bytes | None:
    """Return the hash of an event of an experiment; None if there is no such event."""
    return connection.execute(schema.hash_of, {"of": number, "seq": seq}).scalar_one_or_none()


def of_cell(connection: sa.Connection, number: int, cell: int, until: int) -> list[Record]:
    """Return the events that change the counted outcomes of a cell, up to one."""
    rows = connection.execute(schema.by_cell, {"of": number, "what": cell, "until": until})
    return [Record(seq, body, hash_) for seq, body, hash_ in rows]


class Session:
    """The operations available to a call inside a transaction."""

    def __init__(
        self,
        transaction: Transaction,
        fold: Fold,
        clock: Clock,
        leases: Leases,
        again: bool,
        salted: bool = False,
    ) -> None:
        self.fold = fold
        self.again = again  # an earlier attempt may have been committed
        self.by_ticket = transaction.by_ticket
        self.by_key = transaction.by_key
        self.parts = 0  # events that the current request has written under its key
        self._transaction = transaction
        self._clock = clock
        self._leases = leases
        self._salted = salted
        self._request: RequestKey | None = None
        self.caller: Caller | None = None  # who made the current request, if it came through the service

    def begin(self, request: RequestKey | None, caller: Caller | None = None) -> None:
        """Set the request of the events that follow, and who made it."""
        self._request, self.caller, self.parts = request, caller, 0

    @property
    def key_was_given(self) -> bool:
        """Return whether the caller gave the key of the current request."""
        return self._request is not None and self._request.is_given

    def stamp(self) -> dict[str, Any]:
        """Return the common fields of the request's next event: time, key and part."""
        request, part = self._request, self.parts
        actor = {} if self.caller is None else {"actor": self.caller.actor}
        if request is None:
            return self.time() | actor
        self.parts += 1
        first = {"request": request.digest} if part == 0 else {}
        return self.time() | actor | {"key": request.key, "part": part} | first

    def time(self) -> dict[str, Any]:
        """Return the time of an event, by how much it is behind the log's latest, and its salt."""
        at = utc(self._clock.now())
        by = behind(at, self.fold.latest)
        fields: dict[str, Any] = {"at": at, "back": by} if by else {"at": at}
        return fields | {"salt": ev.new_salt()} if self._salted else fields

    def emit(self, event: ev.AnyEvent) -> None:
        """Write and fold an event; if the stopping rule fires with it, also the stop."""
        cell = self.fold.cell_of(event)
        event = self._with_sums(event, cell)
        self.fold.note(self._append(event, cell), event, self._history)
        self._stop_if_due()

    def emit_all(self, events: Iterable[tuple[ev.Imported, Entry]]) -> None:
        """Write many events, given with their stored form, and fold them in one kernel call."""
        fold, transaction = self.fold, self._transaction
        for event, entry in events:
            [record] = transaction.append([entry])
            fold.step(record, event, self._history)
        fold.flush()
        self._transaction.flush()  # memory use does not grow with the number of events
        self._stop_if_due()

    def _stop_if_due(self) -> None:
        fold = self.fold
        if fold.must_stop:
            time = self.time()
            stop = stop_event(fold.protocol, fold.replay.state, time["at"], time.get("back", 0.0))
            self.emit(msgspec.structs.replace(stop, **time))

    def emit_chosen(self, event: ev.Asked) -> None:
        """Write an ask that the rule has just chosen."""
        self.fold.note_chosen(self._append(event, None), event)
        self._leases.add(event.ticket, self.fold.open_tickets[event.ticket])

    def emit_derived(self, event: ev.IntervalEvent, after: Closing | None = None) -> None:
        """Write shares or a closing that were just derived; if the stopping rule fires, also the stop."""
        self.fold.note_derived(self._append(event, None), event, after)
        self._stop_if_due()

    def give_up_overdue(self) -> None:
        """Write an expiry for every ticket whose lease has ended."""
        for ticket in self._leases.due(self.fold):
            time = self.time()
            early = seconds_left(self.fold.open_tickets[ticket], time["at"])
            self.emit(ev.Expired(ticket=ticket, early=early, **time))

    def save_snapshot(self) -> None:
        """Write a snapshot if the last one is far enough back in the log."""
        fold = self.fold
        if fold.head.seq - fold.snapshot >= fold.protocol.snapshot_every:
            time = self.time()
            self.name_build(time["at"], time.get("back", 0.0))  # first: the snapshot contains it
            event = ev.Snapshot(fold=snapshot_of(fold), **time)
            record = self._append(event, None)
            self._transaction.mark_snapshot()
            fold.note_snapshot(record, event)

    def _with_sums(self, event: ev.AnyEvent, cell: int | None) -> ev.AnyEvent:
        """Return the event with a digest of the sums that its outcome leads to in its cell."""
        if isinstance(event, (ev.Told, ev.Imported)) and cell is not None:
            sums = self.fold.sums_after(cell, ev.sample_of(event))
        elif isinstance(event, ev.Amended) and cell is not None:
            correction = Record(self._transaction.head.seq + 1, encode(event), b"")
            samples = corrected([*self._transaction.by_cell(cell), correction])
            sums = self.fold.sums_from(cell, samples)
        else:
            return event
        return msgspec.structs.replace(event, sums=sums_digest(event.ticket, sums))

    def _append(self, event: ev.AnyEvent, cell: int | None) -> Record:
        """Write an event; before the first event of another build, write the build change."""
        self.name_build(event.at, event.back)
        return self._write(event, cell)

    def name_build(self, at: str, back: float = 0.0) -> None:
        """Write a `build_changed` event if the build differs, with the time of the next event."""
        build = present_build()
        if build != self.fold.build:
            changed = ev.BuildChanged(versions=build, format=ev.FORMAT, at=at, back=back)
            self.fold.note(self._write(changed, None), changed, self._history)

    def _write(self, event: ev.AnyEvent, cell: int | None) -> Record:
        index = index_of(event, self._transaction.head.seq + 1, cell)
        [record] = self._transaction.append([(encode(event), index)])
        return record

    def _history(self, cell: int, _seq: int) -> list[PlacedSample]:
        return corrected(self._transaction.by_cell(cell))
