"""Connections to an SQLite file: one that writes, many that read, and one in memory."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import cast

import sqlalchemy as sa

from evenhand.errors import StorageFailed

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
    """One connection, kept for good."""

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
    """Write-ahead log, and every commit on the disk before it is acknowledged; refuse what cannot do so."""
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
    """SQLite's own: what is executed on it begins no transaction."""
    return cast("sqlite3.Connection", connection.connection.dbapi_connection)


def _begin_ourselves(engine: sa.Engine) -> None:
    """Transactions begin when we say so, not when the driver guesses."""

    @sa.event.listens_for(engine, "connect")
    def _(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None

    @sa.event.listens_for(engine, "begin")
    def _(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
