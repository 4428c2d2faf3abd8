"""Live experiments run by plain Python write the same log as those run by compiled kernels.

The log has the digests of the state and of the probabilities after every ask, so equal heads mean equal
numbers to the last bit. Policies join and leave on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import evenhand as eh
from evenhand.live import item_kernels, replay, replay_kernels
from evenhand.live.experiment import Experiment
from evenhand.live.tickets import Ask
from tests.compile.plain import run_plain
from tests.live.example_experiments import create, problem

ROOM = replace(problem(), max_policies=5)
MEANS = {"a": 0.7, "b": 0.6, "c": 0.35, "d": 0.9, "e": 0.5}
RAIL = eh.Guardrail("calls", eh.Poisson(), eh.Caps(2.0))
PROBLEMS: dict[str, eh.Problem] = {
    "bernoulli": ROOM,
    "proportional": replace(ROOM, mode="proportional"),
    "agnostic": replace(ROOM, mode="agnostic"),
    "gaussian": replace(ROOM, family=eh.Gaussian(0.5)),
    "unknown variance": replace(ROOM, family=eh.GaussianUnknown()),
    "beside a control": replace(ROOM, constraint=eh.Floors(relative_to="b", margin=0.1)),
    "guard-rails": replace(ROOM, guardrails=(RAIL,)),
    "screening": replace(ROOM, goal="screen"),
}


def outcome(ask: Ask, asked: eh.Problem) -> Any:
    """Return an outcome that depends on the ticket alone."""
    number = ticket_number(ask)
    found = int((number * 0.6180339887) % 1.0 < MEANS[ask.policy])
    value = found if asked.family == eh.Bernoulli() else found + number % 7 / 8
    return {"outcome": value, "calls": number % 3} if asked.guardrails else value


def ticket_number(ask: Ask) -> int:
    """Return the number of the ticket: the part of its code that two runs share."""
    return int(ask.ticket[1:].partition("-")[0])


def ask_and_tell(trial: Experiment, asked: eh.Problem, most: int) -> None:
    """Ask and tell until the end, or so many times; groups arrive in turn if the rule does not choose."""
    for turn in range(most):
        group = "xxy"[turn % 3]
        ask = trial.ask(group=group if asked.mode == "proportional" else None)
        if ask is None:
            return
        trial.tell(ask, outcome(ask, asked), group=group if asked.mode == "agnostic" else None)


def play_with_changes(asked: eh.Problem) -> Experiment:
    """Return an experiment in which a policy joins, one leaves, and another joins; ended or at 60 samples."""
    trial = create(study=asked, procedure=eh.Procedure(delta=0.05, max_samples=60))
    ask_and_tell(trial, asked, 14)
    trial.add_policy("d", reason="new", by="me")
    ask_and_tell(trial, asked, 8)
    trial.withdraw("a", reason="old", by="me")
    ask_and_tell(trial, asked, 8)
    trial.add_policy("e", reason="new", by="me")
    ask_and_tell(trial, asked, 100)
    return trial


def play_on_items() -> Experiment:
    """Return an experiment on shared items with a drop and a correction; ended or at 60 samples."""
    trial = create(study=problem(), procedure=eh.Procedure(delta=0.05, items="shared", max_samples=60))
    for number in range(30):
        ask = trial.ask()
        if ask is None:
            break
        value = ticket_number(ask) * 0.6180339887 % 1.0
        told = {
            name: None if number % 5 == 4 and name == "b" else value < MEANS[name] for name in ask.policies
        }
        if number == 7:
            trial.drop(ask, "lost")
        else:
            receipt = trial.tell(ask, told)
        if number == 12:
            corrected = {name: not x for name, x in told.items()}
            trial.amend(receipt.ticket, corrected, reason="misread", by="me")
    return trial


def in_plain_python(kernel: Any) -> Callable[..., Any]:
    """Return the kernel as a function that the interpreter runs."""
    return lambda *arguments: run_plain(kernel, *arguments)


@pytest.mark.parametrize("name", PROBLEMS)
def test_an_experiment_that_policies_join_is_compiled_to_what_python_computes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with play_with_changes(PROBLEMS[name]) as compiled:
        monkeypatch.setattr(replay_kernels, "advance", in_plain_python(replay_kernels.advance))
        monkeypatch.setattr(replay, "check", in_plain_python(replay.check))
        with play_with_changes(PROBLEMS[name]) as plain:
            assert [entry.event for entry in plain.events()] == [entry.event for entry in compiled.events()]
            assert plain.head == compiled.head
            assert plain.status().samples >= 38


def test_an_experiment_on_shared_items_is_compiled_to_what_python_computes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with play_on_items() as compiled:
        for name in ("advance_items", "replace_all_items"):
            monkeypatch.setattr(item_kernels, name, in_plain_python(getattr(item_kernels, name)))
        with play_on_items() as plain:
            assert [entry.event for entry in plain.events()] == [entry.event for entry in compiled.events()]
            assert plain.head == compiled.head
            assert plain.status().samples >= 30
