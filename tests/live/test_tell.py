"""Telling: faults 16, 17 and 19: repeated, other, corrected, unknown and dropped."""

from __future__ import annotations

import pytest

import evenhand as eh
from evenhand.errors import BadInput, Conflict, NotFound
from evenhand.live import events as ev
from tests.live.example_experiments import coin, create, kinds, log, one, play, problem, ticket


def test_the_same_outcome_told_again_is_one_event_and_the_same_receipt() -> None:
    trial = create()
    ask = one(trial.ask())
    receipt = trial.tell(ask, 1)
    assert all(trial.tell(ask, 1) == receipt for _ in range(20))
    assert kinds(trial).count("told") == 1
    assert trial.status().samples == 1


def test_another_outcome_is_refused_and_written_down_and_the_first_counts() -> None:
    trial = create()
    ask = one(trial.ask())
    trial.tell(ask, 1)
    for _ in range(3):
        with pytest.raises(Conflict, match="refused and written down"):
            trial.tell(ask, 0)
    assert kinds(trial)[-2:] == ["told", "refused"]  # once: repeating it adds nothing
    assert trial.status().cells[0].mean == 1.0


def test_a_correction_keeps_the_old_value_with_reason_and_name_and_then_both_values_are_known() -> None:
    trial = create()
    ask = one(trial.ask())
    trial.tell(ask, 1)
    receipt = trial.amend(ask, 0, reason="typed the wrong key", by="nurse 4")
    event = log(trial)[-1]
    assert isinstance(event, ev.Amended)
    assert (event.old, event.outcome, event.reason, event.by) == (1.0, 0.0, "typed the wrong key", "nurse 4")
    assert trial.status().cells[0].mean == 0.0
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
    wrong.amend(ticket(wrong, 1), 0.1, reason="ten powers too many", by="me")
    with wrong._writer.reading() as a, right._writer.reading() as b:
        for name in ("n", "s", "ss", "out"):
            assert (getattr(a.replay.state, name) == getattr(b.replay.state, name)).all()


def test_a_correction_can_end_the_experiment_and_no_correction_undoes_a_decision() -> None:
    trial = create()
    asks = play(trial)
    status = trial.status()
    trial.amend(asks[-1], 1 - coin(asks[-1]), reason="wrong patient", by="me")
    after = trial.status()
    assert after.answer == status.answer
    assert after.decided
    assert "corrected since" in after.sentence
    assert after.samples == status.samples


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


def test_a_ticket_never_issued_is_not_found_even_with_the_right_letters() -> None:
    trial = create()
    with pytest.raises(NotFound):
        trial.tell(ticket(trial, 5), 1)


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


def test_where_the_group_is_known_only_with_the_outcome_it_is_told() -> None:
    trial = create(study=problem("agnostic"))
    for number in range(40):
        ask = one(trial.ask())
        assert ask.group is None
        trial.tell(ask, coin(ask), group="xy"[number % 2])
    cells = {(cell.policy, cell.group): cell.n for cell in trial.status().cells}
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


def test_many_outcomes_are_taken_together_or_not_at_all() -> None:
    trial = create()
    asks = trial.ask(4)
    trial.tell(asks[1], 1)
    with pytest.raises(Conflict, match=r"^row 2: ticket .* has the outcome 1 already"):
        trial.tell_all([(ask, 0, None) for ask in asks])
    assert trial.status().samples == 1
    receipts = trial.tell_all([(ask, int(ask == asks[1]), None) for ask in asks])
    assert [receipt.outcome for receipt in receipts] == [0.0, 1.0, 0.0, 0.0]
    assert trial.status().samples == 4
