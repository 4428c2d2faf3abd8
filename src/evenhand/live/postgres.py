"""A journal in PostgreSQL, for several processes and machines at once.

It does not depend on the isolation level: READ COMMITTED, the experiment's row locked during a transaction,
and unique indexes. Retryable server errors and broken connections raise `Interrupted`. If a process is
suspended inside a transaction, its connection is ended after `LEASE` seconds; its uncommitted work is lost,
and it starts again when it resumes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import cast

import psycopg
import sqlalchemy as sa
from psycopg.rows import namedtuple_row

from evenhand.errors import BadInput, IntegrityFailed, NotFound, StorageFailed
from evenhand.live import schema
from evenhand.live.journal import Claims, Interrupted, Journal
from evenhand.live.schema import bring_up_to_date, refuse_unknown_version
from evenhand.live.transaction import Found, Values, checked

LEASE = 20.0  # seconds that a transaction may be idle before other processes end it
LOCK_WAIT = 3.0  # seconds to wait for a lock before checking whether its holder is suspended
BUSY_SECONDS = 600.0  # total wait for active writers, for example a long import
COPIED = 200  # from this many events on, COPY is used
_LOCK = "SELECT number, name, seq, hash, snapshot FROM evenhand_experiments WHERE name = %s FOR UPDATE"
_COLUMNS = [column.name for column in schema.events.columns]
_INSERT = f"INSERT INTO evenhand_events ({', '.join(_COLUMNS)}) VALUES ({', '.join('%s' for _ in _COLUMNS)})"
_COPY = f"COPY evenhand_events ({', '.join(_COLUMNS)}) FROM STDIN"
_ADVANCE = "UPDATE evenhand_experiments SET seq = %s, hash = %s, snapshot = %s WHERE number = %s"
_INSERT_LAST = f"WITH last AS ({_INSERT}) {_ADVANCE}"
# transactions that hold our row lock and have been idle this long
_END_STOPPED = """
    SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity AS a
    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.wait_event = 'ClientRead'
      AND greatest(a.query_start, a.state_change) < clock_timestamp() - make_interval(secs => %s)
      AND EXISTS (
        SELECT FROM pg_locks AS l
        WHERE l.pid = a.pid AND l.granted AND l.relation = 'evenhand_experiments'::regclass
          AND l.mode IN ('RowShareLock', 'RowExclusiveLock'))
