"""The state of an experiment as a fold over its events, and read-only copies of it.

This is the only interpreter of the log. `LogState` has the effect of an event on tickets and counts; `Fold`
adds checks and the arithmetic of the procedure. Audits, reports, the dashboard and transfers use either.

The fold is pure, and the same code is used for running, reopening and auditing. The rules:

- Events are ordered by their position in the log. Clocks decide only when an expiry is written.
- An open ticket counts for the allocation; only recorded outcomes count for estimates and evidence.
- After an amendment the cell's outcomes are folded again from its first, each with its latest correction, in
  the order in which they were first recorded; with linear bets those of all cells, and with shared items all
  items. The rule's memory and
  earlier asks stay as they were. The stopping rule is evaluated at once.
- After the stop only amendments change estimates, and nothing changes the decision.
- The rows of an import are consecutive, and so are the event with which the stopping rule fires and the
  `stopped` event.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from evenhand.live import events as ev
from evenhand.live import item_tickets
from evenhand.live.build import Build, present_build
from evenhand.live.event_checks import check_event
from evenhand.live.events import AnyEvent, Sample, Stopped, decode, number, outcome_text, sample_of
from evenhand.live.hash_chain import Difference, Head, Record
from evenhand.live.input_checks import unit_metrics
from evenhand.live.interval_arithmetic import Closing, add_ratios, closing, new_ratios
from evenhand.live.interval_checks import check_closing
from evenhand.live.intervals import ClosedInterval, IntervalLog, OpenInterval, new_interval_log
from evenhand.live.protocol import Protocol
from evenhand.live.replay import CellSums, Replay, no_sums, sums_digest
from evenhand.live.replay_kernels import ASK_THIS, DROP, IMPORT, IMPORT_LAST, TELL, DrawTally
from evenhand.live.sequence_checks import check_follows, stop_is_missing
from evenhand.live.tickets import OpenTicket, OpenTickets
from evenhand.procedure.assignment import Shares
from evenhand.procedure.state import State

COUNTED = (
    "asked", "told", "late", "dropped", "expired", "amended", "imported", "refused", "viewed", "clock_back",
)  # fmt: skip
Place = tuple[int, int]  # numbers of a policy and a group; -1 for a group that is not known yet


class LogState:
    """Tickets, counts and phase of an experiment after an event; no arithmetic, no checks."""

    def __init__(self, protocol: Protocol) -> None:
        self.protocol = protocol  # changes when policies join or leave
        self.changes: list[ev.PolicyChange] = []  # the events with which they did
        self.tickets = 0  # number of the latest ticket
        self.open_tickets = OpenTickets()
        self.counts = dict.fromkeys(COUNTED, 0)
        self.latest = protocol.at if protocol.format >= 2 else ""  # latest time in the log
        self.stop: ev.Stopped | None = None
        self.paused = False
        self.closed = False
        self.corrected_after_stop = False
        self.importing: ev.Imported | None = None  # last row of an import that is incomplete
        self.answering: tuple[
            int, ...
        ] = ()  # the policies of the item whose ticket was issued or closed last
        self._effects: dict[type, Callable[[Any], Place | None]] = {
            ev.Asked: self._asked, ev.Told: self._told, ev.Late: self._late, ev.Dropped: self._dropped,
            ev.Expired: self._expired, ev.Imported: self._imported, ev.Amended: self._amended,
            ev.Refused: self._refused, ev.Viewed: self._viewed, ev.Paused: self._paused,
            ev.Resumed: self._resumed, ev.Stopped: self._stopped, ev.Closed: self._closed,
            ev.PolicyAdded: self._added, ev.PolicyWithdrawn: self._withdrawn,
        }  # fmt: skip
        self.intervals: IntervalLog | None = new_interval_log(protocol)
        if self.intervals is not None:
            self._effects |= self.intervals.effects()

    @property
    def is_over(self) -> bool:
        """Return whether the experiment has stopped or was finished."""
        return self.stop is not None or self.closed

    @property
    def why_late(self) -> str:
        """Return why an outcome that arrives now is late, for an experiment that is over."""
        return "stopped" if self.stop is not None else "closed"

    def apply(self, event: AnyEvent) -> Place | None:
        """Apply the next event; return its cell.

        That is the cell of a ticket that is issued or closed, or the cell in which an outcome counts.
        """
        effect = self._effects.get(type(event))
        return None if effect is None else effect(event)

    def note_time(self, event: ev.Event) -> None:
        """Update the latest time, and count backward steps of the clock."""
        if event.at > self.latest:
            self.latest = event.at
        if event.back:
            self.counts["clock_back"] += 1

    def cell(self, k: int, g: int) -> int:
        """Return the number of a cell."""
        return k * len(self.protocol.groups) + g

    def cell_of(self, event: AnyEvent) -> int | None:
        """Return the cell in which the event's outcome counts, or None; call before `apply`."""
        if isinstance(event, ev.Told) and event.ticket in self.open_tickets:
            out = self.open_tickets[event.ticket]
            return self.cell(out.policy, self.protocol.groups.get(event.group or "", out.group))
        if isinstance(event, ev.Imported) or (isinstance(event, ev.Amended) and event.counted):
            k = 0 if isinstance(event.outcome, dict) else self.protocol.policies.get(event.policy, -1)
            return self.cell(k, self.protocol.groups.get(event.group, -1))
        return None

    def _asked(self, event: ev.Asked) -> Place:
        self.answering = tuple(self.protocol.policies[name] for name in event.policies)
        k = 0 if event.policies else self.protocol.policies[event.policy]
        g = -1 if event.group is None else self.protocol.groups[event.group]
        lease = self.protocol.lease if event.lease is None else event.lease
        self.tickets = event.ticket
        self.counts["asked"] += 1
        owner = None if event.actor is None else event.actor.id
        self.open_tickets.add(
            event.ticket, OpenTicket(k, g, event.worker, event.at, lease, owner, self.answering)
        )
        return k, g

    def _told(self, event: ev.Told) -> Place:
        self.counts["told"] += 1
        out = self._closed_ticket(event.ticket)
        return out.policy, out.group if event.group is None else self.protocol.groups[event.group]

    def _late(self, event: ev.Late) -> None:
        self.counts["late"] += 1
        if event.ticket in self.open_tickets:
            self.open_tickets.remove(event.ticket)

    def _dropped(self, event: ev.Dropped) -> Place:
        self.counts["dropped"] += 1
        out = self._closed_ticket(event.ticket)
        return out.policy, out.group

    def _expired(self, event: ev.Expired) -> Place:
        self.counts["expired"] += 1
        out = self._closed_ticket(event.ticket)
        return out.policy, out.group

    def _closed_ticket(self, ticket: int) -> OpenTicket:
        out = self.open_tickets.remove(ticket)
        self.answering = out.policies
        return out

    def _imported(self, event: ev.Imported) -> Place:
        self.counts["imported"] += 1
        self.tickets = event.ticket
        self.importing = None if event.row == event.rows else event
        return self.protocol.policies[event.policy], self.protocol.groups[event.group]

    def _amended(self, event: ev.Amended) -> Place | None:
        self.counts["amended"] += 1
        if not event.counted:
            return None
        self.corrected_after_stop |= self.stop is not None
        k = 0 if isinstance(event.outcome, dict) else self.protocol.policies[event.policy]
        return k, self.protocol.groups[event.group]

    def _refused(self, event: ev.Refused) -> None:
        self.counts["refused"] += 1

    def _viewed(self, event: ev.Viewed) -> None:
        self.counts["viewed"] += 1

    def _added(self, event: ev.PolicyAdded) -> None:
        self.protocol = self.protocol.with_policy(event.policy)
        self.changes.append(event)

    def _withdrawn(self, event: ev.PolicyWithdrawn) -> None:
        number = self.protocol.policies[event.policy]
        self.protocol = self.protocol.without_policy(event.policy)
        self.changes.append(event)
        for ticket in [ticket for ticket, out in self.open_tickets.items() if out.policy == number]:
            self.open_tickets.remove(ticket)

    def _paused(self, event: ev.Paused) -> None:
        self.paused = True

    def _resumed(self, event: ev.Resumed) -> None:
        self.paused = False

    def _stopped(self, event: ev.Stopped) -> None:
        self.stop = event

    def _closed(self, event: ev.Closed) -> None:
        self.closed = True


