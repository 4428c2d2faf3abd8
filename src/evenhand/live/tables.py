"""The journal's tables and the statements on them: the same for SQLite and PostgreSQL."""

from __future__ import annotations

from typing import NamedTuple

import sqlalchemy as sa

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
    """What an event is found by.

    A ticket begins once, ends once and has one late outcome at most: the database sees to it.
    """

    ticket: int | None = None
    slot: int | None = None  # BEGAN, ENDED, CAME_LATE, or the event's own number where there may be many
    cell: int | None = None  # where its outcome counts: k L + l
    key: str | None = None
    part: int | None = None


BEGAN, ENDED, CAME_LATE = 0, 1, 2

_of = events.c.experiment == sa.bindparam("of")
_record = (events.c.seq, events.c.body, events.c.hash)

find = sa.select(experiments).where(experiments.c.name == sa.bindparam("name"))
lock = find.with_for_update()
# one statement, so that a writer at work cannot come between the head and what lies beyond it
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
# version 0.1 wrote the key of an import into each of its rows; the first says all that is needed
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
