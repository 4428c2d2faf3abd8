"""What every experiment does, wherever it is kept: the same calls, results and errors."""

from __future__ import annotations

import csv
import inspect
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import evenhand as eh
from evenhand.live import events as ev
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.live.hash_chain import Head
from evenhand.service.app import Settings
from evenhand.service.client import RemoteExperiment
from tests.live.contract.places import Place, Trial, new_name
from tests.live.example_experiments import coin, endless, one, play, problem

STUDY = eh.Study(problem(), eh.Procedure(delta=0.05, initial_order="declared"), title="Three ads")


@pytest.fixture
def trial(place: Place) -> Iterator[Trial]:
    """An experiment that decides soon."""
    with place.create(STUDY, seed=7, name=new_name(), by="the maker") as found:
        yield found


@pytest.fixture
def long(place: Place) -> Iterator[Trial]:
    """An experiment that does not decide."""
    with place.create(
        endless(), eh.Procedure(delta=1e-9, initial_order="declared"), seed=3, name=new_name()
    ) as found:
        yield found


def kinds(trial: Trial) -> list[str]:
    """What was written, without looks, and answers that only calls with a key leave."""
    found = [type(entry.event).__name__ for entry in trial.events()]
    return [kind for kind in found if kind not in ("Viewed", "Answered")]


def test_it_runs_to_the_same_decision_everywhere(trial: Trial) -> None:
    asks = play(trial)  # type: ignore[arg-type]
    status = trial.status()
    assert isinstance(status, eh.Status)
    assert (status.decided, status.answer, status.title) == (True, "a", "Three ads")
    assert status.samples == len(asks) == 256  # the draws follow from the seed alone
    assert status.sentence == "a is the answer: certified at risk 5%, after 256 samples."
    assert trial.is_over
    assert trial.ask() is None
    assert trial.ask(3) == []


def test_a_ticket_and_a_receipt_are_values(trial: Trial) -> None:
    ask = one(trial.ask(worker="w1"))
    assert isinstance(ask, eh.Ask)
    assert trial.ask(worker="w1") == ask  # the same worker keeps its ticket
    receipt = trial.tell(ask, outcome=1)
    assert receipt == eh.Receipt(ask.ticket, 1.0, True)
    assert trial.tell(ask.ticket, 1) == receipt
    [two, three] = trial.ask(2, lease=60.0)
    assert {two.policy, three.policy} <= {"a", "b", "c"}


def test_a_ticket_for_a_shared_item_asks_several_policies(place: Place) -> None:
    procedure = eh.Procedure(items="shared", delta=0.001)
    with place.create(problem(), procedure, seed=7, name=new_name()) as shared:
        ask = one(shared.ask(worker="w1"))
        assert (ask.policy, ask.policies) == ("", ("a", "b", "c"))
        assert shared.ask(worker="w1") == ask
        outcomes = {"a": 1, "b": None, "c": False}
        receipt = shared.tell(ask, outcomes, key="one")
        assert receipt == eh.Receipt(ask.ticket, {"a": 1.0, "b": None, "c": 0.0}, True)
        assert shared.tell(ask, outcomes, key="one") == receipt
        with pytest.raises(eh.Conflict):
            shared.tell(ask, {"a": 1, "b": 1, "c": 0})
        two = one(shared.ask())
        with pytest.raises(eh.BadInput, match="the outcome of 'c' is not there"):
            shared.tell(two, {"a": 1, "b": 1})
        with pytest.raises(eh.BadInput, match="by its tickets only"):
            shared.import_data([("a", "x", 1)])
        corrected = shared.amend(ask, {"a": 1, "b": 0, "c": 0}, reason="found", by="Ann")
        assert corrected.outcome == {"a": 1.0, "b": 0.0, "c": 0.0}
        assert shared.status().samples == 3
        assert kinds(shared) == ["Created", "Asked", "Told", "Refused", "Asked", "Amended"]


@pytest.mark.parametrize("outcome", [np.int64(1), np.float64(1.0), 1, 1.0])
def test_numbers_of_any_library_are_outcomes(long: Trial, outcome: Any) -> None:
    assert long.tell(one(long.ask()), outcome).outcome == 1.0


