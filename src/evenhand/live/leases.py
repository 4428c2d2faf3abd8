"""When tickets are given up.

Wall clocks jump; so within a process leases are measured by the steady clock, also when the log was read
again after a broken connection.
"""

from __future__ import annotations

import heapq

from evenhand.live.clock import Clock, Deadlines, seconds_of
from evenhand.live.projection import Fold
from evenhand.live.tickets import Out


class Leases:
    """The tickets out that have a lease, soonest first."""

    def __init__(self, clock: Clock, deadlines: Deadlines) -> None:
        self._clock = clock
        self._known = deadlines
        self._heap: list[tuple[float, int]] = []
        self._named: list[int] = []  # by `due`, since the last commit

    def begin(self, fold: Fold) -> None:
        """Take over the tickets of a fold just read.

        A ticket known before keeps its deadline. Of another one its own time is believed, but no more than
        has passed since this process knew of every ticket.
        """
        now, steady = self._clock.now(), self._clock.steady()
        unseen = float("inf") if self._known.seen is None else steady - self._known.seen
        deadlines = {}
        for ticket, out in fold.out.items():
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

    def add(self, ticket: int, out: Out) -> None:
        """A ticket handed out just now, or just now heard of."""
        if out.lease is not None:
            deadline = self._clock.steady() + out.lease
            self._known[ticket] = deadline
            heapq.heappush(self._heap, (deadline, ticket))

    def note_seen(self) -> None:
        """Every ticket that is out is known as of now; those named as due are given up for good."""
        self._known.seen = self._clock.steady()
        for ticket in self._named:
            self._known.pop(ticket, None)
        self._named.clear()

    def forget(self) -> None:
        """Forget every ticket: the log went back, and their numbers will stand for others."""
        self._known.clear()
        self._known.seen = None

    def due(self, fold: Fold) -> list[int]:
        """Tickets still out whose lease has run out; they are not named again."""
        steady = self._clock.steady()
        found = []
        while self._heap and self._heap[0][0] <= steady:
            ticket = heapq.heappop(self._heap)[1]
            self._named.append(ticket)
            if ticket in fold.out:
                found.append(ticket)
        return found
