"""The state of an experiment as a fold over its events, and read-only copies of it.

The fold is pure, and the same code is used for running, reopening and auditing. The effect of an event on
tickets and counts is in `log_state`; the checks and the arithmetic are here. The rules:

- Events are ordered by their position in the log. Clocks decide only when an expiry is written.
- An open ticket counts for the allocation; only recorded outcomes count for estimates and evidence.
- After an amendment the cell's outcomes are folded again from its first, each with its latest correction, in
  the order in which they were first recorded. The rule's memory and earlier asks stay as they were. The
  stopping rule is evaluated at once.
- After the stop only amendments change estimates, and nothing changes the decision.
- The rows of an import are consecutive, and so are the event with which the stopping rule fires and the
  `stopped` event.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from evenhand.live import events as ev
from evenhand.live.build import Build, present_build
from evenhand.live.event_checks import check_event
from evenhand.live.events import AnyEvent, Sample, Stopped, decode, sample_of
from evenhand.live.hash_chain import Difference, Head, Record
from evenhand.live.log_state import LogState, Place
from evenhand.live.outcomes import unit_metrics
from evenhand.live.protocol import Protocol
from evenhand.live.replay import Brain, CellSums, no_sums
from evenhand.live.replay_kernels import ASK_THIS, DROP, IMPORT, IMPORT_LAST, TELL, Tally
from evenhand.live.sequence_checks import check_follows, stop_is_missing
from evenhand.procedure.state import State

# the outcomes that count in a cell as of an event, in the order first recorded; used for amendments
History = Callable[[int, int], Sequence[Sample]]

# these are compared with the state after the previous event, so queued arithmetic is done first
_NEED_STATE = (ev.Amended, ev.Stopped, ev.BuildChanged, ev.Snapshot)


class Fold(LogState):
    """The checked state of the log after an event, with the procedure's arithmetic."""

    def __init__(self, protocol: Protocol, head: Head) -> None:
        super().__init__(protocol)
        self.head = head
        self.brain = Brain(protocol)
        self.snapshot = 0  # number of the latest snapshot event
        self.sums: dict[int, CellSums] = {}  # by cell number
        self.use_build(protocol.versions, protocol.format)
        family = protocol.problem.family
        self._low, self._width = family.low, family.width
        self._guardrails = protocol.problem.guardrails
        self._is_active = protocol.problem.mode == "active"
        self._computations: dict[type, Callable[[int, Any, Place], None]] = {
            ev.Asked: self._compute_asked, ev.Told: self._compute_told, ev.Imported: self._compute_imported,
            ev.Dropped: self._compute_given_up, ev.Expired: self._compute_given_up,
        }  # fmt: skip

    @property
    def must_stop(self) -> bool:
        """Return whether the rule has fired and the `stopped` event must come next."""
        return self.brain.has_stopped and self.stop is None

    def take(self, records: Iterable[Record], history: History) -> None:
        """Fold stored events; check each, and that it follows from those before."""
        for record in records:
            event = decode(record)
            check_event(record, event, self.protocol)
            self.step(record, event, history)
        self.flush()

    def note(self, record: Record, event: AnyEvent, history: History) -> None:
        """Fold one new event."""
        self.step(record, event, history)
        self.flush()

    def step(self, record: Record, event: AnyEvent, history: History) -> Place | None:
        """Fold an event and return its cell; its arithmetic may be queued until `flush`."""
        seq = record.seq
        if isinstance(event, _NEED_STATE):
            self.flush()
        check_follows(self, seq, event)
        place = self.apply(event)
        if place is not None:
            if isinstance(event, ev.Amended):
                self._compute_amended(seq, event, place, history)
            else:
                self._computations[type(event)](seq, event, place)
        elif isinstance(event, ev.BuildChanged):
            self.use_build(event.versions, event.format)
        elif isinstance(event, ev.Snapshot):
            self._compare_snapshot(seq, event)
        self.note_time(event)  # afterwards: a snapshot holds the state before it
        self.head = Head(seq, record.hash)
        return place

    def flush(self) -> None:
        """Do the queued arithmetic; the error names the first event that does not follow."""
        self.brain.flush()
        if self.must_stop and self.brain.stopped_at < self.head.seq:
            raise stop_is_missing(self.brain.stopped_at + 1)

    def note_chosen(self, record: Record, event: ev.Asked) -> None:
        """Fold an ask whose arithmetic `Brain.choose` has done."""
        self.note_time(event)
        self.apply(event)
        self.head = Head(record.seq, record.hash)

    def note_snapshot(self, record: Record, event: ev.Snapshot) -> None:
        """Fold a snapshot of this state."""
        self.note_time(event)
        self._passed_snapshot(record.seq)
        self.head = Head(record.seq, record.hash)

    def use_build(self, build: Build, format_: int) -> None:
        """Set the build and format of the events from here on."""
        self.build, self.format = build, format_
        self.brain.same_build = build == present_build()

    def unit(self, outcome: float) -> float:
        """Return an outcome in the unit scale of the kernels."""
        return (outcome - self._low) / self._width

    def rails(self, sample: Sample) -> tuple[float, ...]:
        """Return the outcomes of the guard-rails in unit scale; NaN where one is missing."""
        return unit_metrics(sample.metrics, self.protocol.problem) if self._guardrails else ()

    def sums_with(self, cell: int, sample: Sample) -> CellSums:
        """Return the sums of a cell after one more sample."""
        before = self.sums.get(cell) or no_sums(len(self._guardrails))
        return before.plus(self.unit(sample.outcome), self.rails(sample))

    def sums_from(self, samples: Iterable[Sample]) -> CellSums:
        """Return the sums of a cell with these samples, added in this order."""
        sums = no_sums(len(self._guardrails))
        for sample in samples:
            sums = sums.plus(self.unit(sample.outcome), self.rails(sample))
        return sums

    def _compute_asked(self, seq: int, event: ev.Asked, place: Place) -> None:
        k, g = place
        arrived = -1 if self._is_active else g
        chance = math.nan if event.p is None else event.p
        digests = int(event.state, 16), int(event.chance, 16)
        self.brain.queue(seq, ASK_THIS, k, g, arrived, chance, digests)

    def _compute_told(self, seq: int, event: ev.Told, place: Place) -> None:
        cell = self.cell(*place)
        sample = sample_of(event)
        self._use_sums(seq, event, cell, self.sums_with(cell, sample))
        self.brain.queue(seq, TELL, *place, -1, self.unit(event.outcome), rails=self.rails(sample))

    def _compute_given_up(self, seq: int, event: ev.Dropped | ev.Expired, place: Place) -> None:
        if self.stop is None:
            self.brain.queue(seq, DROP, *place, -1, 0.0)

    def _compute_imported(self, seq: int, event: ev.Imported, place: Place) -> None:
        cell, kind = self.cell(*place), IMPORT_LAST if event.row == event.rows else IMPORT
        sample = sample_of(event)
        self._use_sums(seq, event, cell, self.sums_with(cell, sample))
        self.brain.queue(seq, kind, *place, -1, self.unit(event.outcome), rails=self.rails(sample))

    def _compute_amended(self, seq: int, event: ev.Amended, place: Place, history: History) -> None:
        cell = self.cell(*place)
        samples = history(cell, seq)
        self._use_sums(seq, event, cell, self.sums_from(samples))
        outcomes = [self.unit(sample.outcome) for sample in samples]
        self.brain.replace(seq, *place, outcomes, list(map(self.rails, samples)))

    def _use_sums(
        self, seq: int, event: ev.Told | ev.Imported | ev.Amended, cell: int, sums: CellSums
    ) -> None:
        """Store the sums; refuse an event whose digest differs (format 1 has none)."""
        if event.sums != (sums.digest(event.ticket, cell) if self.format >= 2 else None):
            raise Difference(seq, f"has the outcome {event.outcome:g}, and leads to other sums than it says.")
        self.sums[cell] = sums

    def _compare_snapshot(self, seq: int, event: ev.Snapshot) -> None:
        from evenhand.live.snapshot import go_on_from

        go_on_from(seq, self, event.fold)
        self._passed_snapshot(seq)

    def _passed_snapshot(self, seq: int) -> None:
        self.snapshot = seq
        self.brain.refresh(seq)


class View(NamedTuple):
    """A copy of a fold as of one event."""

    protocol: Protocol
    head: Head
    state: State
    tally: Tally
    counts: dict[str, int]
    pending: int
    oldest: tuple[int, str] | None  # the open ticket that was issued first, and when
    stop: Stopped | None
    paused: bool
    closed: bool
    corrected_after_stop: bool


def view_of(fold: Fold) -> View:
    """Return a view of the fold as it is now."""
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
