"""The operations ask, tell, tell_all, drop and amend.

All checks are made before any event is written, with one exception: a second, different outcome for a ticket
is refused and recorded as an event. `tell_all` accepts all outcomes or none. Every call can be repeated with
the same key and then returns its first answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from evenhand.errors import (
    BadInput,
    Closed,
    Conflict,
    EvenhandError,
    IntegrityFailed,
    NotFound,
    StorageFailed,
    shown,
)
from evenhand.live import events as ev
from evenhand.live.events import Metrics, Sample, decode, outcome_text, sample_of
from evenhand.live.input_checks import code, refuse_in_intervals, refuse_unless_open, samples_left, told_group
from evenhand.live.item_tickets import refuse_other_policies
from evenhand.live.projection import Fold
from evenhand.live.protocol import LIMITS
from evenhand.live.tickets import Ask, Receipt
from evenhand.live.transaction import Session
from evenhand.model.argument_checks import python_number
from evenhand.procedure.spec import is_unproven

NO_TICKET_LEFT = (
    "the guarantee of this experiment does not hold (kaufmann-koolen with an unknown variance), so "
    "it issues no new tickets; tell those that are open, and begin another with stopping = 'certified' "
    "that imports its outcomes."
)


class Request(NamedTuple):
    """The arguments of an `ask`."""

    n: int
    group: str | None = None
    worker: str | None = None
    lease: float | None = None


def checked_count(n: object) -> int:
    """Return the number of tickets as an int; refuse values outside the limits."""
    n, most = python_number(n), LIMITS["asks_at_once"]
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= most:
        raise BadInput(f"ask for 1 to {most} tickets at once; {shown(n)} were asked for.")
    return n


def ask(session: Session, request: Request) -> list[Ask]:
    """Return tickets: first those this worker holds, then new ones; none after the stop."""
    fold = session.fold
    refuse_in_intervals(fold)
    refuse_unless_open(fold, "issue tickets")
    arrived = _arrived_group(fold, request.group)
    if fold.stop is not None:
        return []
    held = _held_tickets(session, request.worker, arrived)[: request.n]
    if len(held) < request.n and is_unproven(fold.protocol.problem, fold.protocol.procedure):
        raise Closed(NO_TICKET_LEFT)
    return held + _new_tickets(session, request, _tickets_left(fold, request.n - len(held)), arrived)


def _tickets_left(fold: Fold, wanted: int) -> int:
    """Return how many of the wanted tickets the experiment may still issue."""
    left, per_ticket = (
        samples_left(fold),
        fold.replay.spec.phi.shape[1] if fold.replay.spec.shared_items else 1,
    )
    n = max(min(wanted, -(-left // per_ticket)), 0)
    most = fold.protocol.limits["tickets_out"]
    if len(fold.open_tickets) + n > most:
        raise BadInput(f"at most {most} tickets may be out; tell or drop some first.")
    return n


def _new_tickets(session: Session, request: Request, n: int, arrived: int) -> list[Ask]:
    fold = session.fold
    problem = fold.protocol.problem
    asks = []
    for cell in fold.replay.choose(n, arrived) if n else []:
        group = None if cell.group < 0 else problem.group_names[cell.group]
        event = ev.Asked(
            ticket=fold.tickets + 1,
            policy="" if cell.policies else problem.policies[cell.policy],
            group=group,
            decision=fold.counts["asked"] + 1,
            state=cell.state,
            chance=cell.chance,
            p=cell.p,
            worker=request.worker,
            lease=None if request.lease is None else float(request.lease),
            policies=tuple(problem.policies[k] for k in cell.policies),
            **session.stamp(),
        )
        session.emit_chosen(event)
        asks.append(Ask(code(fold, event.ticket), event.policy, group, event.policies))
    return asks


def _held_tickets(session: Session, worker: str | None, arrived: int) -> list[Ask]:
    """Return the open tickets of this worker that match the request; names belong to their caller."""
    asks = []
    fold, caller = session.fold, session.caller
    names, groups = fold.protocol.members.names, fold.protocol.problem.group_names
    owners = (None,) if caller is None else (caller.id,) if caller.is_blind else (caller.id, None)
    for ticket in fold.open_tickets.held_by(worker, owners):
        k, g, *_ = out = fold.open_tickets[ticket]
        if arrived not in (-1, g):
            raise Conflict(
                f"worker {worker!r} has ticket {code(fold, ticket)} for another group; tell or drop it first."
            )
        policies = tuple(names[i] for i in out.policies)
        policy, group = "" if policies else names[k], None if g < 0 else groups[g]
        asks.append(Ask(code(fold, ticket), policy, group, policies))
    return asks


def _arrived_group(fold: Fold, group: str | None) -> int:
    """Return the group of the arriving unit; -1 if the rule chooses it or it is unknown."""
    mode = fold.protocol.problem.mode
    if mode == "proportional":
        if group is None:
            raise BadInput("in proportional mode say which group the unit that came belongs to.")
        return fold.protocol.problem.group_index(group)
    if group is not None:
        why = "the procedure chooses it" if mode == "active" else "it is told with the outcome"
        raise BadInput(f"in {mode} mode a group cannot be given when asking: {why}.")
    return -1


History = list[ev.AnyEvent]


class Outcome(NamedTuple):
    """An outcome to record; the number has been checked."""

    ticket: int
    value: ev.Outcome
    group: str | None
    place: str = ""  # how error messages name it: "row 3", or a file and a line
    metrics: Metrics = None

    @property
    def sample(self) -> Sample:
        return Sample(self.value, self.metrics)


def tell(session: Session, outcome: Outcome) -> Receipt:
    """Record an outcome: it counts, is stored as late, or repeats an earlier one."""
    refuse_in_intervals(session.fold)
    history = _checked(session, outcome)
    if history is None:
        return _count(session, outcome)
    first = _first_outcome(history)
    if first is None:
        return _late(session, outcome, _why_given_up(history))
    kept = _kept_outcome(session, outcome, history, first)
    if kept is None:
        late = first.why if isinstance(first, ev.Late) else None
        return Receipt(code(session.fold, outcome.ticket), first.outcome, late is None, late)
    known = any(
        isinstance(event, ev.Refused)
        and (event.outcome, event.metrics) == outcome.sample
        and _actor(event) == _id_of(session)
        for event in history
    )
    if not known or session.key_was_given:  # a request with a key needs its own answer in the log
        refused = ev.Refused(
            ticket=outcome.ticket, outcome=outcome.value, kept=kept.outcome, metrics=outcome.metrics,
            kept_metrics=kept.metrics, **session.stamp(),
        )  # fmt: skip
        session.emit(refused)
    raise second_outcome(session.fold, outcome.ticket, kept, outcome.sample)


def tell_all(session: Session, outcomes: Sequence[Outcome]) -> list[Receipt]:
    """Record all outcomes or none; the error names the first that cannot be recorded."""
    refuse_in_intervals(session.fold)
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
    """Drop a ticket: it will have no outcome."""
    refuse_in_intervals(session.fold)
    if ticket in session.fold.open_tickets:
        _refuse_foreign(session, ticket, session.fold.open_tickets[ticket].owner)
        session.emit(ev.Dropped(ticket=ticket, reason=reason, by=by, **session.stamp()))
        return
    history = _history(session, ticket)
    given_up = any(isinstance(event, (ev.Dropped, ev.Expired)) for event in history)
    if _first_outcome(history) is not None and not given_up:
        raise Conflict(f"ticket {code(session.fold, ticket)} has an outcome; correct it with amend instead.")


def amend(
    session: Session, ticket: int, outcome: ev.Outcome, reason: str, by: str, metrics: Metrics = None
) -> Receipt:
    """Correct an outcome; the old one stays in the log."""
    fold = session.fold
    refuse_in_intervals(fold)
    history = [] if ticket in fold.open_tickets else _history(session, ticket)
    told = _first_outcome(history)
    if told is None:
        raise BadInput(f"ticket {code(fold, ticket)} has no outcome to correct; tell it instead.")
    _refuse_other_policies(fold, ticket, history, outcome)
    policy, group = _cell_names(history, told)
    present = not policy or fold.protocol.policies[policy] in fold.protocol.columns
    old, counted = _latest_outcome(history), present and not isinstance(told, ev.Late)
    if (outcome, metrics) != old:
        session.emit(
            ev.Amended(
                ticket=ticket,
                policy=policy,
                group=group,
                outcome=outcome,
                old=old.outcome,
                metrics=metrics,
                old_metrics=old.metrics,
                counted=counted,
                reason=reason,
                by=by,
                **session.stamp(),
            )
        )
    return Receipt(code(fold, ticket), outcome, counted)


def second_outcome(fold: Fold, ticket: int, kept: Sample, told: Sample) -> Conflict:
    """Return the refusal of an outcome for a ticket that has a different one."""
    return Conflict(
        f"ticket {code(fold, ticket)} has the outcome {said(kept)} already; {said(told)} was refused and "
        "written down. Correct it with amend, a reason and your name if it is wrong."
    )


def said(sample: Sample) -> str:
    """Return the outcomes of a sample as text."""
    rails = [
        f"{name} {'missing' if x is None else format(x, 'g')}"
        for name, x in sorted((sample.metrics or {}).items())
    ]
    return ", ".join([outcome_text(sample.outcome), *rails])


def _checked(session: Session, outcome: Outcome) -> History | None:
    """Return the ticket's events, None while it is open; refuse an outcome for another group."""
    fold = session.fold
    out = fold.open_tickets.get(outcome.ticket)
    if out is not None:
        _refuse_foreign(session, outcome.ticket, out.owner)
        if out.policies:
            answering = [fold.protocol.members.names[k] for k in out.policies]
            refuse_other_policies(code(fold, outcome.ticket), answering, outcome.value)
        told_group(fold.protocol.problem, out.group, outcome.group)
        return None
    history = _history(session, outcome.ticket)
    _refuse_other_policies(fold, outcome.ticket, history, outcome.value)
    if _first_outcome(history) is None:
        asked = _first_event(history).group
        group = -1 if asked is None else fold.protocol.groups[asked]
        told_group(fold.protocol.problem, group, outcome.group)
    return history