def test_many_outcomes_are_told_at_once_or_not_at_all(long: Trial) -> None:
    asks = long.ask(4)
    with pytest.raises(eh.BadInput, match=r"^row 3: outcomes must be 0 or 1"):
        long.tell_all([(asks[0], 1, None), (asks[1], 0, None), (asks[2], 0.5, None)])
    with pytest.raises(eh.NotFound, match=r"^line 8: this experiment has no ticket"):
        long.tell_all([(asks[0], 1, None), ("t99-aaaa", 0, None)], places=["line 7", "line 8"])
    assert long.status().samples == 0
    receipts = long.tell_all([(ask, 1, None) for ask in asks], key="all of them")
    assert receipts == [eh.Receipt(ask.ticket, 1.0, True) for ask in asks]
    assert long.tell_all([(ask, 1, None) for ask in asks], key="all of them") == receipts
    with pytest.raises(eh.Conflict, match=r"^row 1: ticket .* has the outcome 1 already"):
        long.tell_all([(asks[0], 0, None)])
    assert long.status().samples == 4
    assert long.tell_all([]) == []


def test_a_second_outcome_is_refused_and_can_be_corrected(long: Trial) -> None:
    ask = one(long.ask())
    long.tell(ask, 1)
    with pytest.raises(eh.Conflict, match="has the outcome 1 already; 0 was refused and written down"):
        long.tell(ask, 0)
    assert long.amend(ask, 0, reason="typo", by="nurse 4") == eh.Receipt(ask.ticket, 0.0, True)
    assert kinds(long) == ["Created", "Asked", "Told", "Refused", "Amended"]
    amended = next(e.event for e in long.events() if type(e.event).__name__ == "Amended")
    assert "nurse 4" in amended.by  # a service adds the name of the key
    cell = next(cell for cell in long.status().cells if cell.n == 1)
    assert (cell.policy, cell.group, cell.mean) == (ask.policy, ask.group, 0.0)


def test_a_dropped_ticket_keeps_a_late_outcome(long: Trial) -> None:
    ask = one(long.ask())
    long.drop(ask, "withdrew", by="site 3")
    assert long.tell(ask, 1) == eh.Receipt(ask.ticket, 1.0, False, "dropped")
    assert long.status().late == 1


def test_policies_join_and_leave_once_for_each_key(place: Place) -> None:
    study = replace(STUDY, problem=replace(STUDY.problem, max_policies=4))
    with place.create(study, seed=7, name=new_name()) as trial:
        for _ in range(2):
            trial.add_policy("d", reason="week three", by="the board", key="in")
            trial.withdraw("c", reason="weak", by="the board", key="out")
        with pytest.raises(eh.KeyReused):
            trial.withdraw("b", reason="weak", by="the board", key="out")
        with pytest.raises(eh.BadInput, match="max_policies is 4"):
            trial.add_policy("e", reason="week four", by="the board")
        assert kinds(trial) == ["Created", "PolicyAdded", "PolicyWithdrawn"]
        asks = play(trial, 30, lambda ask: coin(ask, {"a": 0.5, "b": 0.5, "d": 0.5}))  # type: ignore[arg-type]
        assert {ask.policy for ask in asks} == {"a", "b", "d"}
        status = trial.status()
        assert [change.policy for change in (*status.joined, *status.withdrawn)] == ["d", "c"]
        assert "the board" in status.joined[0].by


def test_a_pause_issues_no_tickets(long: Trial) -> None:
    ask = one(long.ask())
    long.pause("monitoring visit", by="board")
    with pytest.raises(eh.Closed, match="is paused"):
        long.ask()
    assert long.tell(ask, 1).counted
    assert long.status().state == "paused"
    long.resume(by="board")
    assert long.ask() is not None


def test_finishing_ends_the_experiment_and_closing_does_not(place: Place) -> None:
    name = new_name()
    with place.create(endless(), seed=3, name=name) as first:
        ask = one(first.ask())
    with pytest.raises(eh.StorageFailed, match="was closed; open it again"):
        first.tell(ask, 1)
    assert first.status().pending == 1  # it can still be read
    with place.open(name) as again:
        assert again.tell(ask, 1).counted
        late = one(again.ask())
        again.finish("no money left", by="sponsor")
        again.finish("once more")
        assert again.status().state == "closed"
        assert again.is_over
        with pytest.raises(eh.Closed, match="is closed"):
            again.ask()
        assert again.tell(late, 1).why == "closed"