class PlacedSample(NamedTuple):
    """A sample that counts; positions order the samples of all cells as they were first recorded."""

    position: int
    sample: Sample


# the outcomes that count in a cell as of an event, in the order first recorded; used for amendments
History = Callable[[int, int], Sequence[PlacedSample]]

# these are compared with the state after the previous event, so queued arithmetic is done first
_NEED_STATE = (ev.Amended, ev.Stopped, ev.PolicyAdded, ev.PolicyWithdrawn, ev.BuildChanged, ev.Snapshot)


class Fold(LogState):
    """The checked state of the log after an event, with the procedure's arithmetic."""

    def __init__(self, protocol: Protocol, head: Head) -> None:
        super().__init__(protocol)
        self.head = head
        self.replay = Replay(protocol)
        self.snapshot = 0  # number of the latest snapshot event
        self.sums: dict[int, CellSums] = {}  # by cell number
        self.left: dict[str, list[int]] = {}  # outcomes of each policy that has left, by group
        self.ratios = new_ratios(protocol)  # of units to the published shares, in an experiment in intervals
        self.use_build(protocol.versions, protocol.format)
        family = protocol.problem.family
        self._low, self._width = family.low, family.width
        self._guardrails = protocol.problem.guardrails
        self._is_active = protocol.problem.mode == "active"
        self._on_items = bool(protocol.spec.shared_items)
        self._computations: dict[type, Callable[[int, Any, Place], None]] = {
            ev.Asked: self._compute_asked, ev.Told: self._compute_told, ev.Imported: self._compute_imported,
            ev.Dropped: self._compute_given_up, ev.Expired: self._compute_given_up,
        }  # fmt: skip

    @property
    def must_stop(self) -> bool:
        """Return whether the rule has fired and the `stopped` event must come next."""
        return self.replay.has_stopped and self.stop is None

    def take(self, records: Iterable[Record], history: History) -> None:
        """Fold stored events; check each, and that it follows from those before."""
        for record in records:
            event = decode(record)
            check_event(record, event, self.protocol)
            self.step(record, event, history)
        self.flush()

    def note(self, record: Record, event: AnyEvent, history: History) -> None:
        """Fold one new event."""
        self.step(record, event, history)
        self.flush()

    def step(self, record: Record, event: AnyEvent, history: History) -> Place | None:
        """Fold an event and return its cell; its arithmetic may be queued until `flush`."""
        seq = record.seq
        if isinstance(event, _NEED_STATE):
            self.flush()
        check_follows(self, seq, event)
        if isinstance(event, ev.PolicyWithdrawn):
            column = self.protocol.columns[self.protocol.policies[event.policy]]
            self.left[event.policy] = self.replay.state.n[:, column].astype(int).tolist()
        place = self.apply(event)
        if place is not None:
            if isinstance(event, ev.Amended):
                self._compute_amended(seq, event, place, history)
            else:
                self._computations[type(event)](seq, event, place)
        elif isinstance(event, (ev.PolicyAdded, ev.PolicyWithdrawn)):
            self.replay.change_policies(seq, self.protocol, len(self.open_tickets))
        elif isinstance(event, ev.IntervalClosed):
            self._compute_closed(seq, event)
        elif isinstance(event, ev.BuildChanged):
            self.use_build(event.versions, event.format)
        elif isinstance(event, ev.Snapshot):
            self._compare_snapshot(seq, event)
        self.note_time(event)  # afterwards: a snapshot holds the state before it
        self.head = Head(seq, record.hash)
        return place

    def flush(self) -> None:
        """Do the queued arithmetic; the error names the first event that does not follow."""
        self.replay.flush()
        if self.must_stop and self.replay.stopped_at < self.head.seq:
            raise stop_is_missing(self.replay.stopped_at + 1)

    def note_chosen(self, record: Record, event: ev.Asked) -> None:
        """Fold an ask whose arithmetic `Replay.choose` has done."""
        self.note_time(event)
        self.apply(event)
        self.head = Head(record.seq, record.hash)

    def note_derived(self, record: Record, event: ev.IntervalEvent, after: Closing | None = None) -> None:
        """Fold published shares, or a closed interval and what it leads to, that were just derived."""
        self.apply(event)
        if after is not None:
            self._adopt_closed(record.seq, after)
        self.note_time(event)
        self.head = Head(record.seq, record.hash)

    def note_snapshot(self, record: Record, event: ev.Snapshot) -> None:
        """Fold a snapshot of this state."""
        self.note_time(event)
        self._passed_snapshot(record.seq)
        self.head = Head(record.seq, record.hash)

    def use_build(self, build: Build, format_: int) -> None:
        """Set the build and format of the events from here on."""
        self.build, self.format = build, format_
        self.replay.same_build = build == present_build()

    def unit(self, outcome: float) -> float:
        """Return an outcome in the unit scale of the kernels."""
        return (outcome - self._low) / self._width

    def rails(self, sample: Sample) -> tuple[float, ...]:
        """Return the outcomes of the guard-rails in unit scale; NaN where one is missing."""
        return unit_metrics(sample.metrics, self.protocol.problem) if self._guardrails else ()

    def sums_with(self, cell: int, sample: Sample) -> CellSums:
        """Return the sums of a cell after one more sample."""
        before = self.sums.get(cell) or no_sums(len(self._guardrails))
        return before.plus(self.unit(number(sample.outcome)), self.rails(sample))

    def sums_after(self, cell: int, sample: Sample) -> dict[int, CellSums]:
        """Return the sums of the cells that a sample changes, after it; `cell` is that of its event."""
        if isinstance(sample.outcome, dict):
            return item_tickets.sums_with_item(self, cell, sample.outcome)
        return {cell: self.sums_with(cell, sample)}

    def sums_from(self, cell: int, samples: Iterable[PlacedSample]) -> dict[int, CellSums]:
        """Return the sums of the cells that these samples change, added in this order."""
        if self._on_items:
            return item_tickets.sums_of_items(self, cell, samples)
        sums = no_sums(len(self._guardrails))
        for _, sample in samples:
            sums = sums.plus(self.unit(number(sample.outcome)), self.rails(sample))
        return {cell: sums}

    def _compute_asked(self, seq: int, event: ev.Asked, place: Place) -> None:
        k, g = self._column(place)
        arrived = -1 if self._is_active else g
        chance = math.nan if event.p is None else event.p
        digests = int(event.state, 16), int(event.chance, 16)
        if self._on_items:
            item_tickets.queue_asked(self, seq, g, arrived, chance, digests)
            return
        self.replay.queue(seq, ASK_THIS, k, g, arrived, chance, digests)

    def _compute_told(self, seq: int, event: ev.Told, place: Place) -> None:
        sample = sample_of(event)
        self._use_sums(seq, event, self.sums_after(self.cell(*place), sample))
        if self._on_items:
            item_tickets.queue_told(self, seq, place[1], event.outcome)
            return
        x = self.unit(number(event.outcome))
        self.replay.queue(seq, TELL, *self._column(place), -1, x, further=self.rails(sample))

    def _compute_given_up(self, seq: int, event: ev.Dropped | ev.Expired, place: Place) -> None:
        if self.stop is not None:
            return
        if self._on_items:
            item_tickets.queue_given_up(self, seq, place[1])
            return
        self.replay.queue(seq, DROP, *self._column(place), -1, 0.0)

    def _compute_imported(self, seq: int, event: ev.Imported, place: Place) -> None:
        kind, sample = IMPORT_LAST if event.row == event.rows else IMPORT, sample_of(event)
        self._use_sums(seq, event, self.sums_after(self.cell(*place), sample))
        self.replay.queue(
            seq, kind, *self._column(place), -1, self.unit(event.outcome), further=self.rails(sample)
        )

    def _compute_amended(self, seq: int, event: ev.Amended, place: Place, history: History) -> None:
        cell = self.cell(*place)
        samples = history(cell, seq)
        self._use_sums(seq, event, self.sums_from(cell, samples))
        if self._on_items:
            item_tickets.fold_items_again(self, seq, history)
            return
        if self.protocol.spec.linear_bets:
            self._fold_outcomes_again(seq, history)
            return
        outcomes = [self.unit(number(sample.outcome)) for _, sample in samples]
        rails = [self.rails(sample) for _, sample in samples]
        self.replay.replace(seq, *self._column(place), outcomes, rails)

    def _fold_outcomes_again(self, seq: int, history: History) -> None:
        """Fold the outcomes of all cells again: linear bets depend on the order across cells."""
        rows = []
        for k in range(len(self.protocol.problem.policies)):
            for g in range(len(self.protocol.problem.group_names)):
                for position, sample in history(self.cell(k, g), seq):
                    x = self.unit(number(sample.outcome))
                    rows.append((position, k, g, x, self.rails(sample)))
        self.replay.replace_all(seq, [row[1:] for row in sorted(rows, key=lambda row: row[0])])

    def _compute_closed(self, seq: int, event: ev.IntervalClosed) -> None:
        """Add the outcomes of the interval that was closed, and compare sums and evidence with the event."""
        assert self.intervals is not None
        interval = self.intervals.last_closed
        assert interval is not None
        after = closing(self.protocol, self.replay.state, interval)
        check_closing(seq, event, after, self.replay.same_build)
        self._adopt_closed(seq, after)

    def _adopt_closed(self, seq: int, after: Closing) -> None:
        """Continue with the outcomes of the interval that was closed, as event `seq` says."""
        assert self.intervals is not None
        assert self.intervals.last_closed is not None
        self.replay.adopt(seq, after.state)
        add_ratios(self.ratios, self.protocol, self.intervals.last_closed)

    def _column(self, place: Place) -> Place:
        """Return the column of a present policy in the tables of the state, and the group."""
        return self.protocol.columns[place[0]], place[1]

    def _use_sums(
        self, seq: int, event: ev.Told | ev.Imported | ev.Amended, sums: Mapping[int, CellSums]
    ) -> None:
        """Store the sums; refuse an event whose digest differs (format 1 has none)."""
        if event.sums != (sums_digest(event.ticket, sums) if self.format >= 2 else None):
            said = outcome_text(event.outcome)
            raise Difference(seq, f"has the outcome {said}, and leads to other sums than it records.")
        self.sums.update(sums)

    def _compare_snapshot(self, seq: int, event: ev.Snapshot) -> None:
        from evenhand.live.snapshot import adopt_snapshot

        adopt_snapshot(seq, self, event.fold)
        self._passed_snapshot(seq)

    def _passed_snapshot(self, seq: int) -> None:
        self.snapshot = seq
        self.replay.refresh(seq)


