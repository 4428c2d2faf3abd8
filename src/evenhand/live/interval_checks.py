"""Checks of the events of intervals: readers refuse what the writer refuses, and derive shares again."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from evenhand.errors import BadInput, Conflict
from evenhand.live import events as ev
from evenhand.live.clock import checked_time
from evenhand.live.hash_chain import Difference
from evenhand.live.input_checks import checked_text
from evenhand.live.interval_arithmetic import Closing, publication
from evenhand.live.interval_bets import check_logs
from evenhand.live.interval_pairs import check_cells
from evenhand.live.intervals import (
    MOST_OPEN,
    IntervalLog,
    OpenInterval,
    counts_digest,
    policies_of,
    shares_of,
)
from evenhand.live.protocol import LIMITS, Protocol

if TYPE_CHECKING:
    from evenhand.live.projection import Fold

CLOSE_SHARES = 0.02  # largest difference of a share between two builds
_DIGEST = re.compile(r"[0-9a-f]{16}")


def check_event(event: ev.IntervalEvent, protocol: Protocol) -> None:
    """Refuse an event that no writer can have written, regardless of earlier events."""
    if protocol.procedure.interval is None:
        raise BadInput("the experiment has tickets, and no intervals.")
    if isinstance(event, ev.SharesPublished):
        checked_time(event.valid_from)
        shares_of(event)
        _check_digest(event.state)
        if event.hash_salt != protocol.procedure.interval.salt:
            raise BadInput("the salt must be that of the study.")
    elif isinstance(event, ev.IntervalClosed):
        _check_digest(event.sums)
    elif isinstance(event, ev.CountsCorrected):
        checked_text(event.reason, "reason")
        checked_text(event.by, "by", LIMITS["name_characters"])


def _check_digest(digest: str) -> None:
    if not _DIGEST.fullmatch(digest):
        raise BadInput(f"a digest must be 16 hexadecimal digits; it is {digest[:40]!r}.")


def check_published(fold: Fold, seq: int, event: ev.SharesPublished) -> None:
    """Refuse shares that do not follow from the log before them."""
    log = _log(fold, seq)
    if fold.is_over:
        raise Difference(seq, "publishes shares of an experiment that is over.")
    if len(log.open) >= MOST_OPEN:
        raise Difference(seq, f"begins an interval while {len(log.open)} are open.")
    latest = log.latest
    if latest is not None and event.valid_from <= (latest.valid_from or ""):
        raise Difference(seq, "publishes shares that are valid from a time before the latest ones.")
    derived = publication(fold, event.valid_from, event.at, event.back)
    if (event.version, event.valid_from) != (derived.version, derived.valid_from):
        raise Difference(seq, f"must be version {derived.version}; it is version {event.version}.")
    if event.state != derived.state:
        raise Difference(seq, "was derived from other counts than the events before it give.")
    if event.ranges != derived.ranges:
        _compare_shares(fold, seq, event, derived)


def _compare_shares(fold: Fold, seq: int, event: ev.SharesPublished, derived: ev.SharesPublished) -> None:
    """Refuse other shares than the rule's; those of another build may differ by its last digits."""
    written, right = shares_of(event), shares_of(derived)
    for group in right.ranges:
        for policy in policies_of(right):
            apart = abs(written.share(group, policy) - right.share(group, policy))
            if fold.replay.same_build or apart > CLOSE_SHARES:
                raise Difference(
                    seq,
                    f"gives {policy!r} in {group!r} the share {written.share(group, policy):.6g}, the rule "
                    f"{right.share(group, policy):.6g}.",
                )
    fold.replay.close_decisions += 1


def check_counted(fold: Fold, seq: int, event: ev.Counted) -> None:
    """Refuse counts of an interval that has some, or is not open."""
    interval = _open(fold, seq, event.interval)
    if interval.cells is not None:
        raise Difference(seq, f"counts interval {event.interval} a second time.")
    late = fold.why_late if fold.is_over else None
    if event.late != late:
        raise Difference(seq, f"must be late because {late}; it says {event.late}.")
    _check_cells(fold, seq, event, interval)


def check_corrected(fold: Fold, seq: int, event: ev.CountsCorrected) -> None:
    """Refuse a correction of counts that are not there, or of what they were."""
    interval = _open(fold, seq, event.interval)
    if interval.cells is None or fold.is_over:
        raise Difference(seq, f"corrects counts of interval {event.interval} that are not there.")
    if interval.cells == event.cells:
        raise Difference(seq, f"corrects the counts of interval {event.interval} to what they were.")
    _check_cells(fold, seq, event, interval)


def check_closed(fold: Fold, seq: int, event: ev.IntervalClosed) -> None:
    """Refuse the closing of an interval that is not the next one, or has no counts."""
    log, interval = _log(fold, seq), _open(fold, seq, event.interval)
    if fold.is_over or event.interval != log.closed + 1:
        raise Difference(seq, f"closes interval {event.interval}; the next is {log.closed + 1}.")
    if interval.cells is None:
        raise Difference(seq, f"closes interval {event.interval}, which has no counts.")


def check_closing(seq: int, event: ev.IntervalClosed, derived: Closing, same_build: bool) -> None:
    """Refuse sums and evidence that do not follow from the counts."""
    written, right = (event.outcomes, event.samples, event.sums, event.leader), derived[1:5]
    if written != right or (same_build and event.weakest != derived.weakest):
        raise Difference(seq, "leads to other sums, or another leader, than it records.")
    for name in ("evidence", "needed"):
        said, found = getattr(event, name), getattr(derived, name)
        if said != found and (same_build or not _close(said, found)):
            raise Difference(seq, f"has the {name} {said}; the rule gives {found}.")


def _close(a: float | None, b: float | None) -> bool:
    return a is not None and b is not None and math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9)


def _log(fold: Fold, seq: int) -> IntervalLog:
    if fold.intervals is None:
        raise Difference(seq, "is about an interval, and the experiment has tickets.")
    return fold.intervals


def _open(fold: Fold, seq: int, number: int) -> OpenInterval:
    interval = _log(fold, seq).open.get(number)
    if interval is None:
        raise Difference(seq, f"is about interval {number}, which is not open.")
    return interval


def _check_cells(
    fold: Fold, seq: int, event: ev.Counted | ev.CountsCorrected, interval: OpenInterval
) -> None:
    log = _log(fold, seq)
    if event.counts != counts_digest(log.digest, event.interval, event.cells):
        raise Difference(seq, f"has other counts of interval {event.interval} than its digest says.")
    try:
        check_cells(event.cells, fold.protocol, policies_of(interval.shares))
        if not fold.is_over:
            check_logs(fold.protocol, fold.replay.state, log, event.interval, event.cells)
    except (BadInput, Conflict) as problem:
        raise Difference(seq, f"cannot have been written: {problem}") from None
