"""Telling: outcomes that come once, twice, late, never or wrong.

Everything that can be refused is refused before anything is written, but for a second, different outcome:
that is refused and written down. Every call can be repeated: the answer is the first one's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from evenhand.errors import BadInput, Conflict, IntegrityFailed, NotFound
from evenhand.live import events as ev
from evenhand.live.common import answered, code, told_group
from evenhand.live.events import decode
from evenhand.live.session import Session


class Receipt(NamedTuple):
    """What became of an outcome; repeated calls get the same."""

    ticket: str
    outcome: float
    counted: bool  # False: it came late, and is kept without counting
    why: str | None = None  # why it came late


def tell(session: Session, ticket: int, outcome: float, group: str | None) -> Receipt:
    """Take an outcome: count it, keep it as late, or recognise it."""
    fold = session.fold
    out = fold.out.get(ticket)
    if out is None:
        return _tell_again(session, ticket, outcome, group)
    named = told_group(fold.protocol.problem, out.group, group)
    if fold.is_over:
        return _late(session, ticket, outcome, named, fold.why_late)
    session.emit(ev.Told(ticket=ticket, outcome=outcome, group=named, **session.stamp()))
    return Receipt(code(fold, ticket), outcome, True)


def tell_all(session: Session, outcomes: Sequence[tuple[int, float, str | None]]) -> list[Receipt | Conflict]:
    """Each outcome in turn; a refusal stops none of the others."""
    answers: list[Receipt | Conflict] = []
    for ticket, outcome, group in outcomes:
        try:
            answers.append(tell(session, ticket, outcome, group))
        except Conflict as refusal:
            answers.append(refusal)
    return answers


def drop(session: Session, ticket: int, reason: str, by: str | None) -> None:
    """Give a ticket up."""
    if ticket in session.fold.out:
        session.emit(ev.Dropped(ticket=ticket, reason=reason, by=by, **session.stamp()))
        return
    history = _history(session, ticket)
    if not any(isinstance(event, (ev.Dropped, ev.Expired)) for event in history):
        raise Conflict(f"ticket {code(session.fold, ticket)} has an outcome; correct it with amend instead.")


def amend(session: Session, ticket: int, outcome: float, reason: str, by: str, key: str | None) -> Receipt:
    """Correct an outcome; the old one stays in the log."""
    fold = session.fold
    if key is not None and (earlier := session.by_key(key)):
        first = answered(ev.Amended, decode(earlier[0]), key)
        return Receipt(code(fold, first.ticket), first.outcome, first.counted)
    history = [] if ticket in fold.out else _history(session, ticket)
    told = _first_outcome(history)
    if told is None:
        raise BadInput(f"ticket {code(fold, ticket)} has no outcome to correct; tell it instead.")
    policy, group = _cell_names(history, told)
    old, counted = _latest_outcome(history), not isinstance(told, ev.Late)
    if outcome != old:
        session.emit(
            ev.Amended(
                ticket=ticket,
                policy=policy,
                group=group,
                outcome=outcome,
                old=old,
                counted=counted,
                reason=reason,
                by=by,
                key=key,
                **session.stamp(),
            )
        )
    return Receipt(code(fold, ticket), outcome, counted)


def _tell_again(session: Session, ticket: int, outcome: float, group: str | None) -> Receipt:
    """An outcome for a ticket that is not out: the same again, another one, or one for a ticket given up."""
    fold = session.fold
    history = _history(session, ticket)
    first = _first_outcome(history)
    if first is None:
        asked = _began(history).group
        named = told_group(fold.protocol.problem, -1 if asked is None else fold.protocol.groups[asked], group)
        why = "expired" if any(isinstance(event, ev.Expired) for event in history) else "dropped"
        return _late(session, ticket, outcome, named, why)
    kept = _latest_outcome(history)
    if outcome in (first.outcome, kept) and (group is None or group == _cell_names(history, first)[1]):
        late = first.why if isinstance(first, ev.Late) else None
        return Receipt(code(fold, ticket), first.outcome, late is None, late)
    known = any(isinstance(event, ev.Refused) and event.outcome == outcome for event in history)
    if not known:
        session.emit(ev.Refused(ticket=ticket, outcome=outcome, kept=kept, **session.stamp()))
    raise Conflict(
        f"ticket {code(fold, ticket)} has the outcome {kept:g} already; {outcome:g} was refused and written "
        "down. Correct it with amend, a reason and your name if it is wrong."
    )


def _late(session: Session, ticket: int, outcome: float, group: str | None, why: str) -> Receipt:
    session.emit(ev.Late(ticket=ticket, outcome=outcome, group=group, why=why, **session.stamp()))
    return Receipt(code(session.fold, ticket), outcome, False, why)


def _history(session: Session, ticket: int) -> list[ev.AnyEvent]:
    """All events of a ticket."""
    history = [decode(record) for record in session.by_ticket(ticket)]
    if not history:
        raise NotFound(f"this experiment has no ticket {code(session.fold, ticket)}.")
    return history


def _first_outcome(history: list[ev.AnyEvent]) -> ev.Told | ev.Late | ev.Imported | None:
    return next((event for event in history if isinstance(event, (ev.Told, ev.Late, ev.Imported))), None)


def _latest_outcome(history: list[ev.AnyEvent]) -> float:
    kinds = (ev.Told, ev.Late, ev.Imported, ev.Amended)
    return [event.outcome for event in history if isinstance(event, kinds)][-1]


def _cell_names(history: list[ev.AnyEvent], outcome: ev.Told | ev.Late | ev.Imported) -> tuple[str, str]:
    """Policy and group of a ticket with an outcome."""
    began = _began(history)
    return began.policy, outcome.group or began.group or ""


def _began(history: list[ev.AnyEvent]) -> ev.Asked | ev.Imported:
    began = history[0]
    if not isinstance(began, (ev.Asked, ev.Imported)):
        raise IntegrityFailed("a ticket has an end and no beginning; run `evenhand audit`.")
    return began
