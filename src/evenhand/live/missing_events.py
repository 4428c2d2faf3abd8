"""Events that a journal held and does not hold any more: an older copy put back, or the last ones deleted."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import sqlalchemy as sa

from evenhand.live import schema
from evenhand.live.writer_lock import Mark, lock_of


class Missing(NamedTuple):
    """The last event that was written, which is not there, and what is there instead."""

    mark: Mark
    experiment: str | None  # its name; None where the journal does not hold it
    last: int  # number of the last event that is there

    @property
    def first(self) -> int:
        """The number of the first event that is missing, or is another one."""
        return min(self.last + 1, self.mark.seq)

    @property
    def what(self) -> str:
        """Which events are missing."""
        seq = self.mark.seq
        if self.experiment is None:
            return f"an experiment is missing, to which event {seq} was written here"
        if self.last >= seq:
            return f"event {seq} of {self.experiment!r} is not the one that was written here"
        if self.first == seq:
            return f"event {seq} of {self.experiment!r} is missing, which was written here"
        return f"events {self.first} to {seq} of {self.experiment!r} are missing, which were written here"

    def sentence(self, journal: Path) -> str:
        """For whoever opens the journal."""
        return (
            f"{journal}: {self.what}. This is an older or another copy, or its last events or its -wal file "
            f"were removed. Put the newer file back; remove {lock_of(journal)} only if it is lost for good."
        )


def missing_event(connection: sa.Connection, mark: Mark) -> Missing | None:
    """What a journal lacks of what was written to it; None where the last event written is there."""
    events, experiments = schema.events.c, schema.experiments.c
    here = sa.select(events.hash).where(events.experiment == mark.experiment, events.seq == mark.seq)
    if connection.execute(here).scalar() == mark.hash:
        return None
    name = sa.select(experiments.name).where(experiments.number == mark.experiment)
    last = sa.select(sa.func.max(events.seq)).where(events.experiment == mark.experiment)
    return Missing(mark, connection.execute(name).scalar(), connection.execute(last).scalar() or 0)
