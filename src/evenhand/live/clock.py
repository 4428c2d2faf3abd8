"""Wall clock and monotonic clock of one process, and times as text."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from evenhand.errors import BadInput


class Clock:
    """The machine's clocks; tests substitute others."""

    def now(self) -> float:
        """Return the wall clock in seconds since 1970; it may jump."""
        return time.time()

    def monotonic(self) -> float:
        """Return the monotonic clock in seconds; only differences are meaningful."""
        return time.monotonic()


SYSTEM_CLOCK = Clock()


class Deadlines(dict[int, float]):
    """Ticket number -> time when its lease ends, by the monotonic clock of this process."""

    seen: float | None = None  # last time at which this process had read every open ticket


def utc(seconds: float) -> str:
    """Return seconds since 1970 as UTC text; the texts sort by time."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")[:26] + "Z"


def seconds_of(text: str) -> float:
    """Return the seconds since 1970 of a text that `utc` wrote."""
    return datetime.fromisoformat(text).timestamp()


def checked_time(text: str) -> str:
    """Return the text; refuse what `utc` cannot have written."""
    try:
        written = datetime.fromisoformat(text).isoformat(timespec="microseconds")
    except ValueError:
        written = ""
    if written[:26] + "Z" != text or written[26:] != "+00:00":
        raise BadInput(f"times must look like 2030-01-31T12:00:00.000000Z; this one is {text[:40]!r}.")
    return text


def behind(at: str, latest: str) -> float:
    """Return by how many seconds a time is before the latest one of a log; 0 if it is not."""
    return 0.0 if at >= latest else round(seconds_of(latest) - seconds_of(at), 6)
