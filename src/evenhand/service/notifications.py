"""The threads behind webhooks: one watches experiments and queues messages, others send them.

A process that watches an experiment compares its state with what each webhook was told, inside one
transaction: several processes queue a message once. A message is claimed for `CLAIM_SECONDS` before it is
sent; if the process ends meanwhile, another sends it again with the same id. A message is sent until it is
answered with 2xx, at most `len(PAUSES) + 1` times.
"""

from __future__ import annotations

import http.client
import json
import logging
import ssl
import threading
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import sqlalchemy as sa

from evenhand.errors import BadInput, EvenhandError, IntegrityFailed
from evenhand.live import schema
from evenhand.live.clock import seconds_of
from evenhand.live.compute_status import health_of, state_word
from evenhand.live.experiment import Experiment
from evenhand.live.journal import Journal
from evenhand.live.projection import View
from evenhand.live.status_sentences import health_alarms
from evenhand.live.tickets import ticket_number
from evenhand.service.experiments import Registry
from evenhand.service.webhooks import ALARM, ENDED, Webhook, Webhooks, queue, signed_headers

WATCH_SECONDS = 5.0  # between two checks of the experiments
AT_ONCE = 200  # experiments in one check; the others follow in the next
SENDERS = 4
SEND_SECONDS = 10.0  # for one attempt
CLAIM_SECONDS = 60.0
PAUSES = (5.0, 30.0, 120.0, 600.0, 3_600.0, 21_600.0, 86_400.0)  # seconds before the next attempt
ANSWER_CHARACTERS = 200
_notices, _messages = schema.webhook_notices, schema.deliveries
log = logging.getLogger("evenhand.service")


class Notifications:
    """Threads that run while the service does; none if it may call no address."""

    def __init__(self, registry: Registry, webhooks: Webhooks) -> None:
        self._watcher, self._sender = Watcher(registry, webhooks), Sender(registry.journal, webhooks)
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(work,), name=f"webhooks: {name}", daemon=True)
            for name, work in (("watch", self._watcher.look), ("send", self._sender.send_due))
            if webhooks.origins
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._sender.close()

    def _run(self, work: Any) -> None:
        wait = WATCH_SECONDS if work == self._watcher.look else 1.0
        while not self._stopping.wait(wait):
            try:
                work()
            except EvenhandError as problem:  # as when the database is away: tried again
                log.error(json.dumps({"event": "webhooks", "says": str(problem)}))
            except Exception as problem:
                log.error("webhooks failed", exc_info=problem)


class Watcher:
    """Finds experiments that ended and alarms that began or ended, and queues messages about them."""

    def __init__(self, registry: Registry, webhooks: Webhooks) -> None:
        self._registry = registry
        self._webhooks = webhooks
        self._over: set[tuple[str, str]] = (
            set()
        )  # webhooks and experiments about which every message was sent
        self._next = 0

    def look(self) -> None:
        """Check the experiments that webhooks are about."""
        hooks = self._webhooks.all()
        if not hooks:
            return
        names = [name for name in self._registry.names() if self._concerns(hooks, name)]
        start = self._next if self._next < len(names) else 0
        self._next = start + AT_ONCE
        for name in names[start : start + AT_ONCE]:
            facts = facts_of(self._registry, name)
            for hook in self._concerns(hooks, name):
                self._tell(hook, name, facts)

    def _concerns(self, hooks: list[Webhook], name: str) -> list[Webhook]:
        return [
            hook for hook in hooks if hook.experiment in (None, name) and (hook.id, name) not in self._over
        ]

    def _tell(self, hook: Webhook, name: str, facts: dict[str, Any]) -> None:
        """Queue what is new to this webhook; in one transaction with the note that it was queued."""
        mine = (_notices.c.webhook == hook.id) & (_notices.c.experiment == name)
        with self._registry.journal.reading() as connection:
            known = connection.execute(sa.select(_notices).where(mine)).first()
        if known is None or _news(hook, facts, known):
            with self._registry.journal.writing() as connection:
                exists = sa.select(schema.webhooks.c.id).where(schema.webhooks.c.id == hook.id)
                if connection.execute(exists.with_for_update()).first() is None:
                    return  # deleted meanwhile
                known = connection.execute(sa.select(_notices).where(mine)).first()
                if known is None:
                    ended_before = facts["ended"] and facts["changed"] < hook.made
                    row = {"webhook": hook.id, "experiment": name, "ended": ended_before, "alarms": ""}
                    connection.execute(sa.insert(_notices), row)
                    known = connection.execute(sa.select(_notices).where(mine)).one()
                for event, data in _news(hook, facts, known):
                    queue(connection, hook.id, event, data)
                change = sa.update(_notices).where(mine)
                alarms = " ".join(facts["alarms"])
                connection.execute(change.values(ended=facts["ended"] or known.ended, alarms=alarms))
        if facts["ended"]:
            self._over.add((hook.id, name))


