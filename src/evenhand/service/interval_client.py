"""The methods of a remote experiment for intervals, as those of `Experiment`."""

from __future__ import annotations

from typing import Any

from evenhand.errors import BadInput
from evenhand.live.interval_bets import Bet, IntervalBets
from evenhand.live.interval_counts import plain_rows
from evenhand.live.interval_pairs import PairBet, PairIntervalBets
from evenhand.live.intervals import IntervalReceipt
from evenhand.procedure.assignment import Shares


class RemoteIntervals:
    """Shares and counts of an experiment in intervals, through a service."""

    def shares(self) -> Shares:
        """Return the shares that were published last."""
        return Shares.from_dict(self._get("shares"))

    def tell_counts(
        self,
        interval: int,
        counts: Any,
        *,
        close: bool = False,
        valid_from: str | None = None,
        key: str | None = None,
    ) -> IntervalReceipt:
        """Record the counts of an interval; the same again has no effect, others are refused."""
        body = {"interval": _number(interval), "counts": plain_rows(counts), "close": close}
        return IntervalReceipt(**self._post("tell-counts", body | {"valid_from": valid_from}, key))

    def correct_counts(
        self, interval: int, counts: Any, *, reason: str, by: str, key: str | None = None
    ) -> IntervalReceipt:
        """Replace the counts of an interval that is not closed; the old ones stay in the log."""
        if not isinstance(by, str) or not by.strip():
            raise BadInput(f"by must be some text; it is {by!r}.")
        body = {"interval": _number(interval), "counts": plain_rows(counts), "reason": reason, "by": by}
        return IntervalReceipt(**self._post("correct-counts", body, key))

    def close_interval(
        self, interval: int | None = None, *, valid_from: str | None = None, key: str | None = None
    ) -> IntervalReceipt:
        """Close the oldest open interval; if it is the last one, the next shares are published."""
        number = None if interval is None else _number(interval)
        body = {"interval": number, "valid_from": valid_from}
        return IntervalReceipt(**self._post("close-interval", body, key))

    def publish_shares(
        self, *, valid_from: str | None = None, after: int | None = None, key: str | None = None
    ) -> Shares:
        """Begin the next interval before the last one is closed; return its shares."""
        return Shares.from_dict(self._post("publish-shares", {"valid_from": valid_from, "after": after}, key))

    def bets(self) -> IntervalBets | PairIntervalBets:
        """Return the bets on the next interval to be closed, with linear bets or with shared units."""
        found = self._get("bets")
        if "pairs" in found:
            pairs = tuple(PairBet(*row) for row in found["pairs"])
            return PairIntervalBets(found["interval"], pairs, found["needed"])
        return IntervalBets(found["interval"], tuple(Bet(*row) for row in found["rows"]))

    def _get(self, what: str) -> Any:
        raise NotImplementedError

    def _post(self, verb: str, body: dict[str, Any], key: str | None) -> Any:
        raise NotImplementedError


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadInput(f"an interval is a whole number from 1, the version of its shares; it is {value!r}.")
    return value