def _refuse_other_policies(fold: Fold, ticket: int, history: History, outcome: ev.Outcome) -> None:
    """Refuse outcomes of an item that do not name exactly the policies that its ticket asks for."""
    first = history[0]
    if isinstance(first, ev.Asked) and first.policies:
        refuse_other_policies(code(fold, ticket), first.policies, outcome)


def _refuse_untellable(session: Session, outcome: Outcome, earlier: dict[int, Outcome]) -> None:
    """Raise if `tell` would refuse this outcome after the earlier ones of the batch."""
    history = _checked(session, outcome)
    first = None if history is None else _first_outcome(history)
    if history is not None and first is not None:
        kept = _kept_outcome(session, outcome, history, first)
    else:
        before = earlier.get(outcome.ticket, outcome)
        groups = {_written_group(session.fold, one) for one in (before, outcome)}
        kept = None if before.sample == outcome.sample and len(groups) == 1 else before.sample
    if kept is not None:
        raise Conflict(
            f"ticket {code(session.fold, outcome.ticket)} has the outcome {said(kept)} already; it is told "
            f"as {said(outcome.sample)}. Nothing was written."
        )


def _kept_outcome(
    session: Session, outcome: Outcome, history: History, first: ev.Told | ev.Late | ev.Imported
) -> Sample | None:
    """Return the recorded outcome that differs from this one; None if they are equal.

    A blind caller may repeat what it told itself, and learns nothing else: not whether its guess is what
    another caller told, or what a correction made of it.
    """
    kept, caller = _latest_outcome(history), session.caller
    known = [sample_of(first), kept]
    if caller is not None and caller.is_blind:
        known = [sample_of(first)] if _actor(first) == caller.id else []
    same_group = outcome.group is None or outcome.group == _cell_names(history, first)[1]
    return None if outcome.sample in known and same_group else kept


