"""What a call may do while it is its turn: read the fold, look events up, and emit new ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from evenhand.live import events as ev
from evenhand.live.brain import Cell
from evenhand.live.build import present_build
from evenhand.live.chain import Record
from evenhand.live.clock import Clock, behind, utc
from evenhand.live.events import encode
from evenhand.live.fold import Fold
from evenhand.live.history import corrected
from evenhand.live.index import index_of
from evenhand.live.leases import Leases
from evenhand.live.out import seconds_left
from evenhand.live.requests import RequestKey
from evenhand.live.snapshot import snapshot_of
from evenhand.live.stop import stop_of
from evenhand.live.turn import Entry, Turn


class Session:
    """What a call may do during a turn."""

    def __init__(self, turn: Turn, fold: Fold, clock: Clock, leases: Leases, again: bool) -> None:
        self.fold = fold
        self.again = again  # an earlier try may have been committed without our knowing
        self.by_ticket = turn.by_ticket
        self.by_key = turn.by_key
        self.parts = 0  # events that the present request has written under its key
        self._turn = turn
        self._clock = clock
        self._leases = leases
        self._request: RequestKey | None = None

    def begin(self, request: RequestKey | None) -> None:
        """Whatever is stamped from here on belongs to this request."""
        self._request, self.parts = request, 0

    @property
    def key_was_given(self) -> bool:
        """Has the present request a key of its caller's?"""
        return self._request is not None and self._request.is_given

    def stamp(self) -> dict[str, Any]:
        """What an event of the present request carries: its time, its key, and which part it is."""
        request, part = self._request, self.parts
        if request is None:
            return self.time()
        self.parts += 1
        first = {"request": request.digest} if part == 0 else {}
        return self.time() | {"key": request.key, "part": part} | first

    def time(self) -> dict[str, Any]:
        """The time for an event, and by how much it is behind the log's latest."""
        at = utc(self._clock.now())
        by = behind(at, self.fold.latest)
        return {"at": at, "back": by} if by else {"at": at}

    def emit(self, event: ev.AnyEvent) -> None:
        """Write an event and fold it; if the stopping rule fires with it, that too."""
        cell = self.fold.cell_of(event)
        event = self._with_sums(event, cell)
        self.fold.note(self._append(event, cell), event, self._history)
        self._stop_if_due()

    def emit_all(self, events: Iterable[tuple[ev.Imported, Entry]]) -> None:
        """Write many events, given with what is stored of them, and fold them in one run of the kernels."""
        fold, turn = self.fold, self._turn
        for event, entry in events:
            [record] = turn.append([entry])
            fold.step(record, event, self._history)
        fold.flush()
        self._turn.flush()  # memory does not grow with the number of events
        self._stop_if_due()

    def _stop_if_due(self) -> None:
        fold = self.fold
        if fold.must_stop:
            self.emit(stop_of(fold.protocol, fold.brain.state, **self.time()))

    def emit_chosen(self, event: ev.Asked, cell: Cell) -> None:
        """Write an ask that the rule has just chosen."""
        self.fold.note_chosen(self._append(event, None), event, cell)
        self._leases.add(event.ticket, self.fold.out[event.ticket])

    def give_up_overdue(self) -> None:
        """Write an expiry for every ticket whose lease has run out."""
        for ticket in self._leases.due(self.fold):
            time = self.time()
            early = seconds_left(self.fold.out[ticket], time["at"])
            self.emit(ev.Expired(ticket=ticket, early=early, **time))

    def save_snapshot(self) -> None:
        """Write the fold down, where the last time is long ago."""
        fold = self.fold
        if fold.head.seq - fold.snapshot >= fold.protocol.snapshot_every:
            time = self.time()
            self.name_build(**time)  # first: the snapshot holds it
            event = ev.Snapshot(fold=snapshot_of(fold), **time)
            record = self._append(event, None)
            self._turn.mark_snapshot()
            fold.note_snapshot(record, event)

    def _with_sums(self, event: ev.AnyEvent, cell: int | None) -> ev.AnyEvent:
        """The event with a digest of what its outcome leads to in its cell."""
        if isinstance(event, (ev.Told, ev.Imported)) and cell is not None:
            sums = self.fold.sums_with(cell, event.outcome)
        elif isinstance(event, ev.Amended) and cell is not None:
            correction = Record(self._turn.head.seq + 1, encode(event), b"")
            sums = self.fold.sums_from(corrected([*self._turn.by_cell(cell), correction]))
        else:
            return event
        return msgspec.structs.replace(event, sums=sums.digest(event.ticket, cell))

    def _append(self, event: ev.AnyEvent, cell: int | None) -> Record:
        """Write an event; before the first one of another build, that it is another."""
        self.name_build(event.at, event.back)
        return self._write(event, cell)

    def name_build(self, at: str, back: float = 0.0) -> None:
        """Say that another build writes from here on, if one does; at the time of what it writes first."""
        build = present_build()
        if build != self.fold.build:
            changed = ev.BuildChanged(versions=build, format=ev.FORMAT, at=at, back=back)
            self.fold.note(self._write(changed, None), changed, self._history)

    def _write(self, event: ev.AnyEvent, cell: int | None) -> Record:
        index = index_of(event, self._turn.head.seq + 1, cell)
        [record] = self._turn.append([(encode(event), index)])
        return record

    def _history(self, cell: int, _seq: int) -> list[float]:
        return corrected(self._turn.by_cell(cell))
