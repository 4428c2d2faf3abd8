"""Policies that join and leave a live experiment: what is written, sampled, answered, audited and refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evenhand as eh
from evenhand.cli.main import main
from evenhand.live import events as ev
from evenhand.live.audit import audit
from evenhand.live.experiment import Experiment
from evenhand.live.protocol import Protocol
from evenhand.live.tickets import Ask
from evenhand.live.transfer import transfer
from evenhand.procedure.compile_spec import compile_spec, wrong_statements
from evenhand.procedure.evidence.by_family import threshold
from evenhand.procedure.state import EVIDENCE, NEEDED
from evenhand.verdicts.judge import judge_state
from tests.live.example_experiments import MEANS, coin, create, kinds, play, problem
from tests.live.forgeries import write_chain

ROOM = replace(problem(), max_policies=5)
BEST = {**MEANS, "d": 0.97, "e": 0.2}


def flip(ask: Ask) -> int:
    return coin(ask, BEST)


@pytest.fixture
def trial() -> Iterator[Experiment]:
    with create(study=ROOM) as found:
        yield found


def sampled(asks: list[Ask]) -> set[str]:
    return {ask.policy for ask in asks}


def test_the_threshold_covers_every_policy_that_may_ever_take_part() -> None:
    floors = {"kind": eh.Floors(0.3), "relative": eh.Floors(relative_to="a", margin=0.1)}
    both = eh.All((eh.Floors(relative_to="a", margin=0.1), eh.Caps(relative_to="a", ratio=1.5)))
    for constraint, screens, wrong in (
        (floors["kind"], False, 5 * 5),  # an ordered pair or a policy: 5 x 4 + 5
        (floors["relative"], False, 5 * 5 + 4 * 2),  # and a relative floor in two groups of four policies
        (both, False, 5 * 5 + 4 * 4),
        (floors["kind"], True, 5),
        (floors["relative"], True, 5 + 4 * 2),
    ):
        goal = "screen" if screens else "best"
        wide = replace(ROOM, constraint=constraint, goal=goal)
        assert wrong_statements(wide) == wrong
        assert threshold(compile_spec(wide, eh.Procedure(delta=0.1))) == pytest.approx(math.log(wrong / 0.1))
    assert wrong_statements(problem()) == 3  # as ever where no policy may join or leave


def test_a_policy_that_joins_gets_its_initial_samples_next_and_can_be_the_answer(trial: Experiment) -> None:
    begun = play(trial, 20, flip)
    assert sampled(begun) == {"a", "b", "c"}
    trial.add_policy("d", reason="it came in week three", by="the board")
    assert trial.protocol.problem.policies == ("a", "b", "c", "d")
    first = play(trial, 4, flip)
    assert [(ask.policy, ask.group) for ask in first] == [("d", "x"), ("d", "x"), ("d", "y"), ("d", "y")]
    play(trial, outcome=flip)
    status = trial.status()
    assert (status.decided, status.answer) == (True, "d")
    assert status.needed == pytest.approx(math.log(25 / 0.05))
    [joined] = status.joined
    assert (joined.policy, joined.reason, joined.by) == ("d", "it came in week three", "the board")
    assert eh.Status.from_dict(status.to_dict()) == status
    assert "d joined during the experiment" in status.sentence


def test_a_policy_that_left_is_not_sampled_and_is_not_the_answer(trial: Experiment) -> None:
    play(trial, 20)
    out = trial.ask(12)
    mine = [ask for ask in out if ask.policy == "a"]
    assert mine
    trial.withdraw("a", reason="side effects", by="the board")
    status = trial.status()
    assert status.pending == len(out) - len(mine)
    assert {cell.policy for cell in status.cells} == {"b", "c"}
    [left] = status.withdrawn
    told = [entry.event for entry in trial.events() if isinstance(entry.event, ev.Told)]
    asked = {e.event.ticket: e.event.policy for e in trial.events() if isinstance(e.event, ev.Asked)}
    assert left.samples == sum(asked[event.ticket] == "a" for event in told) > 0
    assert trial.tell(mine[0], 1) == eh.Receipt(mine[0].ticket, 1.0, False, "withdrawn")
    assert trial.tell(mine[0], 1) == eh.Receipt(mine[0].ticket, 1.0, False, "withdrawn")
    trial.drop(mine[1], "nobody came") if len(mine) > 1 else None
    for ask in out:
        if ask.policy != "a":
            assert trial.tell(ask, coin(ask)).counted
    rest = play(trial)
    assert sampled(rest) == {"b", "c"}
    status = trial.status()
    assert (status.decided, status.answer) == (True, "b")
    assert "nothing is claimed about one that left" in status.sentence
    assert status.samples == len(told) + len(out) - len(mine) + len(rest)


def test_withdrawing_the_last_rival_may_decide_at_once(trial: Experiment) -> None:
    means = {"a": 0.99, "b": 0.98, "c": 0.01}
    asks = play(trial, 120, lambda ask: coin(ask, means))
    assert not trial.is_over
    assert len(asks) == 120
    trial.withdraw("b", reason="too dear", by="me")
    assert not trial.is_over
    trial.withdraw("c", reason="too dear", by="me")
    assert kinds(trial)[-2:] == ["policywithdrawn", "stopped"]
    assert trial.status().answer == "a"
    with pytest.raises(eh.Closed, match="has stopped and cannot withdraw a policy"):
        trial.withdraw("a", reason="r", by="me")
    with pytest.raises(eh.Closed, match="has stopped and cannot take a new policy"):
        trial.add_policy("d", reason="r", by="me")


def test_one_policy_may_be_left_and_is_still_judged_by_the_requirement(trial: Experiment) -> None:
    play(trial, 12, lambda _ask: 0)
    for name in "ab":
        trial.withdraw(name, reason="r", by="me")
    assert sampled(play(trial, outcome=lambda _ask: 0)) == {"c"}
    status = trial.status()
    assert (status.decided, status.answer, status.failed) == (True, None, ("c",))


def test_one_policy_may_be_left_with_guard_rails_and_is_still_described(tmp_path: Path) -> None:
    rail = eh.Guardrail("calls", eh.Poisson(), eh.Caps(2.0))
    room = replace(ROOM, policies=("a", "b"), constraint=eh.Floors(0.3), guardrails=(rail,), max_policies=3)
    with create(study=room) as trial:
        trial.withdraw("b", reason="r", by="me")
        status = trial.status()
        assert status.sentence.endswith(
            "will be about the one policy present at the end, and nothing is claimed about one that left."
        )
        play(trial, outcome=lambda _ask: {"outcome": 1, "calls": 0})
        assert (trial.status().answer, trial.status().withdrawn[0].policy) == ("a", "b")
        assert [cell.policy for cell in trial.status().guardrails[0].cells] == ["a", "a"]
        trial.export(tmp_path / "log.jsonl")
        assert "calls" in eh.report(trial).html()
    assert audit(str(tmp_path / "log.jsonl")).identical


def test_the_evidence_is_that_of_the_outcomes_of_the_policies_present(trial: Experiment) -> None:
    """The e-values depend on counts and sums alone: a fresh verdict on the same counts has the same."""
    play(trial, 20, flip)
    trial.add_policy("d", reason="r", by="me")
    play(trial, 30, flip)
    trial.withdraw("b", reason="r", by="me")
    play(trial, 1, flip)
    view = trial.present()
    counts: dict[tuple[str, str], list[int]] = {}
    asked = {e.event.ticket: e.event for e in trial.events() if isinstance(e.event, ev.Asked)}
    for entry in trial.events():
        if isinstance(entry.event, ev.Told):
            ask = asked[entry.event.ticket]
            counts.setdefault((ask.policy, ask.group or ""), []).append(int(entry.event.outcome))
    for k, policy in enumerate(("a", "c", "d")):
        for g, group in enumerate(("x", "y")):
            assert (view.state.n[g, k], view.state.s[g, k]) == (
                len(counts[policy, group]),
                sum(counts[policy, group]),
            )
    verdict = judge_state(view.protocol.problem, view.protocol.procedure, view.state, replications=0)
    assert verdict.evidence == pytest.approx(view.state.level[EVIDENCE])
    assert verdict.needed == pytest.approx(view.state.level[NEEDED]) == math.log(25 / 0.05)


BAD: dict[str, tuple[Callable[[Experiment], Any], str]] = {
    "a name that exists": (lambda t: t.add_policy("a", reason="r", by="b"), "must have a new name"),
    "a name that left": (lambda t: t.add_policy("e", reason="r", by="b"), "It was withdrawn"),
    "no name": (lambda t: t.add_policy(" ", reason="r", by="b"), "policy must be some text"),
    "a name of nobody": (lambda t: t.add_policy("none", reason="r", by="b"), "cannot be called 'none'"),
    "an endless name": (lambda t: t.add_policy("n" * 201, reason="r", by="b"), "200 characters"),
    "no reason": (lambda t: t.add_policy("f", reason="", by="b"), "reason must be some text"),
    "no author": (lambda t: t.withdraw("c", reason="r", by=""), "by must be some text"),
    "an unknown policy": (lambda t: t.withdraw("z", reason="r", by="b"), "there is no policy 'z'"),
    "a policy that left": (lambda t: t.withdraw("e", reason="r", by="b"), "was withdrawn before"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_done_is_refused_in_a_sentence_and_nothing_is_written(
    trial: Experiment, what: str
) -> None:
    trial.add_policy("e", reason="r", by="me")
    trial.withdraw("e", reason="r", by="me")
    before = trial.head
    call, said = BAD[what]
    with pytest.raises(eh.BadInput, match=said):
        call(trial)
    assert trial.head == before


def test_no_more_than_max_policies_ever_take_part(trial: Experiment) -> None:
    for name in ("d", "e"):
        trial.add_policy(name, reason="r", by="me")
    trial.withdraw("d", reason="r", by="me")
    with pytest.raises(eh.BadInput, match="max_policies is 5, and 5 policies have taken part"):
        trial.add_policy("f", reason="r", by="me")
    for name in "abc":
        trial.withdraw(name, reason="r", by="me")
    with pytest.raises(eh.BadInput, match="'e' is the last policy"):
        trial.withdraw("e", reason="r", by="me")


def test_without_max_policies_nothing_joins_or_leaves() -> None:
    with create() as trial:
        for call in (trial.add_policy, trial.withdraw):
            with pytest.raises(eh.BadInput, match="only where the study says max_policies"):
                call("c" if call == trial.withdraw else "d", reason="r", by="me")
        assert kinds(trial) == ["created"]


def test_the_control_stays() -> None:
    relative = replace(ROOM, constraint=eh.Floors(relative_to="b", margin=0.1))
    with create(study=relative) as trial:
        with pytest.raises(eh.BadInput, match="'b' is the control"):
            trial.withdraw("b", reason="r", by="me")
        assert kinds(trial) == ["created"]


@pytest.mark.slow  # floors relative to a control are another program
def test_a_requirement_relative_to_the_control_holds_for_a_policy_that_joins() -> None:
    relative = replace(ROOM, constraint=eh.Floors(relative_to="b", margin=0.1))
    with create(study=relative) as trial:
        trial.withdraw("a", reason="r", by="me")  # the control's column moves
        trial.add_policy("d", reason="r", by="me")
        play(trial, outcome=flip)
        assert trial.status().answer == "d"
        assert {cell.policy for cell in trial.status().cells} == {"b", "c", "d"}


def test_samples_must_be_left_for_a_policy_that_joins() -> None:
    with create(study=ROOM, procedure=eh.Procedure(delta=0.05, max_samples=14)) as trial:
        play(trial, 11)
        with pytest.raises(eh.BadInput, match="5 are lacking once it has joined, and 3 samples are left"):
            trial.add_policy("d", reason="r", by="me")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"costs": {"a": 2.0}}, "costs differ by policy"),
        ({"family": eh.Gaussian([[1.0, 1.0], [1.0, 2.0], [1.0, 1.0]])}, "the same for all policies"),
    ],
)
def test_numbers_that_differ_by_policy_leave_no_room_for_another(change: dict[str, Any], said: str) -> None:
    with pytest.raises(eh.BadInput, match=said):
        create(study=replace(ROOM, **change))


def test_a_rule_that_remembers_policies_is_refused() -> None:
    with pytest.raises(eh.BadInput, match="are sampled by ts-ids, ids, top-two, uniform"):
        create(study=ROOM, procedure=eh.Procedure(sampling="exact-tracking"))


@pytest.mark.slow  # sampling with costs is another program
def test_costs_of_a_policy_that_left_stay_spent() -> None:
    priced = replace(ROOM, costs={"x": 2.0, "y": 5.0})
    with create(study=priced) as trial:
        play(trial, 12)
        before = trial.status().spent
        trial.withdraw("a", reason="r", by="me")
        assert trial.status().spent == before == 6 * 2.0 + 6 * 5.0


def test_an_amended_outcome_of_a_policy_that_left_is_kept_and_changes_no_evidence(trial: Experiment) -> None:
    asks = play(trial, 20)
    mine = next(ask for ask in asks if ask.policy == "a")
    trial.withdraw("a", reason="r", by="me")
    before = trial.present().state
    receipt = trial.amend(mine, 1 - coin(mine), reason="typo", by="me")
    assert not receipt.counted
    after = trial.present().state
    assert all(np.array_equal(one, other) for one, other in zip(before, after, strict=True))
    with pytest.raises(eh.BadInput, match="there is no policy 'a'"):
        trial.import_data([("a", "x", 1)])
    assert trial.import_data([("b", "x", 1)]) == 1


def scripted(trial: Experiment) -> None:
    """A policy joins, two leave, an outcome comes late and one is corrected; until the stop."""
    asks = trial.ask(13)
    waits = next(ask for ask in asks if ask.policy == "b")
    for ask in asks:
        if ask != waits:
            trial.tell(ask, flip(ask))
    for _ in range(2):  # the second call repeats the first, and nothing happens
        trial.add_policy("d", reason="new", by="me", key="join")
    play(trial, 10, flip)
    trial.withdraw("b", reason="weak", by="you", key="leave")
    assert trial.tell(waits, 1).why == "withdrawn"
    told = next(ask for ask in asks if ask.policy == "b" and ask != waits)
    trial.amend(told, 1 - flip(told), reason="typo", by="me")
    trial.import_data([("d", "x", 1), ("c", "y", 0)])
    trial.withdraw("c", reason="weak", by="you")
    play(trial, outcome=flip)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal in which policies joined and left, with snapshots."""
    address = tmp_path_factory.mktemp("joining") / "t.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Protocol, "snapshot_every", 30)
        with create(str(address), study=ROOM) as trial:
            scripted(trial)
            assert trial.status().answer == "d"
    return address


