"""The history of every ticket of a log, stored compactly, and the outcomes that count.

A running experiment looks up tickets and cells in its journal; an audit does not rely on lookups and uses
this history.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.live import events as ev
from evenhand.live.answer_checks import check_answer
from evenhand.live.events import Metrics, Sample, decode, outcome_text, sample_of
from evenhand.live.hash_chain import Difference, Record
from evenhand.live.input_checks import unit_metrics
from evenhand.live.item_tickets import unit_row
from evenhand.live.projection import LogState, Place, PlacedSample
from evenhand.live.protocol import Protocol
from evenhand.live.sequence_checks import check_item_outcome, check_told_group

_OUT, _COUNTED, _LATE, _DROPPED, _EXPIRED, _WITHDRAWN = range(1, 7)  # states of a ticket
_GIVEN_UP = {_DROPPED: "dropped", _EXPIRED: "expired", _WITHDRAWN: "withdrawn"}


def corrected(records: Iterable[Record]) -> list[PlacedSample]:
    """Return the samples of a cell from its records, in the order first recorded."""
    outcomes: dict[int, PlacedSample] = {}
    for record in records:
        event = decode(record)
        if isinstance(event, (ev.Told, ev.Imported, ev.Amended)):
            first = outcomes.get(event.ticket)
            position = record.seq if first is None else first.position
            outcomes[event.ticket] = PlacedSample(position, sample_of(event))
    return list(outcomes.values())


class Counted(NamedTuple):
    """The outcomes that count, with their latest corrections, in the order first recorded.

    Those of policies that are present; a policy is given by its column in the tables of a state.
    """

    policy: NDArray[np.int64]
    group: NDArray[np.int64]
    outcome: NDArray[np.float64]
    rails: NDArray[np.float64]  # (outcomes, M) of the guard-rails in unit scale; NaN where one is missing


class CountedItems(NamedTuple):
    """The items whose outcomes count, with their latest corrections, in the order first recorded."""

    group: NDArray[np.int64]
    outcomes: NDArray[np.float64]  # (items, K), see `item_tickets.unit_row`


def counted_outcomes(protocol: Protocol, entries: Iterable[ev.LogEntry]) -> Counted | CountedItems:
    """Return the outcomes that count in a log."""
    state = LogState(protocol.as_begun())
    history = TicketHistory(state)
    for entry in entries:
        if isinstance(entry.event, ev.Amended):
            history.correct(entry.seq, entry.event)
        history.take(entry.seq, entry.event, state.apply(entry.event))
    return history.counted_items() if protocol.spec.shared_items else history.counted()


class TicketHistory:
    """The state of each ticket of a log that `state` interprets; about 40 bytes per ticket."""

    def __init__(self, state: LogState) -> None:
        self._state = state
        self._problem = state.protocol.problem
        self._status = bytearray(1)  # tickets are numbered from 1
        self._policy, self._group = array("i", [-1]), array("i", [-1])
        self._latest = array("d", [0.0])  # outcome with its latest correction
        self._answering: dict[int, tuple[int, ...]] = {}  # policies that answer the item of a ticket
        self._on_item: dict[int, ev.Outcome] = {}  # outcomes on shared items with their latest correction
        self._counted = array("q")  # tickets with outcomes that count, in the order first recorded
        self._metrics: dict[int, Metrics] = {}  # outcomes of guard-rails with their latest correction
        self._refused: set[tuple[object, ...]] = set()

    def counted(self) -> Counted:
        """Return the outcomes that count so far."""
        tickets, columns = np.array(self._counted, dtype=np.int64), self._state.protocol.columns
        column = np.array([columns.get(number, -1) for number in self._policy], dtype=np.int64)
        tickets = tickets[column[tickets] >= 0]
        return Counted(
            column[tickets],
            np.array(self._group, dtype=np.int64)[tickets],
            np.array(self._latest)[tickets],
            self._rails(tickets.tolist()),
        )

    def counted_items(self) -> CountedItems:
        """Return the shared items that count so far."""
        tickets = np.array(self._counted, dtype=np.int64)
        rows = [unit_row(self._problem, self._on_item[ticket]) for ticket in tickets.tolist()]
        table = np.array(rows, dtype=float).reshape((len(rows), len(self._problem.policies)))
        return CountedItems(np.array(self._group, dtype=np.int64)[tickets], table)

    def _rails(self, tickets: list[int]) -> NDArray[np.float64]:
        problem = self._problem
        rows = [unit_metrics(self._metrics.get(ticket), problem) for ticket in tickets]
        return np.array(rows, dtype=float).reshape((len(tickets), len(problem.guardrails)))

    def of(self, cell: int) -> list[PlacedSample]:
        """Return the samples that count in a cell, in the order first recorded."""
        tickets = np.array(self._counted, dtype=np.int64)
        policy, group = divmod(cell, len(self._problem.group_names))
        mine = np.array(self._policy, dtype=np.int64)[tickets] == policy
        mine &= np.array(self._group, dtype=np.int64)[tickets] == group
        return [
            PlacedSample(position, Sample(self._outcome(ticket), self._metrics.get(ticket)))
            for position, ticket in zip(np.flatnonzero(mine).tolist(), tickets[mine].tolist(), strict=True)
        ]

    def take(self, seq: int, event: ev.AnyEvent, place: Place | None) -> None:
        """Apply an event of this cell; refuse it if it contradicts the history of its ticket."""
        if isinstance(event, ev.Late):
            self._tell_late(seq, event)
        elif isinstance(event, ev.Refused):
            self._refuse(seq, event)
        elif isinstance(event, ev.PolicyWithdrawn):
            self._withdraw(self._state.protocol.policies[event.policy])
        elif isinstance(event, ev.Answered):
            check_answer(seq, event.answer, self._state.protocol, self._cell_of)
        elif place is None or isinstance(event, ev.Amended):
            return
        elif isinstance(event, ev.Told):
            self._status[event.ticket] = _COUNTED
            self._group[event.ticket] = place[1]
            self._count(event)
        elif isinstance(event, (ev.Asked, ev.Imported)):
            self._begin(event, place)
        elif isinstance(event, ev.Dropped):
            self._status[event.ticket] = _DROPPED
        elif isinstance(event, ev.Expired):
            self._status[event.ticket] = _EXPIRED

    def _cell_of(self, ticket: int) -> Place | None:
        """Return policy and group of a ticket, the group as far as it is known; None if there is no such."""
        return (self._policy[ticket], self._group[ticket]) if 0 < ticket < len(self._policy) else None

    def _outcome(self, ticket: int) -> ev.Outcome:
        """Return the outcome of a ticket with its latest correction."""
        return self._on_item[ticket] if ticket in self._on_item else self._latest[ticket]

    def _withdraw(self, number: int) -> None:
        """End the open tickets of a policy."""
        for ticket, status in enumerate(self._status):
            if status == _OUT and self._policy[ticket] == number:
                self._status[ticket] = _WITHDRAWN

    def _begin(self, event: ev.Asked | ev.Imported, place: Place) -> None:
        self._policy.append(place[0])
        self._group.append(place[1])
        self._latest.append(0.0)
        if isinstance(event, ev.Asked) and event.policies:
            self._answering[event.ticket] = self._state.answering
        self._status.append(_OUT if isinstance(event, ev.Asked) else _COUNTED)
        if isinstance(event, ev.Imported):
            self._count(event)

    def _count(self, event: ev.Told | ev.Imported) -> None:
        self._keep(event)
        self._counted.append(event.ticket)

    def _tell_late(self, seq: int, event: ev.Late) -> None:
        status = self._status_of(seq, event.ticket)
        if status in (_COUNTED, _LATE):
            raise Difference(seq, f"tells ticket {event.ticket} late, which has an outcome.")
        why = _GIVEN_UP.get(status)
        if why is not None and event.why != why:
            raise Difference(seq, f"is late because ticket {event.ticket} was {why}; it says {event.why}.")
        check_told_group(self._state, seq, self._group[event.ticket], event.group)
        check_item_outcome(self._state, seq, event, self._answering.get(event.ticket, ()))
        if event.group is not None:
            self._group[event.ticket] = self._state.protocol.groups[event.group]
        self._status[event.ticket] = _LATE
        self._keep(event)

    def _refuse(self, seq: int, event: ev.Refused) -> None:
        self._check_latest(seq, event.ticket, event.kept, "refuses another outcome than")
        check_item_outcome(self._state, seq, event, self._answering.get(event.ticket, ()))
        if event.kept_metrics != self._metrics.get(event.ticket):
            raise Difference(
                seq, f"keeps outcomes of guard-rails of ticket {event.ticket} that are not there."
            )
        actor = None if event.actor is None else event.actor.id
        told = event.outcome
        values = sorted(told.items()) if isinstance(told, dict) else [told]
        told_again = (event.ticket, *values, actor, *sorted((event.metrics or {}).items()))
        if told_again in self._refused and event.key is None:  # a request with a key gets its own answer
            said = outcome_text(event.outcome)
            raise Difference(seq, f"refuses the outcome {said} of ticket {event.ticket} again.")
        self._refused.add(told_again)

    def correct(self, seq: int, event: ev.Amended) -> None:
        """Apply a correction before it is folded, so that `of` returns the corrected outcomes."""
        self._check_latest(seq, event.ticket, event.old, "corrects")
        if event.old_metrics != self._metrics.get(event.ticket):
            raise Difference(
                seq, f"corrects outcomes of guard-rails of ticket {event.ticket} that are not there."
            )
        policy, group = self._policy[event.ticket], self._group[event.ticket]
        protocol = self._state.protocol
        answering = self._answering.get(event.ticket, ())
        check_item_outcome(self._state, seq, event, answering)
        cell = "" if answering else protocol.members.names[policy], self._problem.group_names[group]
        if (event.policy, event.group) != cell:
            raise Difference(
                seq, f"corrects an outcome of another cell than its ticket's, {' in '.join(cell)}."
            )
        if event.counted != (self._status[event.ticket] == _COUNTED and policy in protocol.columns):
            raise Difference(seq, f"is wrong about whether the outcome of ticket {event.ticket} counts.")
        self._keep(event)

    def _keep(self, event: ev.Told | ev.Late | ev.Imported | ev.Amended) -> None:
        if isinstance(event.outcome, dict):
            self._on_item[event.ticket] = event.outcome
        else:
            self._latest[event.ticket] = event.outcome
        if event.metrics is not None:
            self._metrics[event.ticket] = event.metrics

    def _check_latest(self, seq: int, ticket: int, outcome: ev.Outcome, what: str) -> None:
        if self._status_of(seq, ticket) not in (_COUNTED, _LATE) or self._outcome(ticket) != outcome:
            said = outcome_text(outcome)
            raise Difference(seq, f"{what} an outcome {said} of ticket {ticket} that is not there.")

    def _status_of(self, seq: int, ticket: int) -> int:
        if not 0 < ticket < len(self._status):
            raise Difference(seq, f"is about ticket {ticket}, which was never issued.")
        return self._status[ticket]
