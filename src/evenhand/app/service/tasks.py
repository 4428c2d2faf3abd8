"""What helper processes do. Each imports what it needs itself, so that the process that serves need not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evenhand.app.service.drawn import Drawn, Line
    from evenhand.judge.forecast_statement import Forecast
    from evenhand.live.audit import Audit
    from evenhand.live.view import View

PAGE = 5_000  # events looked at in one go
MOST_SEARCHED = 200_000
# what an operator may read in the log: never an outcome, a chance, or a digest that outcomes went into
BLIND_FIELDS = ("ticket", "policy", "group", "worker", "by", "reason", "what", "lease")
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
# digests and the protocol itself are for the export
QUIET_FIELDS = (
    "kind", "at", "state", "chance", "fold", "study", "versions", "limits", "format", "key", "part",
    "request", "answer", "decision",
)  # fmt: skip


def draw(address: str, view: View, now: float, forecast: Forecast | None, blind: bool) -> Drawn:
    """The experiment as a page shows it."""
    from evenhand.app.service.drawings import draw as drawn

    return drawn(address, view, now, forecast, blind)


def forecast(view: View) -> Forecast:
    """How many more samples it may take."""
    from evenhand.judge.forecast import experiment_forecast

    return experiment_forecast(view)


def search(address: str, name: str, last: int, words: str, most: int, blind: bool) -> list[Line]:
    """The latest events that hold these words, newest first."""
    from evenhand.live.journal import open_journal

    journal = open_journal(address, write=False)
    found: list[Line] = []
    try:
        for end in range(last, max(last - MOST_SEARCHED, 0), -PAGE):
            rows = list(journal.read(name, max(end - PAGE, 0), end))
            for row in reversed(rows):
                line = _line(row.record.seq, row.record.body, blind)
                if words.lower() in f"{line.seq} {line.at} {line.kind} {line.says}".lower():
                    found.append(line)
                if len(found) == most:
                    return found
    finally:
        journal.close()
    return found


def audit(address: str, name: str) -> Audit:
    """Derive everything again from the log."""
    from evenhand.live.audit import audit as audited

    return audited(address, experiment=name)


def export(address: str, name: str, path: str) -> None:
    """Write the whole log into a file."""
    from evenhand.live.export import write_export
    from evenhand.live.journal import open_journal

    journal = open_journal(address, write=False)
    try:
        with open(path, "wb") as file:
            write_export(journal, name, file)
    finally:
        journal.close()


def report(address: str, name: str) -> str:
    """The report as one page."""
    from evenhand.live.experiment import Experiment
    from evenhand.report.document import report as reported

    with Experiment.open(address, name, write=False) as trial:
        return reported(trial).html()


def warm_drawing() -> None:
    """Load what drawing calls, by drawing a small experiment once."""
    import tempfile
    import time
    from pathlib import Path

    from evenhand.live.experiment import Experiment
    from evenhand.model.constraints import Floors
    from evenhand.model.families import Bernoulli
    from evenhand.model.problem import Problem
    from evenhand.procedure.spec import Procedure

    problem = Problem(["a", "b"], {"x": 0.5, "y": 0.5}, Bernoulli(), Floors(0.3))
    with tempfile.TemporaryDirectory() as folder:
        address = str(Path(folder, "warm.db"))
        with Experiment.create(address, problem, Procedure(initial=1), seed=1) as trial:
            asks = trial.ask(8)
            trial.tell_all([(ask, number % 2, None) for number, ask in enumerate(asks)])
            draw(address, trial.present(), time.time(), None, blind=False)


def _line(seq: int, body: bytes, blind: bool) -> Line:
    import msgspec

    from evenhand.app.service.drawn import Line

    event: dict[str, Any] = msgspec.json.decode(body)
    names = BLIND_FIELDS if blind else [*FIRST_FIELDS, *sorted(set(event) - {*FIRST_FIELDS, *QUIET_FIELDS})]
    says = " · ".join(_said(name, event[name]) for name in names if event.get(name) is not None)
    return Line(seq, str(event["at"]), str(event["kind"]), says)


def _said(name: str, value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if name in ("policy", "group") else f"{name} {text}"