def test_an_audit_finds_every_step_again(journal: Path, tmp_path: Path) -> None:
    found = audit(str(journal))
    assert found.identical, found.first_difference
    with Experiment.open(str(journal)) as trial:
        names = kinds(trial)
        assert [names.count("policyadded"), names.count("policywithdrawn")] == [1, 2]
        assert "snapshot" in names[names.index("policyadded") :]
        status = trial.status()
        trial.export(tmp_path / "t.jsonl")
    assert audit(str(tmp_path / "t.jsonl")).identical
    assert transfer(tmp_path / "t.jsonl", str(tmp_path / "u.db")).head == found.head
    with Experiment.open(str(tmp_path / "u.db")) as copy:
        assert copy.status() == status


def test_a_reopened_experiment_continues_exactly_as_one_that_was_never_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Protocol, "snapshot_every", 30)
    address = str(tmp_path / "t.db")
    with create(study=ROOM) as never, create(address, study=ROOM) as first:
        trial = first
        for call in (
            lambda t: play(t, 25, flip),
            lambda t: t.add_policy("d", reason="r", by="b"),
            lambda t: play(t, 20, flip),
            lambda t: t.withdraw("b", reason="r", by="b"),
            lambda t: play(t, 9, flip),
        ):
            for one_of in (never, trial):
                call(one_of)
            trial.close()
            trial = Experiment.open(address)
        mine, theirs = trial.present(), never.present()
        for one, other in zip((*mine.state, *mine.tally), (*theirs.state, *theirs.tally), strict=True):
            assert np.array_equal(one, other)
        trial.close()


