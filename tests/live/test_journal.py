"""What every storage promises: append, read, one transaction at a time, nothing half-written."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from evenhand.errors import BadInput, IntegrityFailed, NotFound, StorageFailed
from evenhand.live import schema, transaction
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.live.hash_chain import Head, genesis, verified
from evenhand.live.journal import Journal, open_journal
from evenhand.live.schema import ENDED, Index
from evenhand.live.sqlite import SqliteJournal, in_memory
from tests.live.example_experiments import create, endless, even, play

Make = Callable[[], str]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    address = {"memory": ":memory:", "sqlite": str(tmp_path / "trial.db")}.get(request.param)
    store = open_journal(address or request.getfixturevalue("postgres_url"), create=True)
    yield store
    store.close()


def entries(*numbers: int) -> list[tuple[bytes, Index]]:
    return [(b'{"n":%d}' % n, Index()) for n in numbers]


def append(journal: Journal, experiment: str, new: list[tuple[bytes, Index]]) -> Head:
    """Write these events in one transaction; return the head."""
    with journal.transaction(experiment) as transaction:
        transaction.append(new)
    return transaction.head


def test_what_is_appended_is_read_back_in_order_with_a_whole_chain(journal: Journal) -> None:
    head = journal.create("one", entries(1)[0])
    head = append(journal, "one", entries(2, 3))
    rows = list(journal.read("one"))
    assert [row.record.body for row in rows] == [b'{"n":1}', b'{"n":2}', b'{"n":3}']
    assert list(verified((row.record for row in rows), genesis("one"))) == [row.record for row in rows]
    assert [row.record.seq for row in journal.read("one", after=1)] == [2, 3]
    assert journal.head("one") == head == (3, rows[-1].record.hash)


def test_a_long_log_is_read_page_by_page(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "PAGE", 7)
    journal.create("one", entries(1)[0])
    append(journal, "one", entries(*range(2, 31)))
    assert [row.record.seq for row in journal.read("one", after=3, until=25)] == list(range(4, 26))


def test_a_turn_that_fails_leaves_nothing(journal: Journal) -> None:
    head = journal.create("one", entries(1)[0])

    def halfway() -> None:
        with journal.transaction("one") as transaction:
            transaction.append(entries(2, 3))
            transaction.flush()
            raise RuntimeError("halfway")

    with pytest.raises(RuntimeError, match="halfway"):
        halfway()
    assert journal.head("one") == head
    assert len(list(journal.read("one"))) == 1


def test_a_ticket_ends_once_whatever_the_program_does(journal: Journal) -> None:
    head = journal.create("one", entries(1)[0])
    head = append(journal, "one", [(b"{}", Index(ticket=1, slot=ENDED))])
    with pytest.raises(IntegrityFailed):
        append(journal, "one", [(b"{}", Index(ticket=1, slot=ENDED))])
    with pytest.raises(IntegrityFailed):
        append(journal, "one", [(b"{}", Index(key="k", part=0)), (b"{}", Index(key="k", part=0))])
    assert journal.head("one") == head


def test_a_turn_finds_what_it_has_just_appended(journal: Journal) -> None:
    journal.create("one", entries(1)[0])
    with journal.transaction("one") as transaction:
        transaction.append(
            [
                (b'{"t":1}', Index(ticket=1, slot=0, key="k", part=0)),
                (b'{"t":2}', Index(ticket=1, slot=1, cell=4)),
            ]
        )
        assert [record.body for record in transaction.by_ticket(1)] == [b'{"t":1}', b'{"t":2}']
        assert [record.seq for record in transaction.by_key("k")] == [2]
        assert [record.seq for record in transaction.by_cell(4)] == [3]
        assert (
            transaction.by_cell(4, until=2) == transaction.by_ticket(2) == transaction.by_key("other") == []
        )
    assert [record.seq for record in journal.by_cell("one", 4, 3)] == [3]


def test_keys_looked_up_together_are_those_looked_up_alone(journal: Journal) -> None:
    journal.create("one", entries(1)[0])
    parts = [(b'{"p":%d}' % part, Index(key="k", part=part)) for part in range(2)]
    append(journal, "one", [*parts, (b"{}", Index(key="other", part=0))])
    with journal.transaction("one") as transaction:
        alone = {key: transaction.by_key(key) for key in ("k", "other", "new")}
        assert [len(found) for found in alone.values()] == [2, 1, 0]
        transaction.look_up(list(alone))
        assert {key: transaction.by_key(key) for key in alone} == alone
        [record] = transaction.append([(b'{"p":2}', Index(key="k", part=2))])
        assert transaction.by_key("k") == [*alone["k"], record]


def test_experiments_do_not_see_each_other(journal: Journal) -> None:
    one, two = journal.create("one", entries(1)[0]), journal.create("two", entries(1)[0])
    assert one.hash != two.hash
    append(journal, "two", entries(5))
    assert journal.experiments() == ["one", "two"]
    assert len(list(journal.read("one"))) == 1
    with pytest.raises(BadInput, match="already"):
        journal.create("one", entries(1)[0])
    with pytest.raises(NotFound):
        journal.head("three")


def test_a_journal_of_a_newer_version_is_refused_and_an_older_one_is_brought_up_in_one_piece(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = journal._writing
    assert engine is not None
    present = schema.SCHEMA
    monkeypatch.setattr(schema, "SCHEMA", 0)
    with pytest.raises(IntegrityFailed, match="newer"):
        schema.bring_up_to_date(engine)
    monkeypatch.setattr(schema, "SCHEMA", present + 2)
    made: list[int] = []

    def halfway(connection: sa.Connection) -> None:
        connection.execute(sa.text("CREATE TABLE extra (x INTEGER)"))
        made.append(1)
        if len(made) == 1:
            raise RuntimeError("halfway")

    monkeypatch.setattr(schema, "MIGRATIONS", {present: halfway, present + 1: lambda _: None})
    with pytest.raises(RuntimeError):
        schema.bring_up_to_date(engine)
    assert not sa.inspect(engine).has_table("extra")
    schema.bring_up_to_date(engine)
    with engine.connect() as connection:
        assert connection.execute(sa.select(schema.journal.c.schema)).scalar() == present + 2
        assert sa.inspect(connection).has_table("extra")


def test_readers_refuse_tables_of_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    for address in (str(tmp_path / "t.db"), str(request.getfixturevalue("postgres_url"))):
        create(address).close()
        for known, error in ((0, "newer evenhand"), (schema.SCHEMA + 1, "open it once for writing")):
            with monkeypatch.context() as patch:
                patch.setattr(schema, "SCHEMA", known)
                patch.setattr(schema, "READABLE", known)
                with pytest.raises((IntegrityFailed, StorageFailed), match=error):
                    Experiment.open(address, write=False)
                with pytest.raises((IntegrityFailed, StorageFailed), match=error):
                    audit(address)
        with Experiment.open(address, write=False) as trial:
            assert trial.head.seq == 1
            with pytest.raises(StorageFailed, match="reading only"):
                trial.ask()
    with closing(sqlite3.connect(tmp_path / "t.db")) as database:
        database.execute("DELETE FROM evenhand_journal")
        database.commit()
    for write in (True, False):
        with pytest.raises(IntegrityFailed, match="does not say its schema version"):
            Experiment.open(str(tmp_path / "t.db"), write=write)


def test_readers_read_while_one_process_writes(tmp_path: Path) -> None:
    address = str(tmp_path / "trial.db")
    writer = open_journal(address, create=True)
    writer.create("one", entries(1)[0])
    reader = open_journal(address, write=False)
    append(writer, "one", entries(2))
    assert [row.record.seq for row in reader.read("one")] == [1, 2]
    with pytest.raises(StorageFailed, match="reading only"), reader.transaction("one"):
        pass
    reader.close()
    writer.close()


@pytest.mark.parametrize("level", ["NORMAL", "OFF"])
def test_settings_that_lose_outcomes_with_the_power_are_refused_unless_named_unsafe(
    tmp_path: Path, level: str
) -> None:
    address = str(tmp_path / "trial.db")
    with pytest.raises(StorageFailed, match="must be FULL"):
        SqliteJournal(address, create=True, synchronous=level)
    SqliteJournal(address, create=True, synchronous=f"unsafe-{level}").close()
    with_full = SqliteJournal(address)
    assert with_full._writing is not None
    with with_full._writing.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    with_full.close()


def test_what_is_no_journal_is_refused_untouched(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a database")
    with pytest.raises(IntegrityFailed, match="no journal"):
        open_journal(str(text))
    assert text.read_text() == "not a database"
    other = sa.create_engine(f"sqlite:///{tmp_path / 'other.db'}")
    with other.begin() as connection:
        connection.execute(sa.text("CREATE TABLE theirs (x INTEGER)"))
    other.dispose()
    with pytest.raises(IntegrityFailed, match="another program"):
        open_journal(str(tmp_path / "other.db"))
    with pytest.raises(NotFound):
        open_journal(str(tmp_path / "none.db"))
    with pytest.raises(BadInput):
        open_journal(str(tmp_path / "no" / "folder.db"), create=True)
    with pytest.raises(BadInput):
        open_journal("postgresql://host:port:port/x")


def test_the_file_alone_holds_everything_once_its_writer_has_left(tmp_path: Path) -> None:
    address = tmp_path / "t.db"
    trial = create(str(address), study=endless())
    looker = sqlite3.connect(f"{address.as_uri()}?mode=ro", uri=True)  # keeps the log of writes from going
    looker.execute("SELECT count(*) FROM evenhand_events").fetchall()
    play(trial, 30, even)
    trial.close()
    copy = tmp_path / "copy.db"
    copy.write_bytes(address.read_bytes())
    looker.close()
    with Experiment.open(str(copy), write=False) as found:
        assert found.status().samples == 30


@pytest.mark.parametrize(
    ("statement", "values", "found"),
    [
        (schema.by_ticket, {"of": 1, "what": 2}, "evenhand_one_per_ticket (experiment=? AND ticket=?)"),
        (schema.by_keys, {"of": 1, "what": ["a"]}, "evenhand_one_per_key (experiment=? AND key=?)"),
        (schema.by_keys, {"of": 1, "what": [*"abc"]}, "evenhand_one_per_key (experiment=? AND key=?)"),
        (schema.created_by_key, {"what": "a"}, "PRIMARY KEY (experiment=? AND seq=?)"),
    ],
)
def test_sqlite_finds_the_events_of_a_request_and_a_ticket_without_reading_the_log(
    statement: sa.Select[Any, Any, Any], values: dict[str, object], found: str
) -> None:
    """With two keys SQLite read all events of the experiment: 0.2 s for each write after 200,000 events."""
    engine, sent = in_memory(), list[Any]()
    schema.metadata.create_all(engine)
    sa.event.listen(engine, "before_cursor_execute", lambda *call: sent.append((call[2], call[3])))
    with engine.connect() as connection:
        connection.execute(statement, values)
        text, parameters = sent[-1]
        plan = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", parameters)]
    assert plan[0].endswith(found)


def test_a_connection_in_use_when_the_journal_is_closed_is_closed_when_it_is_returned(
    postgres_url: str,
) -> None:
    journal = open_journal(postgres_url, create=True)
    with journal._reading.connect() as connection:
        driver = connection.connection.dbapi_connection
        journal.close()
        assert not driver.closed
    assert driver.closed
    assert journal.experiments() == []  # reading still works
