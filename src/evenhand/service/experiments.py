"""The experiments of one journal, shared by all requests; views recorded as events."""

from __future__ import annotations

import asyncio
import base64
import hmac
import re
import secrets
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, TypeVar

import sqlalchemy as sa
from litestar import Request

from evenhand.errors import BadInput, IntegrityFailed, NameTaken, NotFound
from evenhand.live import schema
from evenhand.live.control import refuse_used_key
from evenhand.live.events import Created, decode
from evenhand.live.experiment import Experiment, Write
from evenhand.live.group_commit import Call
from evenhand.live.interval_status import is_odd
from evenhand.live.journal import Journal, open_journal
from evenhand.live.protocol import Protocol, new_protocol
from evenhand.live.requests import Caller, owned_key
from evenhand.live.status import Status
from evenhand.live.tickets import ticket_code, ticket_number
from evenhand.procedure.compile_spec import evidence_of
from evenhand.service.auth import key_of
from evenhand.study import Study, dumps, loads

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
MOST_EXPERIMENTS = 10_000
MOST_OPEN, IDLE_SECONDS = 200, 60.0  # above this number, experiments idle this long are released


WRITERS = 32  # threads that write the queued requests, one for each experiment at a time
T = TypeVar("T")


class BadId(BadInput):
    """A text that cannot be an experiment's id."""


@dataclass
class _Slot:
    """An experiment that is open or being opened; only its own readers wait for a long log."""

    trial: Experiment | None = None
    used: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


_SHOWN = re.compile(r"t([1-9][0-9]{0,17})-([0-9a-v]{16})")


def _secret_of(journal: Journal) -> bytes:
    """Return the secret of the journal that ticket codes are derived from, made on first use."""
    with journal.writing() as connection:
        query = sa.select(schema.secrets.c.value).where(schema.secrets.c.name == "tickets")
        found: bytes | None = connection.execute(query).scalar_one_or_none()
        if found is None:
            found = secrets.token_bytes(32)
            connection.execute(sa.insert(schema.secrets), {"name": "tickets", "value": found})
    return bytes(found)


@lru_cache(10_000)  # needed by the ask and by the tell of a ticket
def _letters(secret: bytes, protocol: bytes, number: int) -> str:
    """Return the letters of a ticket's code, which only the journal's secret gives."""
    digest = hmac.digest(secret, b"ticket" + protocol + number.to_bytes(8, "big"), "sha256")
    return base64.b32hexencode(digest[:10]).decode().lower()


class Notifier:
    """Gives requests on an event loop the results of their calls, many at a time.

    The loop is woken once for all calls of a transaction.
    """

    def __init__(self) -> None:
        self._done: deque[tuple[asyncio.Future[Any], Call]] = deque()
        self._is_woken = False

    def add(self, loop: asyncio.AbstractEventLoop, answer: asyncio.Future[Any], call: Call) -> None:
        """Settle an answer on its loop soon; called in any thread."""
        self._done.append((answer, call))
        if not self._is_woken:
            self._is_woken = True
            loop.call_soon_threadsafe(self._settle_all)

    def _settle_all(self) -> None:
        self._is_woken = False  # first: a call that is added meanwhile wakes the loop again
        while self._done:
            _settle(*self._done.popleft())


