"""Faults 7, 9 and 10: everything is derived again, and whatever was changed is found and named."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import evenhand as eh
from evenhand.errors import BadInput, EvenhandError, IntegrityFailed
from evenhand.live.audit import Audit, audit
from evenhand.live.chain import extend, genesis
from evenhand.live.experiment import Experiment
from evenhand.live.export import Export, write_export
from evenhand.live.protocol import Protocol
from tests.live.world import coin, create, play, problem


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal in which everything has happened, closed; with snapshots every fifty events."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Protocol, "snapshot_every", 50)
        address = tmp_path_factory.mktemp("whole") / "t.db"
        with create(str(address)) as trial:
            trial.import_data([("a", "x", 1), ("b", "y", 0)], key="import")
            asks = play(trial, 20)
            trial.amend(asks[3], 1 - coin(asks[3]), reason="typo", by="me")
            trial.drop(trial.ask(1, worker="w")[0], "lost")
            trial.pause("p")
            trial.resume()
            with pytest.raises(EvenhandError):
                trial.tell(asks[5], 1 - coin(asks[5]))
            late = trial.ask(2, key="k")
            asks += play(trial)
            trial.tell(late[0], 1)
            trial.amend(asks[30], 1 - coin(asks[30]), reason="typo", by="me")
            trial.view("me", "all")
            trial.close()
        return address


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(whole, tmp_path / "t.db"))


def changed(path: Path, *statements: str) -> Audit:
    """Audit after somebody wrote into the database."""
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()
    return audit(str(path))


def records(path: Path) -> Iterator[tuple[int, bytes, bytes]]:
    with closing(sqlite3.connect(path)) as database:
        yield from database.execute("SELECT seq, body, hash FROM evenhand_events ORDER BY seq").fetchall()


def test_an_untouched_journal_is_identical(whole: Path) -> None:
    found = audit(str(whole))
    assert found.identical
    assert found.first_difference is None
    assert found.events == len(list(records(whole)))
    assert found.other_digits == 0
    assert audit(str(whole), head=found.head).identical


@pytest.mark.parametrize("mode", ["proportional", "agnostic"])
def test_the_other_modes_audit_as_well(tmp_path: Path, mode: str) -> None:
    with create(str(tmp_path / "t.db"), study=problem(mode)) as trial:
        for number in range(60):
            group = "xy"[number % 2]
            ask = trial.ask(group=group if mode == "proportional" else None)
            assert ask is not None
            if number % 7 == 3:
                trial.drop(ask, "lost")
            else:
                trial.tell(ask, coin(ask), group=group)
    assert audit(str(tmp_path / "t.db")).identical


def test_an_export_is_enough_for_an_audit(whole: Path, tmp_path: Path) -> None:
    path = export(whole, tmp_path)
    found, there = audit(str(path)), audit(str(whole))
    assert found.identical
    assert (found.head, found.events) == (there.head, there.events)
    assert Export(path).experiment == "main"


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


def test_reordered_and_inserted_events_are_found(copy: Path) -> None:
    swap = [
        f"UPDATE evenhand_events SET seq = {new} WHERE seq = {old}"
        for old, new in ((9, -1), (10, 9), (-1, 10))
    ]
    assert changed(copy, *swap).first_different_event == 9


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
    # whoever also corrects the head beside the log is found by the head that was noted elsewhere
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
    forged = extend(genesis("main"), bodies)
    changes = [
        f"UPDATE evenhand_events SET body=x'{r.body.hex()}', hash=x'{r.hash.hex()}' WHERE seq={r.seq}"
        for r in forged
    ]
    changes.append(f"UPDATE evenhand_experiments SET hash = x'{forged[-1].hash.hex()}'")
    found = changed(copy, *changes)
    assert not found.identical  # the decisions do not follow from the forged outcomes
    assert not audit(str(copy), head=head).identical


def test_a_forged_snapshot_is_found_even_with_a_chain_forged_to_fit(copy: Path) -> None:
    bodies = [body for _, body, _ in records(copy)]
    place = next(i for i, body in enumerate(bodies) if b'"kind":"snapshot"' in body)
    bodies[place] = bodies[place].replace(b'"tickets":', b'"tickets":1')
    forged = extend(genesis("main"), bodies)
    changes = [
        f"UPDATE evenhand_events SET body=x'{r.body.hex()}', hash=x'{r.hash.hex()}' WHERE seq={r.seq}"
        for r in forged
    ]
    changes.append(f"UPDATE evenhand_experiments SET hash = x'{forged[-1].hash.hex()}'")
    assert changed(copy, *changes).first_different_event == place + 1


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


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: lines[:-1],
        lambda lines: lines[:-4] + lines[-1:],
        lambda lines: lines + lines[-2:],
        lambda lines: lines[:5] + lines[6:],
        lambda lines: [*lines[:5], lines[6], lines[5], *lines[7:]],
        lambda lines: [*lines[:5], b"{}\n", *lines[5:]],
        lambda lines: [*lines[:5], lines[5].replace(b'"hash":"', b'"hash":"zz'), *lines[6:]],
        lambda lines: [*lines[:5], lines[5][: len(lines[5]) // 2]],
        lambda lines: [lines[0].replace(b"main", b"mine"), *lines[1:]],
    ],
)
def test_a_damaged_export_is_found(
    whole: Path, tmp_path: Path, damage: Callable[[list[bytes]], list[bytes]]
) -> None:
    path = export(whole, tmp_path)
    path.write_bytes(b"".join(damage(path.read_bytes().splitlines(keepends=True))))
    assert not audit(str(path)).identical


def test_every_single_byte_of_an_export_matters(whole: Path, tmp_path: Path) -> None:
    path = export(whole, tmp_path)
    content = path.read_bytes()
    for place in range(0, len(content), max(len(content) // 150, 1)):
        damaged = bytearray(content)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        try:
            assert not audit(str(path)).identical, place
        except BadInput:
            assert place < content.index(b"\n")  # the first line no longer says that it is an export


@pytest.mark.parametrize("content", [b"", b"hello\n", b"{}\n", b"\xff\xfe\x00"])
def test_what_is_neither_journal_nor_export_is_bad_input_or_no_journal(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises((BadInput, IntegrityFailed)):
        audit(str(path))


def test_a_head_must_look_like_one(whole: Path) -> None:
    with pytest.raises(BadInput, match="64 hexadecimal"):
        audit(str(whole), head="abc")


def test_an_earlier_head_is_still_held_after_the_log_has_grown(tmp_path: Path) -> None:
    address = str(tmp_path / "t.db")
    with create(address) as trial:
        play(trial, 5)
        early = str(trial.head)
        play(trial, 5)
    assert audit(address, head=early).identical


def test_a_decision_that_the_rule_did_not_make_is_named(tmp_path: Path) -> None:
    """The chain may be whole; the allocation must still follow from seed and data."""
    address = str(tmp_path / "t.db")
    with create(address, procedure=eh.Procedure(initial=1)) as trial:
        play(trial, 30)
    bodies = [body for _, body, _ in records(Path(address))]
    place = next(i for i, b in enumerate(bodies) if i > 40 and b'"kind":"asked"' in b)
    other = b'"policy":"b"' if b'"policy":"a"' in bodies[place] else b'"policy":"a"'
    bodies[place] = bodies[place].replace(bodies[place][bodies[place].index(b'"policy"') :][:12], other)
    forged = extend(genesis("main"), bodies)
    changes = [
        f"UPDATE evenhand_events SET body=x'{r.body.hex()}', hash=x'{r.hash.hex()}' WHERE seq={r.seq}"
        for r in forged
    ]
    changes.append(f"UPDATE evenhand_experiments SET hash = x'{forged[-1].hash.hex()}'")
    found = changed(Path(address), *changes)
    assert found.first_different_event == place + 1
    assert "the rule for" in str(found.first_difference)


def export(journal: Path, folder: Path) -> Path:
    path = folder / "export.jsonl"
    with Experiment.open(str(journal), write=False) as trial, path.open("wb") as file:
        write_export(trial._journal, "main", file)
    return path