def _news(hook: Webhook, facts: dict[str, Any], known: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the messages that a webhook has not got yet, as (event, data)."""
    about, found = facts["about"], []
    if ENDED in hook.events and facts["ended"] and not known.ended:
        found.append((ENDED, about | facts["result"]))
    if ALARM in hook.events and not facts["ended"]:
        before, now = set(known.alarms.split()), facts["alarms"]
        found += [(ALARM, about | {"alarm": kind, "says": now[kind]}) for kind in now if kind not in before]
        found += [("alarm-ended", about | {"alarm": kind}) for kind in sorted(before - set(now))]
    return found


def facts_of(registry: Registry, name: str) -> dict[str, Any]:
    """Return what webhooks tell about an experiment: no outcome before its end."""
    try:
        trial = registry.get(name)
        view = trial.present()
    except IntegrityFailed:
        says = "The log failed a check, and nothing is written to it; the reason is in the service's log."
        broken = {"experiment": name, "title": "", "state": "failed"}
        return {"about": broken, "ended": False, "alarms": {"integrity": says}, "changed": 0.0, "result": {}}
    ended = view.stop is not None or view.closed
    about: dict[str, Any] = {
        "experiment": name, "title": view.protocol.study.title, "state": state_word(view),
        "samples": sum(view.counts[kind] for kind in ("told", "imported")),
    }  # fmt: skip
    return {
        "about": about, "ended": ended, "result": _result(trial) if ended else {},
        "changed": seconds_of(_last_time(registry.journal, view)) if ended else 0.0,
        "alarms": {} if ended else _alarms(registry, trial, view),
    }  # fmt: skip


def _alarms(registry: Registry, trial: Experiment, view: View) -> dict[str, str]:
    """Return the alarms by kind, each as a sentence with ticket codes as callers got them."""
    health = health_of(view, time.time())
    found = health_alarms(health)
    if health.oldest_pending is not None and "open-ticket" in found:
        ticket_number(trial.protocol.hash, health.oldest_pending)
        shown = registry.ticket_shown(trial, health.oldest_pending)
        found["open-ticket"] = found["open-ticket"].replace(health.oldest_pending, shown)
    return {kind: f"{words[:1].upper()}{words[1:]}." for kind, words in found.items()}


def _result(trial: Experiment) -> dict[str, Any]:
    status = trial.status()
    names = ("decided", "answer", "allowed", "failed", "open", "sentence", "head", "events")
    return {name: getattr(status, name) for name in names}


def _last_time(journal: Journal, view: View) -> str:
    """Return the time of the latest event."""
    last = view.head.seq
    [row] = list(journal.read(view.protocol.experiment, last - 1, last))
    return str(json.loads(row.record.body)["at"])


class Sender:
    """Sends messages that are due."""

    def __init__(self, journal: Journal, webhooks: Webhooks) -> None:
        self._journal = journal
        self._webhooks = webhooks
        self._pool = ThreadPoolExecutor(SENDERS, thread_name_prefix="webhook")

    def send_due(self) -> int:
        """Send every message whose time has come; return how many."""
        claimed = self._claimed()
        hooks = {hook.id: hook for hook in self._webhooks.all()} if claimed else {}
        list(self._pool.map(lambda row: self._send(hooks.get(row.webhook), row), claimed))
        return len(claimed)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _claimed(self) -> list[Any]:
        """Return messages that are due; other processes leave them alone for a while."""
        is_due = (_messages.c.state == "waiting") & (_messages.c.due <= time.time())
        query = sa.select(_messages).where(is_due).order_by(_messages.c.due).limit(SENDERS)
        with self._journal.reading() as connection:
            if connection.execute(query).first() is None:
                return []
        with self._journal.writing() as connection:
            rows = connection.execute(query.with_for_update(skip_locked=True)).all()
            mine = sa.update(_messages).where(_messages.c.id.in_([row.id for row in rows]))
            connection.execute(
                mine.values(due=time.time() + CLAIM_SECONDS, attempts=_messages.c.attempts + 1)
            )
        return list(rows)

    def _send(self, hook: Webhook | None, row: Any) -> None:
        if hook is None:
            return  # deleted meanwhile, with its messages
        try:
            self._webhooks.refuse_other_origins(hook.url)
            code = post(hook, row.id, row.body.encode())
            is_taken, answer = 200 <= code < 300, f"status {code}"
        except BadInput:
            is_taken, answer = False, "the service was started without --webhook for this address"
        except (OSError, http.client.HTTPException) as problem:
            is_taken, answer = False, f"{type(problem).__name__}: {problem}"[:ANSWER_CHARACTERS]
        self._note(row, is_taken, answer)

    def _note(self, row: Any, is_taken: bool, answer: str) -> None:
        attempts = row.attempts + 1
        values: dict[str, Any] = {"answer": answer, "state": "delivered" if is_taken else "waiting"}
        if not is_taken:
            log.warning(
                json.dumps({"event": "webhook", "id": row.webhook, "attempts": attempts, "says": answer})
            )
            values["state"] = "waiting" if attempts <= len(PAUSES) else "failed"
            values["due"] = time.time() + PAUSES[min(attempts, len(PAUSES)) - 1]
        with self._journal.writing() as connection:
            connection.execute(sa.update(_messages).where(_messages.c.id == row.id).values(values))


def post(hook: Webhook, identity: str, body: bytes) -> int:
    """Send a message and return the status of the answer; redirects are not followed."""
    parts = urllib.parse.urlsplit(hook.url)
    port = parts.port
    wire = http.client.HTTPConnection(str(parts.hostname), port, timeout=SEND_SECONDS)
    if parts.scheme == "https":
        context = ssl.create_default_context()
        wire = http.client.HTTPSConnection(str(parts.hostname), port, timeout=SEND_SECONDS, context=context)
    path = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
    try:
        wire.request("POST", path, body, signed_headers(hook.secret, identity, body, time.time()))
        return wire.getresponse().status
    finally:
        wire.close()
