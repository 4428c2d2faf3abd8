"""The state as a fold over the events: pure, and the same for going on, opening again and auditing.

Rules a reader may want to know:

- An event's place in the log is its time. Clocks decide only when an expiry is written, never what it means.
- A ticket out counts for the allocation; told outcomes alone count for estimates and evidence.
- After an amendment the cell's outcomes are folded again from its first, each with its latest correction, in
  the order in which they were first told. The rule's memory and what was asked before stay as they were. The
  stopping rule looks at once.
- After the stop nothing changes estimates but amendments, and nothing changes the decision.
- The rows of an import stand one after another, and so do the event with which the stopping rule fires and
  the event that says so.

What a reader needs of an experiment, copied, so that writing can go on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from evenhand.live import events as ev
from evenhand.live.build import Build, present_build
from evenhand.live.event_checks import check_event
from evenhand.live.events import AnyEvent, Stopped, decode
from evenhand.live.hash_chain import Difference, Head, Record
from evenhand.live.protocol import Protocol
from evenhand.live.replay import Brain, Cell, CellSums, Sums, sums_of
from evenhand.live.replay_kernels import ASK_THIS, DROP, IMPORT, IMPORT_LAST, TELL, Tally
from evenhand.live.sequence_checks import check_follows, stop_is_missing
from evenhand.live.tickets import Out, TicketsOut
from evenhand.procedure.state import State

# the outcomes that count in a cell as of an event, first told first: how an amendment is folded
History = Callable[[int, int], Sequence[float]]

COUNTED = (
    "asked", "told", "late", "dropped", "expired", "amended", "imported", "refused", "viewed", "clock_back",
)  # fmt: skip
# these are compared with the state after the event before, so no arithmetic may wait
_NEED_STATE = (ev.Amended, ev.Stopped, ev.BuildChanged, ev.Snapshot)


class Fold:
    """Everything known after some event."""

    def __init__(self, protocol: Protocol, head: Head) -> None:
        self.protocol = protocol
        self.head = head
        self.brain = Brain(protocol)
        self.tickets = 0  # number of the latest
        self.out = TicketsOut()
        self.counts = dict.fromkeys(COUNTED, 0)
        self.latest = protocol.at if protocol.format >= 2 else ""  # latest time in the log
        self.stop: ev.Stopped | None = None
        self.paused = False
        self.closed = False
        self.corrected_after_stop = False
        self.snapshot = 0  # number of the latest snapshot event
        self.sums = CellSums()
        self.importing: ev.Imported | None = None  # the last row of an import that is not complete
        self.use_build(protocol.versions, protocol.format)
        family = protocol.problem.family
        self._low, self._width = family.low, family.width
        self._is_active = protocol.problem.mode == "active"
        self._handlers: dict[type, Callable[[int, Any], None]] = {
            ev.Asked: self._asked, ev.Told: self._told, ev.Late: self._late, ev.Dropped: self._dropped,
            ev.Expired: self._expired, ev.Imported: self._imported, ev.Refused: self._refused,
            ev.Paused: self._paused, ev.Resumed: self._resumed, ev.Stopped: self._stopped,
            ev.Closed: self._closed, ev.Viewed: self._viewed, ev.Answered: self._answered,
            ev.BuildChanged: self._build_changed, ev.Snapshot: self._snapshot,
        }  # fmt: skip

    @property
    def is_over(self) -> bool:
        return self.stop is not None or self.closed

    @property
    def must_stop(self) -> bool:
        """Has the rule fired, with the event that says so still to come?"""
        return self.brain.has_stopped and self.stop is None

    @property
    def why_late(self) -> str:
        """Why an outcome that comes now is late, of an experiment that is over."""
        return "stopped" if self.stop is not None else "closed"

    def take(self, records: Iterable[Record], history: History) -> None:
        """Fold these stored events, checking each, and that it follows from those before."""
        for record in records:
            event = decode(record)
            check_event(record, event, self.protocol)
            self.step(record, event, history)
        self.flush()

    def note(self, record: Record, event: AnyEvent, history: History) -> None:
        """Fold one new event."""
        self.step(record, event, history)
        self.flush()

    def step(self, record: Record, event: AnyEvent, history: History) -> None:
        """Fold an event; its arithmetic may wait for `flush`."""
        seq = record.seq
        if isinstance(event, _NEED_STATE):
            self.flush()
        check_follows(self, seq, event)
        if isinstance(event, ev.Amended):
            self._amended(seq, event, history)
        else:
            self._handlers[type(event)](seq, event)
        self.note_time(event)  # after: a snapshot holds what was known before it
        self.head = Head(seq, record.hash)

    def flush(self) -> None:
        """Do the arithmetic that waits; the first event that does not follow is named."""
        self.brain.flush()
        if self.must_stop and self.brain.stopped_at < self.head.seq:
            raise stop_is_missing(self.brain.stopped_at + 1)

    def note_chosen(self, record: Record, event: ev.Asked, cell: Cell) -> None:
        """Fold an ask whose arithmetic `brain.choose` has done."""
        self.note_time(event)
        self._hand_out(event, cell.policy, cell.group)
        self.head = Head(record.seq, record.hash)

    def note_snapshot(self, record: Record, event: ev.Snapshot) -> None:
        """Fold a snapshot of this very state."""
        self.note_time(event)
        self._passed_snapshot(record.seq)
        self.head = Head(record.seq, record.hash)

    def use_build(self, build: Build, format_: int) -> None:
        """Events from here on were written by this build, in this format."""
        self.build, self.format = build, format_
        self.brain.same_build = build == present_build()

    def cell(self, k: int, g: int) -> int:
        """The number of a cell."""
        return k * len(self.protocol.groups) + g

    def cell_of(self, event: AnyEvent) -> int | None:
        """Where the event's outcome counts, if it has one that does; asked before the event is folded."""
        if isinstance(event, ev.Told) and event.ticket in self.out:
            out = self.out[event.ticket]
            return self.cell(out.policy, self.protocol.groups.get(event.group or "", out.group))
        if isinstance(event, ev.Imported) or (isinstance(event, ev.Amended) and event.counted):
            return self.cell(
                self.protocol.policies.get(event.policy, -1), self.protocol.groups.get(event.group, -1)
            )
        return None

    def unit(self, outcome: float) -> float:
        """An outcome as the kernels see it."""
        return (outcome - self._low) / self._width

    def sums_with(self, cell: int, outcome: float) -> Sums:
        """What one more outcome leads to in a cell."""
        return self.sums[cell].plus(self.unit(outcome))

    def sums_from(self, outcomes: Iterable[float]) -> Sums:
        """What these outcomes lead to in a cell."""
        return sums_of(map(self.unit, outcomes))

    def note_time(self, event: ev.Event) -> None:
        """Keep the latest time, and count the clock's steps back."""
        if event.at > self.latest:
            self.latest = event.at
        if event.back:
            self.counts["clock_back"] += 1

    def _asked(self, seq: int, event: ev.Asked) -> None:
        k = self.protocol.policies[event.policy]
        g = -1 if event.group is None else self.protocol.groups[event.group]
        arrived = -1 if self._is_active else g
        chance = math.nan if event.p is None else event.p
        digests = int(event.state, 16), int(event.chance, 16)
        self.brain.queue(seq, ASK_THIS, k, g, arrived, chance, digests)
        self._hand_out(event, k, g)

    def _hand_out(self, event: ev.Asked, k: int, g: int) -> None:
        lease = self.protocol.lease if event.lease is None else event.lease
        self.tickets = event.ticket
        self.counts["asked"] += 1
        self.out.hand_out(event.ticket, Out(k, g, event.worker, event.at, lease))

    def _told(self, seq: int, event: ev.Told) -> None:
        out = self.out.take_back(event.ticket)
        g = out.group if event.group is None else self.protocol.groups[event.group]
        cell = self.cell(out.policy, g)
        self._use_sums(seq, event, cell, self.sums_with(cell, event.outcome))
        self.brain.queue(seq, TELL, out.policy, g, -1, self.unit(event.outcome))
        self.counts["told"] += 1

    def _late(self, seq: int, event: ev.Late) -> None:
        if event.ticket in self.out:
            self.out.take_back(event.ticket)
        self.counts["late"] += 1

    def _dropped(self, seq: int, event: ev.Dropped) -> None:
        self._given_up(seq, event.ticket)
        self.counts["dropped"] += 1

    def _expired(self, seq: int, event: ev.Expired) -> None:
        self._given_up(seq, event.ticket)
        self.counts["expired"] += 1

    def _given_up(self, seq: int, ticket: int) -> None:
        out = self.out.take_back(ticket)
        if self.stop is None:
            self.brain.queue(seq, DROP, out.policy, out.group, -1, 0.0)

    def _imported(self, seq: int, event: ev.Imported) -> None:
        k, g = self.protocol.policies[event.policy], self.protocol.groups[event.group]
        cell, complete = self.cell(k, g), event.row == event.rows
        self._use_sums(seq, event, cell, self.sums_with(cell, event.outcome))
        self.brain.queue(seq, IMPORT_LAST if complete else IMPORT, k, g, -1, self.unit(event.outcome))
        self.importing = None if complete else event
        self.tickets = event.ticket
        self.counts["imported"] += 1

    def _amended(self, seq: int, event: ev.Amended, history: History) -> None:
        self.counts["amended"] += 1
        if not event.counted:
            return
        k, g = self.protocol.policies[event.policy], self.protocol.groups[event.group]
        cell = self.cell(k, g)
        outcomes = history(cell, seq)
        self._use_sums(seq, event, cell, self.sums_from(outcomes))
        self.brain.replace(seq, k, g, [self.unit(x) for x in outcomes])
        self.corrected_after_stop |= self.stop is not None

    def _use_sums(self, seq: int, event: ev.Told | ev.Imported | ev.Amended, cell: int, sums: Sums) -> None:
        """Refuse an outcome that leads to other sums than it says; format 1 does not say."""
        if event.sums != (sums.digest(event.ticket, cell) if self.format >= 2 else None):
            raise Difference(seq, f"has the outcome {event.outcome:g}, and leads to other sums than it says.")
        self.sums[cell] = sums

    def _refused(self, seq: int, event: ev.Refused) -> None:
        self.counts["refused"] += 1

    def _viewed(self, seq: int, event: ev.Viewed) -> None:
        self.counts["viewed"] += 1

    def _paused(self, seq: int, event: ev.Paused) -> None:
        self.paused = True

    def _resumed(self, seq: int, event: ev.Resumed) -> None:
        self.paused = False

    def _closed(self, seq: int, event: ev.Closed) -> None:
        self.closed = True

    def _answered(self, seq: int, event: ev.Answered) -> None:
        """Changes nothing: it repeats what a caller was told."""

    def _stopped(self, seq: int, event: ev.Stopped) -> None:
        self.stop = event

    def _build_changed(self, seq: int, event: ev.BuildChanged) -> None:
        self.use_build(event.versions, event.format)

    def _snapshot(self, seq: int, event: ev.Snapshot) -> None:
        from evenhand.live.snapshot import go_on_from

        go_on_from(seq, self, event.fold)
        self._passed_snapshot(seq)

    def _passed_snapshot(self, seq: int) -> None:
        self.snapshot = seq
        self.brain.refresh(seq)


class View(NamedTuple):
    """A fold as of one event."""

    protocol: Protocol
    head: Head
    state: State
    tally: Tally
    counts: dict[str, int]
    pending: int
    oldest: tuple[int, str] | None  # the first handed out of the tickets still out, and when that was
    stop: Stopped | None
    paused: bool
    closed: bool
    corrected_after_stop: bool


def view_of(fold: Fold) -> View:
    """The fold as it is now."""
    oldest = next(iter(fold.out.items()), None)
    return View(
        protocol=fold.protocol,
        head=fold.head,
        state=State._make(table.copy() for table in fold.brain.state),
        tally=Tally._make(table.copy() for table in fold.brain.tally),
        counts=dict(fold.counts),
        pending=len(fold.out),
        oldest=None if oldest is None else (oldest[0], oldest[1].at),
        stop=fold.stop,
        paused=fold.paused,
        closed=fold.closed,
        corrected_after_stop=fold.corrected_after_stop,
    )
