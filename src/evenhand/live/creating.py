"""Beginning an experiment once: also when the reply is lost, or the request is sent again."""

from __future__ import annotations

import time

import msgspec

from evenhand.live.events import Created, decode, encode
from evenhand.live.index import index_of
from evenhand.live.journal import Interrupted, Journal, KeyTaken
from evenhand.live.requests import RequestKey, refuse_other_request, request_key

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
