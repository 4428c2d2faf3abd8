"""Asking: faults 15, 21 and 24 on one process: workers, keys, leases, clocks, arrivals."""

from __future__ import annotations

from pathlib import Path

import pytest

import evenhand as eh
from evenhand.errors import BadInput, Conflict, KeyReused
from evenhand.live import events as ev
from evenhand.live.experiment import Experiment
from evenhand.live.tickets import Ask
from evenhand.procedure.spec import SAMPLING
from tests.crossed import crossed
from tests.live.example_experiments import SetClock, coin, create, kinds, log, one, play, problem


def test_the_initial_samples_come_first_in_turn() -> None:
    trial = create(procedure=eh.Procedure(initial=2))
    cells = [(ask.policy, ask.group) for ask in trial.ask(12)]
    assert cells == 2 * [(policy, group) for group in "xy" for policy in "abc"]


@crossed(
    "rule", [name for name in SAMPLING if name != "oracle"], "mode", ["active", "proportional", "agnostic"]
)
def test_every_issued_ticket_had_a_chance_and_the_log_says_which(rule: str, mode: str) -> None:
    stopping = eh.Budget(90) if rule in ("ocba-co", "sequential-halving") else "certified"
    trial = create(study=problem(mode), procedure=eh.Procedure(sampling=rule, stopping=stopping, initial=1))
    for number in range(90):
        arrived = {"group": "xxy"[number % 3]} if mode == "proportional" else {}
        if (ask := trial.ask(**arrived)) is None:
            break
        trial.tell(ask, coin(ask), **({"group": "xxy"[number % 3]} if mode == "agnostic" else {}))
    chances = [event.p for event in log(trial) if isinstance(event, ev.Asked)]
    assert len(chances) > 30
    assert all(p is not None and 0.0 < p <= 1.0 + 1e-12 for p in chances)


def test_the_same_worker_asking_again_gets_the_same_ticket_until_it_tells() -> None:
    trial = create()
    first = one(trial.ask(worker="w"))
    assert all(trial.ask(worker="w") == first for _ in range(100))
    assert trial.ask(3, worker="w")[0] == first
    assert len(trial.ask(3, worker="w")) == 3
    assert one(trial.ask(worker="other")) not in trial.ask(3, worker="w")
    trial.tell(first, 1)
    assert trial.ask(worker="w") != first
    assert kinds(trial).count("asked") == 4


def test_the_same_key_gets_the_same_answer_and_no_other_request_may_use_it() -> None:
    trial = create()
    asks = trial.ask(3, key="k")
    trial.tell(asks[0], 1)
    assert trial.ask(3, key="k") == asks
    for other in ({"n": 1}, {"n": 3, "worker": "w"}, {"n": 3, "lease": 60}):
        with pytest.raises(KeyReused, match="another request"):
            trial.ask(**other, key="k")  # type: ignore[call-overload]
    with pytest.raises(Conflict, match="another request"):
        trial.amend(asks[0], 0, reason="r", by="b", key="k")
    trial.amend(asks[0], 0, reason="r", by="b", key="k2")
    trial.amend(asks[0], 1, reason="back", by="b")
    trial.amend(asks[0], 0, reason="r", by="b", key="k2")
    assert kinds(trial).count("amended") == 2
    assert trial.import_data([("a", "x", 1)], key="i") == trial.import_data([("a", "x", 1)], key="i") == 1
    assert kinds(trial).count("imported") == 1


def test_no_more_tickets_are_out_than_samples_are_left() -> None:
    trial = create(procedure=eh.Procedure(initial=1, stopping=eh.Budget(10)))
    asks = trial.ask(50)
    assert len(asks) == 10
    assert trial.ask() is None
    assert not trial.status().decided
    trial.drop(asks[9], "lost")
    asks[9] = one(trial.ask())
    for ask in asks:
        trial.tell(ask, coin(ask))
    assert trial.status().decided
    assert trial.status().samples == 10
    assert "budget" in trial.status().sentence


def test_units_that_come_by_themselves_bring_their_group() -> None:
    trial = create(study=problem("proportional"))
    with pytest.raises(BadInput, match="which group"):
        trial.ask()
    with pytest.raises(BadInput, match="no group"):
        trial.ask(group="z")
    ask = one(trial.ask(group="y", worker="patient 1"))
    assert ask.group == "y"
    with pytest.raises(Conflict, match="another group"):
        trial.ask(group="x", worker="patient 1")
    assert trial.tell(ask, 1).counted
    with pytest.raises(BadInput, match="cannot be given"):
        create().ask(group="x")


@pytest.mark.parametrize("n", [0, -1, 1.5, True, 10_001, "3"])
def test_only_a_sensible_number_of_tickets_can_be_asked_for(n: object) -> None:
    with pytest.raises(BadInput, match="ask for 1 to"):
        create().ask(n)  # type: ignore[call-overload]


def test_a_lease_runs_out_by_the_steady_clock_and_the_outcome_is_late() -> None:
    clock = SetClock()
    trial = create(lease=60, clock=clock)
    ask, short = one(trial.ask(worker="dead")), one(trial.ask(lease=5))
    clock.waited += 10
    trial.sweep()
    assert kinds(trial)[-1] == "expired"
    assert (trial.tell(short, 1).counted, trial.tell(short, 1).why) == (False, "expired")
    clock.waited += 60
    assert trial.ask(worker="dead") != ask  # the old ticket is given up, so the worker gets another
    assert trial.status().pending == 1
    assert trial.status().counts["expired"] == 2


def test_the_time_that_passed_while_no_process_ran_counts_for_leases(tmp_path: Path) -> None:
    clock, address = SetClock(), str(tmp_path / "t.db")
    with create(address, lease=60, clock=clock) as trial:
        trial.ask(2)
    later = SetClock(clock.wall + 30)
    with Experiment.open(address, clock=later) as trial:
        later.waited += 29
        trial.sweep()
        assert trial.status().pending == 2
        later.waited += 2
        trial.sweep()
        assert trial.status().pending == 0


@pytest.mark.parametrize(
    "jump", [-86_400.0, 365 * 86_400.0, -1.0], ids=["a day back", "a year on", "leap second"]
)
def test_a_clock_that_jumps_changes_no_decision_and_a_step_back_is_flagged(jump: float) -> None:
    clock = SetClock()
    straight, jumping = create(lease=600), create(lease=600, clock=clock)
    asks = play(straight, 20)
    again = play(jumping, 10)
    clock.wall += jump
    again += play(jumping, 10)
    assert again == [Ask(b.ticket, a.policy, a.group) for a, b in zip(asks, again, strict=True)]
    assert jumping.status().counts["expired"] == 0
    flagged = [event for event in log(jumping) if event.back]
    assert bool(flagged) == (jump < 0)
    assert all(event.back == pytest.approx(-jump, abs=0.1) for event in flagged[:1])
    assert jumping.status().health.clock_back == len(flagged)
