"""Content of a dashboard page, read from the log. Runs in a worker process.

Blinded content has enrolment, tickets and health, and no outcomes.

Reader of a log for the dashboard: evidence over time, tickets, late outcomes.

A `LogReader` continues from the last event it read, so that a page costs only the new events.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from evenhand.live import events as ev
from evenhand.live.clock import seconds_of
from evenhand.live.compute_status import is_evaluated, status_of
from evenhand.live.events import LogEntry, outcome_text
from evenhand.live.input_checks import unit_metrics
from evenhand.live.interval_status import intervals_sentence
from evenhand.live.item_tickets import unit_row
from evenhand.live.journal import Journal, open_journal
from evenhand.live.projection import LogState, View
from evenhand.live.protocol import Protocol
from evenhand.live.status import Status
from evenhand.live.tickets import OpenTicket, ticket_code
from evenhand.model.phrases import evidence_share, requirement_words
from evenhand.model.result_rows import CellRow
from evenhand.procedure.state import ANSWER, EMPTY, WEAKEST, new_state, new_work
from evenhand.reports import captioned_figures, page_parts
from evenhand.reports.figure_rows import Evidence, drawn_estimates
from evenhand.reports.figures.canvas import NARROW, WIDE, svg
from evenhand.reports.requirement_marks import nearest_policy, requirement_marks, with_bounds
from evenhand.reports.sections.experiment import at_closings, share_rows, where_samples_went
from evenhand.reports.sections.verdict import guardrail_pictures
from evenhand.service.experiment_facts import (
    alarms,
    ending,
    expected_end,
    names_of,
    next_steps,
    protocol_facts,
)
from evenhand.service.experiments import blinded
from evenhand.service.panels import ListedTicket, PanelContent, PanelFigure
from evenhand.verdicts.evidence_history import (
    AnsweredItems,
    check_again,
    check_items,
    checks_of,
    most_checks,
    new_levels,
)
from evenhand.verdicts.forecast_statement import Forecast
from evenhand.verdicts.interval_history import IntervalHistory
from evenhand.verdicts.judge import Verdict, judge_state
from evenhand.verdicts.verdict_sentences import alternative_in_words, blame, open_question

OLDEST = 10  # number of open tickets listed
MOST_LISTED = 500  # cells in the table of the page
BESIDE_GROUPS = 4  # with more groups the heat map needs the wide column


def panel_content(
    address: str, view: View, now: float, forecast: Forecast | None, blind: bool
) -> PanelContent:
    """Return the page content for this view."""
    status = status_of(view, now, None if forecast is None else lambda _: forecast)
    reader = _reader(address, view)
    reader.read_on(_journal(address), view.head.seq)
    facts = _facts(view, reader, status, blind)
    if blind:
        return _blind_content(view, status, facts)
    open_tickets = _listed_tickets(view, reader, now)
    verdict = judge_state(
        view.protocol.problem, view.protocol.procedure, view.state, replications=0, other_bounds=False
    )
    estimates = verdict.cells
    shown = replace(status, cells=(), guardrails=()).to_dict()  # the page has its own rows of cells
    points, evidence_words = list(reader.points), _evidence_words(view, status)
    if (
        view.intervals is None
        and is_evaluated(view)
        and view.state.clock[EMPTY] == 0
        and status.evidence is not None
        and status.needed
    ):
        points.append(Evidence(status.samples, status.evidence, status.needed, verdict.weakest))
    return PanelContent(
        head=view.head.seq,
        status=shown,
        sentence=_without_share(status) if evidence_words else status.sentence,
        progress=verdict.progress if is_evaluated(view) and status.needed else None,
        pictures=(
            _picture(_requirement_picture(verdict), WIDE, NARROW),
            *(_picture(picture, WIDE, NARROW) for picture in guardrail_pictures(verdict)),
            _samples_picture(view, verdict),
            *(() if view.protocol.spec.shared_items else _shares_pictures(reader, verdict)),
        ),
        cells=tuple(_cell(e) for e in _listed(estimates, verdict)),
        all_cells=len(estimates),
        guardrails=tuple(
            (rows.name, rows.missing, tuple(map(_cell, _listed(rows.cells, verdict))))
            for rows in verdict.guardrails
        ),
        evidence=chart(points) if points else None,
        says_evidence=captioned_figures.evidence_picture(points).says if points else "",
        behind=view.head.seq - reader.seq,
        late=_late(view, reader, now),
        open_tickets=open_tickets,
        evidence_words=evidence_words,
        expected=expected_end(status.more, status.samples, view.protocol.at, now),
        blame=_blame(view, verdict, status),
        next_steps=next_steps(view, shown),
        **facts,
    )


def _blind_content(view: View, status: Status, facts: dict[str, Any]) -> PanelContent:
    """Return the content without outcomes, and without the assignments of other workers."""
    seen = blinded(status)
    samples, tickets = seen["samples"], seen["pending"]
    words = f"{samples:,} outcome{'s' * (samples != 1)} told, {tickets:,} ticket{'s' * (tickets != 1)} out."
    if status.intervals is not None:
        words = (
            f"{seen['samples']:,} outcomes counted. {intervals_sentence(status.intervals, status.is_over)}"
        )
    if seen.get("decided"):
        words = f"{_end_in_words(view, seen)} {words}"
    return PanelContent(view.head.seq, seen, words, **facts)


def _facts(view: View, reader: LogReader, status: Status, blind: bool) -> dict[str, Any]:
    """Return what every user may see: the protocol, alarms, and who ended or paused the experiment."""
    return {
        "protocol": protocol_facts(view.protocol, reader.created),
        "alarms": tuple(alarms(status.health, blind)),
        "ending": ending(view, reader.latest),
        "names": names_of(view.protocol),
    }


def _evidence_words(view: View, status: Status) -> str:
    """Return the share of the evidence that there is, and the question that is still open."""
    if view.stop is not None or not is_evaluated(view) or not status.needed or status.evidence is None:
        return ""
    share = max(min(status.evidence / status.needed, 1.0), 0.0)
    leader, weakest = int(view.state.clock[ANSWER]), int(view.state.level[WEAKEST])
    question = open_question(view.protocol.problem, leader, weakest)
    return f"{share:.0%} of what is needed; the open question is {question}."


def _without_share(status: Status) -> str:
    """Return the sentence of the status without the share of the evidence, which the page states apart."""
    share = f"{evidence_share(status.evidence or 0.0, status.needed or 1.0)}."
    return " ".join(part for part in status.sentence.partition(share)[::2] if part).replace("  ", " ")


def _listed(cells: Sequence[CellRow], verdict: Verdict) -> Sequence[CellRow]:
    """Return the cells of the page's table: those of the figure first, and not too many."""
    if len(cells) <= MOST_LISTED:
        return cells
    drawn = drawn_estimates(cells, verdict.policies)
    first = drawn.of(cells)
    rest = (cell for cell in cells if cell.policy not in drawn.policies or cell.group not in drawn.groups)
    return [*first, *itertools.islice(rest, MOST_LISTED - len(first))]


