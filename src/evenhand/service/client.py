"""HTTP client with the methods, arguments, results and errors of an `Experiment`.

    trial = connect("http://127.0.0.1:8765", key).open("main")
    while ask := trial.ask():
        trial.tell(ask, outcome=treat(ask.policy, ask.group))

A request that fails in transit is sent again with the same key and is carried out once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np

from evenhand.errors import BadInput, EvenhandError, NameTaken, NotFound, StorageFailed, shown
from evenhand.files import file_path, whole_file
from evenhand.live.events import LogEntry
from evenhand.live.hash_chain import Head
from evenhand.live.input_checks import IMPORTED_ROW, TOLD_ROW, iterated, places_of
from evenhand.live.status import Status
from evenhand.live.tickets import Ask, Outcomes, Receipt
from evenhand.model.argument_checks import python_number, whole_number
from evenhand.result import Result
from evenhand.service.connection import Connection
from evenhand.service.interval_client import RemoteIntervals

if TYPE_CHECKING:
    from evenhand.model.problem import Problem
    from evenhand.procedure.spec import Procedure
    from evenhand.study import Study

PAGE = 1_000  # events per response of the service
T = TypeVar("T")


def connect(url: str, key: str | None = None) -> Service:
    """Return the service at this address, whose experiments have the methods of `Experiment`.

    Nothing is sent before a method is called.

    Parameters
    ----------
    url : str
        The address of the service, beginning with http:// or https://.
    key : str, optional
        The key, as `evenhand keys create` printed it; needed once the service has any.

    Returns
    -------
    Service
        `create` and `open` return experiments, `experiments` lists them.

    Raises
    ------
    BadInput
        If the address does not begin with http:// or https://.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.connect("http://127.0.0.1:8000", key="secret")
    <evenhand service at http://127.0.0.1:8000>
    """
    return Service(Connection(url, key))


class Service:
    """A running service: create or open experiments there."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __repr__(self) -> str:
        return f"<evenhand service at {self._connection.shown_url}>"

    def experiments(self) -> list[Status]:
        """Return the experiments, newest first, without outcomes."""
        found: list[Status] = []
        while page := self._connection.get(f"/api/v1/experiments?start={len(found)}"):
            found += [Status.from_dict(table) for table in page]
        return found

    def create(
        self,
        problem: Problem | Study,
        procedure: Procedure | None = None,
        *,
        seed: int,
        name: str = "main",
        title: str = "",
        lease: float | None = None,
        by: str | None = None,
        key: str | None = None,
    ) -> RemoteExperiment:
        """Create an experiment; the arguments are those of `Experiment.create`."""
        from evenhand.study import study_of

        study = replace(study_of(problem, procedure, title), truth=None)
        body = {"id": name, "study": study.to_dict(), "seed": seed, "lease": lease, "by": by}
        if not self._connection.post("/api/v1/experiments", body, key)["created"]:
            raise NameTaken(
                f"the service holds an experiment {name!r} already; give the new one another name."
            )
        return RemoteExperiment(self._connection, name)

    def open(self, name: str | None = None) -> RemoteExperiment:
        """Return an existing experiment: the one named, or the only one."""
        if name is None:
            name = self._only_name()
        found = RemoteExperiment(self._connection, name)
        found._enrolment()  # raises if it does not exist
        return found

    def _only_name(self) -> str:
        names = [status.experiment for status in self.experiments()]
        if not names:
            raise NotFound("the service holds no experiment yet; create one.")
        if len(names) > 1:
            raise BadInput(f"the service holds {len(names)} experiments; say which: {', '.join(names[:10])}.")
        return names[0]


