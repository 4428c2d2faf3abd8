"""The tickets that are out: handed to somebody, and neither told nor given up."""

from __future__ import annotations

from typing import NamedTuple


class Out(NamedTuple):
    """A ticket handed out."""

    policy: int
    group: int  # -1 where it is not known yet
    worker: str | None
    at: str
    lease: float | None


class TicketsOut(dict[int, Out]):
    """By number, oldest first, and by who has them; changed only by the two verbs below."""

    def __init__(self) -> None:
        super().__init__()
        self._by_worker: dict[str, dict[int, None]] = {}

    def hand_out(self, ticket: int, out: Out) -> None:
        self[ticket] = out
        if out.worker is not None:
            self._by_worker.setdefault(out.worker, {})[ticket] = None

    def take_back(self, ticket: int) -> Out | None:
        """The ticket, out no longer; None where it was not."""
        out = self.pop(ticket, None)
        if out is not None and out.worker is not None:
            theirs = self._by_worker[out.worker]
            del theirs[ticket]
            if not theirs:
                del self._by_worker[out.worker]
        return out

    def held_by(self, worker: str | None) -> list[int]:
        """What this worker has, oldest first."""
        return [] if worker is None else list(self._by_worker.get(worker, ()))
