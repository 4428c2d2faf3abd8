"""Conversion of a fold to plain data and back, to open long logs from a snapshot."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from evenhand.live import events as ev
from evenhand.live.hash_chain import Difference, Head, canonical
from evenhand.live.interval_counts import Cells
from evenhand.live.intervals import ClosedInterval, IntervalLog, OpenInterval
from evenhand.live.projection import Fold, LogState
from evenhand.live.protocol import Protocol
from evenhand.live.replay import CellSums, Sums
from evenhand.live.tickets import OpenTicket
from evenhand.procedure.assignment import Shares
from evenhand.procedure.interval_steps import SampleRatios
from evenhand.procedure.state import RUNNING, STOPPED, WEAKEST, State

# sums of outcomes in the order of the log: equal on every machine
_EXACT = ("n", "s", "ss", "out", "clock", "drawn", "rail_n", "rail_s", "rail_ss")
# results of logarithms and exponentials: equal for one build, close for all; those from a solver are close
# up to its tolerance
_CLOSE = {
    "track": 1e-2, "w": 1e-2, "bets": 1e-6, "theta": 1e-6, "level": 1e-6, "expected": 1e-2, "spread": 1e-2,
    "rail_bets": 1e-6, "rail_theta": 1e-6, "logs": 1e-6, "highest": 1e-6,
}  # fmt: skip


def snapshot_of(fold: Fold) -> dict[str, Any]:
    """Return the fold as dicts, lists and numbers."""
    state = fold.replay.state._asdict()
    data = {
        "state": {name: _numbers(state[name]) for name in _tables_of(fold)},
        "tally": {name: _numbers(table) for name, table in fold.replay.tally._asdict().items()},
        "tickets": fold.tickets,
        "out": [[ticket, *_written_ticket(out)] for ticket, out in fold.open_tickets.items()],
        "counts": fold.counts,
        "latest": fold.latest,
        "stop": None if fold.stop is None else ev.plain(fold.stop),
        "paused": fold.paused,
        "closed": fold.closed,
        "corrected_after_stop": fold.corrected_after_stop,
    }
    if fold.intervals is not None:
        data |= {"intervals": _written_intervals(fold.intervals), "ratios": _written_ratios(fold.ratios)}
    if fold.changes:
        data |= {"changes": [ev.plain(change) for change in fold.changes], "left": fold.left}
    return data if fold.format < 2 else data | {"build": fold.build, "format": fold.format}


def _written_intervals(log: IntervalLog) -> dict[str, Any]:
    """Return the intervals as dicts, lists and numbers."""
    last = log.last_closed
    return {
        "open": [[_written_shares(shares), _written_cells(cells)] for shares, cells in log.open.values()],
        "latest": None if log.latest is None else _written_shares(log.latest),
        "last_closed": None
        if last is None
        else [last.number, _written_shares(last.shares), _written_cells(last.cells), last.ended],
        "late": log.late,
        "corrected": log.corrected,
        "digest": log.digest,
    }


def _written_shares(shares: Shares) -> dict[str, Any]:
    return shares.to_dict()


def _written_cells(cells: Cells | None) -> list[Any] | None:
    return None if cells is None else [msgspec.to_builtins(cell) for cell in cells]


def _read_cells(cells: list[Any]) -> Cells:
    return msgspec.convert(cells, Cells)


def _read_intervals(log: IntervalLog, data: dict[str, Any]) -> None:
    """Restore the intervals that `_written_intervals` wrote."""
    for written, cells in data["open"]:
        shares = Shares.from_dict(written)
        log.open[shares.version] = OpenInterval(shares, None if cells is None else _read_cells(cells))
    log.latest = None if data["latest"] is None else Shares.from_dict(data["latest"])
    if data["last_closed"] is not None:
        number, shares, cells, ended = data["last_closed"]
        log.last_closed = ClosedInterval(number, Shares.from_dict(shares), _read_cells(cells), ended)
    log.late, log.corrected, log.digest = data["late"], data["corrected"], data["digest"]


def _written_ratios(ratios: SampleRatios) -> dict[str, Any]:
    return {"logs": _numbers(ratios.logs), "highest": _numbers(ratios.highest)}


def _written_ticket(out: OpenTicket) -> tuple[Any, ...]:
    """Return an open ticket as a snapshot holds it: without fields at the end that have their default."""
    if out.policies:
        return tuple(out)
    return out[:-2] if out.owner is None else out[:-1]


def _tables_of(fold: Fold) -> list[str]:
    """Return the names of the tables in a snapshot; those of guard-rails only where there are some."""
    rails = bool(fold.protocol.problem.guardrails)
    known = [name for name in (*_EXACT, *_CLOSE) if name in State._fields]
    return [name for name in known if rails or not name.startswith("rail_")]


def restore(protocol: Protocol, head: Head, event: ev.Snapshot) -> Fold:
    """Return the fold in a snapshot; `head` is that of the snapshot event."""
    data, changes = event.fold, LogState(protocol)
    for change in data.get("changes", ()):
        changes.apply(ev.policy_change(change))
    fold = Fold(changes.protocol, head)
    fold.changes, fold.left = changes.changes, data.get("left", {})
    _adopt_tables(fold, data)
    state, numbers = fold.replay.state, tuple(fold.protocol.columns)
    for g, k in np.argwhere(state.n > 0.0).tolist():
        rails = zip(state.rail_n, state.rail_s, state.rail_ss, strict=True)
        fold.sums[fold.cell(numbers[k], g)] = CellSums(
            _sums((state.n, state.s, state.ss), k, g), tuple(_sums(tables, k, g) for tables in rails)
        )
    if fold.intervals is not None:
        _read_intervals(fold.intervals, data["intervals"])
    fold.replay.has_stopped = bool(fold.replay.state.clock[STOPPED] != RUNNING)
    fold.tickets = data["tickets"]
    for ticket, *out in data["out"]:
        known = OpenTicket(*out)
        fold.open_tickets.add(ticket, known._replace(policies=tuple(known.policies)))
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
        if part in ("state", "tally", "ratios"):
            since = fold.replay.confirmed + 1
            _compare_tables(seq, since, part, data[part], expected, fold.replay.same_build)
        elif canonical(data[part]) != canonical(expected):  # 1.0 is not spelled as 1 is
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
        same = canonical(found[name]) == canonical(table)
        if not same and (same_build or name in _EXACT or not _is_close(name, found[name], table)):
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
    if fold.intervals is not None:
        fold.ratios.logs[...] = np.array(_floats(data["ratios"]["logs"]))
        fold.ratios.highest[...] = np.array(_floats(data["ratios"]["highest"]))


def _numbers(table: Any) -> Any:
    """Return nested lists, with infinity and NaN as text, because JSON has no such numbers."""
    if isinstance(table, np.ndarray) and table.ndim > 1:
        return [_numbers(row) for row in table]
    return [x if math.isfinite(x) else str(x) for x in table.tolist()]


def _floats(table: Any) -> Any:
    if isinstance(table, list):
        return [_floats(part) for part in table]
    return float(table) if isinstance(table, str) else table
