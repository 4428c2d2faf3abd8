"""Which event was changed, where that shows later than it was done."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from evenhand.live import events as ev
from evenhand.live.chain import Difference, Record
from evenhand.live.events import AnyEvent, decode

Read = Callable[[], Iterable[Record]]


def located(problem: Difference, read: Read) -> Difference:
    """The difference, with the event at fault if an earlier one is, or with all that may be."""
    events = [decode(record) for record in itertools.islice(read(), problem.since - 1, problem.seq + 1)]
    if isinstance(events[0], ev.Imported) and isinstance(events[problem.seq - problem.since], ev.Imported):
        return _wrong_row(problem, events)
    suspects = [problem.since + place for place, event in enumerate(events) if _may_be_wrong(event)]
    suspects = [seq for seq in suspects if seq < problem.seq]
    if not suspects:
        return problem
    others = f"event {suspects[0]}"
    if len(suspects) > 1:
        others = f"one of the events {suspects[0]} to {suspects[-1]}"
    return Difference(
        problem.seq, f"{problem.reason.rstrip('.')}: it was changed, or {others} was.", suspects[0]
    )


def _may_be_wrong(event: AnyEvent) -> bool:
    """Can this event change counts and sums, without saying what it leads to?"""
    if isinstance(event, (ev.Told, ev.Imported, ev.Amended)):
        return event.sums is None
    return isinstance(event, (ev.Dropped, ev.Expired))


def _wrong_row(problem: Difference, events: list[AnyEvent]) -> Difference:
    """Of an import's first and second row, which disagree, the one that the next event disagrees with."""
    first, second, *rest = events
    after = rest[0] if rest else None
    if not isinstance(first, ev.Imported) or first.row != 1 or not isinstance(second, ev.Imported):
        return problem
    if isinstance(after, ev.Imported) and after.row > 1:
        second_is_right = after.row == 3 and (after.rows, after.source) == (second.rows, second.source)
    else:
        second_is_right = second.rows == 2  # it is the last
    if second_is_right:
        return Difference(problem.seq - 1, "is of another import than the rows that follow it.")
    return problem
