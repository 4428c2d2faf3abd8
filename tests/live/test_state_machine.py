"""The experiment against a model of it, on random sequences of calls."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import evenhand as eh
from evenhand.errors import BadInput, Closed, Conflict
from evenhand.live.experiment import Experiment
from evenhand.live.hash_chain import verified
from evenhand.live.journal import open_journal
from evenhand.live.load_log import load_protocol
from evenhand.live.projection import Fold
from evenhand.live.protocol import Protocol
from evenhand.live.ticket_history import corrected
from evenhand.live.tickets import Ask
from tests.live.example_experiments import SetClock, create, endless, records

LEASE = 50.0
POLICIES, GROUPS = "abc", "xy"


@dataclass
class Ticket:
    ask: Ask
    worker: str | None
    deadline: float
    state: str = "out"  # out, counted, late, dropped, expired
    outcome: int | None = None  # the first told
    latest: int | None = None  # after corrections
    refused: set[int] = field(default_factory=set)
    given_up: bool = False  # dropped or expired before any outcome came


class Model:
    """What an experiment should be, without files, hashes, kernels or statistics."""

    def __init__(self) -> None:
        self.tickets: list[Ticket] = []
        self.imported: list[tuple[str, str, int]] = []
        self.time = 0.0
        self.paused = self.closed = False
        self.events = 1

    def expire(self) -> None:
        for ticket in self.tickets:
            if ticket.state == "out" and ticket.deadline <= self.time:
                ticket.state, ticket.given_up = "expired", True
                self.events += 1

    def held(self, worker: str | None) -> list[Ticket]:
        return [t for t in self.tickets if t.state == "out" and t.worker == worker and worker is not None]

    def hand_out(self, ask: Ask, worker: str | None) -> None:
        self.tickets.append(Ticket(ask, worker, self.time + LEASE))
        self.events += 1

    def tell(self, ticket: Ticket, outcome: int) -> bool | None:
        """Does it count? None: refused."""
        if ticket.outcome is None:
            ticket.state = "counted" if ticket.state == "out" and not self.closed else "late"
            ticket.outcome = ticket.latest = outcome
            self.events += 1
        elif outcome not in (ticket.outcome, ticket.latest):
            self.events += outcome not in ticket.refused
            ticket.refused.add(outcome)
            return None
        return ticket.state == "counted"

    def amend(self, ticket: Ticket, outcome: int) -> None:
        self.events += ticket.latest != outcome
        ticket.latest = outcome

    def drop(self, ticket: Ticket) -> bool:
        """Is it given up, now or before? Saying so again is no harm, even when an outcome came late."""
        if ticket.state == "out":
            ticket.state, ticket.given_up = "dropped", True
            self.events += 1
        return ticket.given_up

    def cells(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Counts and sums by cell."""
        found = dict.fromkeys(itertools.product(POLICIES, GROUPS), (0, 0))
        rows = [
            (t.ask.policy, t.ask.group or "", t.latest or 0) for t in self.tickets if t.state == "counted"
        ]
        for policy, group, outcome in rows + self.imported:
            n, total = found[policy, group]
            found[policy, group] = n + 1, total + outcome
        return found


