"""What an event can be found by: follows from the event and its cell, and an audit checks that it does."""

from __future__ import annotations

from evenhand.live import events as ev
from evenhand.live.tables import BEGAN, CAME_LATE, ENDED, Index

_SLOTS: dict[type, int] = {
    ev.Asked: BEGAN,
    ev.Imported: BEGAN,
    ev.Told: ENDED,
    ev.Dropped: ENDED,
    ev.Expired: ENDED,
    ev.Late: CAME_LATE,
}


def index_of(event: ev.AnyEvent, seq: int, cell: int | None) -> Index:
    """The columns of an event; `cell` is where its outcome counts, if it does."""
    ticket: int | None = getattr(event, "ticket", None)
    slot = None if ticket is None else _SLOTS.get(type(event), seq)
    return Index(ticket, slot, cell, event.key, None if event.key is None else event.part)
