"""LogState: the effect of each event on the tickets and the phase of an experiment.

This is the only interpreter of the log. `projection.Fold` adds checks and the arithmetic of the procedure;
audits, reports, the dashboard and transfers use either class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evenhand.live import events as ev
from evenhand.live.events import AnyEvent
from evenhand.live.protocol import Protocol
from evenhand.live.tickets import Out, TicketsOut

COUNTED = (
    "asked", "told", "late", "dropped", "expired", "amended", "imported", "refused", "viewed", "clock_back",
)  # fmt: skip
Place = tuple[int, int]  # indices of a policy and a group; -1 for a group that is not known yet


class LogState:
    """Tickets, counts and phase of an experiment after an event; no arithmetic, no checks."""

    def __init__(self, protocol: Protocol) -> None:
        self.protocol = protocol
        self.tickets = 0  # number of the latest ticket
        self.out = TicketsOut()
        self.counts = dict.fromkeys(COUNTED, 0)
        self.latest = protocol.at if protocol.format >= 2 else ""  # latest time in the log
        self.stop: ev.Stopped | None = None
        self.paused = False
        self.closed = False
        self.corrected_after_stop = False
        self.importing: ev.Imported | None = None  # last row of an import that is incomplete
        self._effects: dict[type, Callable[[Any], Place | None]] = {
            ev.Asked: self._asked, ev.Told: self._told, ev.Late: self._late, ev.Dropped: self._dropped,
            ev.Expired: self._expired, ev.Imported: self._imported, ev.Amended: self._amended,
            ev.Refused: self._refused, ev.Viewed: self._viewed, ev.Paused: self._paused,
            ev.Resumed: self._resumed, ev.Stopped: self._stopped, ev.Closed: self._closed,
        }  # fmt: skip

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
        if isinstance(event, ev.Told) and event.ticket in self.out:
            out = self.out[event.ticket]
            return self.cell(out.policy, self.protocol.groups.get(event.group or "", out.group))
        if isinstance(event, ev.Imported) or (isinstance(event, ev.Amended) and event.counted):
            return self.cell(
                self.protocol.policies.get(event.policy, -1), self.protocol.groups.get(event.group, -1)
            )
        return None

    def _asked(self, event: ev.Asked) -> Place:
        k = self.protocol.policies[event.policy]
        g = -1 if event.group is None else self.protocol.groups[event.group]
        lease = self.protocol.lease if event.lease is None else event.lease
        self.tickets = event.ticket
        self.counts["asked"] += 1
        self.out.hand_out(event.ticket, Out(k, g, event.worker, event.at, lease))
        return k, g

    def _told(self, event: ev.Told) -> Place:
        self.counts["told"] += 1
        out = self.out.take_back(event.ticket)
        return out.policy, out.group if event.group is None else self.protocol.groups[event.group]

    def _late(self, event: ev.Late) -> None:
        self.counts["late"] += 1
        if event.ticket in self.out:
            self.out.take_back(event.ticket)

    def _dropped(self, event: ev.Dropped) -> Place:
        self.counts["dropped"] += 1
        out = self.out.take_back(event.ticket)
        return out.policy, out.group

    def _expired(self, event: ev.Expired) -> Place:
        self.counts["expired"] += 1
        out = self.out.take_back(event.ticket)
        return out.policy, out.group

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
        return self.protocol.policies[event.policy], self.protocol.groups[event.group]

    def _refused(self, event: ev.Refused) -> None:
        self.counts["refused"] += 1

    def _viewed(self, event: ev.Viewed) -> None:
        self.counts["viewed"] += 1

    def _paused(self, event: ev.Paused) -> None:
        self.paused = True

    def _resumed(self, event: ev.Resumed) -> None:
        self.paused = False

    def _stopped(self, event: ev.Stopped) -> None:
        self.stop = event

    def _closed(self, event: ev.Closed) -> None:
        self.closed = True
