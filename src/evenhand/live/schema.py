"""The journal's tables, index columns and SQL statements; creation and migration.

Tables and statements are the same for SQLite and PostgreSQL. The index columns of an event follow from the
event and its cell, and an audit checks them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import sqlalchemy as sa

from evenhand.errors import IntegrityFailed, StorageFailed
from evenhand.live import events as ev
from evenhand.live.fault_points import reach

# version -> migration to the next version
MIGRATIONS: dict[int, Callable[[sa.Connection], None]] = {}


def bring_up_to_date(engine: sa.Engine) -> None:
    """Create the tables, or migrate older ones, in one transaction."""
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            # two processes may open an empty database at once; one creates the tables, the other waits
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(7311142606)"))
        known = sa.inspect(connection).get_table_names()
        if journal.name in known:
            _migrate(connection)
        elif connection.dialect.name == "sqlite" and known:
            raise IntegrityFailed(
                "this SQLite file belongs to another program: it has tables, and none of a journal."
            )
        else:
            metadata.create_all(connection)
            connection.execute(sa.insert(journal), {"schema": SCHEMA})


def refuse_unknown_version(engine: sa.Engine) -> None:
    """Refuse tables of a newer or older version; for readers, which do not migrate."""
    with engine.connect() as connection:
        version = _known_version(connection)
    if version < SCHEMA:
        raise StorageFailed(
            f"the journal has schema version {version}, this evenhand reads {SCHEMA}; open it once "
            "for writing to bring it up to date."
        )


def _known_version(connection: sa.Connection) -> int:
    versions = connection.execute(sa.select(journal.c.schema)).scalars().all()
    if len(versions) != 1 or not isinstance(versions[0], int):
        raise IntegrityFailed("the journal was changed: it does not say its schema version.")
    if versions[0] > SCHEMA:
        raise IntegrityFailed(
            f"the journal has schema version {versions[0]}, this evenhand knows {SCHEMA}; open it "
            "with a newer evenhand."
        )
    return versions[0]


def _migrate(connection: sa.Connection) -> None:
    version = _known_version(connection)
    while version < SCHEMA:
        MIGRATIONS[version](connection)
        reach("in migration")
        version += 1
        connection.execute(sa.update(journal).values(schema=version))


SCHEMA = 1  # version of these tables

metadata = sa.MetaData()

journal = sa.Table("evenhand_journal", metadata, sa.Column("schema", sa.Integer, nullable=False))

experiments = sa.Table(
    "evenhand_experiments",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(64), nullable=False, unique=True),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("hash", sa.LargeBinary, nullable=False),
    sa.Column("snapshot", sa.BigInteger, nullable=False),  # number of the latest snapshot event; 0: none yet
)

events = sa.Table(
    "evenhand_events",
    metadata,
    sa.Column("experiment", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("ticket", sa.BigInteger),
    sa.Column("slot", sa.BigInteger),
    sa.Column("cell", sa.Integer),
    sa.Column("key", sa.String(200)),
    sa.Column("part", sa.Integer),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("hash", sa.LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)
_has_ticket, _has_key = events.c.ticket.is_not(None), events.c.key.is_not(None)
sa.Index(
    "evenhand_one_per_ticket", events.c.experiment, events.c.ticket, events.c.slot,
    unique=True, sqlite_where=_has_ticket, postgresql_where=_has_ticket,
)  # fmt: skip
sa.Index(
    "evenhand_one_per_key", events.c.experiment, events.c.key, events.c.part,
    unique=True, sqlite_where=_has_key, postgresql_where=_has_key,
)  # fmt: skip


class Index(NamedTuple):
    """The index columns of an event.

    A unique index allows one beginning, one end and at most one late outcome per ticket.
    """

    ticket: int | None = None
    slot: int | None = None  # BEGAN, ENDED, CAME_LATE, or the event's own number if there may be many
    cell: int | None = None  # in which its outcome counts: k L + l
    key: str | None = None
    part: int | None = None


BEGAN, ENDED, CAME_LATE = 0, 1, 2

_of = events.c.experiment == sa.bindparam("of")
_record = (events.c.seq, events.c.body, events.c.hash)

find = sa.select(experiments).where(experiments.c.name == sa.bindparam("name"))
lock = find.with_for_update()
# one statement, so that no write can occur between reading the head and what follows it
position = find.add_columns(
    sa.exists()
    .where(events.c.experiment == experiments.c.number, events.c.seq > experiments.c.seq)
    .label("beyond")
)
names = sa.select(experiments.c.name).order_by(experiments.c.number)
page = (
    sa.select(events).where(_of, events.c.seq > sa.bindparam("after"), events.c.seq <= sa.bindparam("until"))
    .order_by(events.c.seq).limit(sa.bindparam("most"))
)  # fmt: skip
by_ticket = sa.select(*_record).where(_of, events.c.ticket == sa.bindparam("what")).order_by(events.c.seq)
# version 0.1 wrote the key of an import into each of its rows; the first row is enough
_is_later_row = sa.and_(events.c.slot == BEGAN, events.c.cell.is_not(None), events.c.part > 0)
by_keys = (
    sa.select(events.c.key, *_record)
    .where(_of, events.c.key.in_(sa.bindparam("what", expanding=True)), sa.not_(_is_later_row))
    .order_by(events.c.part)
)
by_cell = (
    sa.select(*_record)
    .where(_of, events.c.cell == sa.bindparam("what"), events.c.seq <= sa.bindparam("until"))
    .order_by(events.c.seq)
)
created_by_key = sa.select(*_record).where(events.c.seq == 1, events.c.key == sa.bindparam("what"))
hash_of = sa.select(events.c.hash).where(_of, events.c.seq == sa.bindparam("seq"))
advance = (
    sa.update(experiments).where(experiments.c.number == sa.bindparam("of"))
    .values(seq=sa.bindparam("to_seq"), hash=sa.bindparam("to_hash"), snapshot=sa.bindparam("to_snapshot"))
)  # fmt: skip

_SLOTS: dict[type, int] = {
    ev.Asked: BEGAN,
    ev.Imported: BEGAN,
    ev.Told: ENDED,
    ev.Dropped: ENDED,
    ev.Expired: ENDED,
    ev.Late: CAME_LATE,
}


def index_of(event: ev.AnyEvent, seq: int, cell: int | None) -> Index:
    """Return the index columns of an event; `cell` is where its outcome counts, if it does."""
    ticket: int | None = getattr(event, "ticket", None)
    slot = None if ticket is None else _SLOTS.get(type(event), seq)
    return Index(ticket, slot, cell, event.key, None if event.key is None else event.part)
