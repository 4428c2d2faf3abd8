"""Fault 37: a chain forged to fit. The audit names the very event that was changed, and why."""

from __future__ import annotations

import copy
import json
import random
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import evenhand as eh
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.live.hash_chain import canonical, extend, genesis
from evenhand.live.protocol import Protocol
from evenhand.live.tickets import ticket_code
from tests.live.example_experiments import create, play, records
from tests.live.forgeries import FORGERIES, forgeries, write_chain
from tests.live.random_logs import FAMILIES, Log, honest_log

MODES = ("active", "proportional", "agnostic")
PAIRED = (eh.Bernoulli(), eh.Bounded(-1.0, 2.0), eh.Binomial(3))


@pytest.fixture(autouse=True)
def _frequent_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Protocol, "snapshot_every", 30)


def some_log(folder: Path, luck: random.Random, number: int, events: int = 120) -> Log:
    """Every family and mode in turn; every second log is by two builds, every seventh on shared items."""
    family, mode = FAMILIES[number % len(FAMILIES)], MODES[number % len(MODES)]
    if number % 7 == 6:
        family, mode = PAIRED[number // 7 % len(PAIRED)], MODES[number // 7 % 2]
        return honest_log(folder / f"{number}.db", luck, family, mode, events, number % 2 == 0, shared=True)
    return honest_log(folder / f"{number}.db", luck, family, mode, events, builds=number % 2 == 0)


def forge(folder: Path, logs: int, seed: int) -> Counter[str]:
    """How often each kind of forgery was made; all were named rightly."""
    luck, made = random.Random(seed), Counter[str]()
    for number in range(logs):
        log = some_log(folder, luck, number)
        found = audit(str(write_chain(folder / "honest.jsonl", log.events)))
        assert found.identical, found.first_difference
        for name, forged in forgeries(log, luck):
            found = audit(str(write_chain(folder / "forged.jsonl", forged.events)))
            assert found.first_different_event == forged.place + 1, (
                name, forged.place + 1, forged.events[forged.place], found,
            )  # fmt: skip
            assert str(found.first_difference).startswith(f"event {forged.place + 1} ")
            made[name] += 1
    print(f"fault 37: {made.total()} forged logs of {len(made)} kinds, all named rightly")
    return made


def test_of_every_kind_of_forgery_the_audit_names_the_changed_event(tmp_path: Path) -> None:
    made = forge(tmp_path, 7, seed=5)
    assert made.total() > 500
    assert any(name.startswith("item:") for name in made)


@pytest.mark.slow
def test_of_ten_thousand_forged_logs_the_audit_names_the_changed_event(tmp_path: Path) -> None:
    made = forge(tmp_path, 96, seed=1)
    assert made.total() > 10_000
    assert set(made) == {forgery.name for forgery in FORGERIES}


def test_of_two_changed_events_the_first_is_named(tmp_path: Path) -> None:
    """Whether it shows in the arithmetic, which is done many events at a time, or in the event itself."""
    log = some_log(tmp_path, random.Random(3), 1)
    asks = log.of_kind("asked")
    events = copy.deepcopy(log.events)
    arithmetic, later = asks[len(asks) // 2], asks[-1]
    events[arithmetic]["state"] = "0" * 16
    events[later]["ticket"] = 10**6
    assert audit(str(write_chain(tmp_path / "f.jsonl", events))).first_different_event == arithmetic + 1
    events[asks[3]]["p"] = 0.5 * events[asks[3]]["p"]
    assert audit(str(write_chain(tmp_path / "f.jsonl", events))).first_different_event == asks[3] + 1


def test_a_forged_chance_is_named_even_where_the_versions_are_edited_too(tmp_path: Path) -> None:
    """On another build the last digits may differ, and no more."""
    log = some_log(tmp_path, random.Random(4), 1)
    events = copy.deepcopy(log.events)
    for versions in (events[0]["versions"], *(events[i]["fold"]["build"] for i in log.of_kind("snapshot"))):
        versions["numpy"] = "0.0.1"
    with_codes_of_the_protocol(events)
    found = audit(str(write_chain(tmp_path / "f.jsonl", events)))
    assert found.identical
    assert not found.same_build
    place = log.of_kind("asked")[7]
    events[place]["p"] *= 0.99
    found = audit(str(write_chain(tmp_path / "f.jsonl", events)))
    assert found.first_different_event == place + 1
    assert "has the chance" in str(found.first_difference)


def with_codes_of_the_protocol(events: list[dict[str, Any]]) -> None:
    """Write the tickets of recorded answers as the changed first event gives them."""
    protocol = extend(genesis("main"), [canonical(events[0])])[0].hash
    for event in events:
        for row in event.get("answer") or ():
            row[0] = ticket_code(protocol, int(row[0][1:].partition("-")[0]))


def test_events_taken_out_put_in_or_swapped_do_not_follow(tmp_path: Path) -> None:
    log = some_log(tmp_path, random.Random(6), 0)
    asks = log.of_kind("asked")
    place = next(place for place in asks[5:] if place + 1 in asks)
    for events, named in (
        (log.events[:place] + log.events[place + 1 :], place + 1),
        (log.events[: place + 1] + log.events[place:], place + 2),
        (
            [*log.events[:place], log.events[place + 1], log.events[place], *log.events[place + 2 :]],
            place + 1,
        ),
    ):
        found = audit(str(write_chain(tmp_path / "f.jsonl", events)))
        assert found.first_different_event is not None
        assert found.first_different_event <= named + 1


def test_an_import_cut_short_is_named_at_its_last_row(tmp_path: Path) -> None:
    with create(str(tmp_path / "t.db")) as trial:
        trial.import_data([("a", "x", 1)] * 1000)
        play(trial, 3)
        events = [json.loads(record.body) for record in records(trial)]
    alone = [*events[:2], *events[1001:]]
    found = audit(str(write_chain(tmp_path / "f.jsonl", alone)))
    assert found.first_different_event == 2
    assert "row 1 of 1000" in str(found.first_difference)
    assert audit(str(write_chain(tmp_path / "f.jsonl", events[:700]))).first_different_event == 700


def test_whatever_an_event_contains_the_audit_reports_and_does_not_fail(tmp_path: Path) -> None:
    """Random values of random kinds in random places."""
    log, luck = some_log(tmp_path, random.Random(8), 0, 60), random.Random(9)
    odd = [
        None,
        True,
        -1,
        2**63,
        2**64,
        10**400,
        0.5,
        -0.0,
        1e308,
        "",
        "x",
        "9" * 50,
        [],
        [[]],
        {},
        {"a": 1},
        "\0",
    ]
    named = 0
    for _ in range(300):
        events = copy.deepcopy(log.events)
        place = luck.randrange(len(events))
        table = events[place]
        while nested := [value for value in table.values() if isinstance(value, dict) and value]:
            if luck.random() < 0.5:
                break
            table = luck.choice(nested)
        table[luck.choice(list(table))] = luck.choice(odd)
        if canonical(events[place]) == canonical(log.events[place]):
            continue
        found = audit(str(write_chain(tmp_path / "f.jsonl", events)))
        named += found.first_different_event == place + 1
        assert found.identical or found.first_different_event is not None
    assert named > 250  # the rest says nothing that can be checked: a name, a reason, a lease, a seed


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"null", b"{}", b"\xff", b'{"kind":"told"}', b'{"a":' * 100_000,
        b'{"at":"2023-11-14T22:13:21.000000Z","kind":"viewed", "by":"b","what":"w"}',
        b'{"at":"2023-11-14T22:13:21.000000Z","by":"b","by":"b","kind":"viewed","what":"w"}',
        b'{"at":"2023-11-14T22:13:21.000000Z","by":"\\u0062","kind":"viewed","what":"w"}',
    ],
)  # fmt: skip
def test_bytes_that_no_writer_writes_are_named(tmp_path: Path, body: bytes) -> None:
    with create(str(tmp_path / "t.db")) as trial:
        events = [json.loads(record.body) for record in records(trial)]
    found = audit(str(write_chain(tmp_path / "f.jsonl", [*events, body])))
    assert found.first_different_event == 2


def test_a_journal_forged_in_place_is_not_opened_for_writing(tmp_path: Path) -> None:
    """What the audit refuses a writer refuses too, as far as it reads: from the latest snapshot on."""
    address = tmp_path / "t.db"
    with create(str(address)) as trial:
        play(trial, 10)
        bodies = [record.body for record in records(trial)]
    place = next(i for i, body in enumerate(bodies) if b'"kind":"told"' in body and i > 10)
    bodies[place] = bodies[place].replace(b'"outcome":1.0', b'"outcome":7.0').replace(b"0.0,", b"7.0,")
    with closing(sqlite3.connect(address)) as database:
        for record in extend(genesis("main"), bodies):
            database.execute(
                "UPDATE evenhand_events SET body = ?, hash = ? WHERE seq = ?",
                (record.body, record.hash, record.seq),
            )
        database.execute("UPDATE evenhand_experiments SET hash = ?", (record.hash,))
        database.commit()
    Path(f"{address}.lock").unlink()
    with pytest.raises(
        Exception, match=f"event {place + 1} cannot have been written: outcomes must be 0 or 1"
    ):
        Experiment.open(str(address))
    assert audit(str(address)).first_different_event == place + 1
