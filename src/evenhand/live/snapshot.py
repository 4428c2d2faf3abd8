"""Conversion of a fold to plain data and back, to open long logs from a snapshot."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.live import events as ev
from evenhand.live.hash_chain import Difference, Head
from evenhand.live.projection import Fold
from evenhand.live.protocol import Protocol
from evenhand.live.replay import CellSums, Sums
from evenhand.live.tickets import OpenTicket
from evenhand.procedure.state import RUNNING, STOPPED, WEAKEST, State

# sums of outcomes in the order of the log: equal on every machine
_EXACT = ("n", "s", "ss", "out", "clock", "drawn", "rail_n", "rail_s", "rail_ss")
# results of logarithms and exponentials: equal for one build, close for all; those from a solver are close
# up to its tolerance
_CLOSE = {
    "track": 1e-2, "w": 1e-2, "bets": 1e-6, "theta": 1e-6, "level": 1e-6, "expected": 1e-2, "spread": 1e-2,
    "rail_bets": 1e-6, "rail_theta": 1e-6,
}  # fmt: skip


def snapshot_of(fold: Fold) -> dict[str, Any]:
    """Return the fold as dicts, lists and numbers."""
    state = fold.replay.state._asdict()
    data = {
        "state": {name: _numbers(state[name]) for name in _tables_of(fold)},
        "tally": {name: _numbers(table) for name, table in fold.replay.tally._asdict().items()},
        "tickets": fold.tickets,
        "out": [[ticket, *out] for ticket, out in fold.open_tickets.items()],
        "counts": fold.counts,
        "latest": fold.latest,
        "stop": None if fold.stop is None else ev.plain(fold.stop),
        "paused": fold.paused,
        "closed": fold.closed,
        "corrected_after_stop": fold.corrected_after_stop,
    }
    return data if fold.format < 2 else data | {"build": fold.build, "format": fold.format}


def _tables_of(fold: Fold) -> list[str]:
    """Return the names of the tables in a snapshot; those of guard-rails only where there are some."""
    rails = bool(fold.protocol.problem.guardrails)
    known = [name for name in (*_EXACT, *_CLOSE) if name in State._fields]
    return [name for name in known if rails or not name.startswith("rail_")]


def restore(protocol: Protocol, head: Head, event: ev.Snapshot) -> Fold:
    """Return the fold in a snapshot; `head` is that of the snapshot event."""
    fold, data = Fold(protocol, head), event.fold
    _adopt_tables(fold, data)
    state = fold.replay.state
    for g, k in np.argwhere(state.n > 0.0).tolist():
        rails = zip(state.rail_n, state.rail_s, state.rail_ss, strict=True)
        fold.sums[fold.cell(k, g)] = CellSums(
            _sums((state.n, state.s, state.ss), k, g), tuple(_sums(tables, k, g) for tables in rails)
        )
    fold.replay.has_stopped = bool(fold.replay.state.clock[STOPPED] != RUNNING)
    fold.tickets = data["tickets"]
    for ticket, *out in data["out"]:
        fold.open_tickets.add(ticket, OpenTicket(*out))
    fold.counts.update(data["counts"])
    fold.latest = data["latest"]
    fold.stop = None if data["stop"] is None else ev.stopped(data["stop"])
    fold.paused, fold.closed = data["paused"], data["closed"]
    fold.corrected_after_stop = data["corrected_after_stop"]
    # snapshots of format 1 name no build: it is the one that began the log
    fold.use_build(data.get("build", protocol.versions), data.get("format", protocol.format))
    fold.snapshot = head.seq
    fold.replay.refresh(head.seq)
    fold.note_time(event)
    return fold


def _sums(tables: Iterable[NDArray[np.float64]], k: int, g: int) -> Sums:
    return Sums(*(float(table[g, k]) for table in tables))


def adopt_snapshot(seq: int, fold: Fold, data: dict[str, Any]) -> None:
    """Refuse a snapshot that differs from the fold of its events; continue from its digits.

    The last digits of some tables may differ for another build; readers continue from those in the snapshot.
    """
    mine = snapshot_of(fold)
    if data.keys() != mine.keys():
        raise Difference(seq, f"is a snapshot that must hold {', '.join(mine)}; it holds other things.")
    for part, expected in mine.items():
        if part in ("state", "tally"):
            since = fold.replay.confirmed + 1
            _compare_tables(seq, since, part, data[part], expected, fold.replay.same_build)
        elif data[part] != expected:
            raise Difference(seq, f"is a snapshot whose {part!r} differs from what the events give.")
    if data != mine:
        fold.replay.note_other_digits()
        _adopt_tables(fold, data)


def _compare_tables(
    seq: int, since: int, part: str, found: Any, expected: dict[str, Any], same_build: bool
) -> None:
    if not isinstance(found, dict) or found.keys() != expected.keys():
        raise Difference(seq, f"is a snapshot whose {part!r} must hold {', '.join(expected)}; it does not.")
    for name, table in expected.items():
        if found[name] != table and (same_build or name in _EXACT or not _is_close(name, found[name], table)):
            raise Difference(seq, f"is a snapshot whose {name!r} differs from what the events give.", since)


def _is_close(name: str, found: Any, table: Any) -> bool:
    """Return whether the difference is possible between two builds."""
    try:
        one, other = np.array(_floats(found), dtype=float), np.array(_floats(table), dtype=float)
    except (TypeError, ValueError, OverflowError):
        return False
    if one.shape != other.shape:
        return False
    if name == "level":
        one[WEAKEST] = other[WEAKEST]  # which of two equally weak comparisons comes first
    return np.allclose(one, other, _CLOSE[name], _CLOSE[name], equal_nan=True)


def _adopt_tables(fold: Fold, data: dict[str, Any]) -> None:
    state = fold.replay.state._asdict()
    for name in _tables_of(fold):
        state[name][...] = np.array(_floats(data["state"][name]), dtype=state[name].dtype)
    for name, table in fold.replay.tally._asdict().items():
        table[...] = np.array(_floats(data["tally"][name]))


def _numbers(table: Any) -> Any:
    """Return nested lists, with infinity and NaN as text, because JSON has no such numbers."""
    if isinstance(table, np.ndarray) and table.ndim > 1:
        return [_numbers(row) for row in table]
    return [x if math.isfinite(x) else str(x) for x in table.tolist()]


def _floats(table: Any) -> Any:
    if isinstance(table, list):
        return [_floats(part) for part in table]
    return float(table) if isinstance(table, str) else table
