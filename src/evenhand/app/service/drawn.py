"""An experiment as a page shows it: plain values that a helper process sends back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup


@dataclass(frozen=True)
class Picture:
    """A drawing with its title and the sentence that says what it shows."""

    name: str
    title: str
    says: str
    wide: Markup | None  # where there is a version for wide screens
    narrow: Markup


@dataclass(frozen=True)
class Ticket:
    """A ticket that is out or whose outcome came late, as people see it."""

    ticket: str
    what: str
    who: str
    seconds: float
    outcome: float | None = None


@dataclass(frozen=True)
class Drawn:
    """The page's content as of one event."""

    head: int
    status: dict[str, Any]
    sentence: str
    progress: float | None = None
    pictures: tuple[Picture, ...] = ()
    cells: tuple[dict[str, Any], ...] = ()
    evidence: dict[str, Any] | None = None  # columns of the curve
    says_evidence: str = ""
    behind: int = 0  # events that the curve does not hold yet
    out: tuple[Ticket, ...] = ()  # the oldest
    late: tuple[Ticket, ...] = ()  # the latest


@dataclass(frozen=True)
class Line:
    """One event of the log, in words."""

    seq: int
    at: str
    kind: str
    says: str