def forged(journal: Path, change: Callable[[list[dict[str, Any]]], None], tmp_path: Path) -> str:
    """The first difference in a log that was changed and hashed again."""
    with Experiment.open(str(journal)) as trial:
        events = [ev.plain(entry.event) for entry in trial.events()]
    change(events)
    found = audit(str(write_chain(tmp_path / "forged.jsonl", events)))
    assert not found.identical
    return str(found.first_difference)


def place(events: list[dict[str, Any]], kind: str) -> int:
    return next(n for n, event in enumerate(events) if event["kind"] == kind)


def edit(kind: str, **fields: Any) -> Callable[[list[dict[str, Any]]], None]:
    return lambda events: events[place(events, kind)].update(fields)


def remove(kind: str) -> Callable[[list[dict[str, Any]]], None]:
    return lambda events: events.pop(place(events, kind)) and None


def later(kind: str) -> Callable[[list[dict[str, Any]]], None]:
    """Move the event behind the next one."""

    def change(events: list[dict[str, Any]]) -> None:
        n = place(events, kind)
        events[n], events[n + 1] = events[n + 1], events[n]

    return change


def other_late(events: list[dict[str, Any]]) -> None:
    next(e for e in events if e["kind"] == "late" and e["why"] == "withdrawn")["why"] = "dropped"


