"""When tickets are given up.

Wall clocks jump; so within a process leases are measured by the steady clock.
"""

from __future__ import annotations

import heapq

from evenhand.live.clock import Clock, seconds_of
from evenhand.live.fold import Fold
from evenhand.live.out import Out


class Leases:
    """The tickets out that have a lease, soonest first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int]] = []

    def begin(self, fold: Fold) -> None:
        """Take over the tickets of a fold just read; what their clocks say of the time passed is believed."""
        self._heap.clear()
        now, steady = self._clock.now(), self._clock.steady()
        for ticket, out in fold.out.items():
            if out.lease is not None:
                passed = min(max(now - seconds_of(out.at), 0.0), out.lease)
                self._heap.append((steady + out.lease - passed, ticket))
        heapq.heapify(self._heap)

    def add(self, ticket: int, out: Out) -> None:
        """A ticket handed out just now, or just now heard of."""
        if out.lease is not None:
            heapq.heappush(self._heap, (self._clock.steady() + out.lease, ticket))

    def due(self, fold: Fold) -> list[int]:
        """Tickets still out whose lease has run out; they are not named again."""
        steady = self._clock.steady()
        found = []
        while self._heap and self._heap[0][0] <= steady:
            ticket = heapq.heappop(self._heap)[1]
            if ticket in fold.out:
                found.append(ticket)
        return found
