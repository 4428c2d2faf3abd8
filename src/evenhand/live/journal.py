"""The journal: an append-only log per experiment, on SQLite or PostgreSQL.

    journal = open_journal("trial.db")              # or "postgresql://host/database", or ":memory:"
    for row in journal.read("main", after=0): ...
    with journal.transaction("main") as transaction:  # other writers wait
        transaction.append([(body, Index(...)), ...])  # durable after the block ends without an error

A block that raises writes nothing. `Interrupted` means that it is unknown whether the commit succeeded: read
the log to find out.
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
from evenhand.live.transaction import (
    Entry,
    Found,
    StoredEvent,
    Transaction,
    Values,
    find,
    hash_of,
    in_pages,
    of_cell,
    page,
)
from evenhand.live.writer_lock import Missing


class Interrupted(StorageFailed):
    """The connection failed or the database asks for a retry; a commit may have succeeded."""


class KeyTaken(StorageFailed):
    """An experiment was created with this key before; `record` is its first event."""

    def __init__(self, record: Record) -> None:
        super().__init__("an experiment was created under this key before.")
        self.record = record


class Position(NamedTuple):
    """Where a log ends."""

    head: Head
    snapshot: int  # number of the latest snapshot event; 0: none yet
    ends_there: bool  # whether there is no event after the head


def open_journal(
    address: str,
    *,
    write: bool = True,
    create: bool = False,
    wait: float = 0.0,
    allow_missing: bool = False,
) -> Journal:
    """Open the journal at a path, a ``postgresql://`` address, or ``:memory:``.

    A journal that lacks events written to it is refused; with `allow_missing` readers get the rest.
    """
    if address.startswith(("postgresql://", "postgres://")):
        from evenhand.live.postgres import PostgresJournal

        return PostgresJournal(address, write=write, create=create)
    from evenhand.live.sqlite import SqliteJournal

    return SqliteJournal(address, write=write, create=create, wait=wait, allow_missing=allow_missing)


class Claims:
    """Experiments that this process works on, so that others leave them alone."""

    def take(self, experiment: str) -> bool:
        """Claim an experiment; return whether no other process has claimed it."""
        return True

    def release(self, experiment: str) -> None:
        """End a claim."""


class Journal:
    """Base class of both storages.

    A storage defines how to connect, how to translate errors, and what to do after a commit.
    """

    shared = False  # whether other processes may write to it at the same time
    missing: Missing | None = None  # events that were written and are missing, if the storage can tell
    salts_events = False  # whether events carry random digits, so that a head gives no outcome away

    def __init__(self, reading: sa.Engine, writing: sa.Engine | None) -> None:
        self._reading = reading
        self._writing = writing
        self._process = os.getpid()
        self.is_closed = False
        self.heads: dict[str, Head] = {}  # last known head of each experiment
        self.deadlines: dict[tuple[str, Clock], Deadlines] = {}  # lease deadlines, by experiment and clock
        _opened.add(self)
        # a journal that was not closed is closed when its memory is freed, but not when the program ends
        weakref.finalize(self, _dispose, self._process, reading, writing).atexit = False

    def check_writable(self) -> None:
        """Raise if nothing may be written: after `close`, and if `check_readable` raises."""
        if self.is_closed:
            raise StorageFailed("this journal was closed; open it again to write to it.")
        self.check_readable()

    def check_readable(self) -> None:
        """Raise in a forked process: connections cannot be shared with the parent."""
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
        """Return where the log ends, by the experiment's row and by its events."""
        with self._read() as connection:
            row = find(connection, schema.position, experiment)
            return Position(Head(row.seq, row.hash), row.snapshot, not row.beyond)

    def read(self, experiment: str, after: int = 0, until: int | None = None) -> Iterator[StoredEvent]:
        """Yield the events after number `after`, as of the beginning of the read."""
        with self._read() as connection:
            row = find(connection, schema.find, experiment)
        last = row.seq if until is None else until

        def next_page(after: int) -> list[StoredEvent]:
            with self._read() as connection:
                return page(connection, row.number, after, last)

        yield from in_pages(next_page, after, last)

    def hash_of(self, experiment: str, seq: int) -> bytes | None:
        """Return the hash of an event; None if there is no event of this number."""
        with self._read() as connection:
            return hash_of(connection, find(connection, schema.find, experiment).number, seq)

    def created_by_key(self, key: str) -> Record | None:
        """Return the first event of the experiment that was created with this key."""
        with self._read() as connection:
            return _created_by_key(connection, key)

    def by_cell(self, experiment: str, cell: int, until: int) -> list[Record]:
        """Return the events that change the counted outcomes of a cell, up to number `until`."""
        with self._read() as connection:
            number = find(connection, schema.find, experiment).number
            return of_cell(connection, number, cell, until)

    @contextmanager
    def transaction(self, experiment: str) -> Iterator[Transaction]:
        """Open a transaction that writes to one experiment; others wait until the block ends."""
        with self._write_lock_of_all(), self._explained(), self._writer().connect() as connection:
            self._prepare(connection)
            with connection.begin() as commit_block:
                transaction = Transaction(connection, self._locked(connection, experiment), self._write)
                yield transaction
                with self._last_statements(connection):
                    transaction.flush()
                    reach("before commit")
                    commit_block.commit()
            reach("after commit")
            if transaction.wrote:
                self._committed(transaction)

    def create(self, experiment: str, entry: Entry, *more: Entry) -> Head:
        """Begin a log with its first events; raise `KeyTaken` if the key of the first was used before."""
        with self.begin(experiment, entry[1].key) as transaction:
            transaction.append([entry, *more])
        return transaction.head

    @contextmanager
    def begin(self, experiment: str, key: str | None = None) -> Iterator[Transaction]:
        """Open a transaction that creates an experiment; committed if the block does not raise."""
        start = genesis(experiment)
        with self._write_lock_of_all(), self._explained():
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
                transaction = Transaction(connection, find(connection, schema.lock, experiment), self._write)
                yield transaction
                transaction.flush()
            self._committed(transaction)

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Yield a connection that reads the tables beside the log."""
        with self._read() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Open a transaction on the tables beside the log, through the one writer of the journal."""
        with self._write_lock_of_all(), self._explained(), self._writer().begin() as connection:
            self._prepare_tables(connection)
            yield connection

    @contextmanager
    def claims(self) -> Iterator[Claims]:
        """Yield claims on experiments: no other process works on a claimed one until the block ends."""
        yield Claims()  # only one process writes to a journal that is not shared

    def close(self) -> None:
        """Release the journal: writing is refused after that, reading still works."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._process == os.getpid():  # after a fork the connections belong to the parent
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
        """Return the engine that writes; refuse a read-only journal."""
        self.check_writable()
        if self._writing is None:
            raise StorageFailed("this journal was opened for reading only; open it for writing first.")
        return self._writing

    def _write_lock_of_all(self) -> AbstractContextManager[object]:
        """Return the lock around every write, for whichever experiment."""
        return nullcontext()

    def _prepare(self, connection: sa.Connection) -> None:
        """Called before each transaction."""

    def _prepare_create(self, connection: sa.Connection) -> None:
        """Called before an experiment is created, inside the transaction."""

    def _prepare_tables(self, connection: sa.Connection) -> None:
        """Called before a table beside the log is written, inside the transaction."""

    def _locked(self, connection: sa.Connection, experiment: str) -> Found:
        """Return the experiment's row, locked until the transaction ends."""
        return find(connection, schema.lock, experiment)

    def _write(self, connection: sa.Connection, events: list[Values], head: dict[str, object]) -> None:
        """Insert events and update the head."""
        raise NotImplementedError

    def _last_statements(self, connection: sa.Connection) -> AbstractContextManager[object]:
        """Return the context of the last statements of a transaction and its commit."""
        return nullcontext()

    def _committed(self, transaction: Transaction) -> None:
        """Called after each commit."""

    def _explain(self, problem: sa.exc.DBAPIError) -> Exception:
        """Return our error for a database error; storages refine it."""
        return StorageFailed(f"the database refused: {problem.orig}; nothing was written.")

    @contextmanager
    def _read(self) -> Iterator[sa.Connection]:
        self.check_readable()
        try:
            with self._explained(), self._reading.connect() as connection:
                yield connection
        finally:
            if self.is_closed:
                self._close_readers()  # after `close` no connection is kept open

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.DBAPIError as problem:
            raise self._explain(problem) from problem


def _created_by_key(connection: sa.Connection, key: str) -> Record | None:
    row = connection.execute(schema.created_by_key, {"what": key}).first()
    return None if row is None else Record(*row)


def _dispose(process: int, *engines: sa.Engine | None) -> None:
    """Close the connections of a journal that no longer exists; those of a parent process stay open."""
    if process == os.getpid():
        for engine in engines:
            if engine is not None:
                engine.dispose()


_opened: weakref.WeakSet[Journal] = weakref.WeakSet()
_journals_of_parent: list[
    Journal
] = []  # kept, so that the garbage collector does not close connections of the parent


def _disable_after_fork() -> None:
    """Mark the journals of the parent as unusable in a forked process."""
    for journal in list(_opened):
        _journals_of_parent.append(journal)
        journal._after_fork()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_disable_after_fork)