def counting(events: list[dict[str, Any]]) -> None:
    next(e for e in events if e["kind"] == "amended")["counted"] = True


def in_snapshot(**fields: Any) -> Callable[[list[dict[str, Any]]], None]:
    return lambda events: next(e for e in events if e["kind"] == "snapshot" and "changes" in e["fold"])[
        "fold"
    ].update(fields)


FORGERIES: dict[str, Callable[[list[dict[str, Any]]], None]] = {
    "another policy joins": edit("policy_added", policy="e"),
    "one joins that is there": edit("policy_added", policy="a"),
    "another policy leaves": edit("policy_withdrawn", policy="a"),
    "one leaves that is not there": edit("policy_withdrawn", policy="z"),
    "it never joined": remove("policy_added"),
    "it never left": remove("policy_withdrawn"),
    "it joined later": later("policy_added"),
    "it left later": later("policy_withdrawn"),
    "a reason of blanks": edit("policy_added", reason=" "),
    "by nobody": edit("policy_withdrawn", by=""),
    "an empty name": edit("policy_added", policy=" "),
    "an outcome of a policy that left, late for another reason": other_late,
    "a correction of one that left counts": counting,
    "a snapshot without the change": in_snapshot(changes=[]),
    "a snapshot with other samples of one that left": in_snapshot(left={"b": [1, 2]}),
}


