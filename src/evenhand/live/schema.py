"""Making the tables, and bringing older ones up to date: all of it or none."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

from evenhand.errors import IntegrityFailed, StorageFailed
from evenhand.live import tables
from evenhand.live.points import reach

# from which version, what to do; each leads to the next
MIGRATIONS: dict[int, Callable[[sa.Connection], None]] = {}


def bring_up_to_date(engine: sa.Engine) -> None:
    """Make what is missing, in one transaction."""
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            # two processes may meet an empty database at once; one makes the tables, the other waits
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(7311142606)"))
        known = sa.inspect(connection).get_table_names()
        if tables.journal.name in known:
            _migrate(connection)
        elif connection.dialect.name == "sqlite" and known:
            raise IntegrityFailed(
                "this SQLite file belongs to another program: it has tables, and none of a journal."
            )
        else:
            tables.metadata.create_all(connection)
            connection.execute(sa.insert(tables.journal), {"schema": tables.SCHEMA})


def refuse_unknown_version(engine: sa.Engine) -> None:
    """For readers, which change nothing: refuse tables of a newer version, and of an older one."""
    with engine.connect() as connection:
        version = _known_version(connection)
    if version < tables.SCHEMA:
        raise StorageFailed(
            f"the journal has schema version {version}, this evenhand reads {tables.SCHEMA}; open it once "
            "for writing to bring it up to date."
        )


def _known_version(connection: sa.Connection) -> int:
    versions = connection.execute(sa.select(tables.journal.c.schema)).scalars().all()
    if len(versions) != 1 or not isinstance(versions[0], int):
        raise IntegrityFailed("the journal was changed: it does not say its schema version.")
    if versions[0] > tables.SCHEMA:
        raise IntegrityFailed(
            f"the journal has schema version {versions[0]}, this evenhand knows {tables.SCHEMA}; open it "
            "with a newer evenhand."
        )
    return versions[0]


def _migrate(connection: sa.Connection) -> None:
    version = _known_version(connection)
    while version < tables.SCHEMA:
        MIGRATIONS[version](connection)
        reach("in migration")
        version += 1
        connection.execute(sa.update(tables.journal).values(schema=version))
