"""The clocks of one process: one for people, which may jump, and one for waiting, which does not."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from evenhand.errors import BadInput


class Clock:
    """The machine's clocks; tests put others in their place."""

    def now(self) -> float:
        """Seconds since 1970, as people set it."""
        return time.time()

    def steady(self) -> float:
        """Seconds since some moment; only differences mean anything."""
        return time.monotonic()


SYSTEM_CLOCK = Clock()


class Deadlines(dict[int, float]):
    """By ticket, when its lease runs out by the steady clock of this process."""

    seen: float | None = None  # when this process last knew of every ticket that was out


def utc(seconds: float) -> str:
    """Seconds since 1970 as text. Later times sort after earlier ones."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")[:26] + "Z"


def seconds_of(text: str) -> float:
    """What `utc` was given."""
    return datetime.fromisoformat(text).timestamp()


def checked_time(text: str) -> str:
    """Return the text, or refuse what `utc` cannot have written."""
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
