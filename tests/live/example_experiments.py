"""Small problems, a clock that tests set, outcomes that depend on the ticket alone."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import evenhand as eh
from evenhand.live import events as ev
from evenhand.live.audit import audit
from evenhand.live.clock import Clock
from evenhand.live.experiment import Experiment
from evenhand.live.hash_chain import Record
from evenhand.live.journal import Journal
from evenhand.live.status import Status
from evenhand.live.tickets import Ask, ticket_code
from evenhand.live.transfer import transfer

MEANS = {"a": 0.8, "b": 0.5, "c": 0.35}
START = 1_700_000_000.0


class SetClock(Clock):
    """A clock that advances a millisecond at every reading, and that a test can set."""

    def __init__(self, start: float = START, step: float = 0.001) -> None:
        self.wall = start
        self.step = step
        self.waited = 0.0

    def now(self) -> float:
        self.wall = round(self.wall + self.step, 6)
        return self.wall

    def monotonic(self) -> float:
        return self.waited


def check_copies(address: str, export: Path, status: Status) -> None:
    """Audit a journal and its export, copy the export into another journal, and compare the status there."""
    copy = str(export.with_name("copy.db"))
    assert audit(address).identical
    assert audit(str(export)).identical
    assert transfer(export, copy).head == status.head
    with Experiment.open(copy, write=False) as again:
        assert again.status().to_dict() | {"health": 0} == status.to_dict() | {"health": 0}


def problem(mode: str = "active") -> eh.Problem:
    return eh.Problem(list(MEANS), {"x": 0.6, "y": 0.4}, eh.Bernoulli(), eh.Floors(0.3), mode=mode)


def endless() -> eh.Problem:
    """With outcomes from `even` no run of this ends in a test: the policies are equal."""
    return eh.Problem(["a", "b", "c"], {"x": 0.6, "y": 0.4}, eh.Bernoulli())


def coin(ask: Ask, means: dict[str, float] = MEANS) -> int:
    """The outcome of a ticket: the same in every call."""
    number = int(ask.ticket[1:].partition("-")[0])
    draw = int.from_bytes(hashlib.sha256(f"coin {number}".encode()).digest()[:4], "big") / 2**32
    return int(draw < means[ask.policy])


def even(ask: Ask) -> int:
    """The outcome of a fair coin, drawn once for each ticket."""
    return coin(ask, dict.fromkeys("abc", 0.5))


def declared(procedure: eh.Procedure) -> eh.Procedure:
    """The procedure with its initial samples in the order of the problem, unless it says otherwise."""
    return procedure if procedure.initial_order else replace(procedure, initial_order="declared")


def create(address: str | Journal = ":memory:", **options: object) -> Experiment:
    chosen: dict[str, object] = {
        "seed": 7,
        "clock": SetClock(),
        "procedure": eh.Procedure(delta=0.05),
    } | options
    study = chosen.pop("study", None) or problem()
    chosen["procedure"] = declared(chosen["procedure"])  # type: ignore[arg-type]
    return Experiment.create(address, study, **chosen)  # type: ignore[arg-type]


def play(trial: Experiment, most: int = 10**9, outcome: Callable[[Ask], float] = coin) -> list[Ask]:
    """Ask and tell until the end, or so many times."""
    asks = []
    while len(asks) < most and (ask := trial.ask()):
        trial.tell(ask, outcome(ask))
        asks.append(ask)
    return asks


def log(trial: Experiment) -> list[ev.AnyEvent]:
    """Its events so far."""
    return [entry.event for entry in trial.events()]


def records(trial: Experiment) -> list[Record]:
    """Its events so far, as they are stored."""
    return [row.record for row in trial._journal.read(trial.protocol.experiment)]


def kinds(trial: Experiment) -> list[str]:
    """What kinds of events these are."""
    return [type(event).__name__.lower() for event in log(trial)]


def one(ask: Ask | None) -> Ask:
    """The ticket that there must be."""
    assert ask is not None
    return ask


def ticket(trial: Experiment, number: int) -> str:
    """How people write this ticket."""
    return ticket_code(trial.protocol.hash, number)
