"""Worker processes for slow tasks: dashboard, searches, forecasts, reports, audits.

The server process keeps its CPU time and interpreter lock for ask and tell. One worker is for quick tasks,
the other for tasks of up to a minute. Both only read the journal. Tasks import what they need, so that the
server process need not.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import TimeoutError as TookTooLong
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any, TypeVar

from evenhand.errors import BadInput, StorageFailed

if TYPE_CHECKING:
    from evenhand.live.audit import Audit
    from evenhand.live.journal import Journal
    from evenhand.live.projection import View
    from evenhand.service.panels import LogLine, PanelContent
    from evenhand.verdicts.forecast_statement import Forecast


T = TypeVar("T")
DRAW_SECONDS, LONG_SECONDS = 60.0, 600.0


class WorkerProcess:
    """One process, started on first use and restarted if it ends."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._pool: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()
        self._closed = False

    def start(self, work: Callable[..., T], *arguments: Any) -> Future[T]:
        """Start a task: an importable function with picklable arguments."""
        with self._lock:
            if self._closed:
                raise StorageFailed("the service is stopping.")
            if self._pool is None:
                # a fork would copy locks that other threads hold
                spawn = multiprocessing.get_context("spawn")
                self._pool = ProcessPoolExecutor(1, mp_context=spawn, initializer=_begin)
            try:
                return self._pool.submit(work, *arguments)
            except BrokenProcessPool:
                self._pool = None
                raise StorageFailed("a worker process of the service ended; try again.") from None

    def do(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run a task and return its result."""
        return self.wait(self.start(work, *arguments))

    def wait(self, future: Future[T]) -> T:
        """Wait for a task and return its result."""
        try:
            return future.result(self._seconds)
        except TookTooLong:
            future.cancel()
            raise BadInput(
                f"this takes longer than {self._seconds:g} s here; use the command line for it."
            ) from None
        except BrokenProcessPool:
            with self._lock:
                self._pool = None
            raise StorageFailed("a worker process of the service ended; try again.") from None

    def close(self) -> None:
        """Stop the process; queued tasks are cancelled."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is None:
            return
        processes = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()


class WorkerProcesses:
    """The two worker processes."""

    def __init__(self) -> None:
        self.quick = WorkerProcess(DRAW_SECONDS)
        self.long = WorkerProcess(LONG_SECONDS)

    def close(self) -> None:
        self.quick.close()
        self.long.close()


def _begin() -> None:
    """Lower the priority, ignore Ctrl-C and end with the server process."""
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
    if name == "actor":
        return f"key {value['id']} ({value['name']})"
    if name == "cells":  # the counts of an interval
        return ", ".join(f"{cell['policy']} in {cell['group']} {cell['sum']:g}/{cell['n']}" for cell in value)
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if name in ("policy", "group") else f"{name} {text}"
