"""Faults 40 and 41: files of outcomes with a bad line, and requests that are sent again, any time later."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import evenhand as eh
from evenhand.cli.main import main
from evenhand.errors import BadInput, Closed, Conflict, EvenhandError, KeyReused, NotFound
from evenhand.live import events as ev
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.live.journal import open_journal
from evenhand.live.protocol import Protocol
from tests.live.example_experiments import (
    SetClock,
    coin,
    create,
    endless,
    even,
    kinds,
    log,
    one,
    play,
    problem,
    ticket,
)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    files = {"memory": ":memory:", "sqlite": str(tmp_path / "t.db")}
    return files.get(request.param) or str(request.getfixturevalue("postgres_url"))


# ---------------------------------------------------------------- 40: all or nothing

# a last row that cannot be told, given the tickets asked for; and what is said of it
BAD_ROWS: dict[str, tuple[Callable[[Experiment, list[Any]], tuple[Any, Any, Any]], type[Exception], str]] = {
    "a ticket never handed out": (lambda t, asks: (ticket(t, 999), 1, None), NotFound, "no ticket"),
    "a misspelled ticket": (lambda t, asks: ("t1-0000", 1, None), NotFound, "no ticket"),
    "an outcome outside the family": (lambda t, asks: (asks[2], 2, None), BadInput, "0 or 1"),
    "another group": (lambda t, asks: (asks[2], 1, "y"), BadInput, "the ticket is for 'x'"),
    "no such group": (lambda t, asks: (asks[2], 1, "z"), BadInput, "no group"),
    "another outcome than before": (lambda t, asks: (asks[4], 0, None), Conflict, "has the outcome 1"),
    "another outcome than in row 1": (lambda t, asks: (asks[0], 0, None), Conflict, "has the outcome 1"),
    "another outcome for a ticket given up": (lambda t, asks: (asks[5], 0, None), Conflict, "outcome 1"),
    "two fields": (lambda t, asks: (asks[2], 1), BadInput, "must be"),  # type: ignore[dict-item,return-value]
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_after_one_bad_row_no_outcome_is_recorded(address: str, name: str) -> None:
    make, kind, words = BAD_ROWS[name]
    with create(address, study=endless()) as trial:
        asks = trial.ask(6)
        trial.tell(asks[4], 1)
        trial.drop(asks[5], "lost")
        before = trial.head
        rows = [(asks[0], 1, None), (asks[1], 0, None), (asks[5], 1, None), (asks[4], 1, None)]
        with pytest.raises(kind, match=f"^row 5.*{words}"):
            trial.tell_all([*rows, make(trial, asks)])
        assert trial.head == before
        assert [one.counted for one in trial.tell_all(rows)] == [True, True, False, True]


def test_in_agnostic_mode_a_row_without_a_group_stops_all_of_them() -> None:
    trial = create(study=problem("agnostic"))
    asks = trial.ask(3)
    for bad in (None, "z"):
        with pytest.raises(BadInput, match=r"^row 3: .*group"):
            trial.tell_all([(asks[0], 1, "x"), (asks[1], 1, "y"), (asks[2], 1, bad)])
    with pytest.raises(Conflict, match=r"^row 2: "):
        trial.tell_all([(asks[0], 1, "x"), (asks[0], 1, "y")])
    assert kinds(trial) == ["created", "asked", "asked", "asked"]


@pytest.mark.parametrize("mode", ["active", "agnostic"])
def test_after_a_bad_last_line_nothing_of_the_file_is_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    address, file = str(tmp_path / "t.db"), tmp_path / "outcomes.csv"
    with create(address, study=problem(mode)) as trial:
        asks = trial.ask(4)
        trial.tell(asks[2], 1, group="x")
        bad = [f"{ticket(trial, 77)},x,1", f"{asks[2].ticket},x,0", f"{asks[0].ticket},x,0", "t1-zzzz,x,1"]
        bad += [f"{asks[3].ticket},x,7", f"{asks[3].ticket},x,one"]
        if mode == "agnostic":
            bad += [f"{asks[3].ticket},,1", f"{asks[3].ticket},z,1", f"{asks[0].ticket},y,1"]
        events = trial.head.seq
    for line in bad:
        # a field with a line end in it: lines are counted as an editor counts them
        note = f'{asks[1].ticket},"x",1,"two\nlines"\n'
        file.write_text(f"ticket,group,outcome,note\n{asks[0].ticket},x,1,\n{note}{line},last\n")
        assert main(["tell", address, str(file)]) == 2, line
        said = capsys.readouterr().err
        assert f"{file}, line 5: " in said, said
        assert audit(address).events == events
    file.write_text(f"ticket,group,outcome\n{asks[0].ticket},x,1\n{asks[2].ticket},x,1\n")
    assert main(["tell", address, str(file)]) == 0
    assert audit(address).events == events + 1


def test_when_the_stop_comes_in_the_middle_of_a_batch_the_rest_is_late() -> None:
    trial = create(procedure=eh.Procedure(initial=1, stopping=eh.Budget(10)))
    asks = trial.ask(10)
    play_again = [(ask, coin(ask), None) for ask in asks]
    assert [one.counted for one in trial.tell_all(play_again)] == [True] * 10
    assert trial.status().decided


# ---------------------------------------------------------------- 41: the same key


def test_tickets_asked_for_with_a_key_and_a_worker_are_always_the_same(address: str) -> None:
    with create(address, study=endless()) as trial:
        held = one(trial.ask(worker="w"))
        asks = trial.ask(2, worker="w", key="k")
        assert asks[0] == held
        for _ in range(2):
            assert trial.ask(2, worker="w", key="k") == asks
            trial.tell(asks[0], 1)  # held no longer
            trial.tell(asks[1], 1)
        assert trial.ask(2, worker="w", key="k") == asks
        assert kinds(trial) == ["created", "asked", "asked", "answered", "told", "told"]


def test_a_correction_that_changed_nothing_is_not_applied_later(address: str) -> None:
    with create(address, study=endless()) as trial:
        ask = one(trial.ask())
        trial.tell(ask, 1)
        receipt = trial.amend(ask, 1, reason="checked", by="b", key="A1")  # changes nothing
        trial.amend(ask, 0, reason="typo", by="b", key="A2")
        assert trial.amend(ask, 1, reason="checked", by="b", key="A1") == receipt
        assert trial.status().cells[0].mean == 0.0
        assert [event.outcome for event in log(trial) if isinstance(event, ev.Amended)] == [0.0]


def test_a_refusal_that_was_written_down_stays_one(address: str) -> None:
    with create(address, study=endless()) as trial:
        ask = one(trial.ask())
        trial.tell(ask, 1)
        for key in ("R1", "R2", "R1", "R2"):
            with pytest.raises(Conflict, match="outcome 1 already; 0 was refused"):
                trial.tell(ask, 0, key=key)
        trial.amend(ask, 0, reason="it was 0 after all", by="b")
        for key in ("R1", "R2"):
            with pytest.raises(Conflict, match="outcome 1 already; 0 was refused"):
                trial.tell(ask, 0, key=key)
        assert kinds(trial).count("refused") == 2  # one for each request


def test_an_empty_answer_is_an_answer(address: str) -> None:
    with create(address, procedure=eh.Procedure(initial=1, stopping=eh.Budget(6))) as trial:
        asks = trial.ask(6)
        assert trial.ask(1, key="none left") == []
        trial.drop(asks[0], "lost")
        assert trial.ask(1, key="none left") == []
        assert len(trial.ask(1, key="another")) == 1


def test_a_request_that_was_refused_and_wrote_nothing_may_be_sent_again(address: str) -> None:
    with create(address, study=endless()) as trial:
        trial.pause("visit")
        with pytest.raises(Closed):
            trial.ask(1, key="k")
        trial.resume()
        assert len(trial.ask(1, key="k")) == 1


def test_a_key_works_across_a_restart_and_a_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Protocol, "snapshot_every", 5)
    address = str(tmp_path / "t.db")
    with create(address, study=endless()) as trial:
        trial.ask(1, worker="w")
        first = trial.ask(2, worker="w", key="k")
        play(trial, 20, even)
    with Experiment.open(address) as trial:
        assert trial.ask(2, worker="w", key="k") == first
        with pytest.raises(KeyReused):
            trial.ask(3, worker="w", key="k")


def requests(asks: list[Any], told: list[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Requests of every kind, no two alike; some change nothing and some are refused."""
    yield from (("ask", {"n": n, "worker": w}) for n in (1, 2) for w in (None, "u", "v"))
    yield from (("tell", {"ticket": ask, "outcome": x}) for ask in asks[2:] + told for x in (0, 1))
    yield from (
        ("amend", {"ticket": ask, "outcome": x, "reason": r, "by": "b"})
        for ask in told
        for x in (0, 1)
        for r in "rs"
    )
    yield from (("drop", {"ticket": ask, "reason": r}) for ask in asks[:2] for r in ("lost", "gone"))
    yield from (("import_data", {"rows": [("a", "x", x)] * n}) for x in (0, 1) for n in (1, 3))
    yield from (
        ("tell_all", {"outcomes": [(a, 1, None), (b, 0, None)]}) for a, b in itertools.pairwise(asks[2:])
    )
    yield from ((name, {"reason": reason}) for name in ("pause", "resume") for reason in "pq")
    yield from (("view", {"by": who, "what": "all"}) for who in "mn")
    yield "finish", {"reason": "the end"}


