"""Keys in the journal's own storage, changed through its one writer; keys of version 0.1."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from litestar.testing import TestClient

from evenhand.cli.serve import serve
from evenhand.errors import BadInput, StorageFailed
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.live.journal import open_journal
from evenhand.service import keys as module
from evenhand.service.app import Settings, create_app
from evenhand.service.keys import Keys, KnownKeys, any_key, take_requests
from evenhand.study import Study
from tests.service.peers import seen_from
from tests.service.service_process import STUDY, Running

DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"  # SHA-256 of "test"
TABLE_OF_0_1 = (
    "CREATE TABLE service_keys (id VARCHAR(8) NOT NULL PRIMARY KEY, role VARCHAR(16) NOT NULL, "
    "name VARCHAR(200) NOT NULL, digest {bytes} NOT NULL, made VARCHAR(32) NOT NULL, "
    "expires VARCHAR(32), revoked BOOLEAN NOT NULL)"
)
OLD = [
    ("0000000a", "admin", "head of trial", "2025-01-01T00:00:00+00:00", None, False),
    ("0000000b", "operator", "gone", "2025-01-02T00:00:00+00:00", None, True),
]


def write_keys_of_0_1(path: Path) -> Path:
    """The keys file that version 0.1 keeps beside an SQLite journal."""
    with closing(sqlite3.connect(path)) as database:
        database.execute(TABLE_OF_0_1.format(bytes="BLOB"))
        rows = [(i, role, name, bytes.fromhex(DIGEST), made, expires, revoked)
                for i, role, name, made, expires, revoked in OLD]  # fmt: skip
        database.executemany("INSERT INTO service_keys VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        database.commit()
    return path


def evenhand(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "evenhand", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def status(service: Running, key: str) -> int:
    import urllib.error
    import urllib.request

    request = urllib.request.Request(f"{service.url}/api/v1/experiments", headers=bearer(key))
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as problem:
        with problem:
            return problem.code


def test_a_copy_of_the_journal_holds_its_keys(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    key = Keys(str(journal)).create("admin", "me")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal.db", "journal.db.lock"]
    copy = shutil.copy(journal, tmp_path / "restored.db")
    assert any_key(str(copy))
    found = Keys(str(copy)).find(key)
    assert found is not None
    assert (found.role, found.name) == ("admin", "me")


@pytest.mark.parametrize("storage", ["sqlite", "postgresql"])
def test_keys_made_beside_a_running_service_are_written_by_its_writer(
    storage: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The command line does not open a second writing connection, which SQLite before 3.51.3 cannot take."""
    is_file = storage == "sqlite"
    journal = str(tmp_path / "t.db") if is_file else str(request.getfixturevalue("postgres_url"))
    with Running(journal, tmp_path / "log") as service:
        made = evenhand("keys", "--journal", journal, "create", "--role", "operator", "--name", "ward 3")
        assert made.returncode == 0, made.stderr
        key = made.stdout.strip()
        assert status(service, key) == 200
        assert status(service, f"eh_00000000_{'a' * 43}") == 401
        listed = json.loads(evenhand("keys", "--journal", journal, "--json").stdout)
        assert [(one["name"], one["role"]) for one in listed] == [("ward 3", "operator")]
        gone = evenhand("keys", "--journal", journal, "revoke", listed[0]["id"])
        assert gone.returncode == 0, gone.stderr
        deadline = module.STALE_SECONDS + 60
        assert any(status(service, key) == 401 for _ in range(int(deadline * 20)))
        assert not list(tmp_path.glob("*key-request*"))
        assert key not in (tmp_path / "log").read_text()


def test_a_keys_file_of_0_1_is_taken_over_once_with_a_notice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal, old = str(tmp_path / "t.db"), tmp_path / "t.db.keys"
    with Experiment.create(journal, Study.from_dict(STUDY), seed=7):
        pass
    write_keys_of_0_1(old)
    assert any_key(journal)  # before anything is written: a service of this journal is not open
    with (
        caplog.at_level(logging.WARNING),
        TestClient(seen_from(create_app(Settings(journal))), base_url="http://127.0.0.1") as client,
    ):
        assert client.get("/api/v1/experiments").status_code == 401
    assert "keys taken over" in caplog.text
    assert not old.exists()
    found = {key.id: (key.role, key.name, key.revoked) for key in Keys(journal).all()}
    assert found == {row[0]: (row[1], row[2], row[5]) for row in OLD}
    Keys(journal).revoke("0000000a")
    write_keys_of_0_1(old)  # the old file put back from a backup does not bring a revoked key back
    with caplog.at_level(logging.WARNING):
        Keys(journal).create("analyst", "new")
    assert {key.id: key.revoked for key in Keys(journal).all()}["0000000a"]
    assert audit(journal).identical