def _refuse_foreign(session: Session, ticket: int, owner: str | None) -> None:
    """Refuse a blind caller's request about the ticket of another caller, as if there were none."""
    caller = session.caller
    if caller is not None and caller.is_blind and owner not in (None, caller.id):
        raise NotFound(f"this experiment has no ticket {code(session.fold, ticket)}.")


def _actor(event: ev.AnyEvent) -> str | None:
    return None if event.actor is None else event.actor.id


def _id_of(session: Session) -> str | None:
    return None if session.caller is None else session.caller.id


def _count(session: Session, outcome: Outcome) -> Receipt:
    fold = session.fold
    if fold.is_over:
        return _late(session, outcome, fold.why_late)
    ticket, value, group = outcome.ticket, outcome.value, _written_group(fold, outcome)
    told = ev.Told(ticket=ticket, outcome=value, metrics=outcome.metrics, group=group, **session.stamp())
    session.emit(told)
    return Receipt(code(fold, ticket), value, True)


def _late(session: Session, outcome: Outcome, why: str) -> Receipt:
    ticket, value, group = outcome.ticket, outcome.value, _written_group(session.fold, outcome)
    late = ev.Late(
        ticket=ticket, outcome=value, metrics=outcome.metrics, group=group, why=why, **session.stamp()
    )
    session.emit(late)
    return Receipt(code(session.fold, ticket), value, False, why)


def _written_group(fold: Fold, outcome: Outcome) -> str | None:
    """Return the group to store in the event: only if it was unknown when asking."""
    return outcome.group if fold.protocol.problem.mode == "agnostic" else None


def _history(session: Session, ticket: int) -> History:
    """Return all events of a ticket."""
    history = [decode(record) for record in session.by_ticket(ticket)]
    if not history:
        raise NotFound(f"this experiment has no ticket {code(session.fold, ticket)}.")
    _refuse_foreign(session, ticket, _actor(history[0]))
    return history


def _why_given_up(history: History) -> str:
    """Return why a ticket without an outcome is not open any more."""
    if any(isinstance(event, ev.Expired) for event in history):
        return "expired"
    return "dropped" if any(isinstance(event, ev.Dropped) for event in history) else "withdrawn"


def _first_outcome(history: History) -> ev.Told | ev.Late | ev.Imported | None:
    return next((event for event in history if isinstance(event, (ev.Told, ev.Late, ev.Imported))), None)


def _latest_outcome(history: History) -> Sample:
    kinds = (ev.Told, ev.Late, ev.Imported, ev.Amended)
    return [sample_of(event) for event in history if isinstance(event, kinds)][-1]


def _cell_names(history: History, outcome: ev.Told | ev.Late | ev.Imported) -> tuple[str, str]:
    """Return the policy and group of a ticket with an outcome."""
    began = _first_event(history)
    return began.policy, outcome.group or began.group or ""


def _first_event(history: History) -> ev.Asked | ev.Imported:
    began = history[0]
    if not isinstance(began, (ev.Asked, ev.Imported)):
        raise IntegrityFailed("a ticket has an end and no beginning; run `evenhand audit`.")
    return began