def _requirement_picture(verdict: Verdict) -> page_parts.Picture:
    marks = requirement_marks(verdict.problem, verdict.cells)
    title = "Every group, and the requirement across groups" if marks else "Every group against its bound"
    cells, indifference = with_bounds(verdict.problem, verdict.cells), verdict.procedure.indifference
    return captioned_figures.floors_picture(cells, verdict.policies, title, marks, indifference)


def _samples_picture(view: View, verdict: Verdict) -> PanelFigure:
    """Return where samples go: beside the main figure if it fits there, otherwise below."""
    picture = where_samples_went(view, verdict.policies, "Where samples go")
    if len(view.protocol.problem.groups) <= BESIDE_GROUPS:
        return _picture(picture, NARROW)
    return replace(_picture(picture, WIDE, NARROW), large=True)


def _shares_pictures(reader: LogReader, verdict: Verdict) -> tuple[PanelFigure, ...]:
    """Return the figure of the published shares; none for an experiment with tickets."""
    if reader.intervals is None or not reader.intervals.rows:
        return ()
    picture = captioned_figures.shares_picture(
        share_rows(list(reader.intervals.rows.values())), verdict.policies
    )
    return (_picture(picture, WIDE, NARROW),)


def _blame(view: View, verdict: Verdict, status: Status) -> tuple[str, ...]:
    """Return why no policy meets the requirement, and what one of them would meet."""
    if verdict.screens or not is_evaluated(view) or status.samples == 0 or status.leader is not None:
        return ()
    said = [*(blame(verdict) if status.decided else []), nearest_policy(verdict.problem, verdict.cells)]
    return tuple(sentence for sentence in said if sentence)