def test_a_keys_file_of_0_1_that_cannot_be_read_keeps_the_service_from_starting(tmp_path: Path) -> None:
    (tmp_path / "t.db.keys").write_bytes(b"damaged" * 100)
    with pytest.raises(StorageFailed, match=r"t\.db\.keys cannot be read"):
        create_app(Settings(str(tmp_path / "t.db")))


def test_keys_of_0_1_in_postgresql_are_taken_over(postgres_url: str) -> None:
    engine = sa.create_engine("postgresql+psycopg:" + postgres_url.split(":", 1)[1])
    with engine.begin() as connection:
        connection.exec_driver_sql(TABLE_OF_0_1.format(bytes="BYTEA"))
        for identity, role, name, made, expires, revoked in OLD:
            values = (identity, role, name, bytes.fromhex(DIGEST), made, expires, revoked)
            insert = "INSERT INTO service_keys VALUES (%s, %s, %s, %s, %s, %s, %s)"
            connection.exec_driver_sql(insert, values)
    found = {key.id: (key.role, key.name, key.revoked) for key in Keys(postgres_url).all()}
    assert found == {row[0]: (row[1], row[2], row[5]) for row in OLD}
    assert not sa.inspect(engine).has_table("service_keys")
    engine.dispose()


def test_without_a_key_a_name_is_refused_and_with_one_in_the_journal_it_is_not(tmp_path: Path) -> None:
    journal = str(tmp_path / "t.db")
    with pytest.raises(BadInput, match="loopback only"):
        serve(journal, "127.0.0.1", 0, ("trial.example.org",))
    with pytest.raises(BadInput, match=r"the proxy 10[.]0[.]0[.]1 would forward"):
        serve(journal, "127.0.0.1", 0, (), ("10.0.0.1",))
    assert not Path(journal).exists()
    Keys(journal).create("admin", "me")
    assert any_key(journal)


def test_a_writer_that_is_no_service_takes_no_change_of_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    journal = str(tmp_path / "t.db")
    with (
        Experiment.create(journal, Study.from_dict(STUDY), seed=7),
        pytest.raises(StorageFailed, match="must have one writer"),
    ):
        Keys(journal).create("admin", "me")
    assert not list(tmp_path.glob("*key-request*"))
    assert not any_key(journal)


def new_key(**changed: Any) -> dict[str, Any]:
    row = {"id": "00000001", "role": "admin", "name": "me", "digest": DIGEST, "made": "2026", "expires": None}
    return {"add": row | {"revoked": False} | changed}


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", json.dumps(new_key(role="owner")), json.dumps(new_key(digest="00"))]
)
def test_a_request_that_is_none_is_ignored_and_removed(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.db"
    journal = open_journal(str(path), create=True)
    (tmp_path / "t.db.key-request-1").write_text(text)
    assert take_requests(journal, path) == 0
    assert not KnownKeys(journal).exist()
    assert not list(tmp_path.glob("*key-request*"))
    journal.close()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a file away")
def test_a_request_of_another_user_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    journal = open_journal(str(path), create=True)
    request = tmp_path / "t.db.key-request-1"
    request.write_text(json.dumps(new_key()))
    os.chown(request, 65_534, 65_534)
    assert take_requests(journal, path) == 0
    link = tmp_path / "t.db.key-request-2"
    (tmp_path / "elsewhere").write_text(json.dumps(new_key()))
    link.symlink_to(tmp_path / "elsewhere")
    assert take_requests(journal, path) == 0
    assert not KnownKeys(journal).exist()
    journal.close()


@pytest.mark.parametrize("name", ["", " ", "x" * 98, "ward\n3", "\x1b[2J"])
def test_a_key_has_a_plain_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match="name"):
        Keys(str(tmp_path / "t.db")).create("admin", name)
