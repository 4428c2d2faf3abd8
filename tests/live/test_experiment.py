"""Asking and telling: faults 15 to 17, 19 to 21 and 24 on one process, and what people do by mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

import evenhand as eh
from evenhand.errors import BadInput, Closed, Conflict, NotFound
from evenhand.live import events as ev
from evenhand.live.asking import Ask
from evenhand.live.events import decode
from evenhand.live.experiment import Experiment
from tests.live.world import MEANS, SetClock, coin, create, play, problem


def log(trial: Experiment) -> list[ev.AnyEvent]:
    return [decode(row.record) for row in trial.events()]


def kinds(trial: Experiment) -> list[str]:
    return [type(event).__name__.lower() for event in log(trial)]


def one(ask: Ask | None) -> Ask:
    assert ask is not None
    return ask


def test_a_run_ends_by_itself_with_an_answer() -> None:
    trial = create()
    asks = play(trial)
    status = trial.status()
    assert status["decided"]
    assert status["answer"] == "a"
    assert status["samples"] == len(asks)
    assert status["evidence"] >= status["needed"]
    assert kinds(trial)[-2:] == ["told", "stopped"]


def test_the_initial_samples_come_first_in_turn() -> None:
    trial = create(procedure=eh.Procedure(initial=2))
    cells = [(ask.policy, ask.group) for ask in trial.ask(12)]
    assert cells == 2 * [(policy, group) for group in "xy" for policy in "abc"]


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
    assert trial.ask(3, key="k") == trial.ask(1, key="k") == asks
    with pytest.raises(Conflict, match="another request"):
        trial.amend(asks[0], 0, reason="r", by="b", key="k")
    trial.amend(asks[0], 0, reason="r", by="b", key="k2")
    trial.amend(asks[0], 1, reason="back", by="b")
    trial.amend(asks[0], 0, reason="r", by="b", key="k2")
    assert kinds(trial).count("amended") == 2
    assert trial.import_data([("a", "x", 1)], key="i") == trial.import_data([("a", "x", 1)], key="i") == 1
    assert kinds(trial).count("imported") == 1


def test_the_same_outcome_told_again_is_one_event_and_the_same_receipt() -> None:
    trial = create()
    ask = one(trial.ask())
    receipt = trial.tell(ask, 1)
    assert all(trial.tell(ask, 1) == receipt for _ in range(20))
    assert kinds(trial).count("told") == 1
    assert trial.status()["samples"] == 1


def test_another_outcome_is_refused_and_written_down_and_the_first_counts() -> None:
    trial = create()
    ask = one(trial.ask())
    trial.tell(ask, 1)
    for _ in range(3):
        with pytest.raises(Conflict, match="refused and written down"):
            trial.tell(ask, 0)
    assert kinds(trial)[-2:] == ["told", "refused"]  # once: repeating it adds nothing
    assert trial.status()["cells"][0]["mean"] == 1.0


def test_a_correction_keeps_the_old_value_with_reason_and_name_and_then_both_values_are_known() -> None:
    trial = create()
    ask = one(trial.ask())
    trial.tell(ask, 1)
    receipt = trial.amend(ask, 0, reason="typed the wrong key", by="nurse 4")
    event = log(trial)[-1]
    assert isinstance(event, ev.Amended)
    assert (event.old, event.outcome, event.reason, event.by) == (1.0, 0.0, "typed the wrong key", "nurse 4")
    assert trial.status()["cells"][0]["mean"] == 0.0
    assert trial.amend(ask, 0, reason="again", by="x") == receipt
    assert trial.tell(ask, 1).outcome == 1.0  # a late repetition of the first call
    assert trial.tell(ask, 0).counted
    assert kinds(trial)[-1] == "amended"
    with pytest.raises(BadInput, match="reason"):
        trial.amend(ask, 1, reason=" ", by="x")
    with pytest.raises(BadInput, match="no outcome to correct"):
        trial.amend(one(trial.ask()), 1, reason="r", by="x")


def test_after_a_correction_the_state_is_the_one_of_the_corrected_outcomes() -> None:
    """A typing error of ten orders of magnitude leaves no trace in the sums."""
    study = eh.Problem(["a", "b"], {"x": 1.0}, eh.Gaussian(1.0))
    start = eh.Procedure(initial=5)
    wrong, right = create(study=study, procedure=start), create(study=study, procedure=start)
    for trial in (wrong, right):
        for ask in trial.ask(4):
            number = int(ask.ticket[1:].partition("-")[0])
            trial.tell(ask, 1e10 if trial is wrong and number == 1 else 0.1 * number)
    wrong.amend(_ticket(wrong, 1), 0.1, reason="ten powers too many", by="me")
    with wrong._writer.reading() as a, right._writer.reading() as b:
        for name in ("n", "s", "ss", "out"):
            assert (getattr(a.brain.state, name) == getattr(b.brain.state, name)).all()


def test_a_correction_can_end_the_experiment_and_no_correction_undoes_a_decision() -> None:
    trial = create()
    asks = play(trial)
    status = trial.status()
    trial.amend(asks[-1], 1 - coin(asks[-1]), reason="wrong patient", by="me")
    after = trial.status()
    assert after["answer"] == status["answer"]
    assert after["decided"]
    assert "corrected since" in after["sentence"]
    assert after["samples"] == status["samples"]


def test_unknown_and_foreign_tickets_are_not_found() -> None:
    trial, other = create(), create(name="other")
    with pytest.raises(NotFound):
        trial.tell(one(other.ask()), 1)
    unknown = one(trial.ask()).ticket
    with pytest.raises(NotFound):
        trial.tell(unknown.replace("t1", "t2"), 1)
    with pytest.raises(NotFound):
        trial.drop("t5-0000", "gone")
    assert kinds(trial) == ["created", "asked"]


def test_a_ticket_never_handed_out_is_not_found_even_with_the_right_letters() -> None:
    trial = create()
    with pytest.raises(NotFound):
        trial.tell(_ticket(trial, 5), 1)


def test_after_the_stop_nothing_is_handed_out_and_late_outcomes_are_kept_and_marked() -> None:
    trial = create()
    pending = trial.ask(5, worker="slow")
    play(trial)
    before = trial.status()
    assert trial.ask() is None
    assert trial.ask(3) == trial.ask(5, worker="slow") == []
    receipt = trial.tell(pending[0], 1)
    assert (receipt.counted, receipt.why) == (False, "stopped")
    assert trial.tell(pending[0], 1) == receipt
    with pytest.raises(Conflict):
        trial.tell(pending[0], 0)
    trial.drop(pending[1], "gone")
    after = trial.status()
    assert after["late"] == 1
    assert after["pending"] == 3
    same = ("answer", "decided", "samples", "evidence", "cells")
    assert {key: after[key] for key in same if key != "cells"} == {
        key: before[key] for key in same if key != "cells"
    }
    assert [cell["n"] for cell in after["cells"]] == [cell["n"] for cell in before["cells"]]
    with pytest.raises(Closed):
        trial.import_data([("a", "x", 1)])


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
    assert trial.status()["pending"] == 1
    assert trial.status()["counts"]["expired"] == 2


def test_the_time_that_passed_while_nobody_was_there_counts_for_leases(tmp_path: Path) -> None:
    clock, address = SetClock(), str(tmp_path / "t.db")
    with create(address, lease=60, clock=clock) as trial:
        trial.ask(2)
    later = SetClock(clock.wall + 30)
    with Experiment.open(address, clock=later) as trial:
        later.waited += 29
        trial.sweep()
        assert trial.status()["pending"] == 2
        later.waited += 2
        trial.sweep()
        assert trial.status()["pending"] == 0


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
    assert jumping.status()["counts"]["expired"] == 0
    flagged = [event for event in log(jumping) if event.back]
    assert bool(flagged) == (jump < 0)
    assert all(event.back == pytest.approx(-jump, abs=0.1) for event in flagged[:1])
    assert jumping.status()["health"]["clock_back"] == len(flagged)


def test_a_dropped_start_is_asked_for_again() -> None:
    trial = create(procedure=eh.Procedure(initial=1))
    asks = trial.ask(6)
    trial.drop(asks[2], "withdrew", by="site 3")
    trial.drop(asks[2], "withdrew", by="site 3")
    again = one(trial.ask())
    assert (again.policy, again.group) == (asks[2].policy, asks[2].group)
    assert kinds(trial).count("dropped") == 1
    assert trial.tell(asks[2], 1).why == "dropped"
    trial.tell(again, 1)
    with pytest.raises(Conflict, match="amend"):
        trial.drop(again, "too late")


def test_a_paused_experiment_takes_outcomes_and_hands_out_nothing() -> None:
    trial = create()
    ask = one(trial.ask())
    trial.pause("monitoring visit", by="board")
    trial.pause("again")
    with pytest.raises(Closed, match="paused"):
        trial.ask()
    assert trial.tell(ask, 1).counted
    assert trial.status()["state"] == "paused"
    trial.resume()
    assert trial.ask() is not None
    assert kinds(trial) == ["created", "asked", "paused", "told", "resumed", "asked"]


def test_a_closed_experiment_is_over() -> None:
    trial = create()
    ask = one(trial.ask())
    trial.close("funding ended", by="sponsor")
    trial.close("again")
    for call in (
        trial.ask,
        lambda: trial.pause("p"),
        trial.resume,
        lambda: trial.import_data([("a", "x", 1)]),
    ):
        with pytest.raises(Closed):
            call()
    assert trial.tell(ask, 1).why == "closed"
    assert trial.status()["state"] == "closed"
    assert not trial.status()["decided"]
    assert kinds(trial) == ["created", "asked", "closed", "late"]


def test_no_more_tickets_are_out_than_samples_are_left() -> None:
    trial = create(procedure=eh.Procedure(initial=1, stopping=eh.Budget(10)))
    asks = trial.ask(50)
    assert len(asks) == 10
    assert trial.ask() is None
    assert not trial.status()["decided"]
    trial.drop(asks[9], "lost")
    asks[9] = one(trial.ask())
    for ask in asks:
        trial.tell(ask, coin(ask))
    assert trial.status()["decided"]
    assert trial.status()["samples"] == 10
    assert "budget" in trial.status()["sentence"]


def test_a_run_that_uses_all_its_samples_is_exhausted_and_undecided() -> None:
    trial = create(procedure=eh.Procedure(max_samples=20), study=problem())
    play(trial, outcome=lambda ask: int(ask.ticket[1:].partition("-")[0]) % 2)
    status = trial.status()
    assert (status["state"], status["decided"], status["answer"], status["samples"]) == (
        "exhausted",
        False,
        None,
        20,
    )


def test_data_collected_before_counts_and_can_decide() -> None:
    trial = create(procedure=eh.Procedure(initial=1))
    rows = [
        (policy, group, float(i < 100 * mean))
        for policy, mean in MEANS.items()
        for group in "xy"
        for i in range(100)
    ]
    assert trial.import_data(rows) == 600
    assert trial.status()["decided"]
    assert trial.status()["samples"] == 600
    with pytest.raises(BadInput, match=r"row 2: there is no policy 'z'"):
        create().import_data([("a", "x", 1), ("z", "x", 1)])
    with pytest.raises(BadInput, match="at least one"):
        create().import_data([])
    with pytest.raises(BadInput, match="row 1 must be"):
        create().import_data([("a", "x")])  # type: ignore[list-item]


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


def test_where_the_group_is_known_only_with_the_outcome_it_is_told() -> None:
    trial = create(study=problem("agnostic"))
    for number in range(40):
        ask = one(trial.ask())
        assert ask.group is None
        trial.tell(ask, coin(ask), group="xy"[number % 2])
    cells = {(cell["policy"], cell["group"]): cell["n"] for cell in trial.status()["cells"]}
    assert sum(cells.values()) == 40
    ask = one(trial.ask())
    with pytest.raises(BadInput, match="which group"):
        trial.tell(ask, 1)
    trial.tell(ask, 1, group="x")
    with pytest.raises(Conflict):
        trial.tell(ask, 1, group="y")
    trial.amend(ask, 0, reason="r", by="b")
    trial.drop(one(trial.ask()), "lost")
    with pytest.raises(BadInput, match="cannot be given"):
        trial.ask(group="x")


def test_an_outcome_told_for_another_group_than_asked_is_refused() -> None:
    trial = create()
    ask = one(trial.ask())
    with pytest.raises(BadInput, match="the ticket is for 'x'"):
        trial.tell(ask, 1, group="y")
    assert trial.tell(ask, 1, group="x").counted


@pytest.mark.parametrize("n", [0, -1, 1.5, True, 10_001, "3"])
def test_only_a_sensible_number_of_tickets_can_be_asked_for(n: object) -> None:
    with pytest.raises(BadInput, match="ask for 1 to"):
        create().ask(n)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "no spaces please"}, "name"),
        ({"name": "../etc"}, "name"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"lease": 0}, "lease"),
        ({"procedure": eh.Procedure(sampling="oracle")}, "oracle"),
        ({"by": "x" * 201}, "200 characters"),
        ({"study": eh.Problem(["a", "b" * 201], {"x": 1.0}, eh.Bernoulli())}, "200 characters"),
    ],
)
def test_what_cannot_be_a_protocol_is_refused_and_no_file_is_made(
    tmp_path: Path, options: dict[str, object], words: str
) -> None:
    address = tmp_path / "t.db"
    with pytest.raises(BadInput, match=words):
        create(str(address), **options)
    assert list(tmp_path.iterdir()) == []


def test_an_unblinded_look_is_an_event() -> None:
    trial = create()
    trial.view("analyst", "estimates")
    assert kinds(trial) == ["created", "viewed"]


def test_many_outcomes_are_one_transaction_and_a_refusal_stops_none_of_the_others() -> None:
    trial = create()
    asks = trial.ask(4)
    trial.tell(asks[1], 1)
    answers = trial.tell_all([(ask, 0, None) for ask in asks])
    assert [type(answer).__name__ for answer in answers] == ["Receipt", "Conflict", "Receipt", "Receipt"]
    assert trial.status()["samples"] == 4


def _ticket(trial: Experiment, number: int) -> str:
    from evenhand.live.tickets import ticket_code

    return ticket_code(trial.protocol.hash, number)