class View(NamedTuple):
    """A copy of a fold as of one event."""

    protocol: Protocol
    head: Head
    state: State
    tally: DrawTally
    counts: dict[str, int]
    pending: int
    oldest: tuple[int, str] | None  # the open ticket that was issued first, and when
    stop: Stopped | None
    paused: bool
    closed: bool
    corrected_after_stop: bool
    changes: tuple[ev.PolicyChange, ...] = ()  # policies that joined and left
    left: Mapping[str, Sequence[int]] = {}  # outcomes of each policy that has left, by group
    intervals: IntervalView | None = None


class IntervalView(NamedTuple):
    """A copy of the intervals of an experiment."""

    latest: Shares | None  # the shares published last
    open: Mapping[int, OpenInterval]
    last_closed: ClosedInterval | None
    late: int  # outcomes that came after the end
    corrected: int
    ratios: tuple[float, ...]  # p-value of the published shares, by group


def _interval_view(fold: Fold) -> IntervalView | None:
    log = fold.intervals
    if log is None:
        return None
    ratios = tuple(fold.ratios.p_values.tolist())
    return IntervalView(log.latest, dict(log.open), log.last_closed, log.late, log.corrected, ratios)


def view_of(fold: Fold) -> View:
    """Return a view of the fold as it is now."""
    oldest = next(iter(fold.open_tickets.items()), None)
    return View(
        protocol=fold.protocol,
        head=fold.head,
        state=State._make(table.copy() for table in fold.replay.state),
        tally=DrawTally._make(table.copy() for table in fold.replay.tally),
        counts=dict(fold.counts),
        pending=len(fold.open_tickets),
        oldest=None if oldest is None else (oldest[0], oldest[1].at),
        stop=fold.stop,
        paused=fold.paused,
        closed=fold.closed,
        corrected_after_stop=fold.corrected_after_stop,
        changes=tuple(fold.changes),
        left=dict(fold.left),
        intervals=_interval_view(fold),
    )