def answer(trial: Experiment, name: str, arguments: dict[str, Any], key: str) -> Any:
    try:
        return getattr(trial, name)(**arguments, key=key)
    except EvenhandError as refusal:
        return type(refusal).__name__, str(refusal)


@pytest.mark.parametrize("seed", range(4))
def test_every_kind_of_request_gets_its_first_answer_whenever_it_is_repeated(address: str, seed: int) -> None:
    """Random requests, repeated at random times, and now and then the same key with another request."""
    luck = random.Random(seed)
    clock = SetClock()
    with create(address, study=endless(), lease=1000, clock=clock) as trial:
        asks, told = trial.ask(7), trial.ask(3)
        for ask in told:
            trial.tell(ask, 1)
        pool = list(requests(asks, told))
        pool, last = pool[:-1], pool[-1]
        luck.shuffle(pool)
        answered: dict[str, tuple[str, dict[str, Any], Any]] = {}
        for number, (name, arguments) in enumerate([*pool, last]):
            key = f"key {number}"
            before = trial.head
            found = answer(trial, name, arguments, key)
            if trial.head != before:
                answered[key] = name, arguments, found  # else it was refused, and the key is free
            for again in luck.sample(sorted(answered), min(3, len(answered))):
                first_name, first_arguments, first = answered[again]
                head = trial.head
                assert answer(trial, first_name, first_arguments, again) == first, (first_name, again)
                other = luck.choice(pool)
                if other != (first_name, first_arguments):
                    assert answer(trial, *other, again)[0] == "KeyReused", (other, answered[again])
                assert trial.head == head
        assert len(answered) > 30
        names = {name for name, _, _ in answered.values()}
        assert names == {name for name, _ in [*pool, last]}
    if address != ":memory:":
        found = audit(address)
        assert found.identical, found.first_difference


