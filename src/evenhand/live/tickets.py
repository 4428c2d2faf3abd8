"""Tickets: what `ask` and `tell` return, how tickets are written, and those that are out.

A ticket is written ``t17-k3f9``. The last four letters belong to this ticket of this experiment, so that a
mistyped number and a ticket of another experiment are refused.

A ticket is out when it was handed to somebody, and neither told nor given up.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from evenhand.errors import NotFound
from evenhand.live.clock import seconds_of


class Ask(NamedTuple):
    """A ticket: give this policy to one unit of this group, then tell what came of it."""

    ticket: str
    policy: str
    group: str | None  # None where it is known only with the outcome


class Receipt(NamedTuple):
    """What became of an outcome; repeated calls get the same."""

    ticket: str
    outcome: float
    counted: bool  # False: it came late, and is kept without counting
    why: str | None = None  # why it came late


_LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"  # without i, l, o, u, which are misread
_FORM = re.compile(r"t([1-9][0-9]{0,17})-([0-9a-z]{4})")


def ticket_code(protocol: bytes, number: int) -> str:
    """What people write for this ticket; `protocol` is the hash of event one."""
    digest = hashlib.sha256(protocol + number.to_bytes(8, "big")).digest()
    bits = int.from_bytes(digest[:3], "big")
    return f"t{number}-" + "".join(_LETTERS[bits >> shift & 31] for shift in (15, 10, 5, 0))


def ticket_number(protocol: bytes, code: object) -> int:
    """The number of a ticket that people wrote."""
    match = _FORM.fullmatch(code.strip().lower()) if isinstance(code, str) else None
    if match is None or ticket_code(protocol, int(match[1])) != match[0]:
        raise NotFound(f"this experiment has no ticket {str(code)[:40]!r}; copy it as `ask` gave it.")
    return int(match[1])


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
