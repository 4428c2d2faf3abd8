"""Steering: pausing, finishing, and looking.

Beginning an experiment once: also when the reply is lost, or the request is sent again.
"""

from __future__ import annotations

import time

import msgspec

from evenhand.live import events as ev
from evenhand.live.events import Created, decode, encode
from evenhand.live.journal import Interrupted, Journal, KeyTaken
from evenhand.live.operation_checks import refuse_if_closed
from evenhand.live.requests import RequestKey, refuse_other_request, request_key
from evenhand.live.schema import index_of
from evenhand.live.transaction import Session


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


def finish(session: Session, reason: str, by: str | None) -> None:
    """End the experiment, decided or not."""
    if not session.fold.closed:
        session.emit(ev.Closed(reason=reason, by=by, **session.stamp()))


def view(session: Session, by: str, what: str) -> None:
    """Write down that somebody looked at outcomes."""
    session.emit(ev.Viewed(by=by, what=what, **session.stamp()))


PAUSE = 0.1  # seconds before trying again


def create_once(journal: Journal, event: Created, key: str | None, patience: float) -> None:
    """Begin a log with its first event; the same key and protocol again change nothing."""
    request = creation_key(journal, event, key)
    if request is not None:
        event = msgspec.structs.replace(event, key=request.key, request=request.digest)
    name, entry = event.experiment, (encode(event), index_of(event, 1, None))
    deadline, tries = time.monotonic() + patience, 0
    while True:
        try:
            journal.create(name, entry)
            return
        except KeyTaken as taken:  # by an earlier request, or by a try before whose reply was lost
            assert request is not None
            refuse_other_request(request, [decode(taken.record)])
            return
        except Interrupted:
            if tries > 0 and time.monotonic() >= deadline:
                raise
            time.sleep(PAUSE)
            tries += 1


def creation_key(journal: Journal, event: Created, key: str | None) -> RequestKey | None:
    """What a request to create this experiment is recognised by."""
    details = {"name": event.experiment, "study": event.study, "seed": event.seed, "lease": event.lease}
    return request_key(key, journal.shared, "create", details)


def refuse_used_key(journal: Journal, event: Created, key: str | None) -> None:
    """Raise where the key stands for another experiment of this journal."""
    request = creation_key(journal, event, key)
    if request is not None and request.is_given:
        record = journal.created_by_key(request.key)
        if record is not None:
            refuse_other_request(request, [decode(record)])
