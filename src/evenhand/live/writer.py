"""Group commit: whoever comes first writes for everyone who is waiting, in one transaction.

A call is a function of a `Session`; it reads the fold, emits events and returns a result. Nobody gets a
result before the transaction that holds its events is on the disk. When a transaction fails the fold is
thrown away and read again from the log.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from evenhand.errors import EvenhandError, IntegrityFailed, StorageFailed
from evenhand.live.clock import Clock
from evenhand.live.fold import Fold
from evenhand.live.history import corrected
from evenhand.live.journal import Interrupted, Journal
from evenhand.live.leases import Leases
from evenhand.live.loading import catch_up, history_of, load
from evenhand.live.points import reach
from evenhand.live.session import Session
from evenhand.live.turn import Turn

T = TypeVar("T")
AT_ONCE = 1_000  # calls in one transaction
_PAUSES = (0.0, 0.05, 0.1, 0.2)  # seconds before trying again; then always the last


class _Call:
    """Somebody's wish, and what came of it."""

    def __init__(self, work: Callable[[Session], Any], key: str | None) -> None:
        self.work = work
        self.key = key
        self.done = False
        self.leads = False  # its caller is the one to write now
        self.value: Any = None
        self.error: BaseException | None = None
        self.wake = threading.Lock()
        self.wake.acquire()  # let go of when the call is done, or its turn has come to lead

    def run(self, session: Session) -> None:
        self.value, self.error = None, None
        try:
            self.value = self.work(session)
        except (StorageFailed, IntegrityFailed):
            raise
        except EvenhandError as refusal:
            self.error = refusal  # an answer like any other; what it emitted before is kept

    def fail(self, error: BaseException) -> None:
        self.value, self.error = None, error


class Writer:
    """The one place that writes to an experiment; safe to call from many threads."""

    def __init__(self, journal: Journal, experiment: str, clock: Clock, patience: float) -> None:
        self._journal = journal
        self._experiment = experiment
        self._clock = clock
        self._patience = patience
        self._leases = Leases(clock)
        self._lock = threading.Lock()  # around the fold and the journal
        self._door = threading.Lock()  # around the queue
        self._queue: deque[_Call] = deque()
        self._has_leader = False
        self._fold: Fold | None = None
        with self._lock:
            self._insist(lambda _again: self._known_fold())

    def submit(self, work: Callable[[Session], T], key: str | None = None) -> T:
        """Do it, and return when it is on the disk. `key`: one that the work will look up."""
        call = _Call(work, key)
        with self._door:
            self._queue.append(call)
            call.leads = not self._has_leader
            self._has_leader = True
        if not call.leads:
            self._wait(call)
        if not call.done:
            self._lead()
        reach("before reply")
        if call.error is not None:
            raise call.error
        result: T = call.value
        return result

    def _wait(self, call: _Call) -> None:
        """Until the call is done by another caller, or this one is to lead."""
        try:
            call.wake.acquire()
        except BaseException:
            with self._door:
                if call in self._queue:
                    self._queue.remove(call)
            if call.leads and not call.done:
                self._hand_over()
            raise

    def _lead(self) -> None:
        """Write for everyone who is waiting; then the first of those who came meanwhile leads."""
        try:
            with self._lock:
                self._write_for_all()
        finally:
            self._hand_over()

    def _hand_over(self) -> None:
        with self._door:
            if self._queue:
                self._queue[0].leads = True
                self._queue[0].wake.release()
            else:
                self._has_leader = False

    @contextmanager
    def reading(self) -> Iterator[Fold]:
        """The fold as of now; nobody writes inside the block, so keep it short."""
        with self._lock:
            yield self._insist(lambda _again: self._known_fold(fresh=self._journal.shared))

    def _write_for_all(self) -> None:
        with self._door:
            calls = [self._queue.popleft() for _ in range(min(len(self._queue), AT_ONCE))]
        try:
            self._insist(lambda again: self._transact(calls, again))
        except Exception as problem:
            for call in calls:
                call.fail(problem)
        except BaseException:
            for call in calls:
                call.fail(
                    StorageFailed("the writer was interrupted; repeat the call to learn what came of it.")
                )
            raise
        finally:
            for call in calls:
                call.done = True
                call.wake.release()

    def _transact(self, calls: list[_Call], again: bool) -> None:
        fold = self._known_fold()
        self._fold = None  # until the commit, the log knows better
        with self._journal.turn(self._experiment) as turn:
            if turn.head != fold.head:
                self._follow(fold, turn)
            if keys := [call.key for call in calls if call.key is not None]:
                turn.look_up(keys)  # once for all, and before anything waits to be written
            session = Session(turn, fold, self._clock, self._leases, again)
            session.give_up_overdue()
            for call in calls:
                call.run(session)
            session.save_snapshot()
        self._fold = fold

    def _known_fold(self, fresh: bool = False) -> Fold:
        if self._fold is None:
            self._fold = load(self._journal, self._experiment)
            self._leases.begin(self._fold)
        elif fresh:
            fold, self._fold = self._fold, None
            before = fold.tickets
            rows = self._journal.read(self._experiment, fold.head.seq)
            catch_up(fold, rows, history_of(self._journal, self._experiment))
            self._lease_since(fold, before)
            self._fold = fold
        return self._fold

    def _follow(self, fold: Fold, turn: Turn) -> None:
        """Fold what other processes have written since."""
        before = fold.tickets
        catch_up(fold, turn.read(fold.head.seq), lambda cell, seq: corrected(turn.by_cell(cell, seq)))
        self._lease_since(fold, before)

    def _lease_since(self, fold: Fold, before: int) -> None:
        for ticket in range(before + 1, fold.tickets + 1):
            if ticket in fold.out:
                self._leases.add(ticket, fold.out[ticket])

    def _insist(self, work: Callable[[bool], T]) -> T:
        """Try until it is done or patience ends.

        Broken connections and deadlocks are no reason to give up.
        """
        deadline = time.monotonic() + self._patience
        tries = 0
        while True:
            try:
                return work(tries > 0)
            except Interrupted:
                self._fold = None
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_PAUSES[min(tries, len(_PAUSES) - 1)])
                tries += 1
