"""Status: where an experiment stands, as a frozen value.

    status = trial.status()
    status.sentence, status.decided, status.answer, status.samples, status.cells, status.health

`to_dict` gives the JSON of `evenhand status --json` and of the HTTP service; `from_dict` reads it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from evenhand.model.rows import CellRow, PolicyRow

ALERT = 0.001  # a sample-ratio p-value below this is no accident
CHANCES = ("0.5", "0.7", "0.8", "0.9")
_CELL = ("policy", "group", "n", "mean", "pending", "verdict", "floor", "cap")  # no intervals are computed


@dataclass(frozen=True)
class ShortCell:
    """A cell that has fewer samples than its initial ones, although many more were handed out."""

    policy: str
    group: str
    samples: int


@dataclass(frozen=True)
class Health:
    """Whether the experiment is run as it was meant to be: each finding as a number."""

    well: bool  # nothing needs attention
    sample_ratio_p: float  # p-value of the counts under the probabilities that cells were drawn with
    starved: tuple[ShortCell, ...] = ()
    oldest_pending: str | None = None  # the ticket that has been out longest
    oldest_pending_seconds: float | None = None
    pending_too_long: bool = False
    clock_back: int = 0  # times that the clock went back


@dataclass(frozen=True)
class Corrected:
    """What the stopping rule would find now: outcomes were corrected after the decision."""

    leader: str | None
    evidence: float | None
    needed: float | None


@dataclass(frozen=True)
class Status:
    """Where an experiment stands: one sentence, then the numbers.

    Over HTTP a key without the role analyst gets neither outcomes nor what follows from them before the end:
    those fields then have the values below.
    """

    experiment: str
    state: str  # "running", "paused", "decided", "exhausted" or "closed"
    samples: int
    pending: int  # tickets out
    events: int
    head: str  # hash of the last event
    late: int
    counts: Mapping[str, int]  # events by kind
    health: Health
    title: str = ""
    answer: str | None = None  # None both while undecided and when none meets the requirement: see `decided`
    decided: bool = False
    evidence: float | None = None
    needed: float | None = None
    leader: str | None = None
    more: Mapping[str, int | None] = field(default_factory=lambda: dict.fromkeys(CHANCES))
    horizon: int | None = None
    unfinished: float | None = None
    forecast: Mapping[str, Any] | None = None
    corrected: Corrected | None = None
    policies: tuple[PolicyRow, ...] = ()
    cells: tuple[CellRow, ...] = ()
    sentence: str = ""

    @property
    def is_over(self) -> bool:
        """Return whether the experiment has stopped or was finished."""
        return self.state in ("decided", "exhausted", "closed")

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON of `evenhand status`."""
        return {
            "answer": self.answer,
            "decided": self.decided,
            "samples": self.samples,
            "pending": self.pending,
            "evidence": self.evidence,
            "needed": self.needed,
            "head": self.head,
            "more": dict(self.more),
            "horizon": self.horizon,
            "unfinished": self.unfinished,
            "forecast": None if self.forecast is None else dict(self.forecast),
            "experiment": self.experiment,
            "title": self.title,
            "state": self.state,
            "leader": self.leader,
            "corrected": None if self.corrected is None else asdict(self.corrected),
            "events": self.events,
            "late": self.late,
            "counts": dict(self.counts),
            "health": asdict(self.health) | {"starved": [asdict(cell) for cell in self.health.starved]},
            "policies": [row.to_dict() for row in self.policies],
            "cells": [{name: getattr(row, name) for name in _CELL} for row in self.cells],
            "sentence": self.sentence,
        }

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Status:
        """Return the status that `to_dict` wrote; what was left out has its default."""
        known = {part.name for part in fields(cls)}
        values = {name: value for name, value in table.items() if name in known}
        starved = tuple(ShortCell(**cell) for cell in values["health"]["starved"])
        values["health"] = Health(**values["health"] | {"starved": starved})
        if values.get("corrected") is not None:
            values["corrected"] = Corrected(**values["corrected"])
        values["policies"] = tuple(PolicyRow(**row) for row in values.get("policies", ()))
        values["cells"] = tuple(CellRow(low=None, high=None, **row) for row in values.get("cells", ()))
        return cls(**values)
