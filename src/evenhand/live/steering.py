"""Steering: data collected before, pausing, closing, and looking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from evenhand.errors import BadInput, Closed
from evenhand.live import events as ev
from evenhand.live.common import answered, refuse_if_closed, refuse_unless_open
from evenhand.live.events import decode
from evenhand.live.outcomes import checked_outcome
from evenhand.live.protocol import Protocol
from evenhand.live.session import Session
from evenhand.model.problem import Problem
from evenhand.procedure.order import depends_on_order, new_order, note_order, refuse_sorted


class Row(NamedTuple):
    """An outcome collected before."""

    policy: str
    group: str
    outcome: float


def checked_rows(rows: Sequence[Any], problem: Problem) -> list[Row]:
    """What may be imported; the first row that may not is named."""
    checked = [_checked_row(number, row, problem) for number, row in enumerate(rows, start=1)]
    if not checked:
        raise BadInput("an import must hold at least one outcome; it holds none.")
    return checked


def import_rows(session: Session, rows: Sequence[Row], source: str, key: str | None) -> int:
    """Count outcomes collected before, as one act."""
    fold = session.fold
    if key is not None and (earlier := session.by_key(key)):
        return answered(ev.Imported, decode(earlier[0]), key).rows
    refuse_unless_open(fold, "take data")
    if fold.stop is not None:
        raise Closed("the experiment has stopped; data collected elsewhere cannot be added to its decision.")
    if depends_on_order(fold.protocol.problem, fold.protocol.procedure):
        _refuse_sorted(rows, fold.protocol)
    for number, row in enumerate(rows, start=1):
        session.emit(
            ev.Imported(
                ticket=fold.tickets + 1,
                policy=row.policy,
                group=row.group,
                outcome=row.outcome,
                row=number,
                rows=len(rows),
                source=source,
                key=key,
                part=number - 1 if key is not None else 0,
                **session.stamp(),
            )
        )
    return len(rows)


def _refuse_sorted(rows: Sequence[Row], protocol: Protocol) -> None:
    """Refuse rows that were sorted by outcome, where the evidence depends on their order."""
    k, l = protocol.problem.shape
    order = new_order((l, k))
    policies = np.array([protocol.policies[row.policy] for row in rows], dtype=np.int64)
    groups = np.array([protocol.groups[row.group] for row in rows], dtype=np.int64)
    note_order(order, policies, groups, np.array([row.outcome for row in rows]))
    refuse_sorted(protocol.problem, order)


def pause(session: Session, reason: str, by: str | None) -> None:
    """Hand out nothing until `resume`; outcomes are still taken."""
    refuse_if_closed(session.fold, "be paused")
    if not session.fold.paused:
        session.emit(ev.Paused(reason=reason, by=by, **session.stamp()))


def resume(session: Session, reason: str, by: str | None) -> None:
    """Hand out tickets again."""
    refuse_if_closed(session.fold, "be resumed")
    if session.fold.paused:
        session.emit(ev.Resumed(reason=reason, by=by, **session.stamp()))


def close(session: Session, reason: str, by: str | None) -> None:
    """End the experiment, decided or not."""
    if not session.fold.closed:
        session.emit(ev.Closed(reason=reason, by=by, **session.stamp()))


def view(session: Session, by: str, what: str) -> None:
    """Write down that somebody looked at outcomes."""
    session.emit(ev.Viewed(by=by, what=what, **session.stamp()))


def _checked_row(number: int, row: Any, problem: Problem) -> Row:
    try:
        policy, group, outcome = row
        problem.policy_index(policy)
        problem.group_index(group)
        return Row(policy, group, checked_outcome(outcome, problem.family))
    except BadInput as error:
        raise BadInput(f"row {number}: {error}") from None
    except (TypeError, ValueError):
        raise BadInput(f"row {number} must be (policy, group, outcome); it is {row!r}.") from None
