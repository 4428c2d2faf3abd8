"""Status: the current state of an experiment as a frozen value.

    status = trial.status()
    status.sentence, status.decided, status.answer, status.samples, status.cells, status.health

`to_dict` gives the JSON of `evenhand status --json` and of the HTTP service; `from_dict` reads it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from evenhand.live.interval_status import IntervalStatus
from evenhand.model.frozen_dict import frozen, plain
from evenhand.model.result_rows import CellRow, GuardrailRows, PolicyRow
from evenhand.result import Result

ALERT = 0.001  # a sample-ratio p-value below this needs attention
CHANCES = ("0.5", "0.7", "0.8", "0.9")
_INTERVAL = ("low", "high")  # not part of a status


@dataclass(frozen=True)
class ShortCell:
    """A cell with fewer than its initial samples although many more tickets were issued."""

    policy: str
    group: str
    samples: int


@dataclass(frozen=True)
class Health:
    """Whether the experiment runs as designed: each finding as a number."""

    well: bool  # nothing needs attention
    # p-value of the counts under the probabilities that cells were drawn with; None for a blind caller
    sample_ratio_p: float | None
    starved: tuple[ShortCell, ...] = ()
    oldest_pending: str | None = None  # the ticket that has been open longest
    oldest_pending_seconds: float | None = None
    pending_too_long: bool = False
    clock_back: int = 0  # backward steps of the clock
    volume_ratio: float | None = None  # units of the last interval over the expected number
    overdue: int | None = None  # an interval whose counts are late by more than an interval


@dataclass(frozen=True)
class ChangedPolicy:
    """A policy that joined or left, when, why and by whom."""

    policy: str
    at: str
    reason: str
    by: str
    samples: int | None = None  # outcomes of a policy that has left; None for one that joined


@dataclass(frozen=True)
class Corrected:
    """The stopping rule's result after outcomes were corrected following the decision."""

    leader: str | None
    evidence: float | None
    needed: float | None


