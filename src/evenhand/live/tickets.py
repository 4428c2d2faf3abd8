"""Tickets: the results of `ask` and `tell`, ticket codes, the table of open tickets, and their leases.

A ticket is written ``t17-k3f9``. The last four letters depend on the ticket and the experiment, so that a
mistyped number and a ticket of another experiment are refused.

A ticket is open after it was issued until it has an outcome, is dropped or expires. The wall clock can jump;
within a process leases are measured by the monotonic clock, also if the log was read again after a broken
connection.
"""

from __future__ import annotations

import hashlib
import heapq
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from evenhand.errors import NotFound
from evenhand.live.clock import Clock, Deadlines, seconds_of
from evenhand.live.events import Outcome

if TYPE_CHECKING:
    from evenhand.live.projection import Fold

# the outcome of a sample; with guard-rails those of all metrics by name, on a shared item those of the
# policies that answer it; None for one that is missing
Outcomes = float | Mapping[str, float | None]


class Ask(NamedTuple):
    """A ticket: apply this policy to one unit of this group, then `tell` the outcome.

    With shared items a ticket is for one item, which all of `policies` answer; `tell` takes their outcomes by
    name.

    Attributes
    ----------
    ticket : str
        The code of the ticket, such as ``t17-k3f9``.
    policy : str
        The policy to apply; empty if several answer a shared item.
    group : str or None
        The group to apply it in; None if it becomes known only with the outcome.
    policies : tuple of str
        The policies that answer a shared item; otherwise empty.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.Ask("t1-k3f9", "a", "x").policy
    'a'
    """

    ticket: str
    policy: str
    group: str | None  # None if it becomes known only with the outcome
    policies: tuple[str, ...] = ()  # that answer a shared item

    def to_dict(self) -> dict[str, Any]:
        """Return the ticket as a JSON object; `policies` only where several answer a shared item."""
        found = self._asdict()
        return found | {"policies": list(self.policies)} if found.pop("policies") else found


class Receipt(NamedTuple):
    """How an outcome was recorded; repeated calls return the same.

    Attributes
    ----------
    ticket : str
        The code of the ticket.
    outcome : float or dict
        The outcome that is stored; on a shared item those of its policies by name.
    counted : bool
        False if the outcome was late; it is then stored without counting.
    why : str or None
        Why it was late.

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["a", "b"], {"x": 0.5, "y": 0.5}, eh.Bernoulli(), eh.Floors(0.3))
    >>> trial = eh.Experiment.create(":memory:", problem, seed=7)
    >>> receipt = trial.tell(trial.ask(), 1)
    >>> receipt.outcome, receipt.counted
    (1.0, True)
    """

    ticket: str
    outcome: Outcome
    counted: bool  # False: it was late, and is stored without counting
    why: str | None = None  # why it was late


_LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"  # without i, l, o, u, which are easily misread
_FORM = re.compile(r"t([1-9][0-9]{0,17})-([0-9a-z]{4})")


@lru_cache(10_000)  # a ticket's code is needed several times between its ask and its tell
def ticket_code(protocol: bytes, number: int) -> str:
    """Return the code of a ticket; `protocol` is the hash of event one."""
    digest = hashlib.sha256(protocol + number.to_bytes(8, "big")).digest()
    bits = int.from_bytes(digest[:3], "big")
    first, second, third = _LETTERS[bits >> 15 & 31], _LETTERS[bits >> 10 & 31], _LETTERS[bits >> 5 & 31]
    return f"t{number}-{first}{second}{third}{_LETTERS[bits & 31]}"


def ticket_number(protocol: bytes, code: object) -> int:
    """Return the number of a ticket from its code."""
    match = _FORM.fullmatch(code.strip().lower()) if isinstance(code, str) else None
    if match is None or ticket_code(protocol, int(match[1])) != match[0]:
        raise NotFound(f"this experiment has no ticket {str(code)[:40]!r}; copy it as `ask` gave it.")
    return int(match[1])


class OpenTicket(NamedTuple):
    """An open ticket."""

    policy: int  # 0 if several policies answer a shared item
    group: int  # -1 if it is not known yet
    worker: str | None
    at: str
    lease: float | None
    owner: str | None = None  # id of the key that asked for it; None if it was asked for without one
    policies: tuple[int, ...] = ()  # that answer a shared item


def seconds_left(out: OpenTicket, at: str) -> float:
    """Return the seconds left on a ticket's lease at a time; 0 if it has expired."""
    if out.lease is None:
        return 0.0
    return max(round(out.lease - (seconds_of(at) - seconds_of(out.at)), 6), 0.0)


class OpenTickets(dict[int, OpenTicket]):
    """Open tickets by number, oldest first, and by worker; changed only by these methods."""

    def __init__(self) -> None:
        super().__init__()
        self._by_worker: dict[tuple[str, str | None], dict[int, None]] = {}  # by worker and owner

    def add(self, ticket: int, out: OpenTicket) -> None:
        self[ticket] = out
        if out.worker is not None:
            self._by_worker.setdefault((out.worker, out.owner), {})[ticket] = None

    def remove(self, ticket: int) -> OpenTicket:
        """Remove a ticket that is no longer open and return it."""
        out = self.pop(ticket)
        if out.worker is not None:
            theirs = self._by_worker[out.worker, out.owner]
            del theirs[ticket]
            if not theirs:
                del self._by_worker[out.worker, out.owner]
        return out

    def held_by(self, worker: str | None, owners: Sequence[str | None] = (None,)) -> list[int]:
        """Return the tickets of this worker of these owners, oldest first."""
        if worker is None:
            return []
        return sorted(ticket for owner in owners for ticket in self._by_worker.get((worker, owner), ()))


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
        """Remove every ticket: the log was rolled back, and numbers will be reused."""
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