def test_data_from_before_count_once(long: Trial) -> None:
    rows = [("a", "x", 1), ("b", "y", 0), ("b", "y", 1)]
    assert long.import_data(iter(rows), source="pilot", key="pilot") == 3
    assert long.import_data(rows, source="pilot", key="pilot") == 3
    assert long.status().samples == 3
    with pytest.raises(eh.BadInput, match=r"^row 2: "):
        long.import_data([("a", "x", 1), ("a", "nowhere", 1)])
    with pytest.raises(eh.BadInput, match=r"^line 3: outcomes must be 0 or 1"):
        long.import_data([("a", "x", 1), ("a", "x", 7)], place_of=lambda n: f"line {n + 1}")
    with pytest.raises(eh.BadInput, match="at least one outcome"):
        long.import_data([])
    assert long.status().samples == 3


def test_a_key_identifies_one_request(long: Trial) -> None:
    asks = long.ask(2, worker="w1", key="monday, first")
    assert long.ask(2, worker="w1", key="monday, first") == asks
    with pytest.raises(eh.KeyReused):
        long.ask(1, worker="w1", key="monday, first")
    receipt = long.tell(asks[0], 1, key="k1")
    assert long.tell(asks[0], 1, key="k1") == receipt
    with pytest.raises(eh.KeyReused):
        long.tell(asks[1], 1, key="k1")


def test_an_experiment_is_created_once(place: Place) -> None:
    name = new_name()
    place.create(STUDY, seed=7, name=name, key=name).close()
    place.create(STUDY, seed=7, name=name, key=name).close()  # the same request again
    with pytest.raises(eh.KeyReused):
        place.create(STUDY, seed=8, name=name, key=name)
    with pytest.raises(eh.BadInput, match="already"):
        place.create(STUDY, seed=7, name=name)
    with pytest.raises(eh.BadInput):
        place.create(STUDY, seed=7, name="no name!")
    with pytest.raises(eh.NotFound):
        place.open("nobody")


def test_a_procedure_given_beside_a_study_is_the_one_that_is_run(place: Place) -> None:
    with place.create(
        STUDY, eh.Procedure(stopping=eh.Budget(6), initial=1), seed=7, name=new_name()
    ) as trial:
        play(trial)  # type: ignore[arg-type]
        assert trial.status().samples == 6


BAD: dict[str, Any] = {
    "no ticket": (lambda t: t.tell("t1-xxxx", 1), eh.NotFound),
    "a ticket that is no text": (lambda t: t.tell(17, 1), eh.NotFound),
    "a word": (lambda t: t.tell(one(t.ask()), "1"), eh.BadInput),
    "half an outcome": (lambda t: t.tell(one(t.ask()), 0.5), eh.BadInput),
    "not a number": (lambda t: t.tell(one(t.ask()), math.nan), eh.BadInput),
    "no tickets": (lambda t: t.ask(0), eh.BadInput),
    "too many tickets": (lambda t: t.ask(10_001), eh.BadInput),
    "a group that is not asked for": (lambda t: t.ask(group="x"), eh.BadInput),
    "a lease that has run out": (lambda t: t.ask(lease=-1.0), eh.BadInput),
    "nothing to correct": (lambda t: t.amend(one(t.ask()), 1, reason="r", by="b"), eh.BadInput),
    "nobody": (lambda t: t.amend(one(t.ask()), 1, reason="r", by=""), eh.BadInput),
    "no reason": (lambda t: t.pause(""), eh.BadInput),
    "no reason to end": (lambda t: t.finish(" "), eh.BadInput),
    "no key": (lambda t: t.ask(key=""), eh.BadInput),
    "rows that are none": (lambda t: t.import_data([("a", "x")]), eh.BadInput),
    "outcomes that are none": (lambda t: t.tell_all([("a", 1)]), eh.BadInput),
    "no rows": (lambda t: t.import_data(3), eh.BadInput),
    "no outcomes": (lambda t: t.tell_all(None), eh.BadInput),
    "places that do not fit": (lambda t: t.tell_all([(one(t.ask()), 1, None)], places=[]), eh.BadInput),
    "no path": (lambda t: t.export(3), eh.BadInput),
    "no path of a table": (lambda t: t.export_outcomes(None), eh.BadInput),
    "no number of an event": (lambda t: t.events("1"), eh.BadInput),
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_used_raises_the_same_error(long: Trial, what: str) -> None:
    call, kind = BAD[what]
    with pytest.raises(kind) as caught:
        call(long)
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)


