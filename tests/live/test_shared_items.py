"""Live tickets for shared items: several policies answer one, and they are compared on it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import evenhand as eh
from evenhand.errors import BadInput, Conflict, KeyReused
from evenhand.live import events as ev
from evenhand.live.audit import audit
from evenhand.live.hash_chain import canonical
from evenhand.live.transfer import transfer
from evenhand.procedure.outcome_order import PAIRED
from evenhand.reports.sections.experiment import evidence_over_time
from evenhand.verdicts.forecast import experiment_forecast
from evenhand.verdicts.forecast_statement import CHANCES, NOT_PAIRED
from tests.live.example_experiments import SetClock, log
from tests.live.forgeries import write_chain
from tests.simulation.test_shared_items import NAMES, SEED, replayed, study

AGREEMENT = 0.88
ASKED = study({"agreement": AGREEMENT})
Item = tuple[str, dict[str, float]]


@pytest.fixture(scope="module")
def items() -> list[Item]:
    """Group and outcomes of the items of a simulated run, in its order."""
    frame = replayed(ASKED, AGREEMENT)
    parts = frame.groupby("item", sort=False)
    return [(part.group.iloc[0], dict(zip(part.policy, part.outcome, strict=True))) for _, part in parts]


def answer(trial: eh.Experiment, items: list[Item]) -> None:
    """Tell the outcomes of these items; the experiment must ask for them."""
    for number, (group, outcomes) in enumerate(items):
        ask = trial.ask()
        assert ask is not None
        assert (ask.policy, ask.group, ask.policies) == ("", group, tuple(outcomes)), number
        trial.tell(ask, outcomes)


def new_trial(address: str | Path = ":memory:", procedure: eh.Procedure | None = None) -> eh.Experiment:
    return eh.Experiment.create(
        address, ASKED.problem, procedure or ASKED.procedure, seed=SEED, clock=SetClock()
    )


def told(trial: eh.Experiment, **outcomes: float | None) -> eh.Receipt:
    """The receipt of one more item; outcomes that are not given are 1."""
    ask = trial.ask()
    assert ask is not None
    return trial.tell(ask, {name: outcomes.get(name, 1.0) for name in ask.policies})


def test_a_live_experiment_on_items_replays_the_simulation_and_is_audited(
    tmp_path: Path, items: list[Item]
) -> None:
    address, export, copy = tmp_path / "trial.db", tmp_path / "log.jsonl", str(tmp_path / "copy.db")
    runs = eh.simulate(ASKED, replications=1, seed=SEED, workers=1)
    with new_trial(address) as trial:
        answer(trial, items)
        status = trial.status()
        assert trial.ask() is None
        assert (status.decided, status.answer, status.method) == (True, "large", PAIRED)
        assert (status.samples, len(items)) == (runs.samples[0], runs.items[0])
        assert status.health.well
        head = trial.export(export)
    assert audit(str(address)).identical
    assert audit(str(export)).identical
    assert transfer(export, copy).head == str(head)


def test_the_table_of_outcomes_is_judged_with_the_same_evidence(tmp_path: Path, items: list[Item]) -> None:
    table = tmp_path / "outcomes.csv"
    with new_trial() as trial:
        answer(trial, items)
        trial.export_outcomes(table)
        status = trial.status()
    verdict = eh.judge(ASKED, pd.read_csv(table), replications=0)
    assert (verdict.method, verdict.answer, verdict.items) == (PAIRED, "large", len(items))
    assert verdict.evidence == pytest.approx(status.evidence, abs=1e-9)


def test_a_reopened_experiment_on_items_continues_from_its_snapshot(
    tmp_path: Path, items: list[Item], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenhand.live.protocol.Protocol.snapshot_every", property(lambda _: 20))
    address = tmp_path / "trial.db"
    with new_trial(address) as trial:
        answer(trial, items[:40])
        waiting = trial.ask()
        assert waiting is not None
        told(trial)  # the snapshot holds an open ticket
    with eh.Experiment.open(address, clock=SetClock()) as trial:
        assert any(isinstance(event, ev.Snapshot) for event in log(trial))
        trial.tell(waiting, dict.fromkeys(waiting.policies, 1))
        whole = trial.status().to_dict()
    with new_trial() as other:
        answer(other, items[:40])
        first = other.ask()
        assert first is not None
        told(other)
        other.tell(first, dict.fromkeys(first.policies, 1))
        assert other.status().to_dict()["evidence"] == whole["evidence"]
        assert other.status().to_dict()["cells"] == whole["cells"]
    assert audit(str(address)).identical


def test_missing_outcomes_dropped_and_expired_items_and_corrections_are_audited(tmp_path: Path) -> None:
    address, clock = tmp_path / "trial.db", SetClock()
    with eh.Experiment.create(
        address, ASKED.problem, ASKED.procedure, seed=1, lease=60, clock=clock
    ) as trial:
        for number in range(30):
            ask = trial.ask()
            assert ask is not None
            if number % 7 == 3:
                trial.drop(ask, "no such item")
            elif number % 7 == 5:
                clock.wall, clock.waited = clock.wall + 61, clock.waited + 61
                trial.sweep()
            else:
                trial.tell(ask, {name: None if number % 4 == k else 1 for k, name in enumerate(ask.policies)})
        late = trial.tell(ask, dict.fromkeys(ask.policies, 1)) if number % 7 == 5 else None
        before = trial.status()
        receipt = told(trial, small=0)
        corrected = dict(receipt.outcome) | {"small": None, "tuned": 0}  # type: ignore[call-overload]
        trial.amend(receipt.ticket, corrected, reason="misread", by="Ann")
        after = trial.status()
    assert late is None
    assert after.samples == before.samples + 2
    found = audit(str(address))
    assert found.identical, found.first_difference
    # after a correction all items are folded again: the same evidence as if it had been told so
    replay = eh.Experiment.create(":memory:", ASKED.problem, ASKED.procedure, seed=1, clock=SetClock())
    for event in log_of(address):
        if isinstance(event, ev.Asked):
            ask = replay.ask()
        elif isinstance(event, ev.Told):
            assert isinstance(event.outcome, dict)
            last = event.ticket == after.counts["asked"]
            replay.tell(ask, corrected if last else event.outcome)
        elif isinstance(event, (ev.Dropped, ev.Expired)):
            replay.drop(ask, "gone")
    assert replay.status().evidence == after.evidence
    assert [row.to_dict() for row in replay.status().cells] == [row.to_dict() for row in after.cells]


def log_of(address: Path) -> list[ev.AnyEvent]:
    with eh.Experiment.open(address, write=False) as trial:
        return log(trial)


def test_several_items_can_be_out_at_once_and_come_back_in_any_order(tmp_path: Path) -> None:
    address = tmp_path / "trial.db"
    with new_trial(address) as trial:
        for _ in range(12):
            asks = trial.ask(5, worker="w")
            assert trial.ask(5, worker="w") == asks
            rows = [(ask, dict.fromkeys(ask.policies, 1), None) for ask in reversed(asks)]
            assert all(receipt.counted for receipt in trial.tell_all(rows, key=f"batch {asks[0].ticket}"))
            assert [one.counted for one in trial.tell_all(rows, key=f"batch {asks[0].ticket}")] == [True] * 5
        assert trial.status().samples == 3 * 60
    assert audit(str(address)).identical


def test_a_request_on_items_gets_its_first_answer_again() -> None:
    with new_trial() as trial:
        first = trial.ask(2, key="a")
        assert trial.ask(2, key="a") == first
        held = trial.ask(1, worker="w", key="b")
        assert (
            trial.ask(1, worker="w", key="c") == held
        )  # nothing is written: the answer is kept with the key
        trial.tell(held[0], dict.fromkeys(NAMES, 1))
        assert trial.ask(1, worker="w", key="c") == held
        receipt = trial.tell(first[0], dict.fromkeys(NAMES, 0), key="d")
        assert trial.tell(first[0], dict.fromkeys(NAMES, 0), key="d") == receipt
        with pytest.raises(KeyReused):
            trial.tell(first[1], dict.fromkeys(NAMES, 0), key="d")


def test_outcomes_after_the_end_are_late_and_another_outcome_is_refused(tmp_path: Path) -> None:
    address = tmp_path / "trial.db"
    with new_trial(address) as trial:
        ask, other = trial.ask(2)
        trial.tell(ask, dict.fromkeys(NAMES, 1))
        assert trial.tell(ask, dict.fromkeys(NAMES, 1)).counted
        with pytest.raises(
            Conflict, match="large 1, small 1, tuned 1 already; large 1, small 1, tuned missing"
        ):
            trial.tell(ask, {"large": 1, "tuned": None, "small": 1})
        trial.finish("enough")
        late = trial.tell(other, dict.fromkeys(NAMES, 1))
        assert (late.counted, late.why) == (False, "closed")
        assert trial.status().samples == 3
    assert audit(str(address)).identical


def test_the_number_of_outcomes_keeps_to_the_cap(tmp_path: Path) -> None:
    address = tmp_path / "trial.db"
    with new_trial(address, eh.Procedure(items="shared", initial=2, max_samples=31)) as trial:
        while asks := trial.ask(4):
            for ask in asks:
                trial.tell(ask, dict.fromkeys(ask.policies, 1))
        status = trial.status()
    assert (status.state, status.samples) == (
        "exhausted",
        33,
    )  # the item that reaches the cap is answered whole
    assert audit(str(address)).identical


BAD: list[tuple[Any, str]] = [
    (1, "several policies answer an item, so its outcomes must be given by policy"),
    ({"large": 1, "tuned": 0}, "the outcome of 'small' is not there"),
    ({"large": 1, "tuned": 0, "huge": 1}, "there is no policy 'huge'"),
    ({"large": 1, "tuned": 0.5, "small": 1}, "policy 'tuned': outcomes must be 0 or 1"),
    (dict.fromkeys(NAMES), "drop the ticket if all are missing"),
    ({}, "drop the ticket if all are missing"),
]


@pytest.mark.parametrize(("outcome", "says"), BAD, ids=[says[:30] for _, says in BAD])
def test_outcomes_that_do_not_fit_an_item_are_refused_and_nothing_is_written(outcome: Any, says: str) -> None:
    with new_trial() as trial:
        ask = trial.ask()
        assert ask is not None
        head = trial.head
        with pytest.raises(BadInput, match=says):
            trial.tell(ask, outcome)
        with pytest.raises(BadInput, match=f"row 1: .*{says}"):
            trial.tell_all([(ask, outcome, None)])
        assert trial.head == head


def test_a_policy_that_was_not_asked_cannot_be_told(items: list[Item]) -> None:
    fewer = next(number for number, (_, outcomes) in enumerate(items) if len(outcomes) == 2)
    with new_trial() as trial:
        answer(trial, items[:fewer])
        ask = trial.ask()
        assert ask is not None
        with pytest.raises(BadInput, match="does not ask for 'small'; it asks for large, tuned"):
            trial.tell(ask, dict.fromkeys(NAMES, 1))


def test_outcomes_collected_elsewhere_are_not_imported() -> None:
    with new_trial() as trial, pytest.raises(BadInput, match="by its tickets only"):
        trial.import_data([("large", "en", 1)])


def forged(event: dict[str, Any], what: str) -> dict[str, Any]:
    """The event with one thing changed."""
    changed: dict[str, Any] = json.loads(json.dumps(event))
    if what == "who answers":
        changed["policies"] = ["large", "small"]
    elif what == "group":
        changed["group"] = "de" if event["group"] == "en" else "en"
    elif what == "outcome":
        changed["outcome"]["large"] = 1.0 - event["outcome"]["large"]
    elif what == "missing":
        changed["outcome"]["tuned"] = None
    elif what == "policy left out":
        del changed["outcome"]["small"]
    elif what == "number":
        changed["outcome"] = 1.0
    elif what == "old":
        changed["old"]["large"] = 1.0 - event["old"]["large"]
    elif what == "correction":
        changed["outcome"]["tuned"] = 1.0 - event["outcome"]["tuned"]
    else:
        changed["policy"] = "large"
    return changed


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("asked", "who answers"), ("asked", "group"), ("asked", "policy"), ("told", "outcome"),
        ("told", "missing"), ("told", "policy left out"), ("told", "number"), ("amended", "old"),
        ("amended", "correction"), ("amended", "policy"), ("amended", "number"), ("late", "policy left out"),
        ("late", "number"), ("refused", "number"),
    ],
)  # fmt: skip
def test_the_audit_names_the_forged_event_of_an_item(kind: str, what: str, tmp_path: Path) -> None:
    with new_trial() as trial:
        for number in range(12):
            receipt = told(trial, tuned=float(number % 2), small=float(number % 3 == 0))
        trial.amend(receipt.ticket, {"large": 0, "tuned": 0, "small": None}, reason="misread", by="Ann")
        with pytest.raises(Conflict):
            trial.tell(receipt.ticket, dict.fromkeys(NAMES, 1))
        other = trial.ask()
        assert other is not None
        told(trial)
        trial.finish("enough")
        trial.tell(other, dict.fromkeys(NAMES, 1))
        events = [
            {name: value for name, value in entry.to_dict().items() if name not in ("seq", "hash")}
            for entry in trial.events()
        ]
    assert audit(str(write_chain(tmp_path / "honest.jsonl", events))).identical
    places = [place for place, event in enumerate(events) if event["kind"] == kind]
    place = places[len(places) // 2]
    events[place] = forged(events[place], what)
    found = audit(str(write_chain(tmp_path / "forged.jsonl", [canonical(event) for event in events])))
    assert (found.identical, found.first_different_event) == (False, place + 1), found.first_difference


def test_the_evidence_over_time_of_items_ends_with_that_of_the_status(items: list[Item]) -> None:
    with new_trial() as trial:
        answer(trial, items)
        points = evidence_over_time(trial.present(), trial.events())
        status = trial.status()
    assert len(points) > 10
    assert points[-1].samples == status.samples
    assert points[-1].evidence == pytest.approx(status.evidence)


def test_the_forecast_is_the_same_after_reopening_and_with_items_pending(
    tmp_path: Path, items: list[Item], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenhand.live.protocol.Protocol.snapshot_every", property(lambda _: 20))
    address = tmp_path / "trial.db"
    with new_trial(address) as trial:
        answer(trial, items[:60])
        before = trial.status(experiment_forecast)
        trial.ask(3)
    with eh.Experiment.open(address, write=False) as trial:
        after = trial.status(experiment_forecast)
    assert (after.pending, after.more, after.forecast) == (3, before.more, before.forecast)
    assert before.forecast is not None
    assert 0 < before.forecast["items"]["0.5"] < before.more["0.5"] <= 3 * before.forecast["items"]["0.5"]
    assert " more samples on " in before.sentence
    assert " In items: 50% within " in before.forecast["statement"]


def test_a_decided_experiment_on_items_needs_no_more(items: list[Item]) -> None:
    with new_trial() as trial:
        answer(trial, items)
        assert experiment_forecast(trial.present()).more == dict.fromkeys(CHANCES, 0)


def test_an_experiment_on_items_in_intervals_says_why_there_is_no_forecast() -> None:
    problem = dataclasses.replace(ASKED.problem, mode="proportional")
    procedure = eh.Procedure(items="shared", interval=eh.Intervals(volume=500))
    with eh.Experiment.create(":memory:", problem, procedure, seed=SEED, clock=SetClock()) as trial:
        assert experiment_forecast(trial.present()).why_none == NOT_PAIRED
