"""A journal in one SQLite file: write-ahead log, `synchronous=FULL`, one writer.

SQLite before 3.51.3 can damage a file if two connections write and checkpoint at once. Here one connection
writes, guarded by the lock; readers open the file read-only and never checkpoint. The connections are created
here: one that writes, many that read, or one in memory.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import cast

import sqlalchemy as sa

from evenhand.errors import BadInput, IntegrityFailed, NotFound, StorageFailed
from evenhand.files import remove_unfinished
from evenhand.live import schema
from evenhand.live.journal import Interrupted, Journal
from evenhand.live.schema import bring_up_to_date, refuse_unknown_version
from evenhand.live.transaction import Transaction, Values
from evenhand.live.writer_lock import FileLock, Mark, missing_event, read_mark

_COLUMNS = [column.name for column in schema.events.columns]
_INSERT = f"INSERT INTO evenhand_events ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' for _ in _COLUMNS)})"
_FULL_DISK = ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHMSIZE", "SQLITE_IOERR_TRUNCATE")
# errors of the machine; any other error on our fixed statements means that the file was changed
_MACHINE = ("BUSY", "LOCKED", "IOERR", "READONLY", "CANTOPEN", "PERM", "NOMEM", "PROTOCOL", "AUTH", "NOLFS")


class SqliteJournal(Journal):
    """A journal in a file, or in ``:memory:`` for tests."""

    def __init__(
        self,
        address: str,
        *,
        write: bool = True,
        create: bool = False,
        wait: float = 0.0,
        synchronous: str = "FULL",
        allow_missing: bool = False,
    ) -> None:
        self._lock: FileLock | None = None
        self._write_lock = threading.RLock()  # held by the thread that uses the writing connection
        self._times_full = 0  # since the last commit
        self._has_written = False
        self._files: dict[Path, os.stat_result] = {}  # state when opened of the files written to
        if address == ":memory:":
            engine = in_memory()
            super().__init__(engine, engine)
            bring_up_to_date(engine)
            return
        path = _checked(address, create)
        remove_unfinished(path.parent)
        super().__init__(read_only(path), None)
        try:
            if write:
                self._open_for_writing(path, wait, synchronous)
            else:
                with self._explained():
                    refuse_unknown_version(self._reading)
                self._look_for_missing(path, allow_missing)
        except BaseException:
            self.close()
            raise

    def _open_for_writing(self, path: Path, wait: float, synchronous: str) -> None:
        self._lock = FileLock(path, wait)
        self._writing = one_writer(path, synchronous)
        with self._explained():
            bring_up_to_date(self._writing)
            self._refuse_older_copy(path)
        self._files = {file: os.stat(file) for file in (path, _log_of_writes(path))}

    def close(self) -> None:
        with self._write_lock:  # wait for the end of a transaction
            super().close()

    def _release(self) -> None:
        if self._has_written and self._writing is not None:
            # a copy of the main file alone is then complete, even if readers keep the write-ahead log
            with suppress(sqlite3.Error), self._writing.connect() as connection:
                driver_of(connection).execute("PRAGMA wal_checkpoint(PASSIVE)")
            self._has_written = False
        if self._reading is not self._writing:  # in memory, closing it would lose the data
            super()._release()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _close_readers(self) -> None:
        if self._reading is not self._writing:
            super()._close_readers()

    def _after_fork(self) -> None:
        if self._lock is not None:
            self._lock.release()  # this process's handle; the parent still holds the lock

    def _write_lock_of_all(self) -> AbstractContextManager[object]:
        return self._write_lock

    @contextmanager
    def _read(self) -> Iterator[sa.Connection]:
        # in memory there is only one connection, and it is rolled back when it is returned
        with (
            self._write_lock if self._reading is self._writing else nullcontext(),
            super()._read() as connection,
        ):
            yield connection

    def _prepare(self, connection: sa.Connection) -> None:
        self._refuse_replaced_files()
        if self._times_full:
            # the write-ahead log may use all the space: checkpoint it, and keep it short from now on
            driver = driver_of(connection)
            try:
                driver.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                driver.execute("PRAGMA wal_autocheckpoint=16")
            except sqlite3.Error as problem:
                raise self._meaning(problem) from problem

    def _prepare_create(self, connection: sa.Connection) -> None:
        self._refuse_replaced_files()

    def _prepare_tables(self, connection: sa.Connection) -> None:
        self._refuse_replaced_files()
        self._has_written = True

    def _write(self, connection: sa.Connection, events: list[Values], head: dict[str, object]) -> None:
        """Insert with a driver-level statement, which is fast for imports."""
        connection.exec_driver_sql(_INSERT, events)
        connection.execute(schema.advance, head)

    def _refuse_replaced_files(self) -> None:
        """Raise if a file that this process writes to was deleted or replaced.

        Writing to a deleted file succeeds, but the data are lost when the process ends.
        """
        for path, opened in self._files.items():
            try:
                same = os.path.samestat(os.stat(path), opened)
            except OSError:
                same = False
            if not same:
                raise StorageFailed(
                    f"{path} was deleted, moved or replaced while this process writes to it; the call was "
                    "not acknowledged. Put the file back, or a backup of it, and open it again."
                )
        if self._lock is not None and not self._lock.is_in_place:
            raise StorageFailed(
                f"{self._lock.path} was deleted or replaced, so another process may write to the journal at "
                "the same time; the call was not acknowledged. Open the journal again."
            )

    def _committed(self, transaction: Transaction) -> None:
        self._refuse_replaced_files()
        self._times_full, self._has_written = 0, True
        if self._lock is not None:
            self._lock.remember(Mark(transaction.number, transaction.head.seq, transaction.head.hash))

    def _refuse_older_copy(self, path: Path) -> None:
        assert self._lock is not None
        assert self._writing is not None
        mark = self._lock.mark
        if mark is not None:
            with self._writing.connect() as connection:
                missing = missing_event(connection, mark)
            if missing is not None:
                raise IntegrityFailed(missing.sentence(path))
        self._lock.remember(mark)

    def _look_for_missing(self, path: Path, allow_missing: bool) -> None:
        """Find missing events for readers.

        The mark is read first: a running writer has committed the event in it.
        """
        mark = read_mark(path)
        while mark is not None:
            with self._read() as connection:
                self.missing = missing_event(connection, mark)
            again = read_mark(path)
            if self.missing is None or again == mark:
                break
            mark = again  # the mark changed while it was read
        if self.missing is not None and not allow_missing:
            self.close()
            raise IntegrityFailed(self.missing.sentence(path))

    def _explain(self, problem: sa.exc.DBAPIError) -> Exception:
        return self._meaning(problem.orig)

    def _meaning(self, problem: BaseException | None) -> Exception:
        code = getattr(problem, "sqlite_errorname", "")
        if code in _FULL_DISK:
            self._times_full += 1
            kind = Interrupted if self._times_full == 1 else StorageFailed  # a first retry may succeed
            return kind(
                f"the disk is full ({problem}); nothing was written. Free some space and repeat the call."
            )
        if code.removeprefix("SQLITE_").startswith(_MACHINE):
            if code == "SQLITE_CANTOPEN":
                return StorageFailed(
                    f"the journal could not be opened ({problem}): SQLite needs a folder that it may write "
                    "to, even for reading. Copy the journal to one."
                )
            return StorageFailed(
                f"the journal could not be used ({code}: {problem}); nothing was acknowledged."
            )
        return IntegrityFailed(f"the file is damaged, or is no journal: {problem}.")


def is_sqlite(path: Path) -> bool:
    """Return whether the file is an SQLite file.

    SQLite opens the file: opening and closing it by other means would drop the locks that this process may
    hold on it.
    """
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    try:
        connection.execute("PRAGMA schema_version").fetchone()
    except sqlite3.DatabaseError as problem:
        if problem.sqlite_errorname == "SQLITE_NOTADB":
            return False
        if problem.sqlite_errorname.removeprefix("SQLITE_").startswith(_MACHINE):
            raise StorageFailed(f"{path} cannot be read: {problem}.") from None
        raise IntegrityFailed(f"{path} is damaged: {problem}.") from None
    finally:
        connection.close()
    return True


def _checked(address: str, create: bool) -> Path:
    path = Path(address).resolve()
    if not path.exists():
        if not create:
            raise NotFound(f"there is no journal {address}; make one with `evenhand new {address} STUDY`.")
        if not path.parent.is_dir():
            raise BadInput(f"{path.parent} must be a directory, to hold the journal {path.name}.")
    elif not path.is_file():
        raise BadInput(f"{address} must be a file; it is not.")
    elif path.stat().st_size == 0 and not create:
        raise IntegrityFailed(f"{address} is empty: it is no journal, or has lost everything it held.")
    return path


def _log_of_writes(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


_FULL, _EXTRA = 2, 3  # values of PRAGMA synchronous that survive a power loss


def in_memory() -> sa.Engine:
    engine = sa.create_engine(
        "sqlite://", poolclass=sa.pool.StaticPool, connect_args={"check_same_thread": False}
    )
    _begin_ourselves(engine)
    return engine


def read_only(path: Path) -> sa.Engine:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=10, check_same_thread=False)

    return sa.create_engine(
        "sqlite://", creator=connect, poolclass=sa.pool.QueuePool, pool_size=2, max_overflow=30
    )


def one_writer(path: Path, synchronous: str) -> sa.Engine:
    """Return an engine with one connection that stays open."""

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=10, check_same_thread=False)
        try:
            _make_durable(connection, synchronous)
        except BaseException:
            connection.close()
            raise
        return connection

    engine = sa.create_engine("sqlite://", creator=connect, poolclass=sa.pool.StaticPool)
    _begin_ourselves(engine)
    return engine


def _make_durable(connection: sqlite3.Connection, synchronous: str) -> None:
    """Set WAL mode and durable commits; refuse a file that does not support them."""
    level = synchronous.removeprefix("unsafe-")
    mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    if mode != "wal":
        raise StorageFailed(
            f"the file system under the journal must support a write-ahead log; SQLite chose {mode!r} "
            "instead."
        )
    connection.execute(f"PRAGMA synchronous={level}")
    connection.execute("PRAGMA fullfsync=ON")  # macOS: without it a flush may stay in the drive
    connection.execute("PRAGMA checkpoint_fullfsync=ON")
    found = connection.execute("PRAGMA synchronous").fetchone()[0]
    if found not in (_FULL, _EXTRA) and not synchronous.startswith("unsafe-"):
        raise StorageFailed(
            "synchronous must be FULL, or acknowledged outcomes are lost with the power; it is "
            f"{synchronous}. Write unsafe-{synchronous} if you mean it."
        )


def driver_of(connection: sa.Connection) -> sqlite3.Connection:
    """Return SQLite's own connection; statements on it begin no transaction."""
    return cast("sqlite3.Connection", connection.connection.dbapi_connection)


def _begin_ourselves(engine: sa.Engine) -> None:
    """Begin transactions explicitly instead of by the driver."""

    @sa.event.listens_for(engine, "connect")
    def _(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None

    @sa.event.listens_for(engine, "begin")
    def _(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
