"""Group commit: one thread writes the queued calls of all threads in one transaction.

A call is a function of a `Session`: it reads the fold, emits events and returns a result. Results are
returned after the transaction with their events is on the disk. If a transaction fails, the fold is discarded
and read again from the log. The caller waits for its call in `submit`; an event loop, which must not wait,
uses `enqueue`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from evenhand.errors import EvenhandError, IntegrityFailed, StorageFailed
from evenhand.live import events as ev
from evenhand.live.clock import Clock, Deadlines
from evenhand.live.fault_points import reach
from evenhand.live.hash_chain import Difference, Head
from evenhand.live.journal import Interrupted, Journal
from evenhand.live.load_log import catch_up, history_of, load
from evenhand.live.projection import Fold, History, PlacedSample
from evenhand.live.repeated_requests import recalled, written_form
from evenhand.live.requests import Caller, RequestKey
from evenhand.live.ticket_history import corrected
from evenhand.live.tickets import Leases
from evenhand.live.transaction import Session, StoredEvent, Transaction

T = TypeVar("T")
AT_ONCE = 1_000  # calls in one transaction
_PAUSES = (0.0, 0.05, 0.1, 0.2)  # seconds between attempts; the last value repeats


class Writer:
    """The writer of an experiment; safe to call from many threads."""

    def __init__(self, journal: Journal, experiment: str, clock: Clock, patience: float) -> None:
        self._journal = journal
        self._experiment = experiment
        self._clock = clock
        self._patience = patience
        self._leases = Leases(clock, journal.deadlines.setdefault((experiment, clock), Deadlines()))
        self._lock = threading.Lock()  # guards the fold and the journal
        self._queue_lock = threading.Lock()  # guards the queue
        self._queue: deque[Call] = deque()
        self._has_leader = False
        self._fold: Fold | None = None
        self._protocol: bytes | None = None  # hash of event one
        self._lost: IntegrityFailed | None = None  # why this writer refuses to continue
        with self._lock:
            self._retry(lambda _again: self._known_fold())

    def submit(
        self,
        work: Callable[[Session], T],
        request: RequestKey | None = None,
        caller: Caller | None = None,
    ) -> T:
        """Run the call once and return when it is on the disk; repeats get the first answer."""
        call = WaitingCall(work, request, caller)
        if not self._append(call):
            self._wait(call)
        if not call.done:
            self._lead()
        reach("before reply")
        if call.error is not None:
            raise call.error
        result: T = call.value
        return result

    def enqueue(self, call: Call) -> None:
        """Queue a call and return; its threads write it and notify it when it is on the disk."""
        if self._append(call):
            call.lead(self._lead)

    def _append(self, call: Call) -> bool:
        """Queue a call; return whether no thread writes the queue, so that this call must see to it."""
        self._journal.check_writable()  # first: after a fork the locks below may never be released
        with self._queue_lock:
            self._queue.append(call)
            call.leads = not self._has_leader
            self._has_leader = True
        return call.leads

    def _wait(self, call: WaitingCall) -> None:
        """Wait until another thread has done the call, or this thread must lead."""
        try:
            call.wake.acquire()
        except BaseException:
            with self._queue_lock:
                if call in self._queue:
                    self._queue.remove(call)
            if call.leads and not call.done:
                self._hand_over()
            raise

    def _lead(self) -> None:
        """Write all queued calls; then the first call queued meanwhile leads."""
        try:
            with self._lock:
                self._write_for_all()
        finally:
            self._hand_over()

    def _hand_over(self) -> None:
        with self._queue_lock:
            first = self._queue[0] if self._queue else None
            self._has_leader = first is not None
            if first is not None:
                first.leads = True
        if first is not None:
            first.lead(self._lead)

    @contextmanager
    def reading(self) -> Iterator[Fold]:
        """Yield the current fold; writers wait until the block ends, so keep it short."""
        journal = self._journal
        journal.check_readable()
        with self._lock:
            # other processes may write to a shared journal, and to one that was released
            yield self._retry(lambda _again: self._known_fold(fresh=journal.shared or journal.is_closed))

    def _write_for_all(self) -> None:
        with self._queue_lock:
            calls = [self._queue.popleft() for _ in range(min(len(self._queue), AT_ONCE))]
        try:
            self._retry(lambda again: self._transact(calls, again))
        except Exception as problem:
            for call in calls:
                call.fail(problem)
        except BaseException:
            for call in calls:
                call.fail(StorageFailed("the writer was interrupted; repeat the call to get its result."))
            raise
        finally:
            for call in calls:
                call.done = True
                call.notify()

    def _transact(self, calls: list[Call], again: bool) -> None:
        fold = self._known_fold()
        self._fold = None  # discarded until the commit: after a failure it is read from the log
        with self._journal.transaction(self._experiment) as transaction:
            if transaction.head != fold.head:
                history = partial(_history_in, transaction)
                self._follow(
                    fold, transaction.head, transaction.read(fold.head.seq), history, transaction.hash_of
                )
            if keys := [call.request.key for call in calls if call.request and call.is_looked_up(again)]:
                transaction.look_up(keys)  # one query for all keys, before any event is appended
            salted = self._journal.salts_events
            session = Session(transaction, fold, self._clock, self._leases, again, salted)
            session.give_up_overdue()
            for call in calls:
                call.run(session)
            session.save_snapshot()
        self._note_seen(fold)
        self._fold = fold

    def _known_fold(self, fresh: bool = False) -> Fold:
        if self._lost is not None:
            raise self._lost
        if self._fold is None:
            self._fold = self._load()
        elif fresh:
            self._read_on()
        return self._fold

    def _load(self) -> Fold:
        """Read the log; refuse one that lacks events that this process has read or written."""
        journal, name = self._journal, self._experiment
        fold, known = load(journal, name), journal.heads.get(name)
        if self._protocol not in (None, fold.protocol.hash):
            raise IntegrityFailed(
                f"the journal holds another experiment {name!r} than the one that was opened; open it again."
            )
        if known not in (None, fold.head) and journal.hash_of(name, known.seq) != known.hash:
            raise self._went_back(known, fold.head)
        self._protocol = fold.protocol.hash
        self._leases.begin(fold)
        journal.heads[name] = fold.head
        return fold

    def _note_seen(self, fold: Fold) -> None:
        """Store the head of the log; used to detect a log that was rolled back."""
        self._journal.heads[self._experiment] = fold.head
        self._leases.note_seen()

    def _read_on(self) -> None:
        """Fold what other processes have written since, without locking the experiment."""
        fold, journal, name = self._fold, self._journal, self._experiment
        assert fold is not None
        head = journal.position(name).head
        if head != fold.head:
            self._fold = None  # discarded until all is read
            rows = journal.read(name, fold.head.seq, head.seq)
            self._follow(fold, head, rows, history_of(journal, name), partial(journal.hash_of, name))
            self._fold = fold
        self._note_seen(fold)

    def _follow(
        self,
        fold: Fold,
        head: Head,
        rows: Iterator[StoredEvent],
        history: History,
        hash_of: Callable[[int], bytes | None],
    ) -> None:
        """Fold the events of other processes up to `head`; refuse a log that was rolled back."""
        known, before = fold.head, fold.tickets
        try:
            catch_up(fold, rows, history)
        except Difference:
            if hash_of(known.seq) == known.hash:
                raise
        if fold.head != head:
            raise self._went_back(known, head)
        self._lease_since(fold, before)

    def _went_back(self, known: Head, head: Head) -> IntegrityFailed:
        """Return the refusal of a log that lacks events that this process has read or written."""
        says = (
            f"the log of {self._experiment!r} does not hold event {known.seq} as this process knows it: it "
            "went back to an older state, or another log was put in its place, and it ends with event "
            f"{head.seq}. Nothing was written. "
        )
        if self._journal.shared:
            self._journal.heads.pop(self._experiment, None)
            self._leases.forget()
            return IntegrityFailed(
                says + "The next call starts over from the log as it is now; tickets that it does not hold "
                "must be asked for again."
            )
        self._lost = IntegrityFailed(says + "Put the newer file back and open it again.")
        return self._lost

    def _lease_since(self, fold: Fold, before: int) -> None:
        for ticket in range(before + 1, fold.tickets + 1):
            if ticket in fold.open_tickets:
                self._leases.add(ticket, fold.open_tickets[ticket])

    def _retry(self, work: Callable[[bool], T]) -> T:
        """Try until the work is done or the time limit is reached.

        Broken connections and deadlocks are retried.
        """
        deadline = time.monotonic() + self._patience
        tries = 0
        while True:
            try:
                return work(tries > 0)
            except Interrupted:
                self._fold = None
                # a process that was suspended for long tries once more
                if tries > 0 and time.monotonic() >= deadline:
                    raise
                time.sleep(_PAUSES[min(tries, len(_PAUSES) - 1)])
                tries += 1


def _history_in(transaction: Transaction, cell: int, seq: int) -> list[PlacedSample]:
    """Return a cell's outcomes as of an event, read inside the transaction."""
    return corrected(transaction.by_cell(cell, seq))


