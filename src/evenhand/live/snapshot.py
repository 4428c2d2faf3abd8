"""A fold as plain data and back, so that opening a long log begins near its end."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from evenhand.live import events as ev
from evenhand.live.chain import Difference, Head
from evenhand.live.fold import Fold
from evenhand.live.out import Out
from evenhand.live.protocol import Protocol
from evenhand.procedure.state import RUNNING, STOPPED

# sums of what was told, in the order of the log: equal on every machine
_EXACT = ("n", "s", "ss", "out", "clock")
# what passed through logarithms and exponentials: equal for one build, close for all
_CLOSE = ("track", "w", "bets", "theta", "level")


def snapshot_of(fold: Fold) -> dict[str, Any]:
    """Everything the fold knows, as tables and numbers."""
    state = fold.brain.state._asdict()
    return {
        "state": {name: _numbers(state[name]) for name in (*_EXACT, *_CLOSE)},
        "tally": {name: _numbers(table) for name, table in fold.brain.tally._asdict().items()},
        "tickets": fold.tickets,
        "out": [[ticket, *out] for ticket, out in fold.out.items()],
        "counts": fold.counts,
        "latest": fold.latest,
        "stop": None if fold.stop is None else ev.plain(fold.stop),
        "paused": fold.paused,
        "closed": fold.closed,
        "corrected_after_stop": fold.corrected_after_stop,
    }


def restore(protocol: Protocol, head: Head, event: ev.Snapshot) -> Fold:
    """The fold that a snapshot holds; `head` is the snapshot event's."""
    fold, data = Fold(protocol, head), event.fold
    for name, table in fold.brain.state._asdict().items():
        table[...] = np.array(_floats(data["state"][name]), dtype=table.dtype)
    for name, table in fold.brain.tally._asdict().items():
        table[...] = np.array(_floats(data["tally"][name]))
    fold.brain.has_stopped = bool(fold.brain.state.clock[STOPPED] != RUNNING)
    fold.tickets = data["tickets"]
    for ticket, *out in data["out"]:
        fold.out.hand_out(ticket, Out(*out))
    fold.counts.update(data["counts"])
    fold.latest = data["latest"]
    fold.stop = None if data["stop"] is None else ev.stopped(data["stop"])
    fold.paused, fold.closed = data["paused"], data["closed"]
    fold.corrected_after_stop = data["corrected_after_stop"]
    fold.snapshot = head.seq
    fold.note_time(event)
    return fold


def compare(seq: int, fold: Fold, data: dict[str, Any]) -> None:
    """Does the log's snapshot hold what its events give? Digits that builds may differ in are counted, not
    refused.
    """
    mine = snapshot_of(fold)
    for part in mine:
        if part == "state":
            for name in _EXACT:
                if mine[part][name] != data.get(part, {}).get(name):
                    raise Difference(seq, f"is a snapshot whose {name!r} differs from what the events give.")
            if any(mine[part][name] != data[part].get(name) for name in _CLOSE):
                fold.brain.note_odd(seq)
        elif part == "tally":
            if mine[part] != data.get(part):
                fold.brain.note_odd(seq)
        elif mine[part] != data.get(part):
            raise Difference(seq, f"is a snapshot whose {part!r} differs from what the events give.")


def _numbers(table: Any) -> Any:
    """Nested lists; infinity and NaN, which JSON has no numbers for, as words."""
    if isinstance(table, np.ndarray) and table.ndim > 1:
        return [_numbers(row) for row in table]
    return [x if math.isfinite(x) else str(x) for x in table.tolist()]


def _floats(table: Any) -> Any:
    if isinstance(table, list):
        return [_floats(part) for part in table]
    return float(table) if isinstance(table, str) else table
