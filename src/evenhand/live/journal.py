"""The journal: an append-only log per experiment, on SQLite or PostgreSQL.

    journal = open_journal("trial.db")              # or "postgresql://host/database", or ":memory:"
    for row in journal.read("main", after=0): ...
    with journal.turn("main") as turn:              # nobody else writes to this experiment meanwhile
        turn.append([(body, Index(...)), ...])      # durable when the turn has ended without an error

A turn that raises leaves nothing behind. `Interrupted` means nobody knows whether the commit went through:
read the log and see.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

import sqlalchemy as sa

from evenhand.errors import NameTaken, StorageFailed
from evenhand.live import schema
from evenhand.live.clock import Clock, Deadlines
from evenhand.live.fault_points import reach
from evenhand.live.hash_chain import Head, Record, genesis
from evenhand.live.missing_events import Missing
from evenhand.live.transaction import Entry, Found, Row, Turn, Values, find, hash_of, in_pages, of_cell, page


class Interrupted(StorageFailed):
    """The connection broke, or the database asks to try again; the outcome of a commit may be unknown."""


class KeyTaken(StorageFailed):
    """An experiment was created under this key before; `record` is its first event."""

    def __init__(self, record: Record) -> None:
        super().__init__("an experiment was created under this key before.")
        self.record = record


class Position(NamedTuple):
    """How far a log goes."""

    head: Head
    snapshot: int  # number of the event that holds the latest one; 0: none yet
    ends_there: bool  # is there no event beyond the head?


def open_journal(
    address: str,
    *,
    write: bool = True,
    create: bool = False,
    wait: float = 0.0,
    allow_missing: bool = False,
) -> Journal:
    """The journal at a path, a ``postgresql://`` address, or ``:memory:``.

    One that lacks events which were written to it is refused; `allow_missing`: readers see what is left.
    """
    if address.startswith(("postgresql://", "postgres://")):
        from evenhand.live.postgres import PostgresJournal

        return PostgresJournal(address, write=write, create=create)
    from evenhand.live.sqlite import SqliteJournal

    return SqliteJournal(address, write=write, create=create, wait=wait, allow_missing=allow_missing)


class Journal:
    """What both storages share.

    A storage says how to connect, what an error means, and what follows a commit.
    """

    shared = False  # may other processes write to it at the same time?
    missing: Missing | None = None  # what it lacks of what was written to it, where a storage knows

    def __init__(self, reading: sa.Engine, writing: sa.Engine | None) -> None:
        self._reading = reading
        self._writing = writing
        self._process = os.getpid()
        self.is_closed = False
        self.heads: dict[str, Head] = {}  # of experiments, as this process last knew them
        self.deadlines: dict[tuple[str, Clock], Deadlines] = {}  # of tickets, by experiment and clock
        _opened.add(self)

    def check_writable(self) -> None:
        """Raise where nothing may be written: after `close`, and where `check_readable` raises."""
        if self.is_closed:
            raise StorageFailed("this journal was closed; open it again to write to it.")
        self.check_readable()

    def check_readable(self) -> None:
        """Raise in a process forked from the one that opened the journal: connections are not shared."""
        if self._process != os.getpid():
            raise StorageFailed(
                f"this journal was opened by process {self._process}, from which process {os.getpid()} was "
                "forked; open it again there."
            )

    def experiments(self) -> list[str]:
        with self._read() as connection:
            return list(connection.execute(schema.names).scalars())

    def head(self, experiment: str) -> Head:
        return self.position(experiment).head

    def position(self, experiment: str) -> Position:
        """How far the log goes, by what is written about it and by what is there."""
        with self._read() as connection:
            row = find(connection, schema.position, experiment)
            return Position(Head(row.seq, row.hash), row.snapshot, not row.beyond)

    def read(self, experiment: str, after: int = 0, until: int | None = None) -> Iterator[Row]:
        """Events after number `after`, in order, as they were when reading began."""
        with self._read() as connection:
            row = find(connection, schema.find, experiment)
        last = row.seq if until is None else until

        def next_page(after: int) -> list[Row]:
            with self._read() as connection:
                return page(connection, row.number, after, last)

        yield from in_pages(next_page, after, last)

    def hash_of(self, experiment: str, seq: int) -> bytes | None:
        """The hash of an event; None where there is none of this number."""
        with self._read() as connection:
            return hash_of(connection, find(connection, schema.find, experiment).number, seq)

    def created_by_key(self, key: str) -> Record | None:
        """The first event of the experiment that was created under this key."""
        with self._read() as connection:
            return _created_by_key(connection, key)

    def by_cell(self, experiment: str, cell: int, until: int) -> list[Record]:
        """The events by which outcomes of a cell count (told, imported, amended), up to one."""
        with self._read() as connection:
            number = find(connection, schema.find, experiment).number
            return of_cell(connection, number, cell, until)

    @contextmanager
    def turn(self, experiment: str) -> Iterator[Turn]:
        """The right to write to one experiment, until the end of the block."""
        with self._alone(), self._explained(), self._writer().connect() as connection:
            self._prepare(connection)
            with connection.begin() as transaction:
                turn = Turn(connection, self._locked(connection, experiment), self._write)
                yield turn
                with self._together(connection):
                    turn.flush()
                    reach("before commit")
                    transaction.commit()
            reach("after commit")
            if turn.wrote:
                self._committed(turn)

    def create(self, experiment: str, entry: Entry) -> Head:
        """Begin a log with its first event; `KeyTaken` where its key was used before."""
        with self.begin(experiment, entry[1].key) as turn:
            turn.append([entry])
        return turn.head

    @contextmanager
    def begin(self, experiment: str, key: str | None = None) -> Iterator[Turn]:
        """The right to write to a new experiment; it is there if the block ends without an error."""
        start = genesis(experiment)
        with self._alone(), self._explained():
            with self._writer().begin() as connection:
                self._prepare_create(connection)
                if key is not None and (record := _created_by_key(connection, key)) is not None:
                    raise KeyTaken(record)
                if connection.execute(schema.find, {"name": experiment}).one_or_none() is not None:
                    raise NameTaken(
                        f"the journal holds an experiment {experiment!r} already; give the new one "
                        "another name."
                    )
                first = {"name": experiment, "seq": start.seq, "hash": start.hash, "snapshot": 0}
                connection.execute(sa.insert(schema.experiments), first)
                turn = Turn(connection, find(connection, schema.lock, experiment), self._write)
                yield turn
                turn.flush()
            self._committed(turn)

    def close(self) -> None:
        """Release the journal: nothing can be written after that; it can still be read."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._process == os.getpid():  # connections of the process that forked this one are not ours
            self._release()

    def _close_readers(self) -> None:
        self._reading.dispose()

    def _release(self) -> None:
        self._close_readers()
        if self._writing is not None:
            self._writing.dispose()

    def _after_fork(self) -> None:
        """Called in a forked process; `check_readable` refuses every use there."""

    def _writer(self) -> sa.Engine:
        """What writes; refused where the journal may only be read."""
        self.check_writable()
        if self._writing is None:
            raise StorageFailed("this journal was opened for reading only; open it for writing first.")
        return self._writing

    def _alone(self) -> AbstractContextManager[object]:
        """Around everything that writes, whichever experiment it is for."""
        return nullcontext()

    def _prepare(self, connection: sa.Connection) -> None:
        """Called before each turn."""

    def _prepare_create(self, connection: sa.Connection) -> None:
        """Called before an experiment is made, inside the transaction."""

    def _locked(self, connection: sa.Connection, experiment: str) -> Found:
        """The experiment's row, nobody else's until the transaction ends."""
        return find(connection, schema.lock, experiment)

    def _write(self, connection: sa.Connection, events: list[Values], head: dict[str, object]) -> None:
        """Hand events to the database, with the head that they lead to."""
        raise NotImplementedError

    def _together(self, connection: sa.Connection) -> AbstractContextManager[object]:
        """Around the last statements of a turn and its commit."""
        return nullcontext()

    def _committed(self, turn: Turn) -> None:
        """Called after each commit."""

    def _explain(self, problem: sa.exc.DBAPIError) -> Exception:
        """What an error of the database means; a storage that knows more of its errors says more."""
        return StorageFailed(f"the database refused: {problem.orig}; nothing was written.")

    @contextmanager
    def _read(self) -> Iterator[sa.Connection]:
        self.check_readable()
        try:
            with self._explained(), self._reading.connect() as connection:
                yield connection
        finally:
            if self.is_closed:
                self._close_readers()  # none is kept open

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.DBAPIError as problem:
            raise self._explain(problem) from problem


def _created_by_key(connection: sa.Connection, key: str) -> Record | None:
    row = connection.execute(schema.created_by_key, {"what": key}).first()
    return None if row is None else Record(*row)


_opened: weakref.WeakSet[Journal] = weakref.WeakSet()
_inherited: list[
    Journal
] = []  # kept, so that nothing closes what belongs to the process that forked this one


def _disown() -> None:
    """In a forked process: give up the journals that the process before had open."""
    for journal in list(_opened):
        _inherited.append(journal)
        journal._after_fork()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_disown)
