"""A journal in PostgreSQL, for several processes and machines at once.

Nothing rests on the isolation level: READ COMMITTED, the experiment's row locked for the length of a turn,
unique indexes underneath. What the server asks to repeat, and what a broken connection leaves open, comes out
as `Interrupted`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import psycopg
import sqlalchemy as sa
from psycopg.rows import namedtuple_row

from evenhand.errors import BadInput, IntegrityFailed, NotFound, StorageFailed
from evenhand.live import tables
from evenhand.live.journal import Interrupted, Journal
from evenhand.live.schema import bring_up_to_date
from evenhand.live.turn import Found, Values, checked

_LOCK = "SELECT number, name, seq, hash, snapshot FROM evenhand_experiments WHERE name = %s FOR UPDATE"
_COLUMNS = [column.name for column in tables.events.columns]
_INSERT = (
    f"INSERT INTO evenhand_events ({', '.join(_COLUMNS)}) VALUES ({', '.join(f'%({c})s' for c in _COLUMNS)})"
)
_INSERT_LAST = (
    f"WITH last AS ({_INSERT}) UPDATE evenhand_experiments SET seq = %(to_seq)s, hash = %(to_hash)s, "
    "snapshot = %(to_snapshot)s WHERE number = %(of)s"
)
# serialization failure, deadlock, lock timeout; shutdowns, crash, starting up, too many connections
_REPEAT = ("40001", "40P01", "55P03", "57P01", "57P02", "57P03", "53300")
_FULL_DISK = ("53100", "53000", "53200")
# a client that dies inside a turn must not hold the experiment for ever
_SETTINGS = "-c synchronous_commit=on -c lock_timeout=30s -c idle_in_transaction_session_timeout=30s"


class PostgresJournal(Journal):
    """Tables in one database; every experiment has its own locked row."""

    shared = True

    def __init__(self, address: str, *, create: bool = False) -> None:
        try:
            url = sa.make_url(address).set(drivername="postgresql+psycopg")
        except (sa.exc.ArgumentError, ValueError):
            raise BadInput(
                "the address must look like postgresql://user@host:port/database; it does not."
            ) from None
        settings = {"connect_timeout": 5, "options": _SETTINGS}
        engine = sa.create_engine(
            url, isolation_level="READ COMMITTED", connect_args=settings, pool_size=5, max_overflow=30
        )
        super().__init__(engine, engine)
        try:
            with self._explained():
                _refuse_careless_server(engine)
                _require_tables(engine, create)
        except BaseException:
            engine.dispose()
            raise

    def _locked(self, connection: sa.Connection, experiment: str) -> Found:
        """The transaction begins and the row is locked on one way to the server and back."""
        cursor = _driver(connection).cursor(row_factory=namedtuple_row)
        with self._together(connection):
            cursor.execute(_LOCK, (experiment,))
        return checked(cast("Found | None", cursor.fetchone()), experiment)

    def _write(self, connection: sa.Connection, events: list[Values], head: Values) -> None:
        """By the driver itself, the head together with the last event: most turns have one."""
        cursor, last = _driver(connection).cursor(), events[-1]
        if len(events) > 1:
            cursor.executemany(_INSERT, events[:-1])
        cursor.execute(_INSERT_LAST, last | head)

    @contextmanager
    def _together(self, connection: sa.Connection) -> Iterator[None]:
        """Sent without waiting for each answer: one way to the server and back instead of three."""
        try:
            with _driver(connection).pipeline():
                yield
        except BaseException:
            connection.invalidate()  # half a transaction may be on it
            raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What the driver says when it is called directly is explained like the rest."""
        with super()._explained():
            try:
                yield
            except psycopg.Error as problem:
                raise sa.exc.DBAPIError.instance(None, None, problem, psycopg.Error) from problem

    def _explain(self, problem: sa.exc.DBAPIError) -> Exception:
        state = getattr(problem.orig, "sqlstate", None)
        # no state at all: the connection itself failed
        if (
            problem.connection_invalidated
            or state in _REPEAT
            or (state is None and isinstance(problem, sa.exc.OperationalError))
        ):
            return Interrupted(f"the database could not be reached: {_first_line(problem)}.")
        if state in _FULL_DISK:
            return StorageFailed(
                f"the database is out of space or memory ({_first_line(problem)}); nothing was written."
            )
        if isinstance(problem, sa.exc.IntegrityError):
            return IntegrityFailed(
                f"the database refused an event that is there already: {_first_line(problem)}."
            )
        return StorageFailed(f"the database refused ({state}): {_first_line(problem)}; nothing was written.")


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


def _require_tables(engine: sa.Engine, create: bool) -> None:
    if not create and not sa.inspect(engine).has_table(tables.journal.name):
        raise NotFound("this database holds no journal; make one with `evenhand new ADDRESS STUDY`.")
    bring_up_to_date(engine)


def _first_line(problem: sa.exc.DBAPIError) -> str:
    return str(problem.orig).strip().partition("\n")[0].rstrip(".")