def test_the_log_can_be_read_in_parts_and_exported(trial: Trial, tmp_path: Path) -> None:
    asks = play(trial)  # type: ignore[arg-type]
    entries = list(trial.events())
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert all(isinstance(entry, eh.LogEntry) for entry in entries)
    assert list(trial.events(after=10)) == entries[10:]
    assert kinds(trial) == ["Created", *["Asked", "Told"] * len(asks), "Stopped"]
    head = trial.export(tmp_path / "log.jsonl")
    assert isinstance(head, Head)
    assert head == trial.head == (entries[-1].seq, bytes.fromhex(entries[-1].hash))
    found = audit(str(tmp_path / "log.jsonl"))
    assert (found.identical, found.head) == (True, str(head))
    with pytest.raises(eh.BadInput, match="cannot be written"):
        trial.export(tmp_path / "nowhere" / "log.jsonl")


def test_outcomes_are_exported_as_tables(trial: Trial, tmp_path: Path) -> None:
    play(trial)  # type: ignore[arg-type]
    for name in ("o.csv", "o.parquet"):
        trial.export_outcomes(tmp_path / name)
    with (tmp_path / "o.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    told = [entry.event for entry in trial.events() if isinstance(entry.event, ev.Told)]
    assert [float(row["outcome"]) for row in rows] == [event.outcome for event in told]
    table = pq.read_table(tmp_path / "o.parquet").to_pylist()
    assert [(row["policy"], row["group"], row["outcome"]) for row in table] == [
        (row["policy"], row["group"], float(row["outcome"])) for row in rows
    ]
    with pytest.raises(eh.BadInput, match=r"must end in \.csv or \.parquet"):
        trial.export_outcomes(tmp_path / "o.txt")


def test_a_status_is_the_same_value_everywhere(trial: Trial) -> None:
    for ask in trial.ask(20):
        trial.tell(ask, coin(ask))
    status = trial.status()
    assert eh.Status.from_dict(status.to_dict()) == status
    assert [type(row) for row in (*status.cells, *status.policies)] == [eh.CellRow] * 6 + [eh.PolicyRow] * 3
    assert sum(cell.n for cell in status.cells) == status.samples == 20
    assert status.health.well


def test_no_repr_shows_a_key_or_a_password() -> None:
    service = eh.connect("http://user:secret-word@127.0.0.1:9", "secret-key")
    for shown in (service, RemoteExperiment(service._connection, "main"), service._connection):
        assert "secret" not in repr(shown)
        assert "127.0.0.1:9" in repr(shown)
    assert "secret" not in repr(Settings("postgresql://user:secret@host/database"))


# what needs the state itself, or is done by the service
LOCAL_ONLY = {
    "called_by",
    "count_open_tickets",
    "create",
    "enqueue",
    "now",
    "open",
    "prepared_ask",
    "prepared_tell",
    "present",
    "view",
    "sweep",
    "protocol",
}


def test_the_client_has_the_methods_and_arguments_of_a_local_experiment() -> None:
    mine = {name: member for name, member in inspect.getmembers(Experiment) if not name.startswith("_")}
    assert {"tell_counts", "close_interval", "add_policy", "to_frame", "plot"} <= mine.keys()
    for name in mine.keys() - LOCAL_ONLY:
        assert hasattr(RemoteExperiment, name), name
        if inspect.isfunction(mine[name]):
            theirs = inspect.signature(getattr(RemoteExperiment, name))
            assert list(theirs.parameters) == list(inspect.signature(mine[name]).parameters), name
            for parameter in theirs.parameters.values():
                local = inspect.signature(mine[name]).parameters[parameter.name]
                assert local.kind == parameter.kind, (name, parameter)
                if name != "import_data" or parameter.name != "place_of":  # a function: equal in what it does
                    assert local.default == parameter.default, (name, parameter)
    from evenhand.service.client import Service

    made = list(inspect.signature(Service.create).parameters)
    local = list(inspect.signature(Experiment.create).parameters)
    assert [part for part in local if part not in ("address", "clock", "patience", "caller")] == made[1:]