@dataclass(frozen=True, repr=False)
class Status(Result):
    """The status of an experiment: a sentence and the numbers.

    Over HTTP a key without the role analyst gets neither outcomes nor results computed from them before the
    end: those fields then have their default values.

    Attributes
    ----------
    experiment, title : str
        The name and the title of the experiment.
    state : str
        "running", "paused", "decided", "exhausted" or "closed".
    samples, pending, late, events : int
        The numbers of outcomes that count, of open tickets, of late outcomes and of events.
    head : str
        The hash of the last event; empty for a key without the role analyst.
    counts : mapping
        The number of events of each kind.
    health : Health
        Whether the experiment runs as designed, each finding as a number.
    answer : str or None
        The answer; None while undecided, and if no policy meets the requirement: see `decided`.
    decided : bool
        Whether the procedure has decided.
    evidence, needed : float or None
        The evidence of the weakest comparison, and its threshold.
    leader : str or None
        The best policy so far of those that meet the requirement.
    more, horizon, unfinished, forecast
        The forecast of further samples: by chance, its horizon, the share of runs beyond it, and all of it.
    corrected : Corrected or None
        The result of the rule now, if outcomes were corrected after the decision.
    allowed, failed, open : tuple of str
        The policies shown to meet the requirement, shown not to meet it, and not decided yet.
    joined, withdrawn : tuple of ChangedPolicy
        The policies that joined and those that left, with time, reason and author.
    spent : float or None
        What the samples have cost; None without sampling costs.
    policies : tuple of PolicyRow
        One row for every policy.
    cells : tuple of CellRow
        One row for every policy in every group.
    guardrails : tuple of GuardrailRows
        The cells of every guard-rail.
    intervals : IntervalStatus or None
        The current shares, the intervals and their volume; None for an experiment with tickets.
    sentence : str
        The status in words.
    method : str
        The evidence that is used.

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["a", "b"], {"x": 0.5, "y": 0.5}, eh.Bernoulli(), eh.Floors(0.3))
    >>> trial = eh.Experiment.create(":memory:", problem, seed=7)
    >>> status = trial.status()
    >>> status.state, status.samples, status.decided
    ('running', 0, False)
    """

    experiment: str
    state: str  # "running", "paused", "decided", "exhausted", "futile" or "closed"
    samples: int
    pending: int  # open tickets
    events: int
    head: str  # hash of the last event
    late: int
    counts: Mapping[str, int]  # events by kind
    health: Health
    title: str = ""
    answer: str | None = None  # None while undecided and if no policy meets the requirement: see `decided`
    decided: bool = False
    allowed: tuple[str, ...] = ()  # policies shown to meet the requirement
    failed: tuple[str, ...] = ()  # policies shown not to meet it
    open: tuple[str, ...] = ()
    joined: tuple[ChangedPolicy, ...] = ()
    withdrawn: tuple[ChangedPolicy, ...] = ()
    spent: float | None = None  # what the samples have cost; None without costs
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
    guardrails: tuple[GuardrailRows, ...] = ()
    intervals: IntervalStatus | None = None
    sentence: str = ""
    method: str = ""  # the evidence that is used

    def __post_init__(self) -> None:
        for name in ("counts", "more", "forecast"):
            table = getattr(self, name)
            if table is not None:
                object.__setattr__(self, name, frozen(table))

    @property
    def is_over(self) -> bool:
        """Return whether the experiment has stopped or was finished."""
        return self.state in ("decided", "exhausted", "futile", "closed")

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON of `evenhand status`."""
        return {
            "answer": self.answer,
            "decided": self.decided,
            "allowed": list(self.allowed),
            "failed": list(self.failed),
            "open": list(self.open),
            "spent": self.spent,
            "samples": self.samples,
            "pending": self.pending,
            "evidence": self.evidence,
            "needed": self.needed,
            "head": self.head,
            "more": dict(self.more),
            "horizon": self.horizon,
            "unfinished": self.unfinished,
            "forecast": None if self.forecast is None else plain(self.forecast),
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
            "cells": [_cell(row) for row in self.cells],
            "sentence": self.sentence,
            "method": self.method,
            "joined": [asdict(change) for change in self.joined],
            "withdrawn": [asdict(change) for change in self.withdrawn],
            **({"guardrails": list(map(_guardrail, self.guardrails))} if self.guardrails else {}),
            **({} if self.intervals is None else {"intervals": self.intervals.to_dict()}),
        }

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Status:
        """Return the status that `to_dict` wrote; missing fields get their default."""
        known = {part.name for part in fields(cls)}
        values = {name: value for name, value in table.items() if name in known}
        starved = tuple(ShortCell(**cell) for cell in values["health"]["starved"])
        values["health"] = Health(**values["health"] | {"starved": starved})
        if values.get("intervals") is not None:
            values["intervals"] = IntervalStatus.from_dict(values["intervals"])
        if values.get("corrected") is not None:
            values["corrected"] = Corrected(**values["corrected"])
        values["policies"] = tuple(PolicyRow(**row) for row in values.get("policies", ()))
        values["cells"] = tuple(CellRow.from_dict(row) for row in values.get("cells", ()))
        values["guardrails"] = tuple(map(GuardrailRows.from_dict, values.get("guardrails", ())))
        for name in ("joined", "withdrawn"):
            values[name] = tuple(ChangedPolicy(**change) for change in values.get(name, ()))
        for name in ("allowed", "failed", "open"):
            values[name] = tuple(values.get(name, ()))
        return cls(**values)


def _cell(row: CellRow) -> dict[str, Any]:
    """Return a cell without its interval; `pending` is always there."""
    table = row.to_dict() | {"pending": row.pending}
    return {name: value for name, value in table.items() if name not in _INTERVAL}


def _guardrail(rows: GuardrailRows) -> dict[str, Any]:
    """Return the cells of a guard-rail without their intervals."""
    return rows.to_dict() | {"cells": [_cell(row) for row in rows.cells]}
