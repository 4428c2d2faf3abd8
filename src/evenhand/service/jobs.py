"""Plans, and simulations as background jobs: limits per key, a fair queue, list and cancel.

Jobs are stored in the journal, so that every process that serves it can show and cancel them. Each process
runs the jobs that it was sent, the next one from the key that was served longest ago. Plans have threads of
their own, which simulations cannot occupy. Both compute in processes that are ended when they take too long
or are cancelled.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as TookTooLong
from dataclasses import dataclass, field
from typing import Any

import msgspec
import sqlalchemy as sa
from litestar.exceptions import HTTPException

from evenhand.errors import BadInput, EvenhandError, KeyReused, NotFound
from evenhand.live import schema
from evenhand.live.journal import Journal
from evenhand.service.keys import Key

AT_ONCE, PLANS_AT_ONCE = 2, 3  # simulations, and plans
PER_KEY, WAITING = 5, 100  # unfinished simulations of one key, and of all keys in this process
REMEMBERED = 200  # finished jobs kept in the journal
REMEMBERED_KEYS = 10_000
PLAN_SECONDS, PLAN_ENDED_SECONDS = 30.0, 120.0  # that a caller waits; the code may be compiled meanwhile
PLANS_WAITING, PLANS_PER_KEY = 12, 2  # plans in progress or waiting, and those of one key
SIMULATION_SECONDS = 3_600.0
REPORT_SECONDS = 1.0  # between two reports of a job's progress
LOST_SECONDS = 60.0  # without a report, the process of a job has ended
MOST_CELLS = 10_000  # of a plan or simulation that the service accepts
UNFINISHED = ("waiting", "running")
log = logging.getLogger("evenhand.service")

Progress = Callable[[int, int], None]
Work = Callable[[Progress], Any]
_table = schema.jobs


class Stopped(Exception):
    """Raised inside a cancelled job."""


def busy(says: str) -> HTTPException:
    """Return the refusal of a request that may succeed later."""
    return HTTPException(says, status_code=429, headers={"Retry-After": "5"})


@dataclass
class _Job:
    """A job of this process."""

    id: str
    owner: str
    work: Work
    total: int
    done: int = 0
    state: str = "waiting"
    reported: float = field(default_factory=time.monotonic)


class Jobs:
    """The jobs of one journal; those of this process run in its threads."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._plans = ThreadPoolExecutor(PLANS_AT_ONCE, thread_name_prefix="plan")
        self._planning: Counter[str] = Counter()  # plans in progress or waiting, by key
        self._waiting: OrderedDict[str, deque[_Job]] = OrderedDict()  # by key, served longest ago first
        self._own: dict[str, _Job] = {}
        self._requests: OrderedDict[str, bytes] = OrderedDict()  # digest of the request of each key
        self._wake = threading.Condition()
        self._stopping = False
        self._threads: list[threading.Thread] = []

    def refuse_other_request(self, owner: Key, key: str | None, what: str, form: msgspec.Struct) -> None:
        """Raise if this key of this caller was used for another request since the service started."""
        if key is None:
            return
        digest = _digest(what, form)
        with self._wake:
            if self._requests.setdefault(f"{owner.id} {key}", digest) != digest:
                raise _reused(key)
            while len(self._requests) > REMEMBERED_KEYS:
                self._requests.popitem(last=False)

    def within(self, seconds: float, work: Callable[[], Any], owner: Key) -> Any:
        """Return the result of some work; raise if it takes too long or too much is waiting."""
        with self._wake:
            if self._planning.total() >= PLANS_WAITING:
                raise busy(f"{PLANS_WAITING} plans are being computed; try again.")
            if self._planning[owner.id] >= PLANS_PER_KEY:
                raise busy(f"{PLANS_PER_KEY} plans of this key are being computed; try again.")
            self._planning[owner.id] += 1
        future: Future[Any] = self._plans.submit(work)
        future.add_done_callback(lambda _: self._planned(owner))
        try:
            return future.result(seconds)
        except TookTooLong:
            future.cancel()
            raise BadInput(
                f"this takes longer than {seconds:g} s here; use the command line for it."
            ) from None

    def _planned(self, owner: Key) -> None:
        with self._wake:
            self._planning[owner.id] -= 1
            self._planning += Counter()  # without zeros

    def start(self, owner: Key, total: int, work: Work, form: msgspec.Struct, key: str | None = None) -> str:
        """Queue work that reports `progress(done, total)`; return its id, the same for one key."""
        digest = _digest("simulate", form)
        request = None if key is None else hashlib.sha256(f"{owner.id} {key}".encode()).hexdigest()
        job = _Job(secrets.token_hex(8), owner.id, work, total)
        with self._wake:
            earlier = self._store(job, request, digest, key)
            if earlier is not None:
                return earlier
            self._own[job.id] = job
            self._waiting.setdefault(owner.id, deque()).append(job)
            self._start_threads()
            self._wake.notify()
        return job.id

    def _store(self, job: _Job, request: str | None, digest: bytes, key: str | None) -> str | None:
        """Write a new job; return the id of the job that this request began before, if it did."""
        with self._journal.writing() as connection:
            if request is not None:
                found = connection.execute(sa.select(_table).where(_table.c.request == request)).first()
                if found is not None:
                    if bytes(found.digest) != digest:
                        raise _reused(str(key))
                    return str(found.id)
            alive = _table.c.state.in_(UNFINISHED) & (_table.c.seen > time.time() - LOST_SECONDS)
            count = sa.select(sa.func.count()).where(alive, _table.c.key == job.owner)
            if int(connection.execute(count).scalar_one()) >= PER_KEY:
                raise busy(f"a key may have {PER_KEY} unfinished simulations; wait for one or cancel it.")
            if len(self._own) >= WAITING:
                raise busy(f"{WAITING} simulations are waiting; try again later.")
            now = time.time()
            connection.execute(sa.insert(_table), {
                "id": job.id, "key": job.owner, "request": request, "digest": digest, "made": now,
                "seen": now, "state": "waiting", "done": 0, "total": job.total, "answer": None,
            })  # fmt: skip
            _forget_oldest(connection)
        return None

    def look(self, owner: Key, job: str) -> dict[str, Any]:
        """Return a job's state and result; jobs of other keys do not exist, except for an admin."""
        with self._journal.reading() as connection:
            row = connection.execute(sa.select(_table).where(_table.c.id == job)).first()
        if row is None or (row.key != owner.id and not owner.may("admin")):
            raise NotFound("there is no such job.")
        return self._shown(row) | _answer(row)

    def list(self, owner: Key) -> list[dict[str, Any]]:
        """Return the jobs of a key, newest first, without results; for an admin those of all keys."""
        mine = sa.select(_table).order_by(_table.c.made.desc())
        if not owner.may("admin"):
            mine = mine.where(_table.c.key == owner.id)
        with self._journal.reading() as connection:
            return [self._shown(row) for row in connection.execute(mine)]

    def cancel(self, owner: Key, job: str) -> dict[str, Any]:
        """Cancel a job that waits or runs; it stops at its next report."""
        self.look(owner, job)
        self._update(job, {"state": "cancelled"}, only=UNFINISHED)
        with self._wake:
            own = self._own.get(job)
            if own is not None and own.state == "waiting":
                self._waiting[own.owner].remove(own)
                del self._own[job]
            if own is not None:
                own.state = "cancelled"
        return self.look(owner, job)

    def counts(self) -> dict[str, int]:
        """Return how many jobs of this process wait and run."""
        with self._wake:
            states = [job.state for job in self._own.values()]
        return {state: states.count(state) for state in UNFINISHED}

    def close(self) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        self._plans.shutdown(wait=False, cancel_futures=True)

    def _start_threads(self) -> None:
        if len(self._threads) < AT_ONCE:
            thread = threading.Thread(target=self._serve, name="simulation", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self) -> None:
        while (job := self._next()) is not None:
            self._run(job)

    def _next(self) -> _Job | None:
        """Return the next job: of the key that was served longest ago. None when the service stops.

        One key does not run all jobs at once: they may be endless.
        """
        with self._wake:
            while not self._stopping:
                running = Counter(job.owner for job in self._own.values() if job.state == "running")
                for owner in [one for one in self._waiting if running[one] < max(AT_ONCE - 1, 1)]:
                    queue = self._waiting.pop(owner)
                    if queue:
                        job = queue.popleft()
                        job.state = "running"
                        self._waiting[owner] = queue  # last in turn now
                        return job
                self._wake.wait(REPORT_SECONDS)
        return None

    def _run(self, job: _Job) -> None:
        def progress(done: int, _: int) -> None:
            job.done = done
            if self._stopping or job.state == "cancelled":
                raise Stopped
            if time.monotonic() - job.reported >= REPORT_SECONDS:
                self._report(job)

        found: dict[str, Any] = {}
        try:
            self._report(job)
            result = job.work(progress)
            found = {"state": "done", "done": job.total, "answer": msgspec.json.encode(result).decode()}
        except Stopped:
            found = {"state": "failed", "answer": json.dumps("the service stopped")}
        except BadInput as problem:
            found = {"state": "failed", "answer": json.dumps(str(problem))}
        except Exception as problem:
            log.error("a simulation failed", exc_info=problem)
            failure = f"an unexpected failure: {type(problem).__name__}"
            found = {"state": "failed", "answer": json.dumps(failure)}
        finally:
            with self._wake:
                self._own.pop(job.id, None)
            try:
                self._update(job.id, found, only=UNFINISHED)
            except EvenhandError as problem:  # as when the service stops
                log.warning(json.dumps({"event": "a job's end was not stored", "says": str(problem)}))

    def _report(self, job: _Job) -> None:
        """Store the progress of a job and that others wait; notice that another process cancelled it."""
        job.reported = time.monotonic()
        with self._wake:
            others = [one.id for one in self._own.values() if one.state == "waiting"]
        with self._journal.writing() as connection:
            if others:
                connection.execute(sa.update(_table).where(_table.c.id.in_(others)).values(seen=time.time()))
            values = {"state": "running", "done": job.done, "seen": time.time()}
            mine = sa.update(_table).where(_table.c.id == job.id, _table.c.state.in_(UNFINISHED))
            if connection.execute(mine.values(values)).rowcount == 0:
                job.state = "cancelled"
        if job.state == "cancelled":
            raise Stopped

    def _update(self, job: str, values: dict[str, Any], only: tuple[str, ...]) -> None:
        with self._journal.writing() as connection:
            change = sa.update(_table).where(_table.c.id == job, _table.c.state.in_(only))
            connection.execute(change.values(seen=time.time(), **values))

    def _shown(self, row: Any) -> dict[str, Any]:
        own = self._own.get(row.id)
        state, done = row.state, row.done if own is None else max(row.done, own.done)
        if own is None and state in UNFINISHED and row.seen < time.time() - LOST_SECONDS:
            state = "failed"
        return {"id": row.id, "state": state, "done": done, "total": row.total}


def _answer(row: Any) -> dict[str, Any]:
    """Return the result and the error of a job."""
    answer = None if row.answer is None else json.loads(row.answer)
    if row.state == "done":
        return {"result": answer, "error": None}
    if answer is None and row.state in UNFINISHED and row.seen < time.time() - LOST_SECONDS:
        answer = "the process that ran it has ended"
    return {"result": None, "error": answer}


def _forget_oldest(connection: sa.Connection) -> None:
    """Delete all but the latest finished jobs."""
    finished = sa.select(_table.c.id).where(_table.c.state.not_in(UNFINISHED))
    old = connection.execute(finished.order_by(_table.c.made.desc()).offset(REMEMBERED).limit(1_000))
    if found := list(old.scalars()):
        connection.execute(sa.delete(_table).where(_table.c.id.in_(found)))


def _digest(what: str, form: msgspec.Struct) -> bytes:
    return hashlib.sha256(what.encode() + b" " + msgspec.json.encode(form, order="sorted")).digest()


def _reused(key: str) -> KeyReused:
    return KeyReused(f"the key {key!r} was used for another request; take a new key for a new request.")