class Registry:
    """Experiments by id."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.journal: Journal = open_journal(address, create=True)
        self.journal.salts_events = True
        self._secret = _secret_of(self.journal)
        self._slots: dict[str, _Slot] = {}
        self._writers = ThreadPoolExecutor(WRITERS, thread_name_prefix="writer")
        self._notifier = Notifier()
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """Return all ids, newest first."""
        return self.journal.experiments()[::-1]

    def check(self) -> None:
        """Raise an error unless the journal can be read and written."""
        self.journal.check_writable()
        self.journal.experiments()

    def get(self, name: str) -> Experiment:
        """Return the experiment with this id, opened on first use."""
        if not _ID.fullmatch(name):
            raise BadId("an id must be 1 to 64 letters, digits, '-' or '_'.")
        return self.known(name) or self._open(name)

    def known(self, name: str) -> Experiment | None:
        """Return the experiment with this id if it is open already."""
        slot = self._slots.get(name)
        if slot is not None and slot.trial is not None:
            slot.used = time.monotonic()
            return slot.trial
        return None

    async def written(self, trial: Experiment, write: Write[T]) -> T:
        """Return the result of a write; no thread waits for it meanwhile."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        trial.enqueue(write, self._writers.submit, partial(self._notifier.add, loop, answer))
        return await answer

    def create(
        self,
        name: str,
        study: Study,
        seed: int,
        lease: float | None,
        by: str,
        key: str | None,
        caller: Caller,
    ) -> tuple[Experiment, bool]:
        """Return a new experiment, and whether this request created it.

        If the id exists with the same study, seed and lease, that experiment is returned.
        """
        asked = new_protocol(name, study, seed, lease, "", None)
        refuse_used_key(self.journal, asked, key, caller)
        names, made = self.names(), False
        if name not in names:
            if len(names) >= MOST_EXPERIMENTS:
                raise BadInput(
                    f"a journal holds at most {MOST_EXPERIMENTS:,} experiments; start another journal."
                )
            try:
                Experiment.create(
                    self.journal, study, seed=seed, name=name, lease=lease, by=by, key=key, caller=caller
                )
                made = True
            except (BadInput, IntegrityFailed):
                if name not in self.names():  # otherwise another request created it at the same time
                    raise
        there = self.get(name)
        found = there.protocol
        if (asked.seed, asked.lease, _as_begun(asked, study, found)) != (
            found.seed,
            found.lease,
            dumps(found.study),
        ):
            raise NameTaken(f"there is an experiment {name!r} with another protocol; take another id.")
        return there, made or self._was_made_by(key, name, caller)

    def _was_made_by(self, key: str | None, name: str, caller: Caller) -> bool:
        """Return whether an earlier request with this key created the experiment."""
        record = None if key is None else self.journal.created_by_key(owned_key(key, caller))
        event = None if record is None else decode(record)
        return isinstance(event, Created) and event.experiment == name

    def ticket_shown(self, trial: Experiment, code: str) -> str:
        """Return a ticket's code as callers get it: 80 bits that only the journal's secret gives."""
        number = ticket_number(trial.protocol.hash, code)
        return f"t{number}-{self._letters(trial, number)}"

    def ticket_read(self, trial: Experiment, shown: str) -> str:
        """Return the code of a ticket in the log; codes from outside the service are left as they are."""
        match = _SHOWN.fullmatch(shown.strip().lower())
        if match is None:
            return shown
        if not hmac.compare_digest(self._letters(trial, int(match[1])), match[2]):
            raise NotFound("this experiment has no such ticket; copy it as `ask` gave it.")
        return ticket_code(trial.protocol.hash, int(match[1]))

    def _letters(self, trial: Experiment, number: int) -> str:
        return _letters(self._secret, trial.protocol.hash, number)

    def close(self) -> None:
        self._writers.shutdown()
        self.journal.close()

    def _open(self, name: str) -> Experiment:
        with self._lock:
            self._let_go_of_idle()
            slot = self._slots.setdefault(name, _Slot())
        with slot.lock:
            if slot.trial is None:
                try:
                    slot.trial = Experiment.open(self.journal, name)
                except BaseException:
                    with self._lock:
                        self._slots.pop(name, None)
                    raise
            slot.used = time.monotonic()
            return slot.trial

    def _let_go_of_idle(self) -> None:
        before = time.monotonic() - IDLE_SECONDS
        idle = [name for name, slot in self._slots.items() if slot.trial is not None and slot.used < before]
        for name in idle[: max(len(self._slots) - MOST_OPEN, 0)]:
            del self._slots[name]