def _end_in_words(view: View, seen: dict[str, Any]) -> str:
    """Return the decision in a few words, for a user who may not see outcomes before the end."""
    if view.stop is not None and view.stop.allowed is not None:
        return f"{len(view.stop.allowed)} of {len(view.protocol.problem.policies)} policies are allowed."
    return f"{seen['answer'] or 'No policy'} is the answer."


_readers: dict[tuple[str, bytes], LogReader] = {}  # logs read so far by this worker process
MAX_READERS = 100


def _reader(address: str, view: View) -> LogReader:
    name = (address, view.protocol.hash)
    found = _readers.pop(name, None)
    if found is None or found.protocol.members != view.protocol.members:
        found = LogReader(view.protocol)  # the policies are others: read the log again
    _readers[name] = found  # least recently used first
    while len(_readers) > MAX_READERS:
        _readers.pop(next(iter(_readers)))
    return found


@cache
def _journal(address: str) -> Journal:
    return open_journal(address, write=False)


def _picture(picture: page_parts.Picture, *widths: int) -> PanelFigure:
    # our own SVG: names in it were escaped when it was written
    drawings = [
        Markup(_light(svg(picture.draw(width), f"{picture.name}-{width}", themed=True))) for width in widths
    ]
    wide = drawings[0] if len(drawings) > 1 else None
    return PanelFigure(picture.name, picture.title, picture.says, wide, drawings[-1])


def _light(drawing: str) -> str:
    """Return the SVG without comments, which halves its size."""
    return re.sub(r"\s*<!--.*?-->", "", drawing, flags=re.DOTALL)


def _cell(estimate: CellRow) -> dict[str, Any]:
    bound = estimate.floor if estimate.floor is not None else estimate.cap
    relative = any(one is not None for one in estimate.relative)
    return estimate.to_dict() | {
        "bound": bound,
        "requirement": requirement_words(estimate) if relative else "",
    }


def _cell_name(view: View, out: OpenTicket) -> str:
    """Return the policy and group of an open ticket, as far as known."""
    protocol = view.protocol
    names = protocol.members.names
    policy = ", ".join(names[k] for k in out.policies or (out.policy,))
    return policy if out.group < 0 else f"{policy}, {protocol.problem.group_names[out.group]}"


def _listed_tickets(view: View, reader: LogReader, now: float) -> tuple[ListedTicket, ...]:
    protocol = view.protocol
    return tuple(
        ListedTicket(
            ticket_code(protocol.hash, number),
            _cell_name(view, out),
            out.worker or "",
            max(now - seconds_of(out.at), 0.0),
        )
        for number, out in list(reader.out.items())[:OLDEST]
    )


def _late(view: View, reader: LogReader, now: float) -> tuple[ListedTicket, ...]:
    return tuple(
        ListedTicket(
            ticket_code(view.protocol.hash, late.ticket), f"ticket {late.why} before it came", "",
            max(now - seconds_of(late.at), 0.0), outcome_text(late.outcome),
        )
        for late in reversed(reader.late)
    )  # fmt: skip


MOST_POINTS = 480  # above this, every second point is removed
AT_ONCE = 20_000  # events read for one page
LATEST_LATE = 20
LATEST_OF = (ev.Stopped, ev.Closed, ev.Paused)


class LateOutcome(NamedTuple):
    """An outcome that was too late to count."""

    ticket: int
    outcome: ev.Outcome
    why: str
    at: str


