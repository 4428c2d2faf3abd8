"""Experiment: a live run of a procedure, stored in a journal.

    with Experiment.create("trial.db", problem, Procedure(delta=0.05), seed=7) as trial:
        while ask := trial.ask():
            trial.tell(ask, outcome=treat(ask.policy, ask.group))

Calls that write return after their events are on the disk. An Experiment can be shared between threads;
between processes use a postgresql:// address, or the service. Every call that writes takes a `key`: repeated
with the same key, it returns its first answer; a different call with that key is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, NamedTuple, TypeVar, overload

from evenhand.errors import BadInput, EvenhandError, StorageFailed, shown
from evenhand.files import file_path, whole_file
from evenhand.live import ask_and_tell, control, importing
from evenhand.live.ask_and_tell import Outcome, Request
from evenhand.live.clock import SYSTEM_CLOCK, Clock, utc
from evenhand.live.compute_status import Forecaster, status_of
from evenhand.live.control import create_once
from evenhand.live.events import LogEntry, Metrics, Sample
from evenhand.live.export import write_export
from evenhand.live.group_commit import Call, EnqueuedCall, Writer
from evenhand.live.hash_chain import Head
from evenhand.live.input_checks import (
    IMPORTED_ROW,
    TOLD_ROW,
    checked_sample,
    checked_text,
    iterated,
    optional_text,
    places_of,
)
from evenhand.live.interval_methods import IntervalMethods
from evenhand.live.item_tickets import checked_item
from evenhand.live.journal import Journal, open_journal
from evenhand.live.load_log import only_experiment
from evenhand.live.projection import View, view_of
from evenhand.live.protocol import LIMITS, Protocol, check_lease, new_protocol
from evenhand.live.requests import Caller, RequestKey, request_key
from evenhand.live.status import Status
from evenhand.live.tickets import Ask, Outcomes, Receipt, ticket_number
from evenhand.live.transaction import Session
from evenhand.model.argument_checks import callable_or_none, python_number, whole_number
from evenhand.model.problem import Problem
from evenhand.procedure.spec import Procedure
from evenhand.result import Result
from evenhand.study import Study, study_of

PATIENCE = 30.0  # seconds to retry if the database cannot be reached
Details = dict[str, Any]  # arguments of a request, by name
T = TypeVar("T")


class Write(NamedTuple, Generic[T]):
    """A write whose arguments were checked."""

    operation: str  # "ask" or "tell"
    work: Callable[[Session], T]
    key: str | None
    details: Details


class Experiment(IntervalMethods, Result):
    """A live experiment: ask for cells, tell outcomes, until the procedure has decided.

    Use `Experiment.create` for a new one and `Experiment.open` for one that exists; both take a path, a
    ``postgresql://`` address, or ``:memory:``. The object is a context manager: it is closed at the end of
    the block, and the experiment continues when it is opened again.

    Parameters
    ----------
    journal : Journal
        The journal that holds the experiment.
    name : str
        The name of the experiment in the journal.
    clock : Clock, optional
        The clock of this process; the system's by default.
    patience : float, optional
        The seconds for which a write is tried again if the database cannot be reached.

    Raises
    ------
    BadInput
        If an argument or an outcome does not fit the problem.
    NotFound
        If the journal has no such experiment, or the experiment no such ticket.
    Closed
        If a ticket is asked for after the end, or this object was closed.
    IntegrityFailed
        If the log does not have the content that was written.
    StorageFailed
        If the journal cannot be read or written.

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["a", "b"], {"x": 0.5, "y": 0.5}, eh.Bernoulli(), eh.Floors(0.3))
    >>> with eh.Experiment.create(":memory:", problem, seed=7) as trial:
    ...     for _ in range(6):
    ...         ask = trial.ask()
    ...         receipt = trial.tell(ask, outcome=ask.policy == "a")
    ...     print(trial.status().samples)
    6
    """

    def __init__(
        self, journal: Journal, name: str, *, clock: Clock | None = None, patience: float = PATIENCE
    ) -> None:
        self._journal = journal
        self._owns_journal = False  # a journal that was passed in stays open when this object is closed
        self._is_closed = False
        self._caller: Caller | None = None
        self._clock = clock or SYSTEM_CLOCK
        self._writer = Writer(journal, name, self._clock, patience)
        with self._writer.reading() as fold:
            self.protocol: Protocol = fold.protocol  # with the policies present when this object last looked

    @classmethod
    def create(
        cls,
        address: str | Path | Journal,
        problem: Problem | Study,
        procedure: Procedure | None = None,
        *,
        seed: int,
        name: str = "main",
        title: str = "",
        lease: float | None = None,
        by: str | None = None,
        key: str | None = None,
        clock: Clock | None = None,
        patience: float = PATIENCE,
        caller: Caller | None = None,
    ) -> Experiment:
        """Create an experiment in a journal; the journal is created if it does not exist.

        The procedure and title default to those of the study. `lease`: seconds until a ticket expires.
        `caller`: the key of the service that made the request.
        """
        study = study_of(problem, procedure, title)
        clock = clock or SYSTEM_CLOCK
        event = new_protocol(name, study, seed, lease, utc(clock.now()), optional_text(by, "by"))
        with _journal_of(address, create=True) as journal:
            create_once(journal, event, key, patience, caller)
            made = cls(journal, name, clock=clock, patience=patience)
        made._owns_journal = journal is not address
        return made

    @classmethod
    def open(
        cls,
        address: str | Path | Journal,
        name: str | None = None,
        *,
        write: bool = True,
        wait: float = 0.0,
        clock: Clock | None = None,
        patience: float = PATIENCE,
    ) -> Experiment:
        """Open an existing experiment; `write=False` reads it while another process writes."""
        with _journal_of(address, write=write, wait=wait) as journal:
            found = cls(journal, only_experiment(journal, name), clock=clock, patience=patience)
        found._owns_journal = journal is not address
        return found

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
        """Return the next ticket, or the next n; none after the stop or if all samples are open."""
        write = self.prepared_ask(1 if n is None else n, group=group, worker=worker, key=key, lease=lease)
        asks = self._submit(*write)
        return asks if n is not None else next(iter(asks), None)

    def tell(
        self, ticket: Ask | str, outcome: Outcomes, *, group: str | None = None, key: str | None = None
    ) -> Receipt:
        """Record the outcome of a ticket.

        With guard-rails it is a mapping from "outcome" and the name of every guard-rail to a number; None for
        a guard-rail's outcome that is missing. For a shared item it is a mapping from every policy that the
        ticket asks for to its outcome; None for one that is missing. Repeating the same outcome has no
        effect; a different one is refused, and the refusal is recorded.
        """
        return self._submit(*self.prepared_tell(ticket, outcome, group=group, key=key))

    def tell_all(
        self,
        outcomes: Iterable[tuple[Ask | str, Outcomes, str | None]],
        *,
        key: str | None = None,
        places: Sequence[str] | None = None,
    ) -> list[Receipt]:
        """Record many outcomes, as (ticket, outcome, group): all of them or none.

        The error names the first that cannot be recorded: by `places`, one text for each outcome, or as "row
        1" and so on. Outcomes recorded earlier may be repeated; a different one is refused.
        """
        rows = list(iterated(outcomes, "outcomes", TOLD_ROW))
        names = places_of(rows, places)
        told = [self._placed(place, row) for place, row in zip(names, rows, strict=True)]
        details = {"outcomes": [[*one[:3], *_metrics(one.metrics).values()] for one in told]}
        return self._submit("tell_all", partial(ask_and_tell.tell_all, outcomes=told), key, details)

    def drop(self, ticket: Ask | str, reason: str, *, by: str | None = None, key: str | None = None) -> None:
        """Drop a ticket: it will have no outcome."""
        reason, by = checked_text(reason, "reason"), optional_text(by, "by")
        details: Details = {"ticket": self._number(ticket), "reason": reason, "by": by}
        self._submit("drop", partial(ask_and_tell.drop, **details), key, details)

    def amend(
        self, ticket: Ask | str, outcome: Outcomes, *, reason: str, by: str, key: str | None = None
    ) -> Receipt:
        """Correct an outcome; the old one stays in the log with the reason and the name in `by`."""
        sample = self._checked_sample(outcome)
        details: Details = {
            "ticket": self._number(ticket),
            "outcome": sample.outcome,
            "reason": checked_text(reason, "reason"),
            "by": checked_text(by, "by", LIMITS["name_characters"]),
        } | _metrics(sample.metrics)
        return self._submit("amend", partial(ask_and_tell.amend, **details), key, details)

    def import_data(
        self,
        rows: Iterable[tuple[str, str, Outcomes]],
        *,
        source: str = "import",
        key: str | None = None,
        place_of: Callable[[int], str] = "row {}".format,
    ) -> int:
        """Import outcomes collected before, as (policy, group, outcome): all of them or none.

        Rows may come from an iterator; they are stored in 16 bytes each. `place_of` gives the name of row 1,
        2, ... in error messages.
        """
        source = checked_text(source, "source")
        rows = iterated(rows, "rows", IMPORTED_ROW)
        checked = importing.checked_rows(rows, self._current_protocol().problem, place_of)
        details = {"rows": len(checked), "content": "" if key is None else checked.digest}
        work = partial(importing.import_rows, rows=checked, source=source)
        return self._submit("import", work, key, details)

    def pause(self, reason: str, *, by: str | None = None, key: str | None = None) -> None:
        """Issue no tickets until `resume`; outcomes are still accepted."""
        self._steer("pause", control.pause, reason, by, key)

    def resume(self, reason: str = "resumed", *, by: str | None = None, key: str | None = None) -> None:
        """Issue tickets again."""
        self._steer("resume", control.resume, reason, by, key)

    def finish(self, reason: str, *, by: str | None = None, key: str | None = None) -> None:
        """End the experiment, decided or not; outcomes that arrive later are stored as late."""
        self._steer("close", control.finish, reason, by, key)

    def add_policy(self, policy: str, *, reason: str, by: str, key: str | None = None) -> None:
        """Let a policy join: it gets its initial samples next and can be the answer.

        The study must have room for it (`max_policies`); a policy that was withdrawn counts too.
        """
        self._change("add-policy", control.add_policy, policy, reason, by, key)

    def withdraw(self, policy: str, *, reason: str, by: str, key: str | None = None) -> None:
        """Remove a policy permanently: it is not sampled any more and cannot be the answer.

        Its open tickets end; outcomes that still arrive for them are stored as late. The stopping rule is
        evaluated at once, because the remaining policies may be settled.
        """
        self._change("withdraw", control.withdraw, policy, reason, by, key)

    def view(self, by: str, what: str, *, key: str | None = None) -> None:
        """Record that a user viewed outcomes before the end."""
        details: Details = {"by": checked_text(by, "by"), "what": checked_text(what, "what")}
        self._submit("view", partial(control.view, **details), key, details)

    def now(self) -> float:
        """Return the time by the clock of this process, in seconds since 1970."""
        return self._clock.now()

    def prepared_ask(
        self, n: int, *, group: str | None, worker: str | None, key: str | None, lease: float | None
    ) -> Write[list[Ask]]:
        """Return what `ask` writes, after checking its arguments, for `enqueue`."""
        count, lease = ask_and_tell.checked_count(n), python_number(lease)
        if lease is not None:
            check_lease(lease)
        request = Request(count, group, optional_text(worker, "worker"), lease)
        details = request._asdict() | {"lease": None if lease is None else float(lease)}
        return Write("ask", partial(ask_and_tell.ask, request=request), key, details)

    def prepared_tell(
        self, ticket: Ask | str, outcome: Outcomes, *, group: str | None, key: str | None
    ) -> Write[Receipt]:
        """Return what `tell` writes, after checking its arguments, for `enqueue`."""
        told = self._outcome(ticket, outcome, group)
        details = {"ticket": told.ticket, "outcome": told.value, "group": group} | _metrics(told.metrics)
        return Write("tell", partial(ask_and_tell.tell, outcome=told), key, details)

    def enqueue(
        self,
        write: Write[Any],
        start: Callable[[Callable[[], None]], object],
        finished: Callable[[Call], object],
    ) -> None:
        """Queue a write and return at once, for callers that must not wait, as an event loop.

        `start` runs a function in another thread; `finished` is called in one when the write is on the disk
        or has failed.
        """
        request = self._request(write.operation, write.key, write.details)
        self._writer.enqueue(EnqueuedCall(write.work, request, self._caller, start, finished))

    def sweep(self) -> None:
        """Expire tickets whose lease has ended; every other call that writes does so too."""
        self._refuse_if_closed()
        self._writer.submit(lambda _session: None)

    def status(self, forecast: Forecaster | None = None) -> Status:
        """Return the current status.

        `forecast` computes the number of further samples: `evenhand.verdicts.forecast.experiment_forecast`.
        Without it `more` is None until the experiment has decided.
        """
        forecast = callable_or_none(forecast, "forecast")
        return status_of(self.present(), self._clock.now(), forecast)

    def present(self) -> View:
        """Return the current protocol, counts and state, for verdicts and reports."""
        with self._writer.reading() as fold:
            return view_of(fold)

    def count_open_tickets(self, worker: str, owner: str | None = None) -> int:
        """Return how many tickets this worker of this owner, a key of the service, holds."""
        with self._writer.reading() as fold:
            return len(fold.open_tickets.held_by(worker, (owner,)))

    @property
    def is_over(self) -> bool:
        """Return whether the experiment has stopped or was finished."""
        with self._writer.reading() as fold:
            return fold.is_over

    @property
    def head(self) -> Head:
        """Return the number and hash of the last event."""
        with self._writer.reading() as fold:
            return fold.head

    def events(self, after: int = 0) -> Iterator[LogEntry]:
        """Yield the events after this number, up to the end of the log when reading began."""
        rows = self._journal.read(self.protocol.experiment, whole_number(after, "after", 0))
        return (LogEntry.of(row.record) for row in rows)

    def export(self, path: str | Path) -> Head:
        """Write the whole log into one file that can be audited alone; return its head."""
        path = file_path(path)
        try:
            with whole_file(path) as file:
                return write_export(self._journal, self.protocol.experiment, file)
        except OSError as problem:
            raise BadInput(f"the export cannot be written to {path}: {problem.strerror}.") from None

    def export_outcomes(self, path: str | Path) -> None:
        """Write the outcomes that count, with their latest corrections, into a .csv or .parquet file."""
        from evenhand.live.export import format_of, write_outcomes

        path = file_path(path)
        kind = format_of(path)
        try:
            with whole_file(path) as file:
                write_outcomes(self._journal, self.protocol.experiment, file, kind)
        except OSError as problem:
            raise BadInput(f"the outcomes cannot be written to {path}: {problem.strerror}.") from None

    def called_by(self, caller: Caller) -> Experiment:
        """Return the same experiment for the requests of a caller of the service."""
        same = object.__new__(type(self))
        same.__dict__.update(self.__dict__)  # as copy.copy, which costs 10 µs more
        same._caller = caller
        return same

    def close(self) -> None:
        """Release this object and what it has opened: reading still works, writing is refused.

        The experiment continues and can be opened again. `finish` ends it.
        """
        self._is_closed = True
        if self._owns_journal:
            self._journal.close()

    def __enter__(self) -> Experiment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise StorageFailed("this experiment was closed; open it again to write to it.")

    def _number(self, ticket: Ask | str) -> int:
        return ticket_number(self.protocol.hash, ticket.ticket if isinstance(ticket, Ask) else ticket)

    def _outcome(self, ticket: Ask | str, outcome: Outcomes, group: str | None, place: str = "") -> Outcome:
        sample = self._checked_sample(outcome)
        return Outcome(self._number(ticket), sample.outcome, group, place, sample.metrics)

    def _checked_sample(self, outcome: Outcomes) -> Sample:
        """Return the outcomes of a ticket, checked: those of a sample, or of an item by policy."""
        problem = self.protocol.problem
        if self.protocol.procedure.items is None:
            return checked_sample(outcome, problem)
        return Sample(checked_item(outcome, problem))

    def _placed(self, place: str, row: tuple[Ask | str, Outcomes, str | None]) -> Outcome:
        try:
            ticket, outcome, group = row
            return self._outcome(ticket, outcome, group, place)
        except EvenhandError as problem:
            raise type(problem)(f"{place}: {problem}") from None
        except (TypeError, ValueError):
            raise BadInput(f"{place} must be (ticket, outcome, group); it is {shown(row)}.") from None

    def _steer(
        self, operation: str, work: Callable[..., None], reason: str, by: str | None, key: str | None
    ) -> None:
        details: Details = {"reason": checked_text(reason, "reason"), "by": optional_text(by, "by")}
        self._submit(operation, partial(work, **details), key, details)

    def _change(
        self, operation: str, work: Callable[..., None], policy: str, reason: str, by: str, key: str | None
    ) -> None:
        details: Details = {
            "policy": checked_text(policy, "policy", LIMITS["name_characters"]),
            "reason": checked_text(reason, "reason"),
            "by": checked_text(by, "by", LIMITS["name_characters"]),
        }
        self._submit(operation, partial(work, **details), key, details)
        self._current_protocol()

    def _current_protocol(self) -> Protocol:
        """Return the protocol with the policies that are present now."""
        with self._writer.reading() as fold:
            self.protocol = fold.protocol
        return self.protocol

    def _submit(self, operation: str, work: Callable[[Session], T], key: str | None, details: Details) -> T:
        """Run an operation once, even if the reply is lost; a repeated key gets its first answer."""
        return self._writer.submit(work, self._request(operation, key, details), self._caller)

    def _request(self, operation: str, key: str | None, details: Details) -> RequestKey | None:
        """Return the key of a request of this object's caller."""
        self._refuse_if_closed()
        return request_key(key, self._journal.shared, operation, details, self._caller)


@contextmanager
def _journal_of(address: str | Path | Journal, **options: Any) -> Iterator[Journal]:
    """Yield the journal of an address; close one that was opened here if the block raises."""
    journal = address if isinstance(address, Journal) else open_journal(_text_of(address), **options)
    try:
        yield journal
    except BaseException:
        if journal is not address:
            journal.close()
        raise


def _text_of(address: object) -> str:
    """Return the address of a journal; refuse what is none."""
    if not isinstance(address, (str, Path)):
        raise BadInput(f"the address of a journal must be text or a Path; it is {shown(address)}.")
    return str(address)


def _metrics(metrics: Metrics) -> Details:
    """Return the outcomes of guard-rails as a detail of a request; nothing where there are none."""
    return {} if metrics is None else {"metrics": metrics}
