"""One transaction on one experiment, and the statements that it and readers share.

What a call may do while it is its turn: read the fold, look events up, and emit new ones.
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
from evenhand.live.leases import Leases
from evenhand.live.projection import Fold
from evenhand.live.requests import RequestKey
from evenhand.live.schema import Index, index_of
from evenhand.live.snapshot import snapshot_of
from evenhand.live.stop import stop_of
from evenhand.live.ticket_history import corrected
from evenhand.live.tickets import seconds_left

Entry = tuple[bytes, Index]
Found = sa.Row[int, str, int, bytes, int]  # an experiment's row
Values = tuple[object, ...]  # of an event, in the order of the table's columns
Write = Callable[[sa.Connection, list[Values], dict[str, object]], None]  # events, and the head they lead to
PAGE = 20_000  # events read at a time: memory does not grow with the log


class Row(NamedTuple):
    """A record and what it is found by."""

    record: Record
    found_by: Index


class Turn:
    """One transaction on one experiment, with its row locked."""

    def __init__(self, connection: sa.Connection, row: Found, write: Write) -> None:
        self._connection = connection
        self._write = write
        self.number = int(row.number)
        self.head = Head(row.seq, row.hash)
        self.snapshot = int(row.snapshot)
        self.wrote = False
        self._waiting: list[Values] = []
        self._of_keys: dict[str, list[Record]] = {}  # of those looked up beforehand

    def append(self, entries: Sequence[Entry]) -> list[Record]:
        """Add events; they are written at the latest when the turn ends."""
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
        """The last event appended is a snapshot."""
        self.snapshot = self.head.seq

    def by_ticket(self, ticket: int) -> list[Record]:
        return self._found(schema.by_ticket, ticket)

    def look_up(self, keys: Sequence[str]) -> None:
        """Fetch what there is of all these keys at once, for `by_key`."""
        self._of_keys |= {key: [] for key in keys}
        rows = self._connection.execute(schema.by_keys, {"of": self.number, "what": list(set(keys))})
        for key, seq, body, hash_ in rows:
            self._of_keys[key].append(Record(seq, body, hash_))

    def by_key(self, key: str) -> list[Record]:
        """The events of a request; of an import only the first."""
        if key not in self._of_keys:
            self.flush()
            self.look_up([key])
        return list(self._of_keys[key])

    def by_cell(self, cell: int, until: int | None = None) -> list[Record]:
        """The events by which outcomes of a cell count (told, imported, amended), up to one."""
        self.flush()
        return of_cell(self._connection, self.number, cell, self.head.seq if until is None else until)

    def hash_of(self, seq: int) -> bytes | None:
        """The hash of an event; None where there is none of this number."""
        return hash_of(self._connection, self.number, seq)

    def read(self, after: int) -> Iterator[Row]:
        """Events after number `after`, up to the head."""
        last = self.head.seq
        return in_pages(lambda after: page(self._connection, self.number, after, last), after, last)

    def flush(self) -> None:
        """Hand what was appended to the database, still inside the transaction."""
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


def in_pages(next_page: Callable[[int], list[Row]], after: int, last: int) -> Iterator[Row]:
    """The events after one up to the last, some thousand at a time."""
    while after < last:
        found = next_page(after)
        if not found:
            raise Difference(after + 1, f"is missing: the head says there are {last} events.")
        yield from found
        after = found[-1].record.seq


def find(connection: sa.Connection, statement: sa.Select[int, str, int, bytes, int], name: str) -> Found:
    """An experiment's row."""
    return checked(connection.execute(statement, {"name": name}).one_or_none(), name)


def checked(row: Found | None, name: str) -> Found:
    """The row of an experiment, if that is what it is."""
    if row is None:
        raise NotFound(f"the journal holds no experiment {name!r}.")
    if not isinstance(row.seq, int) or not isinstance(row.hash, bytes) or not isinstance(row.snapshot, int):
        raise IntegrityFailed(f"the head of {name!r} was changed: it names no event.")
    return row


def page(connection: sa.Connection, number: int, after: int, until: int) -> list[Row]:
    """The next events after one."""
    rows = connection.execute(schema.page, {"of": number, "after": after, "until": until, "most": PAGE})
    return [Row(Record(row[1], row[7], row[8]), Index._make(row[2:7])) for row in rows.fetchall()]


def hash_of(connection: sa.Connection, number: int, seq: int) -> bytes | None:
    """The hash of an event of an experiment; None where there is none of this number."""
    return connection.execute(schema.hash_of, {"of": number, "seq": seq}).scalar_one_or_none()


def of_cell(connection: sa.Connection, number: int, cell: int, until: int) -> list[Record]:
    """The events by which outcomes of a cell count, up to one."""
    rows = connection.execute(schema.by_cell, {"of": number, "what": cell, "until": until})
    return [Record(seq, body, hash_) for seq, body, hash_ in rows]