class LogReader:
    """An incremental reader of one experiment's log.

    The evidence over time is that of the policies of this protocol.
    """

    def __init__(self, protocol: Protocol) -> None:
        self.protocol = protocol
        self.created: ev.Created | None = None
        self._corrections: dict[int, ev.Sample] = {}
        self._begin()

    def _begin(self) -> None:
        spec = self.protocol.spec
        self.seq = 1
        self._log = LogState(self.protocol.as_begun())
        self.late: deque[LateOutcome] = deque(maxlen=LATEST_LATE)
        self.points: list[Evidence] = []
        self.latest: dict[str, ev.AnyEvent] = {}  # the latest event of each kind in `LATEST_OF`
        self._state, self._work = new_state(spec), new_work(spec)
        self._every = 1
        self._most = most_checks(spec, MOST_POINTS)
        self._waiting: list[tuple[int, int, ev.Sample]] = []
        has_intervals = self._log.intervals is not None
        self.intervals = IntervalHistory(self._log) if has_intervals else None

    def read_on(self, journal: Journal, until: int) -> None:
        """Read the log up to this event, at most `AT_ONCE` events."""
        if self.created is None:
            first = next(iter(journal.read(self.protocol.experiment, 0, 1)), None)
            event = None if first is None else LogEntry.of(first.record).event
            self.created = event if isinstance(event, ev.Created) else None
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
        self._evaluate_rule()

    @property
    def out(self) -> Mapping[int, OpenTicket]:
        """Return the open tickets, oldest first."""
        return self._log.open_tickets

    def _one(self, event: ev.AnyEvent) -> None:
        place = self._log.apply(event)
        if self.intervals is not None:
            self._take_interval(self.intervals, event)
        if place is not None and isinstance(event, (ev.Told, ev.Imported)):
            column = self.protocol.columns.get(place[0])
            if column is not None:  # a policy that has left counts no more
                sample = self._corrections.get(event.ticket, ev.sample_of(event))
                self._waiting.append((column, place[1], sample))
        elif isinstance(event, LATEST_OF):
            self.latest[type(event).__name__.lower()] = event
        elif isinstance(event, ev.Late):
            self.late.append(LateOutcome(event.ticket, event.outcome, event.why, event.at))

    def _take_interval(self, history: IntervalHistory, event: ev.AnyEvent) -> None:
        """Add an event of an interval; its evidence is in the event that closed it."""
        history.take(event)
        if isinstance(event, ev.IntervalClosed):
            self.points += at_closings([history.rows[event.interval]])
            while len(self.points) > MOST_POINTS:
                self.points = self.points[1::2]
        while len(history.rows) > MOST_POINTS:  # the oldest, of which the figure shows a part
            history.rows.pop(next(iter(history.rows)))

    def _evaluate_rule(self) -> None:
        """Evaluate the stopping rule again at evenly spaced points of the log."""
        self._every = max(self._every, -(-len(self._waiting) // self._most))
        looks = len(self._waiting) // self._every
        if looks == 0:
            return
        rows, self._waiting = self._waiting[: looks * self._every], self._waiting[looks * self._every :]
        policy, group = (np.array([row[place] for row in rows], dtype=np.int64) for place in (0, 1))
        levels, counts = new_levels(looks)
        spec, problem, samples = self.protocol.spec, self.protocol.problem, [row[2] for row in rows]
        if spec.shared_items:
            table = np.array([unit_row(problem, sample.outcome) for sample in samples], dtype=float)
            items = AnsweredItems(group, table)
            check_items(spec, self._state, self._work, items, self._every, levels, counts)
        else:
            outcome = np.array([sample.outcome for sample in samples], dtype=float)
            unit = np.ascontiguousarray(problem.family.to_unit(outcome))
            rails = np.array([unit_metrics(sample.metrics, problem) for sample in samples], dtype=float)
            check_again(
                spec, self._state, self._work, policy, group, unit,
                rails.reshape((len(rows), len(problem.guardrails))), self._every, levels, counts,
            )  # fmt: skip
        self.points += [
            Evidence(
                check.samples,
                check.evidence,
                check.needed,
                alternative_in_words(problem, check.leader, check.alternative),
            )
            for check in checks_of(levels, counts)
        ]
        while len(self.points) > self._most:
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
