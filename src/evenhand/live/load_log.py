"""Load a fold from a journal: protocol, latest snapshot and verified events after it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from evenhand.errors import BadInput, NotFound
from evenhand.live.events import Created, Snapshot, decode
from evenhand.live.hash_chain import Difference, Head, Record, genesis, link, verified
from evenhand.live.journal import Journal
from evenhand.live.projection import Fold, History, PlacedSample
from evenhand.live.protocol import Protocol
from evenhand.live.sequence_checks import check_complete
from evenhand.live.snapshot import restore
from evenhand.live.ticket_history import corrected
from evenhand.live.transaction import StoredEvent

_AT_ONCE = 5_000


def only_experiment(journal: Journal, name: str | None) -> str:
    """Return the experiment's name: the given one, or the only one in the journal."""
    if name is not None:
        return name
    names = journal.experiments()
    if not names:
        raise NotFound("the journal holds no experiment yet; make one with `evenhand new`.")
    if len(names) > 1:
        raise BadInput(f"the journal holds {len(names)} experiments; say which: {', '.join(names[:10])}.")
    return names[0]


def load_protocol(journal: Journal, experiment: str) -> Protocol:
    """Return the protocol from event one, verified."""
    rows = list(journal.read(experiment, 0, 1))
    [first] = verified((row.record for row in rows), genesis(experiment))
    event = decode(first)
    if not isinstance(event, Created) or event.experiment != experiment:
        raise Difference(1, "must be the protocol of this experiment; it is not.")
    return Protocol.read(event, first.hash)


def load(journal: Journal, experiment: str) -> Fold:
    """Return the fold of an experiment as of its last event."""
    protocol = load_protocol(journal, experiment)
    position = journal.position(experiment)
    head, snapshot = position.head, position.snapshot
    fold = _from_snapshot(journal, protocol, snapshot) if snapshot else Fold(protocol, Head(1, protocol.hash))
    catch_up(fold, journal.read(experiment, fold.head.seq, head.seq), history_of(journal, experiment))
    if fold.head != head:
        raise Difference(head.seq, "is not the one that the journal's head names.")
    check_complete(fold)
    return fold


def catch_up(fold: Fold, rows: Iterable[StoredEvent], history: History) -> None:
    """Fold and check the events that follow."""
    records = verified((row.record for row in rows), fold.head)
    while chunk := list(itertools.islice(records, _AT_ONCE)):
        fold.take(chunk, history)


def history_of(journal: Journal, experiment: str) -> History:
    """Return a function that reads a cell's outcomes as of an event from the journal."""

    def outcomes(cell: int, seq: int) -> list[PlacedSample]:
        return corrected(journal.by_cell(experiment, cell, seq))

    return outcomes


def _from_snapshot(journal: Journal, protocol: Protocol, seq: int) -> Fold:
    before, row = (row.record for row in journal.read(protocol.experiment, seq - 2, seq))
    event = decode(row)
    if not isinstance(event, Snapshot) or link(before.hash, row.body) != row.hash or row.seq != seq:
        raise Difference(seq, "should be the latest snapshot; it was changed.")
    return _restored(protocol, row, event)


def _restored(protocol: Protocol, row: Record, event: Snapshot) -> Fold:
    try:
        return restore(protocol, Head(row.seq, row.hash), event)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as problem:
        raise Difference(row.seq, f"is a snapshot that cannot be read ({problem!r}).") from None