class Session:
    """What a call may do during a turn."""

    def __init__(self, turn: Turn, fold: Fold, clock: Clock, leases: Leases, again: bool) -> None:
        self.fold = fold
        self.again = again  # an earlier try may have been committed without our knowing
        self.by_ticket = turn.by_ticket
        self.by_key = turn.by_key
        self.parts = 0  # events that the present request has written under its key
        self._turn = turn
        self._clock = clock
        self._leases = leases
        self._request: RequestKey | None = None

    def begin(self, request: RequestKey | None) -> None:
        """Whatever is stamped from here on belongs to this request."""
        self._request, self.parts = request, 0

    @property
    def key_was_given(self) -> bool:
        """Has the present request a key of its caller's?"""
        return self._request is not None and self._request.is_given

    def stamp(self) -> dict[str, Any]:
        """What an event of the present request carries: its time, its key, and which part it is."""
        request, part = self._request, self.parts
        if request is None:
            return self.time()
        self.parts += 1
        first = {"request": request.digest} if part == 0 else {}
        return self.time() | {"key": request.key, "part": part} | first

    def time(self) -> dict[str, Any]:
        """The time for an event, and by how much it is behind the log's latest."""
        at = utc(self._clock.now())
        by = behind(at, self.fold.latest)
        return {"at": at, "back": by} if by else {"at": at}

    def emit(self, event: ev.AnyEvent) -> None:
        """Write an event and fold it; if the stopping rule fires with it, that too."""
        cell = self.fold.cell_of(event)
        event = self._with_sums(event, cell)
        self.fold.note(self._append(event, cell), event, self._history)
        self._stop_if_due()

    def emit_all(self, events: Iterable[tuple[ev.Imported, Entry]]) -> None:
        """Write many events, given with what is stored of them, and fold them in one run of the kernels."""
        fold, turn = self.fold, self._turn
        for event, entry in events:
            [record] = turn.append([entry])
            fold.step(record, event, self._history)
        fold.flush()
        self._turn.flush()  # memory does not grow with the number of events
        self._stop_if_due()

    def _stop_if_due(self) -> None:
        fold = self.fold
        if fold.must_stop:
            self.emit(stop_of(fold.protocol, fold.brain.state, **self.time()))

    def emit_chosen(self, event: ev.Asked) -> None:
        """Write an ask that the rule has just chosen."""
        self.fold.note_chosen(self._append(event, None), event)
        self._leases.add(event.ticket, self.fold.out[event.ticket])

    def give_up_overdue(self) -> None:
        """Write an expiry for every ticket whose lease has run out."""
        for ticket in self._leases.due(self.fold):
            time = self.time()
            early = seconds_left(self.fold.out[ticket], time["at"])
            self.emit(ev.Expired(ticket=ticket, early=early, **time))

    def save_snapshot(self) -> None:
        """Write the fold down, where the last time is long ago."""
        fold = self.fold
        if fold.head.seq - fold.snapshot >= fold.protocol.snapshot_every:
            time = self.time()
            self.name_build(**time)  # first: the snapshot holds it
            event = ev.Snapshot(fold=snapshot_of(fold), **time)
            record = self._append(event, None)
            self._turn.mark_snapshot()
            fold.note_snapshot(record, event)

    def _with_sums(self, event: ev.AnyEvent, cell: int | None) -> ev.AnyEvent:
        """The event with a digest of what its outcome leads to in its cell."""
        if isinstance(event, (ev.Told, ev.Imported)) and cell is not None:
            sums = self.fold.sums_with(cell, event.outcome)
        elif isinstance(event, ev.Amended) and cell is not None:
            correction = Record(self._turn.head.seq + 1, encode(event), b"")
            sums = self.fold.sums_from(corrected([*self._turn.by_cell(cell), correction]))
        else:
            return event
        return msgspec.structs.replace(event, sums=sums.digest(event.ticket, cell))

    def _append(self, event: ev.AnyEvent, cell: int | None) -> Record:
        """Write an event; before the first one of another build, that it is another."""
        self.name_build(event.at, event.back)
        return self._write(event, cell)

    def name_build(self, at: str, back: float = 0.0) -> None:
        """Say that another build writes from here on, if one does; at the time of what it writes first."""
        build = present_build()
        if build != self.fold.build:
            changed = ev.BuildChanged(versions=build, format=ev.FORMAT, at=at, back=back)
            self.fold.note(self._write(changed, None), changed, self._history)

    def _write(self, event: ev.AnyEvent, cell: int | None) -> Record:
        index = index_of(event, self._turn.head.seq + 1, cell)
        [record] = self._turn.append([(encode(event), index)])
        return record

    def _history(self, cell: int, _seq: int) -> list[float]:
        return corrected(self._turn.by_cell(cell))