@pytest.mark.parametrize("what", FORGERIES)
def test_a_forged_change_is_found_although_its_hashes_fit(journal: Path, tmp_path: Path, what: str) -> None:
    assert forged(journal, FORGERIES[what], tmp_path).startswith("event ")


def test_a_lower_threshold_is_found(journal: Path, tmp_path: Path) -> None:
    def change(events: list[dict[str, Any]]) -> None:
        events[0]["study"] = events[0]["study"].replace("max_policies = 5", "max_policies = 4")

    assert forged(journal, change, tmp_path).startswith("event ")


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study, path = tmp_path / "study.toml", str(tmp_path / "t.db")
    study.write_text(
        """[problem]
policies = ["a", "b", "c"]
groups = { x = 0.6, y = 0.4 }
family = { name = "bernoulli" }
constraint = { kind = "floors", at_least = 0.3 }
max_policies = 4
[procedure]
initial_order = "declared"
"""
    )

    def run(*words: str) -> tuple[int, str]:
        code = main(list(words))
        said = capsys.readouterr()
        return code, said.err or said.out

    who = ("--reason", "r", "--by", "me")
    assert run("new", path, str(study), "--seed", "1")[0] == 0
    assert run("add-policy", path, "d", *who)[1].startswith("d joined; 4 of 4 policies have taken part.")
    code, said = run("withdraw", path, "a", *who, "--json")
    assert (code, json.loads(said)["policies"]) == (0, ["b", "c", "d"])
    for words, sentence in (
        (("add-policy", path, "e", *who), "max_policies is 4"),
        (("withdraw", path, "a", *who), "was withdrawn before"),
        (("withdraw", path, "d", "--reason", "r"), "Missing option '--by'"),
        (("add-policy", path, "", *who), "policy must be some text"),
    ):
        code, said = run(*words)
        assert (code, said.count("\n")) == (2, 1), said
        assert sentence in said
    code, said = run("status", path, "--json")
    status = json.loads(said)
    assert (status["events"], [change["policy"] for change in status["withdrawn"]]) == (3, ["a"])
    assert run("audit", path)[0] == 0
    assert run("finish", path, "--reason", "done")[0] == 0
    code, said = run("withdraw", path, "b", *who)
    assert code == 2
    assert "is closed and cannot withdraw a policy" in said


def test_plans_and_simulations_take_max_policies_and_pay_for_it() -> None:
    means = [[0.8, 0.8], [0.5, 0.5], [0.35, 0.35]]
    assert eh.plan(ROOM, means).to_dict(0.1) == eh.plan(problem(), means).to_dict(0.1)
    procedure = eh.Procedure(delta=0.1)
    runs = [eh.simulate(one, means, procedure, replications=40, seed=5) for one in (problem(), ROOM)]
    assert runs[0].to_dict()["samples"]["mean"] < runs[1].to_dict()["samples"]["mean"]


@pytest.mark.slow
def test_the_report_lists_the_changes_and_says_whom_the_answer_is_about(journal: Path) -> None:
    with Experiment.open(str(journal), write=False) as trial:
        page = eh.report(trial).html()
    for said in ("Policies that joined and left", "weak", "nothing is claimed about", "25 wrong statements"):
        assert said in page
