"""Detection of missing events: an older copy was restored, or the last events were deleted."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import sqlalchemy as sa

from evenhand.live import schema
from evenhand.live.writer_lock import Mark, lock_of


class Missing(NamedTuple):
    """The last event written, which is missing, and what the journal has instead."""

    mark: Mark
    experiment: str | None  # None if the journal does not have it
    last: int  # number of the last event that is present

    @property
    def first(self) -> int:
        """Return the number of the first event that is missing or different."""
        return min(self.last + 1, self.mark.seq)

    @property
    def what(self) -> str:
        """Return which events are missing."""
        seq = self.mark.seq
        if self.experiment is None:
            return f"an experiment is missing, to which event {seq} was written here"
        if self.last >= seq:
            return f"event {seq} of {self.experiment!r} is not the one that was written here"
        if self.first == seq:
            return f"event {seq} of {self.experiment!r} is missing, which was written here"
        return f"events {self.first} to {seq} of {self.experiment!r} are missing, which were written here"

    def sentence(self, journal: Path) -> str:
        """Return the message for the user who opens the journal."""
        return (
            f"{journal}: {self.what}. This is an older or another copy, or its last events or its -wal file "
            f"were removed. Put the newer file back; remove {lock_of(journal)} only if it is lost for good."
        )


def missing_event(connection: sa.Connection, mark: Mark) -> Missing | None:
    """Return what the journal lacks; None if the last event written is present."""
    events, experiments = schema.events.c, schema.experiments.c
    here = sa.select(events.hash).where(events.experiment == mark.experiment, events.seq == mark.seq)
    if connection.execute(here).scalar() == mark.hash:
        return None
    name = sa.select(experiments.name).where(experiments.number == mark.experiment)
    last = sa.select(sa.func.max(events.seq)).where(events.experiment == mark.experiment)
    return Missing(mark, connection.execute(name).scalar(), connection.execute(last).scalar() or 0)
