"""Experiment: one real run of a procedure, kept in a journal.

    with Experiment.create("trial.db", problem, Procedure(delta=0.05), seed=7) as trial:
        while ask := trial.ask():
            trial.tell(ask, outcome=treat(ask.policy, ask.group))

An answer comes back only when what it says is on the disk. Safe to share between threads; between processes
use a postgresql:// address, or the service.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, overload

from evenhand.errors import Conflict
from evenhand.live import asking, steering, telling
from evenhand.live.asking import Ask, Request
from evenhand.live.chain import Head
from evenhand.live.clock import Clock, utc
from evenhand.live.common import checked_text, optional_text
from evenhand.live.events import encode
from evenhand.live.index import index_of
from evenhand.live.journal import Journal, open_journal
from evenhand.live.loading import only_experiment
from evenhand.live.outcomes import checked_outcome
from evenhand.live.protocol import LIMITS, Protocol, check_lease, new_protocol
from evenhand.live.status import Forecast, Status, status_of
from evenhand.live.telling import Receipt
from evenhand.live.tickets import ticket_number
from evenhand.live.turn import Row
from evenhand.live.view import View, view_of
from evenhand.live.writer import Writer
from evenhand.model.problem import Problem
from evenhand.procedure.spec import Procedure
from evenhand.study import Study

PATIENCE = 30.0  # seconds to keep trying when the database cannot be reached


class Experiment:
    """Ask for cells, tell outcomes, and the procedure says when it has decided."""

    def __init__(
        self, journal: Journal, name: str, *, clock: Clock | None = None, patience: float = PATIENCE
    ) -> None:
        self._journal = journal
        self._clock = clock or Clock()
        self._writer = Writer(journal, name, self._clock, patience)
        with self._writer.reading() as fold:
            self.protocol: Protocol = fold.protocol

    @classmethod
    def create(
        cls,
        address: str | Journal,
        problem: Problem | Study,
        procedure: Procedure | None = None,
        *,
        seed: int,
        name: str = "main",
        title: str = "",
        lease: float | None = None,
        by: str | None = None,
        clock: Clock | None = None,
        patience: float = PATIENCE,
    ) -> Experiment:
        """A new experiment in a journal, made where there is none.

        `lease`: seconds until a ticket is given up.
        """
        study = (
            problem if isinstance(problem, Study) else Study(problem, procedure or Procedure(), title=title)
        )
        clock = clock or Clock()
        event = new_protocol(name, study, seed, lease, utc(clock.now()), optional_text(by, "by"))
        journal = open_journal(address, create=True) if isinstance(address, str) else address
        try:
            journal.create(name, (encode(event), index_of(event, 1, None)))
            return cls(journal, name, clock=clock, patience=patience)
        except BaseException:
            if journal is not address:
                journal.close()
            raise

    @classmethod
    def open(
        cls,
        address: str | Journal,
        name: str | None = None,
        *,
        write: bool = True,
        wait: float = 0.0,
        clock: Clock | None = None,
        patience: float = PATIENCE,
    ) -> Experiment:
        """An experiment that exists. `write=False` looks at it while another process writes."""
        journal = open_journal(address, write=write, wait=wait) if isinstance(address, str) else address
        try:
            return cls(journal, only_experiment(journal, name), clock=clock, patience=patience)
        except BaseException:
            if journal is not address:
                journal.close()
            raise

    @overload
    def ask(
        self,
        *,
        group: str | None = None,
        worker: str | None = None,
        key: str | None = None,
        lease: float | None = None,
    ) -> Ask | None: ...

    @overload
    def ask(
        self,
        n: int,
        *,
        group: str | None = None,
        worker: str | None = None,
        key: str | None = None,
        lease: float | None = None,
    ) -> list[Ask]: ...

    def ask(
        self,
        n: int | None = None,
        *,
        group: str | None = None,
        worker: str | None = None,
        key: str | None = None,
        lease: float | None = None,
    ) -> Ask | list[Ask] | None:
        """The next ticket, or the next n; none when the experiment has stopped or all its samples are out."""
        count = asking.checked_count(1 if n is None else n)
        if lease is not None:
            check_lease(lease)
        worker, key = optional_text(worker, "worker"), optional_text(key, "key")
        ours = key is None and worker is None and self._journal.shared
        request = Request(count, group, worker, secrets.token_hex(8) if ours else key, lease, ours)
        asks = self._writer.submit(partial(asking.ask, request=request), None if ours else key)
        return asks if n is not None else next(iter(asks), None)

    def tell(self, ticket: Ask | str, outcome: float, *, group: str | None = None) -> Receipt:
        """The outcome of a ticket.

        Telling the same again is no harm; telling another is refused and written down.
        """
        value = checked_outcome(outcome, self.protocol.problem.family)
        return self._writer.submit(
            partial(telling.tell, ticket=self._number(ticket), outcome=value, group=group)
        )

    def tell_all(self, outcomes: Sequence[tuple[Ask | str, float, str | None]]) -> list[Receipt | Conflict]:
        """Many outcomes at once, as (ticket, outcome, group); each gets the answer that `tell` would give."""
        family = self.protocol.problem.family
        checked = [(self._number(ticket), checked_outcome(x, family), group) for ticket, x, group in outcomes]
        return self._writer.submit(partial(telling.tell_all, outcomes=checked))

    def check_ticket(self, ticket: Ask | str) -> None:
        """Refuse what is not spelled like a ticket of this experiment."""
        self._number(ticket)

    def drop(self, ticket: Ask | str, reason: str, *, by: str | None = None) -> None:
        """The ticket will have no outcome."""
        reason, by = checked_text(reason, "reason"), optional_text(by, "by")
        self._writer.submit(partial(telling.drop, ticket=self._number(ticket), reason=reason, by=by))

    def amend(
        self, ticket: Ask | str, outcome: float, *, reason: str, by: str, key: str | None = None
    ) -> Receipt:
        """Correct an outcome; the old one stays in the log with the reason and who said so."""
        value = checked_outcome(outcome, self.protocol.problem.family)
        call = partial(
            telling.amend, ticket=self._number(ticket), outcome=value, reason=checked_text(reason, "reason"),
            by=checked_text(by, "by", LIMITS["name_characters"]), key=optional_text(key, "key"),
        )  # fmt: skip
        return self._writer.submit(call)

    def import_data(
        self, rows: Sequence[tuple[str, str, float]], *, source: str = "import", key: str | None = None
    ) -> int:
        """Outcomes collected before, as (policy, group, outcome); all of them or none."""
        checked = steering.checked_rows(rows, self.protocol.problem)
        source, key = checked_text(source, "source"), optional_text(key, "key")
        return self._writer.submit(partial(steering.import_rows, rows=checked, source=source, key=key))

    def pause(self, reason: str, *, by: str | None = None) -> None:
        """Hand out nothing until `resume`; outcomes are still taken."""
        self._steer(steering.pause, reason, by)

    def resume(self, reason: str = "resumed", *, by: str | None = None) -> None:
        """Hand out tickets again."""
        self._steer(steering.resume, reason, by)

    def close(self, reason: str = "closed", *, by: str | None = None) -> None:
        """End the experiment for good, decided or not; outcomes that still come are kept as late."""
        self._steer(steering.close, reason, by)

    def view(self, by: str, what: str) -> None:
        """Write down that somebody looked at outcomes before the end."""
        by, what = checked_text(by, "by"), checked_text(what, "what")
        self._writer.submit(partial(steering.view, by=by, what=what))

    def sweep(self) -> None:
        """Give up tickets whose lease has run out; every other writing call does so too."""
        self._writer.submit(lambda _session: None)

    def status(self, forecast: Forecast | None = None) -> Status:
        """Where the experiment stands.

        `forecast` says how many more samples it may take, from the present state.
        """
        return status_of(self.present(), self._clock.now(), forecast)

    def present(self) -> View:
        """Protocol, counts and state as they are now, for whoever judges or reports them."""
        with self._writer.reading() as fold:
            return view_of(fold)

    @property
    def is_over(self) -> bool:
        """Has the experiment stopped, or was it closed?"""
        with self._writer.reading() as fold:
            return fold.is_over

    @property
    def head(self) -> Head:
        """Number and hash of the last event."""
        with self._writer.reading() as fold:
            return fold.head

    def events(self, after: int = 0) -> Iterator[Row]:
        """The log, as it was when reading began."""
        return self._journal.read(self.protocol.experiment, after)

    def leave(self) -> None:
        """Let go of the journal; the experiment goes on when it is opened again."""
        self._journal.close()

    def __enter__(self) -> Experiment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def _number(self, ticket: Ask | str) -> int:
        return ticket_number(self.protocol.hash, ticket.ticket if isinstance(ticket, Ask) else ticket)

    def _steer(self, what: Any, reason: str, by: str | None) -> None:
        reason, by = checked_text(reason, "reason"), optional_text(by, "by")
        self._writer.submit(partial(what, reason=reason, by=by))
