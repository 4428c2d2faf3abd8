"""The outcomes that stand in a cell, each with its latest correction: how an amendment is folded.

A running experiment looks a cell up in its journal; an audit trusts no lookup and keeps its own account.
"""

from __future__ import annotations

from collections.abc import Iterable

from evenhand.live import events as ev
from evenhand.live.chain import Difference, Record
from evenhand.live.events import decode
from evenhand.live.fold import Fold


def corrected(records: Iterable[Record]) -> list[float]:
    """The outcomes of a cell from its records, first told first."""
    outcomes: dict[int, float] = {}
    for record in records:
        event = decode(record)
        if isinstance(event, (ev.Told, ev.Imported, ev.Amended)):
            outcomes[event.ticket] = event.outcome
    return list(outcomes.values())


class Outcomes:
    """By cell and ticket. Grows with the log, so it is made only for logs with amendments."""

    def __init__(self, fold: Fold) -> None:
        self._policies, self._groups = fold.protocol.policies, fold.protocol.groups
        self._asked: dict[int, tuple[str, str | None]] = {}
        self._counted: dict[int, dict[int, float]] = {}
        self._late: dict[int, float] = {}
        self._seen = 0

    def of(self, cell: int) -> list[float]:
        """Its outcomes, each with its latest correction, first told first."""
        return list(self._counted.get(cell, {}).values())

    def see(self, seq: int, event: ev.AnyEvent) -> None:
        """Take in an event; those seen already are passed over."""
        if seq <= self._seen:
            return
        self._seen = seq
        if isinstance(event, ev.Asked):
            self._asked[event.ticket] = event.policy, event.group
        elif isinstance(event, ev.Told):
            policy, group = self._asked.get(event.ticket, ("", None))
            self._put(seq, event.ticket, policy, event.group or group, event.outcome)
        elif isinstance(event, ev.Imported):
            self._put(seq, event.ticket, event.policy, event.group, event.outcome)
        elif isinstance(event, ev.Late):
            self._late[event.ticket] = event.outcome
        elif isinstance(event, ev.Amended):
            self._correct(seq, event)

    def _put(self, seq: int, ticket: int, policy: str, group: str | None, outcome: float) -> None:
        self._counted.setdefault(self._cell(seq, policy, group), {})[ticket] = outcome

    def _correct(self, seq: int, event: ev.Amended) -> None:
        outcomes = self._late
        if event.counted:
            outcomes = self._counted.get(self._cell(seq, event.policy, event.group), {})
        if outcomes.get(event.ticket) != event.old:
            raise Difference(
                seq, f"corrects an outcome {event.old} of ticket {event.ticket} that is not there."
            )
        outcomes[event.ticket] = event.outcome

    def _cell(self, seq: int, policy: str, group: str | None) -> int:
        k, g = self._policies.get(policy), self._groups.get(group or "")
        if k is None or g is None:
            raise Difference(seq, f"belongs to {policy!r} in {group!r}, which is no cell.")
        return k * len(self._groups) + g
