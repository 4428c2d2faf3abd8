"""Deadlines of ticket leases.

The wall clock can jump; within a process leases are measured by the monotonic clock, also if the log was read
again after a broken connection.
"""

from __future__ import annotations

import heapq

from evenhand.live.clock import Clock, Deadlines, seconds_of
from evenhand.live.projection import Fold
from evenhand.live.tickets import OpenTicket


class Leases:
    """The open tickets with a lease, by deadline."""

    def __init__(self, clock: Clock, deadlines: Deadlines) -> None:
        self._clock = clock
        self._known = deadlines
        self._heap: list[tuple[float, int]] = []
        self._named: list[int] = []  # returned by `due` since the last commit

    def begin(self, fold: Fold) -> None:
        """Take over the open tickets of a fold that was just read.

        A known ticket keeps its deadline. For a new one the time in the log is used, limited to the time
        since this process last knew every open ticket.
        """
        now, steady = self._clock.now(), self._clock.monotonic()
        unseen = float("inf") if self._known.seen is None else steady - self._known.seen
        deadlines = {}
        for ticket, out in fold.open_tickets.items():
            if out.lease is not None:
                passed = min(max(now - seconds_of(out.at), 0.0), out.lease, unseen)
                deadlines[ticket] = self._known.get(ticket, steady + out.lease - passed)
        self._known.update(deadlines)
        for ticket in self._known.keys() - deadlines.keys():
            del self._known[ticket]
        self._known.seen = steady
        self._named.clear()
        self._heap = [(deadline, ticket) for ticket, deadline in deadlines.items()]
        heapq.heapify(self._heap)

    def add(self, ticket: int, out: OpenTicket) -> None:
        """Add a ticket that was just issued, or just read from the log."""
        if out.lease is not None:
            deadline = self._clock.monotonic() + out.lease
            self._known[ticket] = deadline
            heapq.heappush(self._heap, (deadline, ticket))

    def note_seen(self) -> None:
        """Record that all open tickets are known now; those returned by `due` are removed."""
        self._known.seen = self._clock.monotonic()
        for ticket in self._named:
            self._known.pop(ticket, None)
        self._named.clear()

    def forget(self) -> None:
        """Forget every ticket: the log was rolled back, and numbers will be reused."""
        self._known.clear()
        self._known.seen = None

    def due(self, fold: Fold) -> list[int]:
        """Return open tickets whose lease has ended; each is returned once."""
        steady = self._clock.monotonic()
        found = []
        while self._heap and self._heap[0][0] <= steady:
            ticket = heapq.heappop(self._heap)[1]
            self._named.append(ticket)
            if ticket in fold.open_tickets:
                found.append(ticket)
        return found
