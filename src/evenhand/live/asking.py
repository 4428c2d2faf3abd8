"""Asking: which policy for whom, next."""

from __future__ import annotations

from typing import NamedTuple

from evenhand.errors import BadInput, Closed, Conflict
from evenhand.live import events as ev
from evenhand.live.common import code, refuse_unless_open
from evenhand.live.fold import Fold
from evenhand.live.protocol import LIMITS
from evenhand.live.session import Session
from evenhand.procedure.spec import is_unproven
from evenhand.procedure.state import TOLD

NO_MORE = (
    "the guarantee of this experiment does not hold (kaufmann-koolen with a variance that nobody knows), so "
    "it hands out no new tickets; tell those that are out, and begin another with stopping = 'certified' "
    "that imports its outcomes."
)


class Ask(NamedTuple):
    """A ticket: give this policy to one unit of this group, then tell what came of it."""

    ticket: str
    policy: str
    group: str | None  # None where it is known only with the outcome


class Request(NamedTuple):
    """What somebody asks for."""

    n: int
    group: str | None = None
    worker: str | None = None
    lease: float | None = None


def checked_count(n: object) -> int:
    """How many tickets, if that is a sensible number."""
    most = LIMITS["asks_at_once"]
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= most:
        raise BadInput(f"ask for 1 to {most} tickets at once; {n!r} were asked for.")
    return n


def ask(session: Session, request: Request) -> list[Ask]:
    """Hand out tickets; those this worker still has come first. None after the stop."""
    fold = session.fold
    refuse_unless_open(fold, "hand out tickets")
    arrived = _arrived(fold, request.group)
    if fold.stop is not None:
        return []
    held = _held(fold, request.worker, arrived)[: request.n]
    if len(held) < request.n and is_unproven(fold.protocol.problem, fold.protocol.procedure):
        raise Closed(NO_MORE)
    return held + _fresh(session, request, _room(fold, request.n - len(held)), arrived)


def _room(fold: Fold, wanted: int) -> int:
    """How many of these tickets the experiment may still hand out."""
    left = int(fold.brain.spec.cap - fold.brain.state.clock[TOLD]) - len(fold.out)
    n = max(min(wanted, left), 0)
    most = fold.protocol.limits["tickets_out"]
    if len(fold.out) + n > most:
        raise BadInput(f"at most {most} tickets may be out; tell or drop some first.")
    return n


def _fresh(session: Session, request: Request, n: int, arrived: int) -> list[Ask]:
    fold = session.fold
    problem = fold.protocol.problem
    asks = []
    for cell in fold.brain.choose(n, arrived) if n else []:
        group = None if cell.group < 0 else problem.group_names[cell.group]
        event = ev.Asked(
            ticket=fold.tickets + 1,
            policy=problem.policies[cell.policy],
            group=group,
            decision=fold.counts["asked"] + 1,
            state=cell.state,
            chance=cell.chance,
            p=cell.p,
            worker=request.worker,
            lease=None if request.lease is None else float(request.lease),
            **session.stamp(),
        )
        session.emit_chosen(event, cell)
        asks.append(_shown(fold, event.ticket, event.policy, group))
    return asks


def _held(fold: Fold, worker: str | None, arrived: int) -> list[Ask]:
    """The tickets this worker has and has not told."""
    asks = []
    problem = fold.protocol.problem
    for ticket in fold.out.held_by(worker):
        k, g = fold.out[ticket][:2]
        if arrived not in (-1, g):
            raise Conflict(
                f"worker {worker!r} has ticket {code(fold, ticket)} for another group; tell or drop it first."
            )
        asks.append(_shown(fold, ticket, problem.policies[k], None if g < 0 else problem.group_names[g]))
    return asks


def _arrived(fold: Fold, group: str | None) -> int:
    """The group of the unit that came, -1 where the rule chooses it or it is not known."""
    mode = fold.protocol.problem.mode
    if mode == "proportional":
        if group is None:
            raise BadInput("in proportional mode say which group the unit that came belongs to.")
        return fold.protocol.problem.group_index(group)
    if group is not None:
        why = "the procedure chooses it" if mode == "active" else "it is told with the outcome"
        raise BadInput(f"in {mode} mode a group cannot be given when asking: {why}.")
    return -1


def _shown(fold: Fold, ticket: int, policy: str, group: str | None) -> Ask:
    return Ask(code(fold, ticket), policy, group)
