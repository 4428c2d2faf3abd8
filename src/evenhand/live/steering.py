"""Steering: pausing, closing, and looking."""

from __future__ import annotations

from evenhand.live import events as ev
from evenhand.live.common import refuse_if_closed
from evenhand.live.session import Session


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