class Call:
    """A queued write and its result; subclasses say how its caller learns of it."""

    def __init__(
        self, work: Callable[[Session], Any], request: RequestKey | None, caller: Caller | None
    ) -> None:
        self.work = work
        self.request = request
        self.caller = caller
        self.done = False
        self.leads = False  # whether its thread must write the queue now
        self.value: Any = None
        self.error: BaseException | None = None

    def lead(self, write_queue: Callable[[], None]) -> None:
        """Write the queue in a thread of this call."""
        raise NotImplementedError

    def notify(self) -> None:
        """Tell the caller that the call is done."""
        raise NotImplementedError

    def run(self, session: Session) -> None:
        self.value, self.error = None, None
        session.begin(self.request, self.caller)
        try:
            self.value = self._answer(session)
        except (StorageFailed, IntegrityFailed):
            raise
        except EvenhandError as refusal:
            self.error = refusal  # a refusal is a normal result; events emitted before it are kept

    def is_looked_up(self, again: bool) -> bool:
        """Return whether the log may hold this request: its key was given, or this is a retry."""
        return self.request is not None and (again or self.request.is_given)

    def _answer(self, session: Session) -> Any:
        request = self.request
        if request is not None and self.is_looked_up(session.again):
            earlier = session.by_key(request.key)
            if earlier:
                return recalled(session.fold, request, earlier)
        value = self.work(session)
        if request is not None and not _events_hold_answer(request, session.parts, value):
            session.emit(ev.Answered(answer=written_form(value), **session.stamp()))
        return value

    def fail(self, error: BaseException) -> None:
        self.value, self.error = None, error


