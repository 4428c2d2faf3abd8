"""The intervals of a log: shares, outcomes and evidence of each, for reports and the dashboard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from evenhand.live import events as ev
from evenhand.live.events import AnyEvent
from evenhand.live.intervals import policies_of, shares_of
from evenhand.live.projection import LogState
from evenhand.model.problem import Problem
from evenhand.procedure.state import NONE
from evenhand.verdicts.verdict_sentences import alternative_in_words


@dataclass
class IntervalRow:
    """One interval of a log; numbers of one that is not closed are None."""

    number: int
    valid_from: str
    shares: Mapping[str, Mapping[str, float]]  # by group and policy
    outcomes: int | None = None
    samples: int | None = None  # of all intervals up to this one
    evidence: float | None = None
    needed: float | None = None
    leader: str | None = None
    weakest: str = ""  # the weakest comparison in words
    corrections: int = 0
    late: int = 0  # outcomes that do not count


@dataclass
class IntervalHistory:
    """The intervals of a log, as far as it was read; `log` applies the events."""

    log: LogState
    rows: dict[int, IntervalRow] = field(default_factory=dict)

    def take(self, event: AnyEvent) -> None:
        """Add an event that `log` has applied."""
        if isinstance(event, ev.SharesPublished):
            shares = shares_of(event)
            table = {
                group: {policy: shares.share(group, policy) for policy in policies_of(shares)}
                for group in shares.ranges
            }
            self.rows[event.version] = IntervalRow(event.version, event.valid_from, table)
        elif isinstance(event, ev.Counted) and event.late is not None:
            self.rows[event.interval].late = sum(cell.n for cell in event.cells)
        elif isinstance(event, ev.CountsCorrected):
            self.rows[event.interval].corrections += 1
        elif isinstance(event, ev.IntervalClosed):
            row = self.rows[event.interval]
            row.outcomes, row.samples, row.leader = event.outcomes, event.samples, event.leader
            row.evidence, row.needed = event.evidence, event.needed
            row.weakest = _in_words(self.log.protocol.problem, event)


def read_intervals(log: LogState, entries: Iterable[ev.LogEntry]) -> list[IntervalRow]:
    """Return the intervals of a log; `log` is its state before the entries."""
    history = IntervalHistory(log)
    for entry in entries:
        log.apply(entry.event)
        history.take(entry.event)
    return list(history.rows.values())


def _in_words(problem: Problem, event: ev.IntervalClosed) -> str:
    leader = NONE if event.leader is None else problem.policies.index(event.leader)
    return alternative_in_words(problem, leader, event.weakest)
