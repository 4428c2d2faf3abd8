"""Reader of a log for the dashboard: evidence over time, tickets, late outcomes.

A `Ledger` continues from the last event it read, so that a page costs only the new events.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from evenhand.live import events as ev
from evenhand.live.events import LogEntry
from evenhand.live.journal import Journal
from evenhand.live.log_state import LogState
from evenhand.live.outcomes import unit_metrics
from evenhand.live.protocol import Protocol
from evenhand.live.tickets import Out
from evenhand.procedure.state import new_state, new_work
from evenhand.reports.rows import Evidence
from evenhand.verdicts.evidence_history import retrace
from evenhand.verdicts.sentences import piece_in_words

MOST_POINTS = 480  # above this, every second point is removed
AT_ONCE = 20_000  # events read for one page
LATEST_LATE = 20


class Late(NamedTuple):
    """An outcome that was too late to count."""

    ticket: int
    outcome: float
    why: str
    at: str


class Ledger:
    """An incremental reader of one experiment's log."""

    def __init__(self, protocol: Protocol) -> None:
        self.protocol = protocol
        self._corrections: dict[int, ev.Sample] = {}
        self._begin()

    def _begin(self) -> None:
        spec = self.protocol.spec
        self.seq = 1
        self._log = LogState(self.protocol)
        self.late: deque[Late] = deque(maxlen=LATEST_LATE)
        self.points: list[Evidence] = []
        self._state, self._work = new_state(spec), new_work(spec)
        self._told = 0
        self._every = 1
        self._waiting: list[tuple[int, int, ev.Sample]] = []

    def read_on(self, journal: Journal, until: int) -> None:
        """Read the log up to this event, at most `AT_ONCE` events."""
        if self.seq < until:
            rows = journal.read(self.protocol.experiment, self.seq, min(until, self.seq + AT_ONCE))
            self.take(LogEntry.of(row.record) for row in itertools.islice(rows, AT_ONCE))

    def take(self, entries: Iterable[LogEntry]) -> None:
        """Apply events; a correction of an earlier outcome restarts the reading with it."""
        events = [(entry.seq, entry.event) for entry in entries]
        amended = {e.ticket: ev.sample_of(e) for _, e in events if isinstance(e, ev.Amended) and e.counted}
        if any(self._corrections.get(ticket) != sample for ticket, sample in amended.items()):
            self._corrections |= amended
            self._begin()
            return
        for seq, event in events:
            self._one(event)
            self.seq = seq
        self._weigh()

    @property
    def out(self) -> Mapping[int, Out]:
        """Return the open tickets, oldest first."""
        return self._log.out

    def _one(self, event: ev.AnyEvent) -> None:
        place = self._log.apply(event)
        if place is not None and isinstance(event, (ev.Told, ev.Imported)):
            self._waiting.append((*place, self._corrections.get(event.ticket, ev.sample_of(event))))
        elif isinstance(event, ev.Late):
            self.late.append(Late(event.ticket, event.outcome, event.why, event.at))

    def _weigh(self) -> None:
        """Evaluate the stopping rule again at evenly spaced points of the log."""
        self._every = max(self._every, -(-len(self._waiting) // MOST_POINTS))
        looks = len(self._waiting) // self._every
        if looks == 0:
            return
        rows, self._waiting = self._waiting[: looks * self._every], self._waiting[looks * self._every :]
        policy, group = (np.array([row[place] for row in rows], dtype=np.int64) for place in (0, 1))
        levels, answers = np.full((looks, 3), np.nan), np.zeros(looks, dtype=np.int64)
        problem, samples = self.protocol.problem, [row[2] for row in rows]
        outcome = np.array([sample.outcome for sample in samples], dtype=float)
        unit = np.ascontiguousarray(problem.family.to_unit(outcome))
        rails = np.array([unit_metrics(sample.metrics, problem) for sample in samples], dtype=float)
        retrace(
            self.protocol.spec, self._state, self._work, policy, group, unit,
            rails.reshape((len(rows), len(problem.guardrails))), self._every, levels, answers,
        )  # fmt: skip
        for look, (value, needed, piece) in enumerate(levels.tolist(), start=1):
            if np.isfinite(value) and np.isfinite(needed):
                weakest = piece_in_words(problem, int(answers[look - 1]), int(piece))
                self.points.append(Evidence(self._told + look * self._every, value, needed, weakest))
        self._told += len(rows)
        while len(self.points) > MOST_POINTS:
            self.points = self.points[1::2]
            self._every *= 2


def chart(points: list[Evidence]) -> dict[str, Any]:
    """Return columns for the browser: samples, evidence, needed, weakest comparison."""
    names = list(dict.fromkeys(point.weakest for point in points))
    return {
        "samples": [point.samples for point in points],
        "evidence": [round(point.evidence, 4) for point in points],
        "needed": [round(point.needed, 4) for point in points],
        "weakest": [names.index(point.weakest) for point in points],
        "names": names,
    }
