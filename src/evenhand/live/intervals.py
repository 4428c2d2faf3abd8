"""The intervals of an experiment as its log gives them: published shares, counts, and what is closed.

    shares_published   begins an interval; its number is the version of the shares
    counted            the counts of an interval
    counts_corrected   other counts for one that is not closed
    interval_closed    the counts are final; intervals are closed in order

Several intervals are open at once where outcomes take longer than an interval. `interval_arithmetic` has the
sums, the evidence and the shares.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from evenhand.errors import BadInput
from evenhand.live import events as ev
from evenhand.live.hash_chain import canonical
from evenhand.live.interval_counts import Cells, total
from evenhand.procedure.assignment import Shares

if TYPE_CHECKING:
    from evenhand.live.protocol import Protocol

MOST_OPEN = 1_000  # intervals that may be open at once


class OpenInterval(NamedTuple):
    """An interval that has begun and is not closed."""

    shares: Shares
    cells: Cells | None = None  # its counts; None before they are recorded


class ClosedInterval(NamedTuple):
    """An interval that was closed."""

    number: int
    shares: Shares
    cells: Cells
    ended: str  # when the next shares became valid, or when it was closed


class IntervalReceipt(NamedTuple):
    """How the counts of an interval were recorded; repeated calls return the same.

    Attributes
    ----------
    interval : int
        The number of the interval, which is the version of its shares.
    outcomes : int
        The number of outcomes of the interval.
    counted : bool
        False if the experiment was over; the counts are then stored without counting.
    closed : bool
        Whether the interval is closed.
    why : str or None
        Why the counts do not count: "stopped" or "closed".

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bernoulli(), eh.Floors(0.3), mode="proportional")
    >>> procedure = eh.Procedure(interval=eh.Intervals(volume=100))
    >>> trial = eh.Experiment.create(":memory:", problem, procedure, seed=7)
    >>> receipt = trial.tell_counts(1, {"a": {"x": (52, 31)}, "b": {"x": (48, 26)}})
    >>> receipt.outcomes, receipt.closed
    (100, False)
    """

    interval: int
    outcomes: int
    counted: bool
    closed: bool
    why: str | None = None


class IntervalLog:
    """The intervals of an experiment after an event; no arithmetic, no checks."""

    def __init__(self) -> None:
        self.open: dict[int, OpenInterval] = {}  # by number, oldest first
        self.latest: Shares | None = None  # the shares published last
        self.last_closed: ClosedInterval | None = None
        self.late = 0  # outcomes that came after the end
        self.corrected = 0  # corrections
        self.digest = "0" * 16  # of all counts recorded so far

    def effects(self) -> dict[type, Callable[[Any], None]]:
        """Return the effect of every kind of event."""
        return {
            ev.SharesPublished: self._published, ev.Counted: self._counted,
            ev.CountsCorrected: self._corrected, ev.IntervalClosed: self._closed,
        }  # fmt: skip

    @property
    def version(self) -> int:
        """Return the number of the interval that began last."""
        return 0 if self.latest is None else self.latest.version

    @property
    def closed(self) -> int:
        """Return the number of the interval that was closed last; 0 before the first."""
        return 0 if self.last_closed is None else self.last_closed.number

    def _published(self, event: ev.SharesPublished) -> None:
        self.latest = shares_of(event)
        self.open[event.version] = OpenInterval(self.latest)

    def _counted(self, event: ev.Counted) -> None:
        self.digest = event.counts
        self.open[event.interval] = self.open[event.interval]._replace(cells=event.cells)
        if event.late is not None:
            self.late += total(event.cells)

    def _corrected(self, event: ev.CountsCorrected) -> None:
        self.corrected += 1
        self.digest = event.counts
        self.open[event.interval] = self.open[event.interval]._replace(cells=event.cells)

    def _closed(self, event: ev.IntervalClosed) -> None:
        shares, cells = self.open.pop(event.interval)
        following = next(iter(self.open.values()), None)
        ended = event.at if following is None else following.shares.valid_from or event.at
        self.last_closed = ClosedInterval(event.interval, shares, cells or (), ended)


def new_interval_log(protocol: Protocol) -> IntervalLog | None:
    """Return the intervals of an experiment before its first shares; None where it has tickets."""
    return None if protocol.procedure.interval is None else IntervalLog()


def shares_of(event: ev.SharesPublished) -> Shares:
    """Return the shares of an event."""
    return Shares(event.ranges, event.hash_salt, event.version, event.valid_from)


def counts_digest(before: str, interval: int, cells: Cells) -> str:
    """Return 64 bits over all counts recorded so far, in hexadecimal: `before`, and those of an interval.

    An event whose counts were changed later is found at the event itself.
    """
    content = [interval, [msgspec.to_builtins(cell) for cell in cells]]
    return hashlib.blake2b(before.encode() + canonical(content), digest_size=8).hexdigest()


def policies_of(shares: Shares) -> list[str]:
    """Return the policies that the shares name, in the order of their ranges."""
    return list(dict.fromkeys(policy for ranges in shares.ranges.values() for policy, _ in ranges))


def intervals_of(log: IntervalLog | None) -> IntervalLog:
    """Return the intervals; refuse an experiment that has tickets."""
    if log is None:
        raise BadInput(
            "this experiment has tickets: ask for them and tell their outcomes. Shares and counts are for a "
            "study with [procedure] interval."
        )
    return log