class Machine(RuleBasedStateMachine):
    """Every call on both; the answers and the state must agree."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = SetClock()
        self.journal = open_journal(":memory:", create=True)
        create(
            self.journal, study=endless(), lease=LEASE, clock=self.clock, procedure=eh.Procedure(initial=1)
        )  # type: ignore[arg-type]
        self.trial = self.opened()
        self.model = Model()

    def opened(self) -> Experiment:
        return Experiment.open(self.journal, clock=self.clock)

    @rule(n=st.integers(1, 3), worker=st.sampled_from([None, "u", "v"]))
    def ask(self, n: int, worker: str | None) -> None:
        self.model.expire()
        if self.model.closed or self.model.paused:
            with pytest.raises(Closed):
                self.trial.ask(n, worker=worker)
            return
        held = [ticket.ask for ticket in self.model.held(worker)][:n]
        asks = self.trial.ask(n, worker=worker)
        assert asks[: len(held)] == held
        assert len(asks) == n
        for ask in asks[len(held) :]:
            self.model.hand_out(ask, worker)

    @precondition(lambda self: self.model.tickets)
    @rule(data=st.data(), outcome=st.integers(0, 1))
    def tell(self, data: Any, outcome: int) -> None:
        ticket = data.draw(st.sampled_from(self.model.tickets))
        self.model.expire()
        counts = self.model.tell(ticket, outcome)
        if counts is None:
            with pytest.raises(Conflict):
                self.trial.tell(ticket.ask, outcome)
        else:
            assert self.trial.tell(ticket.ask, outcome).counted == counts

    @precondition(lambda self: self.model.tickets)
    @rule(data=st.data(), outcome=st.integers(0, 1))
    def amend(self, data: Any, outcome: int) -> None:
        ticket = data.draw(st.sampled_from(self.model.tickets))
        self.model.expire()
        if ticket.outcome is None:
            with pytest.raises(BadInput):
                self.trial.amend(ticket.ask, outcome, reason="r", by="b")
            return
        self.model.amend(ticket, outcome)
        self.trial.amend(ticket.ask, outcome, reason="r", by="b")

    @precondition(lambda self: self.model.tickets)
    @rule(data=st.data())
    def drop(self, data: Any) -> None:
        ticket = data.draw(st.sampled_from(self.model.tickets))
        self.model.expire()
        if self.model.drop(ticket):
            self.trial.drop(ticket.ask, "lost")
        else:
            with pytest.raises(Conflict):
                self.trial.drop(ticket.ask, "lost")

    @rule(policy=st.sampled_from(POLICIES), group=st.sampled_from(GROUPS), outcome=st.integers(0, 1))
    def import_data(self, policy: str, group: str, outcome: int) -> None:
        self.model.expire()
        if self.model.closed or self.model.paused:
            with pytest.raises(Closed):
                self.trial.import_data([(policy, group, outcome)])
            return
        self.trial.import_data([(policy, group, outcome)])
        self.model.imported.append((policy, group, outcome))
        self.model.events += 1

    @rule(seconds=st.sampled_from([1.0, 20.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.clock.waited += seconds
        self.clock.wall += seconds
        self.model.time += seconds

    @rule(paused=st.booleans())
    def pause_or_resume(self, paused: bool) -> None:
        self.model.expire()
        if self.model.closed:
            with pytest.raises(Closed):
                self.trial.pause("p")
            return
        self.model.events += paused != self.model.paused
        self.model.paused = paused
        if paused:
            self.trial.pause("p")
        else:
            self.trial.resume()

    @precondition(lambda self: len(self.model.tickets) > 12)
    @rule()
    def close(self) -> None:
        self.model.expire()
        self.model.events += not self.model.closed
        self.model.closed = True
        self.trial.finish("done")

    @rule()
    def open_again(self) -> None:
        self.trial = self.opened()

    @invariant()
    def agree(self) -> None:
        status = self.trial.status()
        states = [ticket.state for ticket in self.model.tickets]
        assert status.pending == states.count("out")
        assert status.late == states.count("late")
        assert status.events - snapshots(self.trial) == self.model.events
        found = {(c.policy, c.group): (c.n, round((c.mean or 0) * c.n)) for c in status.cells}
        assert found == self.model.cells()

    def teardown(self) -> None:
        """The log alone gives the same state again, from its first event."""
        rows = records(self.trial)
        protocol = load_protocol(self.journal, "main")
        fold = Fold(protocol, self.trial.head._replace(seq=1, hash=rows[0].hash))
        fold.take(
            verified(rows[1:], fold.head),
            lambda cell, seq: corrected(self.journal.by_cell("main", cell, seq)),
        )
        assert fold.head == self.trial.head
        assert fold.replay.other_digits == 0
        self.journal.close()


def snapshots(trial: Experiment) -> int:
    return sum(b'"kind":"snapshot"' in record.body for record in records(trial))


@pytest.fixture(autouse=True)
def _frequent_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Protocol, "snapshot_every", 15)


class TestModel(Machine.TestCase):  # type: ignore[misc,name-defined]
    settings = settings(max_examples=12, stateful_step_count=40)


@pytest.mark.slow
class TestModelHundredThousandSteps(Machine.TestCase):  # type: ignore[misc,name-defined]
    settings = settings(max_examples=1000, stateful_step_count=100)
