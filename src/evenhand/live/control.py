"""The operations pause, resume, finish, add_policy, withdraw, view and create.

Creation is idempotent: it can be repeated after a lost reply.
"""

from __future__ import annotations

import time

import msgspec

from evenhand.errors import BadInput
from evenhand.live import events as ev
from evenhand.live.events import Created, decode, encode
from evenhand.live.input_checks import changed_protocol, refuse_if_closed
from evenhand.live.interval_calls import first_publication, publish_after_change
from evenhand.live.journal import Interrupted, Journal, KeyTaken
from evenhand.live.requests import Caller, RequestKey, refuse_other_request, request_key
from evenhand.live.schema import index_of
from evenhand.live.transaction import Session


def pause(session: Session, reason: str, by: str | None) -> None:
    """Issue no tickets until `resume`; outcomes are still accepted."""
    refuse_if_closed(session.fold, "be paused")
    if session.fold.intervals is not None:
        raise BadInput(
            "an experiment in intervals cannot be paused, because servers assign by the published shares "
            "without a call; withdraw a policy, or finish the experiment."
        )
    if not session.fold.paused:
        session.emit(ev.Paused(reason=reason, by=by, **session.stamp()))


def resume(session: Session, reason: str, by: str | None) -> None:
    """Issue tickets again."""
    refuse_if_closed(session.fold, "be resumed")
    if session.fold.paused:
        session.emit(ev.Resumed(reason=reason, by=by, **session.stamp()))


def finish(session: Session, reason: str, by: str | None) -> None:
    """End the experiment, decided or not."""
    if not session.fold.closed:
        session.emit(ev.Closed(reason=reason, by=by, **session.stamp()))


def add_policy(session: Session, policy: str, reason: str, by: str) -> None:
    """Let a policy join the experiment."""
    changed_protocol(session.fold, policy, joins=True)
    session.emit(ev.PolicyAdded(policy=policy, reason=reason, by=by, **session.stamp()))
    publish_after_change(session)


def withdraw(session: Session, policy: str, reason: str, by: str) -> None:
    """Remove a policy from the experiment."""
    changed_protocol(session.fold, policy, joins=False)
    session.emit(ev.PolicyWithdrawn(policy=policy, reason=reason, by=by, **session.stamp()))
    publish_after_change(session)


def view(session: Session, by: str, what: str) -> None:
    """Record that a user viewed outcomes."""
    session.emit(ev.Viewed(by=by, what=what, **session.stamp()))


PAUSE = 0.1  # seconds between attempts


def create_once(
    journal: Journal, event: Created, key: str | None, patience: float, caller: Caller | None = None
) -> None:
    """Begin a log with its first event; repeating the key and protocol has no effect."""
    request = creation_key(journal, event, key, caller)
    if caller is not None:
        event = msgspec.structs.replace(event, actor=caller.actor)
    if journal.salts_events:
        event = msgspec.structs.replace(event, salt=ev.new_salt())
    if request is not None:
        event = msgspec.structs.replace(event, key=request.key, request=request.digest)
    name, entry = event.experiment, (encode(event), index_of(event, 1, None))
    more = [(encode(next_), index_of(next_, 2, None)) for next_ in first_publication(event)]
    deadline, tries = time.monotonic() + patience, 0
    while True:
        try:
            journal.create(name, entry, *more)
            return
        except KeyTaken as taken:  # by an earlier request, or by an earlier attempt whose reply was lost
            assert request is not None
            refuse_other_request(request, [decode(taken.record)])
            return
        except Interrupted:
            if tries > 0 and time.monotonic() >= deadline:
                raise
            time.sleep(PAUSE)
            tries += 1


def creation_key(
    journal: Journal, event: Created, key: str | None, caller: Caller | None = None
) -> RequestKey | None:
    """Return the request key for the creation of this experiment."""
    details = {"name": event.experiment, "study": event.study, "seed": event.seed, "lease": event.lease}
    return request_key(key, journal.shared, "create", details, caller)


def refuse_used_key(journal: Journal, event: Created, key: str | None, caller: Caller | None = None) -> None:
    """Raise if the key belongs to another experiment of this journal."""
    request = creation_key(journal, event, key, caller)
    if request is not None and request.is_given:
        record = journal.created_by_key(request.key)
        if record is not None:
            refuse_other_request(request, [decode(record)])
