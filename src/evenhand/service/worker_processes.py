"""Worker processes for slow tasks: dashboard, searches, forecasts, reports, audits, plans, simulations.

The server process keeps its CPU time and interpreter lock for ask and tell. One worker is for quick tasks,
one for tasks of minutes, one for reports of plans; plans and simulations have one each while they run.
None writes to the journal. A process whose task takes too long is ended, so that no request occupies it for
ever. Few requests may wait, because each holds a thread that ask and tell need too. Tasks import what they
need, so that the server process need not.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import TimeoutError as TookTooLong
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from ctypes import c_longlong
from typing import TYPE_CHECKING, Any, TypeVar

from evenhand.errors import BadInput, StorageFailed

if TYPE_CHECKING:
    from evenhand.live.audit import Audit
    from evenhand.live.journal import Journal
    from evenhand.live.projection import View
    from evenhand.service.panels import LogLine, PanelContent
    from evenhand.verdicts.forecast_statement import Forecast


T = TypeVar("T")
DRAW_SECONDS, LONG_SECONDS, PLAN_REPORT_SECONDS = 60.0, 600.0, 120.0
QUICK_WAITING, LONG_WAITING, REPORTS_WAITING = 24, 8, 4  # requests that may wait for each worker,
PER_KEY = 3  # and of them those of one key
POLL_SECONDS = 0.05
_spawn = multiprocessing.get_context("spawn")  # a fork would copy locks that other threads hold


class TooManyWait(Exception):
    """Too many requests wait for a worker; answered with 429."""


class WorkerProcess:
    """One process, started on first use and restarted if it ends."""

    def __init__(self, seconds: float, most: int) -> None:
        self._seconds = seconds
        self._most = most
        self._waiting: Counter[str] = Counter()  # requests that wait, by the id of their key
        self._done = _spawn.Value(c_longlong, 0)  # the progress of the task
        self._pool: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()
        self._closed = False

    def start(self, work: Callable[..., T], *arguments: Any) -> Future[T]:
        """Start a task: an importable function with picklable arguments."""
        with self._lock:
            if self._closed:
                raise StorageFailed("the service is stopping.")
            if self._pool is None:
                self._pool = ProcessPoolExecutor(
                    1, mp_context=_spawn, initializer=_begin, initargs=(self._done,)
                )
            try:
                return self._pool.submit(work, *arguments)
            except BrokenProcessPool:
                self._pool = None
                raise StorageFailed("a worker process of the service ended; try again.") from None

    def do(self, work: Callable[..., T], *arguments: Any, owner: str = "") -> T:
        """Run a task for a key and return its result; refuse it if too many wait."""
        with self._place(owner):
            future = self.start(work, *arguments)
            try:
                return self._result(future, self._seconds)
            except TookTooLong:
                self.give_up(future)
                raise too_long(self._seconds) from None

    def wait_briefly(self, future: Future[T], seconds: float) -> T | None:
        """Wait for a task and return its result; None if it takes longer, or if too many wait."""
        try:
            with self._place(""):
                return self._result(future, seconds)
        except (TookTooLong, TooManyWait):
            return None

    def give_up(self, future: Future[Any]) -> None:
        """End a task that takes too long."""
        if not future.cancel() and not future.done():
            self._end_process()

    def run(
        self, work: Callable[..., T], *arguments: Any, progress: Callable[[int], None], seconds: float
    ) -> T:
        """Return the result of a task that calls `note_progress`; end it when `progress` raises."""
        self._done.value = 0
        future, deadline = self.start(work, *arguments), time.monotonic() + seconds
        try:
            while not future.done():
                progress(self._done.value)
                if time.monotonic() > deadline:
                    raise too_long(seconds)
                with suppress(TookTooLong, BrokenProcessPool):
                    future.exception(POLL_SECONDS)
        except BaseException:
            self._end_process()
            raise
        return self._result(future, POLL_SECONDS)

    def close(self) -> None:
        """Stop the process; queued tasks are cancelled."""
        self._closed = True
        self._end_process()

    @contextmanager
    def _place(self, owner: str) -> Iterator[None]:
        """Count a request that waits; refuse it if too many do."""
        with self._lock:
            if self._waiting.total() >= self._most or (owner and self._waiting[owner] >= PER_KEY):
                raise TooManyWait("too many pages and files are being made; try again in a few seconds.")
            self._waiting[owner] += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiting[owner] -= 1
                self._waiting += Counter()  # without zeros

    def _result(self, future: Future[T], seconds: float) -> T:
        try:
            return future.result(seconds)
        except BrokenProcessPool:
            with self._lock:
                if self._pool is not None and self._pool._broken:  # another caller may have begun a new one
                    self._pool = None
            raise StorageFailed("a worker process of the service ended; try again.") from None

    def _end_process(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is None:
            return
        processes = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()


def too_long(seconds: float) -> BadInput:
    """Return the refusal of a task that takes too long here."""
    return BadInput(f"this takes longer than {seconds:g} s here; use the command line for it.")


class WorkerProcesses:
    """The worker processes of a service."""

    def __init__(self) -> None:
        self.quick = WorkerProcess(DRAW_SECONDS, QUICK_WAITING)
        self.long = WorkerProcess(LONG_SECONDS, LONG_WAITING)
        self.plan_reports = WorkerProcess(PLAN_REPORT_SECONDS, REPORTS_WAITING)
        self._own: list[WorkerProcess] = []  # of plans and simulations
        self._idle: list[WorkerProcess] = []  # those that nobody uses, the latest used last
        self._lock = threading.Lock()

    @contextmanager
    def own(self) -> Iterator[WorkerProcess]:
        """Yield a process that no other caller uses meanwhile; it is kept for the next caller."""
        with self._lock:
            if not self._idle:
                self._idle.append(WorkerProcess(LONG_SECONDS, 1))
                self._own.append(self._idle[-1])
            process = self._idle.pop()
        try:
            yield process
        finally:
            with self._lock:
                self._idle.append(process)

    def close(self) -> None:
        for process in (self.quick, self.long, self.plan_reports, *self._own):
            process.close()


def _begin(done: Any) -> None:
    """Lower the priority, ignore Ctrl-C and end with the server process."""
    global _progress
    _progress = done
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(os, "nice"):
        os.nice(5)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_exit_with_parent, args=(parent.sentinel,), daemon=True).start()


def _exit_with_parent(sentinel: int) -> None:
    """Exit when the server process has ended."""
    multiprocessing.connection.wait([sentinel])
    os._exit(0)


_progress: Any = None  # in a worker process: the number that the server process reads


def note_progress(done: int, _: int) -> None:
    """Let the server process see how far the task is."""
    if _progress is not None:
        _progress.value = done


PAGE = 5_000  # events searched per query
MOST_SEARCHED = 200_000
FIRST_FIELDS = (
    "ticket",
    "policy",
    "group",
    "outcome",
    "old",
    "kept",
    "why",
    "answer",
    "samples",
    "worker",
    "by",
)
# digests and the protocol itself are only in the export
QUIET_FIELDS = (
    "kind", "at", "back", "state", "chance", "fold", "study", "versions", "limits", "format", "key", "part",
    "request", "answer", "decision", "salt", "ranges", "hash_salt", "counts", "sums", "metrics",
    "old_metrics", "weakest",
)  # fmt: skip


def panel_content_task(
    address: str, view: View, now: float, forecast: Forecast | None, blind: bool
) -> PanelContent:
    """Return the dashboard content of an experiment."""
    from evenhand.service.panel_content import panel_content as drawn

    return drawn(address, view, now, forecast, blind)


def forecast(view: View) -> Forecast:
    """Return a forecast of the remaining samples."""
    from evenhand.verdicts.forecast import experiment_forecast

    return experiment_forecast(view)


def search(address: str, name: str, last: int, words: str, most: int, blind: bool) -> list[LogLine]:
    """Return the latest events that contain these words, newest first."""
    from evenhand.live.journal import open_journal

    journal = open_journal(address, write=False)
    found: list[LogLine] = []
    try:
        for end in range(last, max(last - MOST_SEARCHED, 0), -PAGE):
            for line in log_lines(journal, name, max(end - PAGE, 0), end, blind):
                if words.lower() in f"{line.seq} {line.at} {line.kind} {line.says}".lower():
                    found.append(line)
                if len(found) == most:
                    return found
    finally:
        journal.close()
    return found


def log_lines(journal: Journal, name: str, after: int, until: int, blind: bool) -> Iterator[LogLine]:
    """Yield these events as lines, newest first."""
    rows = list(journal.read(name, after, until))
    return (_line(row.record.seq, row.record.body, blind) for row in reversed(rows))


def audit(address: str, name: str) -> Audit:
    """Audit the log."""
    from evenhand.live.audit import audit as audited

    return audited(address, experiment=name)


def export(address: str, name: str, path: str, kind: str = "jsonl") -> None:
    """Write the whole log, or the outcomes that count as a table, into a file."""
    from evenhand.live.export import write_export, write_outcomes
    from evenhand.live.journal import open_journal

    journal = open_journal(address, write=False)
    try:
        with open(path, "wb") as file:
            if kind == "jsonl":
                write_export(journal, name, file)
            else:
                write_outcomes(journal, name, file, kind)
    finally:
        journal.close()


def report(address: str, name: str) -> str:
    """Return the report as one page."""
    from evenhand.live.experiment import Experiment
    from evenhand.reports.document import report as reported

    with Experiment.open(address, name, write=False) as trial:
        return reported(trial).html()


def plan_report(table: dict[str, Any], replications: int, seed: int) -> str:
    """Return the report of a plan and its simulation as one page."""
    from evenhand.errors import BadInput
    from evenhand.reports.document import report as reported
    from evenhand.simulation.simulate import simulate
    from evenhand.study import Study
    from evenhand.theory.plan import plan

    study = Study.from_dict(table)
    if study.truth is None:
        raise BadInput("a report of a plan needs a truth: put the means you expect into the study.")
    runs = simulate(study.problem, study.truth, study.procedure, replications, seed, workers=1)
    return reported(study, plan(study), runs, title=study.title).html()


def plan_table(table: dict[str, Any], delta: float | None) -> dict[str, Any]:
    """Return the plan of a study as a table."""
    from evenhand.study import Study
    from evenhand.study.planned_intervals import plan_table as as_table
    from evenhand.theory.plan import plan

    study = Study.from_dict(table)
    return as_table(study, plan(study), delta or study.procedure.delta)


def simulation(table: dict[str, Any], replications: int, seed: int) -> dict[str, Any]:
    """Return the result of a simulation as a table."""
    from evenhand.simulation.simulate import simulate
    from evenhand.study import Study

    study = Study.from_dict(table)
    assert study.truth is not None
    return simulate(
        study.problem, study.truth, study.procedure, replications, seed, workers=1, progress=note_progress
    ).to_dict()


def warm_drawing() -> None:
    """Load the code for rendering by rendering a small experiment once."""
    import tempfile
    import time
    from pathlib import Path

    from evenhand.live.experiment import Experiment
    from evenhand.model.families import Bernoulli
    from evenhand.model.problem import Problem
    from evenhand.model.requirements import Floors
    from evenhand.procedure.spec import Procedure

    problem = Problem(["a", "b"], {"x": 0.5, "y": 0.5}, Bernoulli(), Floors(0.3))
    with tempfile.TemporaryDirectory() as folder:
        address = str(Path(folder, "warm.db"))
        with Experiment.create(address, problem, Procedure(initial=1), seed=1) as trial:
            asks = trial.ask(8)
            trial.tell_all([(ask, number % 2, None) for number, ask in enumerate(asks)])
            panel_content_task(address, trial.present(), time.time(), None, blind=False)


def _line(seq: int, body: bytes, blind: bool) -> LogLine:
    import msgspec

    from evenhand.service.panels import LogLine

    event: dict[str, Any] = msgspec.json.decode(body)
    if blind:  # the kind only: policies and groups of the tickets show which policy leads
        return LogLine(seq, str(event["at"]), str(event["kind"]), "")
    names = [*FIRST_FIELDS, *sorted(set(event) - {*FIRST_FIELDS, *QUIET_FIELDS})]
    said = [_said(name, event[name]) for name in names if event.get(name) not in (None, "")]
    said += [_said(name, value) for name, value in (event.get("metrics") or {}).items() if value is not None]
    says = " · ".join(said)
    return LogLine(seq, str(event["at"]), str(event["kind"]), says)


def _said(name: str, value: Any) -> str:
    from evenhand.live.events import outcome_text

    if name == "actor":
        return f"key {value['id']} ({value['name']})"
    if name == "cells":  # the counts of an interval
        return ", ".join(f"{cell['policy']} in {cell['group']} {cell['sum']:g}/{cell['n']}" for cell in value)
    if isinstance(value, list):
        text = ", ".join(map(str, value))
    elif isinstance(value, float) or name in ("outcome", "old", "kept"):
        text = outcome_text(value)
    else:
        text = str(value)
    return text if name in ("policy", "policies", "group") else f"{name} {text}"