def _settle(answer: asyncio.Future[Any], call: Call) -> None:
    """Give a request the result of its call, unless the request was cancelled."""
    if answer.cancelled():
        return
    if call.error is not None:
        answer.set_exception(call.error)
    else:
        answer.set_result(call.value)


def _as_begun(asked: Created, study: Study, found: Protocol) -> str:
    """Return the study asked for, with what it leaves open as the experiment has it.

    That is the order of initial samples, of which experiments of earlier releases have none and new ones a
    random one, and the evidence, which earlier releases did not write where it was the mixture.
    """
    settled = loads(asked.study)
    wanted, given = settled.procedure, study.procedure
    if given.initial_order is None:
        wanted = replace(wanted, initial_order=found.procedure.initial_order)
    if given.evidence is None or given.evidence == evidence_of(found.problem, found.procedure):
        wanted = replace(wanted, evidence=found.procedure.evidence)
    return dumps(replace(settled, procedure=wanted))


BLIND = ("experiment", "title", "state", "samples", "pending", "late", "events", "counts")


def blinded(status: Status, is_blind: bool = True) -> dict[str, Any]:
    """Return enrolment without outcomes; for a blind caller also without what outcomes determine.

    The head is a digest of outcomes; the sample-ratio test and cells with few samples follow from
    probabilities that outcomes determine.
    """
    table = status.to_dict()
    seen = {key: table[key] for key in BLIND} | {"head": "", "health": table["health"]}
    if is_blind:
        health = status.health
        well = not health.pending_too_long and not health.clock_back
        well = well and health.overdue is None and not is_odd(health.volume_ratio)
        hidden: dict[str, Any] = {"sample_ratio_p": None, "starved": [], "oldest_pending": None, "well": well}
        seen["health"] = table["health"] | hidden
    else:
        seen["head"] = table["head"]
    if status.intervals is not None:  # the shares are public: servers assign by them
        seen["intervals"] = table["intervals"] | ({"sample_ratios": {}} if is_blind else {})
    if status.is_over:
        seen |= {name: table[name] for name in ("answer", "decided", "allowed", "failed", "open")}
    return seen


Asked = Request[Any, Any, Any]
VIEW_SECONDS = 60.0


class RecentViews:
    """Recent views: at most one view event per user, page and minute."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str, str], float] = {}
        self._lock = threading.Lock()

    def is_new(self, experiment: str, who: str, what: str) -> bool:
        now, key = time.monotonic(), (experiment, who, what)
        with self._lock:
            fresh = now - self._seen.get(key, -VIEW_SECONDS) >= VIEW_SECONDS
            if fresh:
                self._seen = {k: at for k, at in self._seen.items() if now - at < VIEW_SECONDS}
                self._seen[key] = now
            return fresh


def seen_by(request: Asked, trial: Experiment, what: str) -> dict[str, Any]:
    """Return the status as this key may see it; an unblinded view is recorded first."""
    if not key_of(request).may("analyst"):
        return blinded(trial.status())
    note_view(request, trial, what)
    forecasts = request.app.state.forecasts
    return trial.status(lambda view: forecasts.latest(trial.protocol.experiment, view)).to_dict()


def note_view(request: Asked, trial: Experiment, what: str) -> None:
    """Record a view of outcomes before the end, at most once per user, page and minute."""
    who = key_of(request)
    if trial.is_over:
        return  # nothing is blinded any more, and the log of a finished experiment stays as published
    if request.app.state.views.is_new(trial.protocol.experiment, who.id, what):
        trial.called_by(caller_of(request)).view(who.name, what)


def caller_of(request: Asked) -> Caller:
    """Return the caller of a request; those that may not see outcomes are blind."""
    key = key_of(request)
    return Caller(key.id, key.name, is_blind=not key.may("analyst"))
