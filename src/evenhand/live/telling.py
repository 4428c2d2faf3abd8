"""Telling: outcomes that come once, twice, late, never or wrong.

Everything that can be refused is refused before anything is written, but for a second, different outcome:
that is refused and written down. Of many outcomes told at once all are taken or none. Every call can be
repeated: the answer is the first one's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from evenhand.errors import BadInput, Conflict, EvenhandError, IntegrityFailed, NotFound, StorageFailed
from evenhand.live import events as ev
from evenhand.live.common import code, told_group
from evenhand.live.events import decode
from evenhand.live.fold import Fold
from evenhand.live.session import Session

History = list[ev.AnyEvent]


class Receipt(NamedTuple):
    """What became of an outcome; repeated calls get the same."""

    ticket: str
    outcome: float
    counted: bool  # False: it came late, and is kept without counting
    why: str | None = None  # why it came late


class Outcome(NamedTuple):
    """An outcome to be told, its number checked."""

    ticket: int
    value: float
    group: str | None
    place: str = ""  # how an error names it: "row 3", or a file and a line


def tell(session: Session, outcome: Outcome) -> Receipt:
    """Take an outcome: count it, keep it as late, or recognise it."""
    history = _checked(session, outcome)
    if history is None:
        return _count(session, outcome)
    first = _first_outcome(history)
    if first is None:
        why = "expired" if any(isinstance(event, ev.Expired) for event in history) else "dropped"
        return _late(session, outcome, why)
    kept = _kept_outcome(outcome, history, first)
    if kept is None:
        late = first.why if isinstance(first, ev.Late) else None
        return Receipt(code(session.fold, outcome.ticket), first.outcome, late is None, late)
    known = any(isinstance(event, ev.Refused) and event.outcome == outcome.value for event in history)
    if not known or session.key_was_given:  # a request with a key leaves its own answer in the log
        refused = ev.Refused(ticket=outcome.ticket, outcome=outcome.value, kept=kept, **session.stamp())
        session.emit(refused)
    raise second_outcome(session.fold, outcome.ticket, kept, outcome.value)


def tell_all(session: Session, outcomes: Sequence[Outcome]) -> list[Receipt]:
    """Take all these outcomes, or none: the first that cannot be taken is named."""
    earlier: dict[int, Outcome] = {}
    for outcome in outcomes:
        try:
            _refuse_untellable(session, outcome, earlier)
        except (StorageFailed, IntegrityFailed):
            raise
        except EvenhandError as refusal:
            raise type(refusal)(f"{outcome.place}: {refusal}") from None
        earlier.setdefault(outcome.ticket, outcome)
    return [tell(session, outcome) for outcome in outcomes]


def drop(session: Session, ticket: int, reason: str, by: str | None) -> None:
    """Give a ticket up."""
    if ticket in session.fold.out:
        session.emit(ev.Dropped(ticket=ticket, reason=reason, by=by, **session.stamp()))
        return
    history = _history(session, ticket)
    if not any(isinstance(event, (ev.Dropped, ev.Expired)) for event in history):
        raise Conflict(f"ticket {code(session.fold, ticket)} has an outcome; correct it with amend instead.")


def amend(session: Session, ticket: int, outcome: float, reason: str, by: str) -> Receipt:
    """Correct an outcome; the old one stays in the log."""
    fold = session.fold
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
                **session.stamp(),
            )
        )
    return Receipt(code(fold, ticket), outcome, counted)


def second_outcome(fold: Fold, ticket: int, kept: float, outcome: float) -> Conflict:
    """The refusal of an outcome for a ticket that has another one."""
    return Conflict(
        f"ticket {code(fold, ticket)} has the outcome {kept:g} already; {outcome:g} was refused and written "
        "down. Correct it with amend, a reason and your name if it is wrong."
    )


def _checked(session: Session, outcome: Outcome) -> History | None:
    """The ticket's events, None while it is out; an outcome for another group than its own is refused."""
    fold = session.fold
    out = fold.out.get(outcome.ticket)
    if out is not None:
        told_group(fold.protocol.problem, out.group, outcome.group)
        return None
    history = _history(session, outcome.ticket)
    if _first_outcome(history) is None:
        asked = _began(history).group
        group = -1 if asked is None else fold.protocol.groups[asked]
        told_group(fold.protocol.problem, group, outcome.group)
    return history


def _refuse_untellable(session: Session, outcome: Outcome, earlier: dict[int, Outcome]) -> None:
    """Raise where `tell` would refuse this outcome, told after the earlier ones."""
    history = _checked(session, outcome)
    first = None if history is None else _first_outcome(history)
    if history is not None and first is not None:
        kept = _kept_outcome(outcome, history, first)
    else:
        before = earlier.get(outcome.ticket, outcome)
        groups = {_written_group(session.fold, one) for one in (before, outcome)}
        kept = None if before.value == outcome.value and len(groups) == 1 else before.value
    if kept is not None:
        raise Conflict(
            f"ticket {code(session.fold, outcome.ticket)} has the outcome {kept:g} already; it is told as "
            f"{outcome.value:g}. Nothing was written."
        )


def _kept_outcome(outcome: Outcome, history: History, first: ev.Told | ev.Late | ev.Imported) -> float | None:
    """The outcome that stands against this one; None where this one says the same."""
    kept = _latest_outcome(history)
    same_group = outcome.group is None or outcome.group == _cell_names(history, first)[1]
    return None if outcome.value in (first.outcome, kept) and same_group else kept


def _count(session: Session, outcome: Outcome) -> Receipt:
    fold = session.fold
    if fold.is_over:
        return _late(session, outcome, fold.why_late)
    ticket, value, group = outcome.ticket, outcome.value, _written_group(fold, outcome)
    session.emit(ev.Told(ticket=ticket, outcome=value, group=group, **session.stamp()))
    return Receipt(code(fold, ticket), value, True)


def _late(session: Session, outcome: Outcome, why: str) -> Receipt:
    ticket, value, group = outcome.ticket, outcome.value, _written_group(session.fold, outcome)
    session.emit(ev.Late(ticket=ticket, outcome=value, group=group, why=why, **session.stamp()))
    return Receipt(code(session.fold, ticket), value, False, why)


def _written_group(fold: Fold, outcome: Outcome) -> str | None:
    """The group as the event says it: only where it was not known when asking."""
    return outcome.group if fold.protocol.problem.mode == "agnostic" else None


def _history(session: Session, ticket: int) -> History:
    """All events of a ticket."""
    history = [decode(record) for record in session.by_ticket(ticket)]
    if not history:
        raise NotFound(f"this experiment has no ticket {code(session.fold, ticket)}.")
    return history


def _first_outcome(history: History) -> ev.Told | ev.Late | ev.Imported | None:
    return next((event for event in history if isinstance(event, (ev.Told, ev.Late, ev.Imported))), None)


def _latest_outcome(history: History) -> float:
    kinds = (ev.Told, ev.Late, ev.Imported, ev.Amended)
    return [event.outcome for event in history if isinstance(event, kinds)][-1]


def _cell_names(history: History, outcome: ev.Told | ev.Late | ev.Imported) -> tuple[str, str]:
    """Policy and group of a ticket with an outcome."""
    began = _began(history)
    return began.policy, outcome.group or began.group or ""


def _began(history: History) -> ev.Asked | ev.Imported:
    began = history[0]
    if not isinstance(began, (ev.Asked, ev.Imported)):
        raise IntegrityFailed("a ticket has an end and no beginning; run `evenhand audit`.")
    return began
