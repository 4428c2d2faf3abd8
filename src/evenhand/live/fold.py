"""The state as a fold over the events: pure, and the same for going on, opening again and auditing.

Rules a reader may want to know:

- An event's place in the log is its time. Clocks decide only when an expiry is written, never what it means.
- A ticket out counts for the allocation; told outcomes alone count for estimates and evidence.
- After an amendment the cell's outcomes are folded again from its first, each with its latest correction, in
  the order in which they were first told. The rule's memory and what was asked before stay as they were. The
  stopping rule looks at once.
- After the stop nothing changes estimates but amendments, and nothing changes the decision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from evenhand.live import events as ev
from evenhand.live.brain import Brain, Cell
from evenhand.live.chain import Difference, Head, Record
from evenhand.live.events import AnyEvent, decode
from evenhand.live.kernels import ASK_THIS, DROP, IMPORT, IMPORT_LAST, TELL
from evenhand.live.out import Out, TicketsOut
from evenhand.live.protocol import Protocol
from evenhand.live.stop import described, same_stop, stop_of

# the outcomes that count in a cell as of an event, first told first: how an amendment is folded
History = Callable[[int, int], Sequence[float]]

COUNTED = (
    "asked", "told", "late", "dropped", "expired", "amended", "imported", "refused", "viewed", "clock_back",
)  # fmt: skip


class Fold:
    """Everything known after some event."""

    def __init__(self, protocol: Protocol, head: Head) -> None:
        self.protocol = protocol
        self.head = head
        self.brain = Brain(protocol)
        self.tickets = 0  # number of the latest
        self.out = TicketsOut()
        self.counts = dict.fromkeys(COUNTED, 0)
        self.latest = ""  # latest time in the log
        self.stop: ev.Stopped | None = None
        self.paused = False
        self.closed = False
        self.corrected_after_stop = False
        self.snapshot = 0  # number of the latest snapshot event
        family = protocol.problem.family
        self._low, self._width = family.low, family.width
        self._is_active = protocol.problem.mode == "active"
        self._is_agnostic = protocol.problem.mode == "agnostic"
        self._handlers: dict[type, Callable[[int, Any], None]] = {
            ev.Asked: self._asked, ev.Told: self._told, ev.Late: self._late, ev.Dropped: self._dropped,
            ev.Expired: self._expired, ev.Imported: self._imported, ev.Refused: self._refused,
            ev.Paused: self._paused, ev.Resumed: self._resumed, ev.Stopped: self._stopped,
            ev.Closed: self._closed, ev.Viewed: self._viewed, ev.Answered: self._answered,
        }  # fmt: skip

    @property
    def is_over(self) -> bool:
        return self.stop is not None or self.closed

    @property
    def must_stop(self) -> bool:
        """Has the rule fired, with the event that says so still to come?"""
        return self.brain.has_stopped and self.stop is None

    def take(self, records: Iterable[Record], history: History) -> None:
        """Fold these stored events, checking that each follows from those before."""
        for record in records:
            self.step(record, decode(record), history)
        self.brain.flush()

    def note(self, record: Record, event: AnyEvent, history: History) -> None:
        """Fold one new event."""
        self.step(record, event, history)
        self.brain.flush()

    def step(self, record: Record, event: AnyEvent, history: History) -> None:
        """Fold an event; its arithmetic may wait for `brain.flush`."""
        seq = record.seq
        if self.brain.has_stopped and self.stop is None and type(event) is not ev.Stopped:
            raise Difference(seq, "follows a moment at which the stopping rule fires, and does not say so.")
        if isinstance(event, ev.Snapshot):
            self._snapshot(seq, event)
        else:
            self.note_time(event)
            if isinstance(event, ev.Amended):
                self._amended(seq, event, history)
            elif handler := self._handlers.get(type(event)):
                handler(seq, event)
            else:
                raise Difference(seq, "creates the experiment a second time.")
        self.head = Head(seq, record.hash)

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

    def note_time(self, event: ev.Event) -> None:
        """Keep the latest time, and count the clock's steps back."""
        if event.at > self.latest:
            self.latest = event.at
        if event.back:
            self.counts["clock_back"] += 1

    def _asked(self, seq: int, event: ev.Asked) -> None:
        if self.is_over or self.paused:
            raise Difference(seq, "hands out a ticket of an experiment that is stopped, paused or closed.")
        if event.ticket != self.tickets + 1 or event.decision != self.counts["asked"] + 1:
            raise Difference(
                seq, f"must be ticket {self.tickets + 1}, decision {self.counts['asked'] + 1}; it is not."
            )
        k, g = self._place(seq, event.policy, event.group)
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
        out = self._came_back(seq, event.ticket)
        if self.is_over:
            raise Difference(seq, "counts an outcome of an experiment that is over.")
        g = self._group(seq, event.group) if self._is_agnostic else out.group
        self.brain.queue(seq, TELL, out.policy, g, -1, self.unit(event.outcome))
        self.counts["told"] += 1

    def _late(self, seq: int, event: ev.Late) -> None:
        if event.ticket in self.out:
            if not self.is_over:
                raise Difference(seq, f"calls the outcome of ticket {event.ticket} late, and it is not.")
            self._came_back(seq, event.ticket)
        self.counts["late"] += 1

    def _dropped(self, seq: int, event: ev.Dropped) -> None:
        self._given_up(seq, event.ticket)
        self.counts["dropped"] += 1

    def _expired(self, seq: int, event: ev.Expired) -> None:
        self._given_up(seq, event.ticket)
        self.counts["expired"] += 1

    def _given_up(self, seq: int, ticket: int) -> None:
        out = self._came_back(seq, ticket)
        if self.stop is None:
            self.brain.queue(seq, DROP, out.policy, out.group, -1, 0.0)

    def _imported(self, seq: int, event: ev.Imported) -> None:
        if self.is_over or event.ticket != self.tickets + 1:
            raise Difference(seq, "imports after the end, or out of order.")
        k, g = self._place(seq, event.policy, event.group)
        what = IMPORT_LAST if event.row == event.rows else IMPORT
        self.brain.queue(seq, what, k, g, -1, self.unit(event.outcome))
        self.tickets = event.ticket
        self.counts["imported"] += 1

    def _amended(self, seq: int, event: ev.Amended, history: History) -> None:
        self.counts["amended"] += 1
        if not event.counted:
            return
        k, g = self._place(seq, event.policy, event.group)
        self.brain.flush()
        self.brain.replace(k, g, [self.unit(x) for x in history(self.cell(k, g), seq)])
        self.corrected_after_stop |= self.stop is not None

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
        self.brain.flush()
        if not self.brain.has_stopped or self.stop is not None:
            raise Difference(seq, "stops the experiment, and the stopping rule does not.")
        derived = stop_of(self.protocol, self.brain.state, event.at, event.back)
        if not same_stop(event, derived):
            raise Difference(seq, f"stops with {described(event)}; the rule stops with {described(derived)}.")
        self.stop = event

    def _snapshot(self, seq: int, event: ev.Snapshot) -> None:
        from evenhand.live.snapshot import compare

        self.brain.flush()
        compare(seq, self, event.fold)
        self.note_time(event)  # after: it holds what was known before it
        self._passed_snapshot(seq)

    def _passed_snapshot(self, seq: int) -> None:
        self.snapshot = seq
        self.brain.refresh()

    def _came_back(self, seq: int, ticket: int) -> Out:
        out = self.out.take_back(ticket)
        if out is None:
            raise Difference(seq, f"is about ticket {ticket}, which is not out.")
        return out

    def _place(self, seq: int, policy: str, group: str | None) -> tuple[int, int]:
        k = self.protocol.policies.get(policy)
        if k is None:
            raise Difference(seq, f"names {policy!r}, which is no policy.")
        return k, -1 if group is None and self._is_agnostic else self._group(seq, group)

    def _group(self, seq: int, group: str | None) -> int:
        g = self.protocol.groups.get(group or "")
        if g is None:
            raise Difference(seq, f"names {group!r}, which is no group.")
        return g
