"""One transaction on one experiment, and the statements that it and readers share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from evenhand.errors import IntegrityFailed, NotFound
from evenhand.live import tables
from evenhand.live.chain import Difference, Head, Record, extend
from evenhand.live.points import reach
from evenhand.live.tables import Index

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
        return self._found(tables.by_ticket, ticket)

    def look_up(self, keys: Sequence[str]) -> None:
        """Fetch what there is of all these keys at once, for `by_key`."""
        self._of_keys |= {key: [] for key in keys}
        rows = self._connection.execute(tables.by_keys, {"of": self.number, "what": list(set(keys))})
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
    rows = connection.execute(tables.page, {"of": number, "after": after, "until": until, "most": PAGE})
    return [Row(Record(row[1], row[7], row[8]), Index._make(row[2:7])) for row in rows.fetchall()]


def hash_of(connection: sa.Connection, number: int, seq: int) -> bytes | None:
    """The hash of an event of an experiment; None where there is none of this number."""
    return connection.execute(tables.hash_of, {"of": number, "seq": seq}).scalar_one_or_none()


def of_cell(connection: sa.Connection, number: int, cell: int, until: int) -> list[Record]:
    """The events by which outcomes of a cell count, up to one."""
    rows = connection.execute(tables.by_cell, {"of": number, "what": cell, "until": until})
    return [Record(seq, body, hash_) for seq, body, hash_ in rows]
