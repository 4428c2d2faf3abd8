"""The methods of `Experiment` for intervals: publish shares, record counts.

with Experiment.create("trial.db", problem, Procedure(interval=Intervals(volume=10_000)), seed=7) as trial:
    shares = trial.shares()                       # publish these to the servers
    trial.tell_counts(1, {"a": {"young": (52, 31), ...}, ...}, close=True)
    shares = trial.shares()                       # of the next interval
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from evenhand.live import interval_calls
from evenhand.live.input_checks import checked_text
from evenhand.live.interval_bets import IntervalBets, next_bets
from evenhand.live.interval_calls import checked_interval, checked_valid_from
from evenhand.live.interval_counts import plain_rows
from evenhand.live.interval_pairs import PairIntervalBets
from evenhand.live.intervals import IntervalReceipt, intervals_of
from evenhand.live.protocol import LIMITS
from evenhand.live.transaction import Session
from evenhand.procedure.assignment import Shares

if TYPE_CHECKING:
    from evenhand.live.group_commit import Writer

Details = dict[str, Any]  # arguments of a request, by name
T = TypeVar("T")


class IntervalMethods:
    """Shares and counts of an experiment in intervals."""

    _writer: Writer

    def shares(self) -> Shares:
        """Return the shares that were published last."""
        with self._writer.reading() as fold:
            found = intervals_of(fold.intervals).latest
        assert found is not None  # the first shares are published with the protocol
        return found

    def tell_counts(
        self,
        interval: int,
        counts: Any,
        *,
        close: bool = False,
        valid_from: str | None = None,
        key: str | None = None,
    ) -> IntervalReceipt:
        """Record the counts of an interval: number and sum of the outcomes of every cell.

        `counts` are given by policy and group as (n, sum), or as rows. The same numbers may be repeated;
        others are refused. `close` closes the interval as well, see `close_interval`.
        """
        number, rows = checked_interval(interval), plain_rows(counts)
        start = checked_valid_from(valid_from)
        details: Details = {"interval": number, "counts": rows, "close": bool(close), "valid_from": start}
        work = partial(
            interval_calls.tell_counts, interval=number, counts=rows, close=bool(close), valid_from=start
        )
        return self._submit("tell_counts", work, key, details)

    def correct_counts(
        self, interval: int, counts: Any, *, reason: str, by: str, key: str | None = None
    ) -> IntervalReceipt:
        """Replace the counts of an interval that is not closed; the old ones stay in the log."""
        details: Details = {
            "interval": checked_interval(interval),
            "counts": plain_rows(counts),
            "reason": checked_text(reason, "reason"),
            "by": checked_text(by, "by", LIMITS["name_characters"]),
        }
        return self._submit("correct_counts", partial(interval_calls.correct_counts, **details), key, details)

    def close_interval(
        self, interval: int | None = None, *, valid_from: str | None = None, key: str | None = None
    ) -> IntervalReceipt:
        """Close the oldest open interval: its counts are final, and the stopping rule is evaluated.

        If it is the one that began last and the experiment continues, the next shares are published, valid
        from `valid_from` or at once.
        """
        number = None if interval is None else checked_interval(interval)
        details: Details = {"interval": number, "valid_from": checked_valid_from(valid_from)}
        return self._submit("close_interval", partial(interval_calls.close_interval, **details), key, details)

    def publish_shares(
        self, *, valid_from: str | None = None, after: int | None = None, key: str | None = None
    ) -> Shares:
        """Begin the next interval before the last one is closed, where outcomes take time; return its shares.

        The outcomes of the last interval can still be recorded and closed later. With `after`, the version
        of the latest shares, nothing is published if another process has already done it.
        """
        details: Details = {
            "valid_from": checked_valid_from(valid_from),
            "after": None if after is None else checked_interval(after),
        }
        return self._submit("publish_shares", partial(interval_calls.publish_shares, **details), key, details)

    def bets(self) -> IntervalBets | PairIntervalBets:
        """Return the bets on the next interval to be closed, with linear bets or with shared units."""
        with self._writer.reading() as fold:
            return next_bets(fold.protocol, fold.replay.state, intervals_of(fold.intervals))

    def _submit(self, operation: str, work: Callable[[Session], T], key: str | None, details: Details) -> T:
        raise NotImplementedError
