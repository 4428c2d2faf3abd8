"""What a reader needs of an experiment, copied, so that writing can go on."""

from __future__ import annotations

from typing import NamedTuple

from evenhand.live.chain import Head
from evenhand.live.events import Stopped
from evenhand.live.fold import Fold
from evenhand.live.kernels import Tally
from evenhand.live.protocol import Protocol
from evenhand.procedure.state import State


class View(NamedTuple):
    """A fold as of one event."""

    protocol: Protocol
    head: Head
    state: State
    tally: Tally
    counts: dict[str, int]
    pending: int
    oldest: tuple[int, str] | None  # the first handed out of the tickets still out, and when that was
    stop: Stopped | None
    paused: bool
    closed: bool
    corrected_after_stop: bool


def view_of(fold: Fold) -> View:
    """The fold as it is now."""
    oldest = next(iter(fold.out.items()), None)
    return View(
        protocol=fold.protocol,
        head=fold.head,
        state=State._make(table.copy() for table in fold.brain.state),
        tally=Tally._make(table.copy() for table in fold.brain.tally),
        counts=dict(fold.counts),
        pending=len(fold.out),
        oldest=None if oldest is None else (oldest[0], oldest[1].at),
        stop=fold.stop,
        paused=fold.paused,
        closed=fold.closed,
        corrected_after_stop=fold.corrected_after_stop,
    )
