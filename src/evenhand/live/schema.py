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


def _add_service_tables(connection: sa.Connection) -> None:
    """Create the tables of the service, which version 0.1 did not have."""
    metadata.create_all(connection, [keys, secrets, sessions, jobs])
    _take_over_keys(connection)


def _take_over_keys(connection: sa.Connection) -> None:
    """Move the keys of version 0.1, which had its own table in PostgreSQL, to the table of the journal."""
    if "service_keys" in sa.inspect(connection).get_table_names():
        columns = ", ".join(column.name for column in keys.columns)
        connection.exec_driver_sql(f"INSERT INTO {keys.name} ({columns}) SELECT {columns} FROM service_keys")
        connection.exec_driver_sql("DROP TABLE service_keys")


def _add_webhook_tables(connection: sa.Connection) -> None:
    """Create the tables of the webhooks, which version 2 did not have."""
    metadata.create_all(connection, [webhooks, webhook_notices, deliveries])


# version -> migration to the next version
MIGRATIONS: dict[int, Callable[[sa.Connection], None]] = {1: _add_service_tables, 2: _add_webhook_tables}


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
            _take_over_keys(connection)
            connection.execute(sa.insert(journal), {"schema": SCHEMA})


def refuse_unknown_version(engine: sa.Engine) -> None:
    """Refuse tables of a newer or older version; for readers, which do not migrate."""
    with engine.connect() as connection:
        version = _known_version(connection)
    if version < READABLE:
        raise StorageFailed(
            f"the journal has schema version {version}, this evenhand reads {READABLE}; open it once "
            "for writing to bring it up to date."
        )


def _known_version(connection: sa.Connection) -> int:
    versions = connection.execute(sa.select(journal.c.schema)).scalars().all()
    if len(versions) != 1 or not isinstance(versions[0], int):
        raise IntegrityFailed("the journal was changed: it does not say its schema version.")
    if versions[0] > SCHEMA:
        raise IntegrityFailed(
            f"the journal has schema version {versions[0]}, this version reads {SCHEMA}; open it "
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


SCHEMA = 3  # version of these tables; 2 added those of the service, 3 those of its webhooks
READABLE = 1  # the oldest version that readers, which do not migrate, can use

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

# the tables of the service: what is backed up with the journal, and shared by all processes that serve it
keys = sa.Table(
    "evenhand_keys",
    metadata,
    sa.Column("id", sa.String(8), primary_key=True),
    sa.Column("role", sa.String(16), nullable=False),
    sa.Column("name", sa.String(200), nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False),  # SHA-256 of the secret
    sa.Column("made", sa.String(32), nullable=False),
    sa.Column("expires", sa.String(32), nullable=True),
    sa.Column("revoked", sa.Boolean, nullable=False),
)
secrets = sa.Table(
    "evenhand_secrets",
    metadata,
    sa.Column("name", sa.String(32), primary_key=True),
    sa.Column("value", sa.LargeBinary, nullable=False),
)
sessions = sa.Table(
    "evenhand_sessions",
    metadata,
    sa.Column("digest", sa.LargeBinary, primary_key=True),  # SHA-256 of the cookie
    sa.Column("key", sa.String(8), nullable=False),
    sa.Column("expires", sa.Float, nullable=False),  # seconds since 1970
)
jobs = sa.Table(
    "evenhand_jobs",
    metadata,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("key", sa.String(8), nullable=False),  # whose job it is
    sa.Column("request", sa.String(240), nullable=True, unique=True),  # Idempotency-Key, with its owner
    sa.Column("digest", sa.LargeBinary, nullable=False),  # of the request
    sa.Column("made", sa.Float, nullable=False),
    sa.Column("seen", sa.Float, nullable=False),  # when its process last reported
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("done", sa.Integer, nullable=False),
    sa.Column("total", sa.Integer, nullable=False),
    sa.Column("answer", sa.Text, nullable=True),  # the result or the error, as JSON
)

webhooks = sa.Table(
    "evenhand_webhooks",
    metadata,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("url", sa.Text, nullable=False),
    sa.Column("secret", sa.LargeBinary, nullable=False),  # with which messages are signed
    sa.Column("experiment", sa.String(64), nullable=True),  # None: all experiments
    sa.Column("events", sa.Text, nullable=False),  # names of events, separated by spaces
    sa.Column("made", sa.Float, nullable=False),
    sa.Column("by", sa.String(200), nullable=False),
)
webhook_notices = sa.Table(  # what was sent to each webhook about each experiment, so that it is sent once
    "evenhand_webhook_notices",
    metadata,
    sa.Column("webhook", sa.String(32), primary_key=True),
    sa.Column("experiment", sa.String(64), primary_key=True),
    sa.Column("ended", sa.Boolean, nullable=False),
    sa.Column("alarms", sa.Text, nullable=False),  # kinds of alarms that have not ended, separated by spaces
)
deliveries = sa.Table(
    "evenhand_deliveries",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("webhook", sa.String(32), nullable=False),
    sa.Column("event", sa.String(40), nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("made", sa.Float, nullable=False),
    sa.Column("due", sa.Float, nullable=False),  # when it is tried next
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),  # "waiting", "delivered" or "failed"
    sa.Column("answer", sa.Text, nullable=True),  # to the last attempt, in a few words
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
    slot: int | None = (
        None  # BEGAN, ENDED, CAME_LATE, COUNTED, or the event's own number if there may be many
    )
    cell: int | None = None  # in which its outcome counts: k L + l
    key: str | None = None
    part: int | None = None


BEGAN, ENDED, CAME_LATE, COUNTED = 0, 1, 2, 3

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
# SQLite has no statistics of the tables: it takes the index, and not a scan of all events of the experiment,
# where the index gives the order too
by_ticket = (
    sa.select(*_record).where(_of, events.c.ticket == sa.bindparam("what"))
    .order_by(events.c.ticket, events.c.slot)
)  # fmt: skip
# version 0.1 wrote the key of an import into each of its rows; the first row is enough
_is_later_row = sa.and_(events.c.slot == BEGAN, events.c.cell.is_not(None), events.c.part > 0)
by_keys = (
    sa.select(events.c.key, *_record)
    .where(_of, events.c.key.in_(sa.bindparam("what", expanding=True)), sa.not_(_is_later_row))
    .order_by(events.c.key, events.c.part)
)
by_cell = (
    sa.select(*_record)
    .where(_of, events.c.cell == sa.bindparam("what"), events.c.seq <= sa.bindparam("until"))
    .order_by(events.c.seq)
)
created_by_key = sa.select(*_record).where(
    events.c.experiment.in_(sa.select(experiments.c.number)),
    events.c.seq == 1,
    sa.func.coalesce(events.c.key, "") == sa.bindparam("what"),  # so that no index of keys is scanned for it
)
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
    # an experiment in intervals has no tickets: its events are filed under the number of their interval
    ev.SharesPublished: BEGAN,
    ev.IntervalClosed: ENDED,
    ev.Counted: COUNTED,
}


def index_of(event: ev.AnyEvent, seq: int, cell: int | None) -> Index:
    """Return the index columns of an event; `cell` is where its outcome counts, if it does."""
    ticket: int | None = getattr(event, "ticket", None)
    if isinstance(event, ev.IntervalEvent):
        ticket = event.version if isinstance(event, ev.SharesPublished) else event.interval
    slot = None if ticket is None else _SLOTS.get(type(event), seq)
    return Index(ticket, slot, cell, event.key, None if event.key is None else event.part)
