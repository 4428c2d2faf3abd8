"""Transfer of an export into another storage, event by event, with the same head."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from evenhand.errors import BadInput, IntegrityFailed
from evenhand.live import events as ev
from evenhand.live.audit import audit, is_journal
from evenhand.live.events import Created, decode
from evenhand.live.export import Export
from evenhand.live.hash_chain import Head
from evenhand.live.journal import Journal, open_journal
from evenhand.live.projection import LogState
from evenhand.live.protocol import Protocol
from evenhand.live.schema import index_of

_AT_ONCE = 5_000  # events per insert


class Transferred(NamedTuple):
    """The result of a transfer."""

    experiment: str
    events: int
    head: str


def transfer(export: Path, address: str) -> Transferred:
    """Write the log of an export into a journal, created if needed; all of it or nothing.

    The export is audited first; one that fails is not transferred.
    """
    if is_journal(str(export)):
        raise BadInput(f"{export} is a journal; write an export of it first with `evenhand export`.")
    found = audit(str(export))
    if not found.identical:
        raise IntegrityFailed(f"{export} is not transferred: {found.first_difference}")
    source = Export(export)
    journal = open_journal(address, create=True)
    try:
        _write(journal, source, Head(found.events, bytes.fromhex(found.head)))
    finally:
        journal.close()
    return Transferred(source.experiment, found.events, found.head)


def _write(journal: Journal, source: Export, head: Head) -> None:
    """Write the whole log; repeating the same log has no effect."""
    if source.experiment in journal.experiments():
        if journal.head(source.experiment) == head:
            return
        raise BadInput(
            f"the journal holds another experiment {source.experiment!r} already; transfer to another one."
        )
    state: LogState | None = None
    with journal.begin(source.experiment) as transaction:
        for record in source.read():
            event, cell = decode(record), None
            if isinstance(event, Created):
                state = LogState(Protocol.read(event, record.hash))
            elif state is not None:
                cell = state.cell_of(event)
                state.apply(event)
            transaction.append([(record.body, index_of(event, record.seq, cell))])
            if isinstance(event, ev.Snapshot):
                transaction.mark_snapshot()
            if record.seq % _AT_ONCE == 0:
                transaction.flush()  # memory use does not grow with the log
        if transaction.head != head:
            raise IntegrityFailed("the export changed while it was read; transfer it again.")
