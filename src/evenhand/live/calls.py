"""Calls that wait for the writer: what each does inside a transaction, and what came of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from evenhand.errors import EvenhandError, IntegrityFailed, StorageFailed
from evenhand.live import events as ev
from evenhand.live.recall import recalled, written_form
from evenhand.live.requests import RequestKey
from evenhand.live.session import Session


class Call:
    """A queued write and its result."""

    def __init__(self, work: Callable[[Session], Any], request: RequestKey | None) -> None:
        self.work = work
        self.request = request
        self.done = False
        self.leads = False  # its caller is the one to write now
        self.value: Any = None
        self.error: BaseException | None = None
        self.wake = threading.Lock()
        self.wake.acquire()  # let go of when the call is done, or its turn has come to lead

    def run(self, session: Session) -> None:
        self.value, self.error = None, None
        session.begin(self.request)
        try:
            self.value = self._answer(session)
        except (StorageFailed, IntegrityFailed):
            raise
        except EvenhandError as refusal:
            self.error = refusal  # an answer like any other; what it emitted before is kept

    def is_looked_up(self, again: bool) -> bool:
        """May events of this request be in the log already? A key made here is there only after a try."""
        return self.request is not None and (again or self.request.is_given)

    def _answer(self, session: Session) -> Any:
        request = self.request
        if request is not None and self.is_looked_up(session.again):
            earlier = session.by_key(request.key)
            if earlier:
                return recalled(session.fold, request, earlier)
        value = self.work(session)
        if request is not None and not _is_told_by_events(request, session.parts, value):
            session.emit(ev.Answered(answer=written_form(value), **session.stamp()))
        return value

    def fail(self, error: BaseException) -> None:
        self.value, self.error = None, error


def _is_told_by_events(request: RequestKey, parts: int, value: Any) -> bool:
    """Do so many events of a request give its answer, so that a repeated request can be answered?"""
    if parts == 0:
        return not request.is_given  # nobody else can repeat a request whose key was made here
    return not isinstance(value, list) or len(value) == parts