def test_a_key_of_version_0_1_still_finds_its_answer(tmp_path: Path) -> None:
    """It wrote the key into every row of an import, and no digest of the request."""
    kept = Path(__file__).parents[1] / "live" / "kept" / "0.1.0" / "everything.journal"
    address = str(shutil.copy(kept, tmp_path / "t.db"))
    with Experiment.open(address, clock=SetClock()) as trial:
        before = trial.head
        rows = [("a", "x", 1), ("b", "y", 0)]
        assert trial.import_data(rows, source="before.csv", key="import") == 2
        late = [event for event in log(trial) if isinstance(event, ev.Asked) and event.key == "two"]
        assert [ask.ticket for ask in trial.ask(2, key="two")] == [ticket(trial, e.ticket) for e in late]
        for call in (
            lambda: trial.import_data(rows[:1], key="import"),
            lambda: trial.ask(2, key="import"),
            lambda: trial.ask(1, key="two"),
            lambda: trial.ask(2, worker="w", key="two"),
            lambda: trial.view("me", "all", key="two"),
        ):
            with pytest.raises(KeyReused):
                call()
        assert set(kinds(trial)[before.seq :]) <= {"expired", "buildchanged"}


@pytest.mark.parametrize("key", ["a\0b", "\0", "", " ", "k" * 201, 7, "\ud800"])
def test_a_key_that_one_storage_could_not_hold_is_refused_by_all(address: str, key: Any) -> None:
    with create(address, study=endless()) as trial:
        for call in (
            lambda: trial.ask(1, key=key),
            lambda: trial.import_data([("a", "x", 1)], key=key),
            lambda: trial.view("me", "all", key=key),
        ):
            with pytest.raises(BadInput, match="key"):
                call()
        assert trial.head.seq == 1


@pytest.mark.parametrize("key", ["ключ", "鍵 1", "🔑", "a'b\"c%s{}", "k" * 200])
def test_every_other_key_works_on_all(address: str, key: str) -> None:
    with create(address, study=endless()) as trial:
        assert trial.ask(1, key=key) == trial.ask(1, key=key)


def test_the_same_key_and_protocol_is_the_experiment_that_was_created(address: str) -> None:
    journal = open_journal(address, create=True)
    create(journal, study=endless(), key="make")
    again = create(journal, study=endless(), key="make")
    assert again.head.seq == 1
    for changed in ({"seed": 8}, {"name": "other"}, {"lease": 60}):
        with pytest.raises(KeyReused):
            create(journal, study=endless(), key="make", **changed)
    journal.close()