"""
_CREATION = 7311142607  # advisory lock for the creation of experiments
_TABLES = 7311142608  # advisory lock for the tables beside the log
_CLAIMS = 73111426  # advisory locks of processes that work on an experiment, by its number
# serialization failure, deadlock; shutdowns, crash, starting up, too many connections
_REPEAT = ("40001", "40P01", "57P01", "57P02", "57P03", "53300")
_LOCK_TIMEOUT = "55P03"
_FULL_DISK = ("53100", "53000", "53200")


def _close_returned(_connection: object, record: sa.pool.ConnectionPoolEntry) -> None:
    """Close a connection that is returned to the pool of a journal that was closed."""
    if record.dbapi_connection is not None:
        record.invalidate()


class PostgresJournal(Journal):
    """Tables in one database; each experiment has a row that is locked for writing."""

    shared = True

    def __init__(self, address: str, *, write: bool = True, create: bool = False) -> None:
        try:
            url = sa.make_url(address).set(drivername="postgresql+psycopg")
        except (sa.exc.ArgumentError, ValueError):
            raise BadInput(
                "the address must look like postgresql://user@host:port/database; it does not."
            ) from None
        settings = {"connect_timeout": 5, "options": _settings(write)}
        engine = sa.create_engine(
            url, isolation_level="READ COMMITTED", connect_args=settings, pool_size=5, max_overflow=30
        )
        super().__init__(engine, engine if write else None)
        try:
            with self._explained():
                _refuse_careless_server(engine)
                _require_tables(engine, write, create)
        except BaseException:
            engine.dispose()
            raise

    def _close_readers(self) -> None:
        """Close idle connections now, and those in use when they are returned."""
        if not sa.event.contains(self._reading, "checkin", _close_returned):
            sa.event.listen(self._reading, "checkin", _close_returned)
        super()._close_readers()

    @contextmanager
    def claims(self) -> Iterator[Claims]:
        """Yield claims; they end with the block, or with the connection of a killed process."""
        with self._explained(), self._writer().connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            try:
                yield PostgresClaims(connection)
            finally:
                connection.execute(sa.text("SELECT pg_advisory_unlock_all()"))

    def _prepare_create(self, connection: sa.Connection) -> None:
        """Serialise creations, so that two requests with one key create one experiment."""
        connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({_CREATION})"))

    def _prepare_tables(self, connection: sa.Connection) -> None:
        """Serialise the writes to the tables beside the log: two processes may check and insert at once."""
        connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({_TABLES})"))

    def _locked(self, connection: sa.Connection, experiment: str) -> Found:
        """Begin the transaction and lock the row in one round trip.

        Wait for active writers; end suspended ones.
        """
        driver, deadline = _driver(connection), time.monotonic() + BUSY_SECONDS
        cursor = driver.cursor(row_factory=namedtuple_row)
        while True:
            try:
                with driver.pipeline():
                    cursor.execute(_LOCK, (experiment,))
                break
            except psycopg.errors.LockNotAvailable:
                if time.monotonic() >= deadline:
                    raise
                driver.rollback()
                self._end_stopped_writers()
            except BaseException:
                connection.invalidate()
                raise
        return checked(cast("Found | None", cursor.fetchone()), experiment)

    def _end_stopped_writers(self) -> None:
        """End the transactions of processes that were suspended inside them.

        The server's own limit on idle transactions does not end those that wait inside a pipeline, where
        statements are sent without waiting for each answer.
        """
        # without the privilege to end another user's transaction, the wait continues
        with suppress(sa.exc.DBAPIError), self._reading.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            connection.exec_driver_sql(_END_STOPPED, (LEASE,))

    def _write(self, connection: sa.Connection, events: list[Values], head: dict[str, object]) -> None:
        """Insert through the driver, the head together with the last event."""
        driver = _driver(connection)
        cursor, last = driver.cursor(), events[-1]
        to = tuple(head[name] for name in ("to_seq", "to_hash", "to_snapshot", "of"))
        if len(events) >= COPIED and driver.pgconn.pipeline_status == psycopg.pq.PipelineStatus.OFF:
            with cursor.copy(_COPY) as copy:
                for event in events:
                    copy.write_row(event)
            cursor.execute(_ADVANCE, to)
            return
        if len(events) > 1:
            cursor.executemany(_INSERT, events[:-1])
        cursor.execute(_INSERT_LAST, last + to)

    @contextmanager
    def _last_statements(self, connection: sa.Connection) -> Iterator[None]:
        """Send the last statements in a pipeline: one round trip instead of three."""
        try:
            with _driver(connection).pipeline():
                yield
        except BaseException:
            connection.invalidate()  # it may contain half a transaction
            raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Translate errors of the driver, which is called directly here."""
        with super()._explained():
            try:
                yield
            except psycopg.Error as problem:
                raise sa.exc.DBAPIError.instance(None, None, problem, psycopg.Error) from problem

    def _explain(self, problem: sa.exc.DBAPIError) -> Exception:
        state = getattr(problem.orig, "sqlstate", None)
        # no SQLSTATE: the connection itself failed
        if (
            problem.connection_invalidated
            or state in _REPEAT
            or (state is None and isinstance(problem, sa.exc.OperationalError))
        ):
            return Interrupted(f"the database could not be reached: {_first_line(problem)}.")
        if state == _LOCK_TIMEOUT:
            return StorageFailed(
                "another process has been writing to this experiment for too long; repeat the call later."
            )
        if state in _FULL_DISK:
            return StorageFailed(
                f"the database is out of space or memory ({_first_line(problem)}); nothing was written."
            )
        if isinstance(problem, sa.exc.IntegrityError):
            return IntegrityFailed(
                f"the database refused an event that is there already: {_first_line(problem)}."
            )
        return StorageFailed(f"the database refused ({state}): {_first_line(problem)}; nothing was written.")


class PostgresClaims(Claims):
    """Claims as advisory locks of one connection."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def take(self, experiment: str) -> bool:
        return bool(self._call("pg_try_advisory_lock", experiment))

    def release(self, experiment: str) -> None:
        self._call("pg_advisory_unlock", experiment)

    def _call(self, function: str, experiment: str) -> object:
        query = f"SELECT {function}({_CLAIMS}, number) FROM evenhand_experiments WHERE name = :name"
        return self._connection.execute(sa.text(query), {"name": experiment}).scalar()


def _settings(write: bool) -> str:
    settings = {
        "synchronous_commit": "on",
        "lock_timeout": f"{1000 * LOCK_WAIT:.0f}",
        "idle_in_transaction_session_timeout": f"{1000 * LEASE:.0f}",
    }
    if not write:
        settings["default_transaction_read_only"] = "on"
    return " ".join(f"-c {name}={value}" for name, value in settings.items())


def _driver(connection: sa.Connection) -> psycopg.Connection[object]:
    return cast("psycopg.Connection[object]", connection.connection.driver_connection)


def _refuse_careless_server(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            value = connection.exec_driver_sql(f"SHOW {setting}").scalar()
            if value == "off":
                raise StorageFailed(
                    f"the server has {setting} off, so acknowledged outcomes are lost with the power; "
                    "turn it on."
                )


def _require_tables(engine: sa.Engine, write: bool, create: bool) -> None:
    if not create and not sa.inspect(engine).has_table(schema.journal.name):
        raise NotFound("this database holds no journal; make one with `evenhand new ADDRESS STUDY`.")
    if write:
        bring_up_to_date(engine)
    else:
        refuse_unknown_version(engine)


def _first_line(problem: sa.exc.DBAPIError) -> str:
    return str(problem.orig).strip().partition("\n")[0].rstrip(".")
