"""The tickets that are out: handed to somebody, and neither told nor given up."""

from __future__ import annotations

from typing import NamedTuple

from evenhand.live.clock import seconds_of


class Out(NamedTuple):
    """A ticket handed out."""

    policy: int
    group: int  # -1 where it is not known yet
    worker: str | None
    at: str
    lease: float | None


def seconds_left(out: Out, at: str) -> float:
    """Return for how many seconds a ticket's lease still runs at a time; 0 if it has run out."""
    if out.lease is None:
        return 0.0
    return max(round(out.lease - (seconds_of(at) - seconds_of(out.at)), 6), 0.0)


class TicketsOut(dict[int, Out]):
    """By number, oldest first, and by who has them; changed only by the two verbs below."""

    def __init__(self) -> None:
        super().__init__()
        self._by_worker: dict[str, dict[int, None]] = {}

    def hand_out(self, ticket: int, out: Out) -> None:
        self[ticket] = out
        if out.worker is not None:
            self._by_worker.setdefault(out.worker, {})[ticket] = None

    def take_back(self, ticket: int) -> Out:
        """The ticket, out no longer."""
        out = self.pop(ticket)
        if out.worker is not None:
            theirs = self._by_worker[out.worker]
            del theirs[ticket]
            if not theirs:
                del self._by_worker[out.worker]
        return out

    def held_by(self, worker: str | None) -> list[int]:
        """What this worker has, oldest first."""
        return [] if worker is None else list(self._by_worker.get(worker, ()))