class WaitingCall(Call):
    """A call whose thread waits until it is done, or until it must write the queue itself."""

    def __init__(
        self, work: Callable[[Session], Any], request: RequestKey | None, caller: Caller | None
    ) -> None:
        super().__init__(work, request, caller)
        self.wake = threading.Lock()
        self.wake.acquire()  # released when the call is done, or when its thread must lead

    def lead(self, _write_queue: Callable[[], None]) -> None:
        self.wake.release()

    def notify(self) -> None:
        self.wake.release()


class EnqueuedCall(Call):
    """A call whose caller does not wait in a thread.

    `start` runs a function in another thread; `finished` is called in one when the call is done.
    """

    def __init__(
        self,
        work: Callable[[Session], Any],
        request: RequestKey | None,
        caller: Caller | None,
        start: Callable[[Callable[[], None]], object],
        finished: Callable[[EnqueuedCall], object],
    ) -> None:
        super().__init__(work, request, caller)
        self._start = start
        self._finished = finished

    def lead(self, write_queue: Callable[[], None]) -> None:
        self._start(write_queue)

    def notify(self) -> None:
        reach("before reply")
        self._finished(self)


def _events_hold_answer(request: RequestKey, parts: int, value: Any) -> bool:
    """Return whether this many events of a request contain its answer."""
    if parts == 0:
        return not request.is_given  # only this process can repeat a request with an internal key
    return not isinstance(value, list) or len(value) == parts
