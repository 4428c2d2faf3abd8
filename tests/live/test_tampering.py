"""Faults 9 and 10: whatever was changed in a journal is found, and the first event named."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import evenhand as eh
from evenhand.errors import IntegrityFailed
from evenhand.live.audit import Audit, audit
from evenhand.live.experiment import Experiment
from evenhand.live.hash_chain import extend, genesis
from tests.live.example_experiments import create, play


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(whole, tmp_path / "t.db"))


def changed(path: Path, *statements: str) -> Audit:
    """Return the audit after a change of the database."""
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()
    return audit(str(path))


def forged(path: Path, bodies: list[bytes]) -> Audit:
    """Return the audit after the log was replaced by another, with a chain and a head that fit."""
    chain = extend(genesis("main"), bodies)
    changes = [
        f"UPDATE evenhand_events SET body=x'{r.body.hex()}', hash=x'{r.hash.hex()}' WHERE seq={r.seq}"
        for r in chain
    ]
    return changed(path, *changes, f"UPDATE evenhand_experiments SET hash = x'{chain[-1].hash.hex()}'")


def records(path: Path) -> Iterator[tuple[int, bytes, bytes]]:
    with closing(sqlite3.connect(path)) as database:
        yield from database.execute("SELECT seq, body, hash FROM evenhand_events ORDER BY seq").fetchall()


@pytest.mark.parametrize("column", ["body", "hash"])
def test_a_changed_bit_in_an_event_is_found_and_the_event_named(copy: Path, column: str) -> None:
    """Backwards, so that each damage stands before those made already: the first must be named."""
    for seq, body, hash_ in list(records(copy))[::-9]:
        damaged = bytearray(body if column == "body" else hash_)
        damaged[seq % len(damaged)] ^= 1 << (seq % 8)
        found = changed(copy, f"UPDATE evenhand_events SET {column} = x'{damaged.hex()}' WHERE seq = {seq}")
        assert found.first_different_event == seq, found


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE evenhand_events SET ticket = 999 WHERE seq = 9",
        "UPDATE evenhand_events SET slot = 7 WHERE seq = 9",
        "UPDATE evenhand_events SET cell = 5 WHERE seq = 9",
        "UPDATE evenhand_events SET cell = NULL WHERE seq = 9",
        "UPDATE evenhand_events SET key = 'x', part = 0 WHERE seq = 9",
        "DELETE FROM evenhand_events WHERE seq = 9",
        "UPDATE evenhand_events SET body = CAST(body AS TEXT) WHERE seq = 9",
        "UPDATE evenhand_events SET hash = NULL WHERE seq = 9",
    ],
)
def test_what_an_event_is_filed_under_is_checked_too(copy: Path, statement: str) -> None:
    try:
        found = changed(copy, statement)
    except sqlite3.IntegrityError:
        return  # the database itself does not allow it
    assert found.first_different_event == 9, found


def test_reordered_events_are_found(copy: Path) -> None:
    swap = [
        f"UPDATE evenhand_events SET seq = {new} WHERE seq = {old}"
        for old, new in ((9, -1), (10, 9), (-1, 10))
    ]
    assert changed(copy, *swap).first_different_event == 9


def test_an_inserted_event_is_found(copy: Path) -> None:
    found = changed(
        copy,
        "UPDATE evenhand_events SET seq = -seq - 1 WHERE seq > 9",
        "UPDATE evenhand_events SET seq = -seq WHERE seq < 0",
        "INSERT INTO evenhand_events (experiment, seq, body, hash) "
        "SELECT experiment, 10, body, hash FROM evenhand_events WHERE seq = 9",
    )
    assert found.first_different_event == 10


def test_an_event_beyond_the_head_is_found(copy: Path) -> None:
    last = list(records(copy))[-1][0]
    insert = (
        f"INSERT INTO evenhand_events (experiment, seq, body, hash) VALUES (1, {last + 1}, x'7b7d', x'00')"
    )
    assert changed(copy, insert).first_different_event == last + 1


def test_a_tail_cut_off_is_found_by_the_head_beside_it_or_by_the_head_noted_elsewhere(copy: Path) -> None:
    all_ = list(records(copy))
    head = audit(str(copy)).head
    cut = len(all_) - 3
    assert changed(copy, f"DELETE FROM evenhand_events WHERE seq > {cut}").first_different_event == cut + 1
    # a forger who also corrects the head beside the log is found by the head that was noted elsewhere
    again = f"UPDATE evenhand_experiments SET seq = {cut}, hash = x'{all_[cut - 1][2].hex()}'"
    assert changed(copy, again).identical
    found = audit(str(copy), head=head)
    assert not found.identical
    assert "cut off" in str(found.first_difference)


def test_a_log_forged_from_the_start_is_found_by_the_head_noted_elsewhere(copy: Path, whole: Path) -> None:
    head = audit(str(whole)).head
    bodies = [
        body.replace(b'"outcome":1.0', b'"outcome":0.0') if seq > 60 else body
        for seq, body, _ in records(copy)
    ]
    found = forged(copy, bodies)
    assert not found.identical  # the decisions do not follow from the forged outcomes
    assert not audit(str(copy), head=head).identical


def test_a_forged_snapshot_is_found_even_with_a_chain_forged_to_fit(copy: Path) -> None:
    bodies = [body for _, body, _ in records(copy)]
    place = next(i for i, body in enumerate(bodies) if b'"kind":"snapshot"' in body)
    bodies[place] = bodies[place].replace(b'"tickets":', b'"tickets":1')
    assert forged(copy, bodies).first_different_event == place + 1


def test_a_decision_that_the_rule_did_not_make_is_named(tmp_path: Path) -> None:
    """The chain may be whole; the allocation must still follow from seed and data."""
    address = str(tmp_path / "t.db")
    with create(address, procedure=eh.Procedure(initial=1)) as trial:
        play(trial, 30)
    bodies = [body for _, body, _ in records(Path(address))]
    place = next(i for i, b in enumerate(bodies) if i > 40 and b'"kind":"asked"' in b)
    other = b'"policy":"b"' if b'"policy":"a"' in bodies[place] else b'"policy":"a"'
    bodies[place] = bodies[place].replace(bodies[place][bodies[place].index(b'"policy"') :][:12], other)
    found = forged(Path(address), bodies)
    assert found.first_different_event == place + 1
    assert "the rule for" in str(found.first_difference)


@pytest.mark.parametrize("snapshot", [0, 3, 10**6])
def test_another_snapshot_noted_as_the_latest_is_found_and_not_opened(copy: Path, snapshot: int) -> None:
    assert not changed(copy, f"UPDATE evenhand_experiments SET snapshot = {snapshot}").identical
    if snapshot:
        with pytest.raises(IntegrityFailed):
            Experiment.open(str(copy))


def test_the_rows_of_two_experiments_cannot_be_swapped(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    for name in ("one", "two"):
        with create(str(path), name=name) as trial:
            play(trial, 5)
    swap = [
        f"UPDATE evenhand_events SET experiment = {b} WHERE experiment = {a}"
        for a, b in ((1, 3), (2, 1), (3, 2))
    ]
    with closing(sqlite3.connect(path)) as database:
        for statement in swap:
            database.execute(statement)
        database.commit()
    for name in ("one", "two"):
        assert audit(str(path), experiment=name).first_different_event == 1
