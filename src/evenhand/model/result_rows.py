"""Result rows: one type for a cell and one for a policy, used wherever results are shown.

Verdicts, the status of an experiment, tables, figures and JSON use these two types. Numbers are in the user's
units. A number that is not known (the mean of an empty cell, an open end of an interval) is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

_RELATIVE = ("relative_floor", "relative_cap")


@dataclass(frozen=True)
class RelativeBound:
    """A floor or cap relative to a control: ratio times its mean, less or plus the margin."""

    control: str
    ratio: float
    margin: float
    value: float | None  # the bound at the control's estimated mean; None without an estimate


@dataclass(frozen=True)
class CellRow:
    """One policy in one group, with the bounds that it must meet there.

    If a requirement involves several groups at once, the verdict is that of the policy.

    Attributes
    ----------
    policy, group : str
        The cell.
    n : int
        The number of outcomes.
    mean : float or None
        Their mean; None for an empty cell.
    low, high : float or None
        The confidence interval; None if unbounded on this side, or not computed, as in a status.
    verdict : str
        "met", "failed" or "undecided".
    floor, cap : float or None
        The bounds that the mean must meet.
    pending : float or None
        The number of open tickets, in a live experiment that has not stopped.
    relative_floor, relative_cap : RelativeBound or None
        The bounds relative to a control.

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["a", "b"], {"x": 0.5, "y": 0.5}, eh.Bernoulli(), eh.Floors(0.3))
    >>> data = {"a": {"x": [1, 1, 0, 1], "y": [1, 0, 1, 1]}, "b": {"x": [0, 1, 0, 0], "y": [1, 0, 0, 0]}}
    >>> row = eh.judge(problem, data).cells[0]
    >>> row.policy, row.group, row.n, row.mean, row.floor, row.verdict
    ('a', 'x', 4, 0.75, 0.3, 'undecided')
    """

    policy: str
    group: str
    n: int
    mean: float | None
    low: float | None  # None: unbounded on this side, or not computed, as in a status
    high: float | None
    verdict: str  # "met", "failed" or "undecided"
    floor: float | None = None
    cap: float | None = None
    pending: float | None = None  # open tickets, in a live experiment before its stop
    relative_floor: RelativeBound | None = None
    relative_cap: RelativeBound | None = None

    @property
    def bounded(self) -> bool:
        """Return whether the cell has a floor or a cap, absolute or relative to a control."""
        return any(bound is not None for bound in (self.floor, self.cap, *self.relative))

    @property
    def relative(self) -> tuple[RelativeBound | None, RelativeBound | None]:
        """Return the relative floor and the relative cap."""
        return self.relative_floor, self.relative_cap

    @property
    def known(self) -> bool:
        """Return whether the mean is assumed, not estimated."""
        return self.n == 0 and self.mean is not None

    def to_dict(self) -> dict[str, Any]:
        """Return the row as a JSON object; `pending` and relative bounds only if there are any."""
        table = dict(vars(self))  # ten times as fast as `asdict`, which copies every number
        for name in ("pending", *_RELATIVE):
            if table[name] is None:
                del table[name]
            elif name in _RELATIVE:
                table[name] = asdict(table[name])
        return table

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> CellRow:
        """Return the row that `to_dict` wrote; a missing interval is None."""
        relative = {name: RelativeBound(**table[name]) for name in _RELATIVE if table.get(name) is not None}
        return cls(**{"low": None, "high": None} | dict(table) | relative)


@dataclass(frozen=True)
class PolicyRow:
    """One policy: its overall mean, less any penalties, and whether it meets its requirement.

    Attributes
    ----------
    policy : str
        The policy.
    mean : float or None
        Its overall mean, less any penalties; None if a group has no outcome.
    verdict : str
        "met", "failed" or "undecided".
    place : int
        Its rank by overall mean; 1 is the largest.
    leads : bool
        Whether it is the leader.

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["a", "b"], {"x": 0.5, "y": 0.5}, eh.Bernoulli(), eh.Floors(0.3))
    >>> data = {"a": {"x": [1, 1, 0, 1], "y": [1, 0, 1, 1]}, "b": {"x": [0, 1, 0, 0], "y": [1, 0, 0, 0]}}
    >>> [(row.policy, row.mean, row.place) for row in eh.judge(problem, data).policies]
    [('a', 0.75, 1), ('b', 0.25, 2)]
    """

    policy: str
    mean: float | None
    verdict: str  # "met", "failed" or "undecided"
    place: int  # rank by overall mean; 1 is the largest
    leads: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the row as a JSON object."""
        return asdict(self)


@dataclass(frozen=True)
class GuardrailRows:
    """The cells of one guard-rail, and how many samples have no outcome of it."""

    name: str
    cells: tuple[CellRow, ...]
    missing: int

    def to_dict(self) -> dict[str, Any]:
        """Return the rows as a JSON object."""
        return {
            "name": self.name, "missing": self.missing, "cells": [cell.to_dict() for cell in self.cells],
        }  # fmt: skip

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> GuardrailRows:
        """Return the rows that `to_dict` wrote."""
        cells = tuple(CellRow.from_dict(cell) for cell in table["cells"])
        return cls(table["name"], cells, table["missing"])


class Classes(NamedTuple):
    """The policies by what is shown of their requirement."""

    allowed: tuple[str, ...]  # shown to meet it
    failed: tuple[str, ...]  # shown not to meet it
    open: tuple[str, ...]


def classes_of(policies: Iterable[PolicyRow], excludes: bool = True) -> Classes:
    """Return the policies by verdict; all are allowed by a penalty, which excludes no policy."""
    rows = list(policies)
    if not excludes:
        return Classes(tuple(row.policy for row in rows), (), ())
    return Classes(*(_with(rows, verdict) for verdict in ("met", "failed", "undecided")))


def _with(rows: Iterable[PolicyRow], verdict: str) -> tuple[str, ...]:
    return tuple(row.policy for row in rows if row.verdict == verdict)