class RemoteExperiment(RemoteIntervals, Result):
    """One experiment of a service, with the methods of `Experiment`.

    `by` is recorded together with the name of the key. The service computes the forecast of a status itself,
    and omits from it what the role of the key may not see. `to_frame`, `plot` and a notebook show the status.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self._name = name
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<experiment {self._name!r} at {self._connection.shown_url}>"

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
        body = {
            "n": 1 if n is None else python_number(n), "group": group, "worker": worker,
            "lease": python_number(lease),
        }  # fmt: skip
        asks = [_ask(**ask) for ask in self._post("ask", body, key)]
        return asks if n is not None else next(iter(asks), None)

    def tell(
        self, ticket: Ask | str, outcome: Outcomes, *, group: str | None = None, key: str | None = None
    ) -> Receipt:
        """Record an outcome; the same again has no effect, a different one is refused."""
        return Receipt(**self._post("tell", _outcome(ticket, outcome, group), key))

    def tell_all(
        self,
        outcomes: Iterable[tuple[Ask | str, Outcomes, str | None]],
        *,
        key: str | None = None,
        places: Sequence[str] | None = None,
    ) -> list[Receipt]:
        """Record many outcomes, as (ticket, outcome, group): all of them or none."""
        rows = list(iterated(outcomes, "outcomes", TOLD_ROW))
        names = places_of(rows, places)
        body = {"outcomes": [_placed(place, row) for place, row in zip(names, rows, strict=True)]}
        found = _named(lambda n: names[n - 1], lambda: self._post("tell-all", body, key))
        return [Receipt(**receipt) for receipt in found]

    def drop(self, ticket: Ask | str, reason: str, *, by: str | None = None, key: str | None = None) -> None:
        """Drop a ticket: it will have no outcome."""
        self._post("drop", {"ticket": _code(ticket), "reason": reason, "by": by}, key)

    def amend(
        self, ticket: Ask | str, outcome: Outcomes, *, reason: str, by: str, key: str | None = None
    ) -> Receipt:
        """Correct an outcome; the old one stays in the log with the reason and the name in `by`."""
        if not isinstance(by, str) or not by.strip():
            raise BadInput(f"by must be some text; it is {shown(by)}.")
        body = {"ticket": _code(ticket), "outcome": _sample(outcome), "reason": reason, "by": by}
        return Receipt(**self._post("amend", body, key))

    def import_data(
        self,
        rows: Iterable[tuple[str, str, Outcomes]],
        *,
        source: str = "import",
        key: str | None = None,
        place_of: Callable[[int], str] = "row {}".format,
    ) -> int:
        """Import outcomes collected before, as (policy, group, outcome): all of them or none."""
        given = iterated(rows, "rows", IMPORTED_ROW)
        sent = [_imported(place_of, n, row) for n, row in enumerate(given, start=1)]
        body = {"rows": sent, "source": source}
        return int(_named(place_of, lambda: self._post("import", body, key))["imported"])

    def pause(self, reason: str, *, by: str | None = None, key: str | None = None) -> None:
        """Issue no tickets until `resume`; outcomes are still accepted."""
        self._post("pause", {"reason": reason, "by": by}, key)

    def resume(self, reason: str = "resumed", *, by: str | None = None, key: str | None = None) -> None:
        """Issue tickets again."""
        self._post("resume", {"reason": reason, "by": by}, key)

    def finish(self, reason: str, *, by: str | None = None, key: str | None = None) -> None:
        """End the experiment, decided or not; outcomes that arrive later are stored as late."""
        self._post("finish", {"reason": reason, "by": by}, key)

    def add_policy(self, policy: str, *, reason: str, by: str, key: str | None = None) -> None:
        """Let a policy join; the study must have room for it (`max_policies`)."""
        self._post("add-policy", {"policy": policy, "reason": reason, "by": by}, key)

    def withdraw(self, policy: str, *, reason: str, by: str, key: str | None = None) -> None:
        """Remove a policy permanently: it is not sampled any more and cannot be the answer."""
        self._post("withdraw", {"policy": policy, "reason": reason, "by": by}, key)

    def status(self, forecast: object = None) -> Status:
        """Return the current status, as far as the key may see it.

        `forecast` is ignored: the service computes its own.
        """
        return Status.from_dict(self._connection.get(self._path()))

    def _enrolment(self) -> Status:
        """Return the status without outcomes; the service records no view event for it."""
        self._path()
        found = self._connection.get(f"/api/v1/experiments?only={self._name}")
        if not found:
            raise NotFound(f"the service holds no experiment {self._name!r}.")
        return Status.from_dict(found[0])

    @property
    def is_over(self) -> bool:
        """Return whether the experiment has stopped or was finished."""
        return self._enrolment().is_over

    @property
    def head(self) -> Head:
        """Return the number and hash of the last event."""
        status = self._enrolment()
        if not status.head:
            raise BadInput("the head is a digest of outcomes; a key needs the role analyst to see it.")
        return Head(status.events, bytes.fromhex(status.head))

    def events(self, after: int = 0) -> Iterator[LogEntry]:
        """Yield the events after this number, page by page, up to the end of the log."""
        return self._pages_of_events(whole_number(after, "after", 0))

    def _pages_of_events(self, after: int) -> Iterator[LogEntry]:
        while True:
            page = self._connection.get(f"{self._path()}/events?after={after}")
            yield from map(LogEntry.from_dict, page)
            if len(page) < PAGE:
                return
            after = page[-1]["seq"]

    def export(self, path: str | Path) -> Head:
        """Write the whole log into one file that can be audited alone; return its head."""
        from evenhand.live.export import end_of_export

        path = file_path(path)
        try:
            with whole_file(path) as file:
                self._connection.download(f"{self._path()}/export", file)
        except OSError as problem:
            raise BadInput(f"the export cannot be written to {path}: {problem.strerror}.") from None
        return end_of_export(path)

    def export_outcomes(self, path: str | Path) -> None:
        """Write the outcomes that count, with their latest corrections, into a .csv or .parquet file."""
        from evenhand.live.export import format_of

        path = file_path(path)
        kind = format_of(path)
        try:
            with whole_file(path) as file:
                self._connection.download(f"{self._path()}/export?format={kind}", file)
        except OSError as problem:
            raise BadInput(f"the outcomes cannot be written to {path}: {problem.strerror}.") from None

    def close(self) -> None:
        """Release this object: reading still works, writing is refused; `finish` ends the trial."""
        self._is_closed = True
        self._connection.close()

    def __enter__(self) -> RemoteExperiment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _path(self) -> str:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", self._name):
            raise NotFound(f"the service holds no experiment {self._name[:80]!r}.")
        return f"/api/v1/experiments/{self._name}"

    def _get(self, what: str) -> Any:
        return self._connection.get(f"{self._path()}/{what}")

    def _post(self, verb: str, body: dict[str, Any], key: str | None) -> Any:
        if self._is_closed:
            raise StorageFailed("this experiment was closed; open it again to write to it.")
        return self._connection.post(f"{self._path()}/{verb}", body, key)


def _code(ticket: object) -> str:
    """Return the ticket code to send; refuse what is not a ticket as an unknown one."""
    code = ticket.ticket if isinstance(ticket, Ask) else ticket
    if not isinstance(code, str) or not 1 <= len(code) <= 200:
        raise NotFound(f"this experiment has no ticket {str(code)[:40]!r}; copy it as `ask` gave it.")
    return code


def _number(outcome: object) -> float | bool:
    """Return the outcome to send; the service checks whether the family allows it."""
    if isinstance(outcome, (bool, np.bool_)):
        return bool(outcome)
    if not isinstance(outcome, (int, float, np.integer, np.floating)):
        raise BadInput(f"an outcome must be a number; it is {str(outcome)[:60]!r}.")
    try:
        value = float(outcome)
    except OverflowError:
        value = float("inf")
    if not np.isfinite(value):
        raise BadInput(f"an outcome must be a finite number; it is {shown(outcome)}.")
    return value


def _ask(ticket: str, policy: str, group: str | None, policies: Sequence[str] = ()) -> Ask:
    return Ask(ticket, policy, group, tuple(policies))


def _sample(outcome: object) -> Any:
    """Return the outcomes of a ticket to send: a number, or numbers by name."""
    if isinstance(outcome, Mapping):
        return {name: None if value is None else _number(value) for name, value in outcome.items()}
    return _number(outcome)


def _outcome(ticket: Ask | str, outcome: Outcomes, group: str | None) -> dict[str, Any]:
    return {"ticket": _code(ticket), "outcome": _sample(outcome), "group": group}


def _placed(place: str, row: Any) -> dict[str, Any]:
    """Return one outcome of a batch to send; errors name its place."""
    try:
        ticket, outcome, group = row
        return _outcome(ticket, outcome, group)
    except EvenhandError as problem:
        raise type(problem)(f"{place}: {problem}") from None
    except (TypeError, ValueError):
        raise BadInput(f"{place} must be (ticket, outcome, group); it is {shown(row)}.") from None


def _imported(place_of: Callable[[int], str], number: int, row: Any) -> list[Any]:
    try:
        policy, group, outcome = row
        return [policy, group, _sample(outcome)]
    except BadInput as problem:
        raise BadInput(f"{place_of(number)}: {problem}") from None
    except (TypeError, ValueError):
        raise BadInput(f"{place_of(number)} must be (policy, group, outcome); it is {shown(row)}.") from None


def _named(place_of: Callable[[int], str], send: Callable[[], T]) -> T:
    """Send many rows; replace row numbers in errors by the caller's names."""
    try:
        return send()
    except EvenhandError as problem:
        row = re.match(r"row (\d+)(?=[: ])", str(problem))
        if row is None:
            raise
        raise type(problem)(place_of(int(row[1])) + str(problem)[row.end() :]) from None
