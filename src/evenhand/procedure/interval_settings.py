"""`Intervals`: how an experiment in intervals is run: volume, floor, salt, length and delay.

Servers assign units by published shares, and outcomes come as counts at the end of an interval. Groups arrive
by themselves, so the mode must be proportional.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput, nearest, shown
from evenhand.model.argument_checks import is_number
from evenhand.model.frozen_dict import FrozenDict
from evenhand.model.labels import by_name
from evenhand.model.problem import Problem
from evenhand.procedure.assignment import SALT

if TYPE_CHECKING:
    from evenhand.procedure.spec import Procedure

Array = NDArray[np.float64]

FLOOR = 0.02  # least share of a policy in a group
MOST_UNITS = 1e15  # of one group in an interval
UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}  # of time, in seconds
DURATION = re.compile(r"([0-9]{1,9})\s*([smhdw])")


@dataclass(frozen=True)
class Intervals:
    """An experiment in intervals: servers assign by published shares, and outcomes come as counts.

    Parameters
    ----------
    volume : float, dict or series
        The expected number of units of an interval, in all or by group.
    floor : float
        The least share of every policy in every group.
    salt : str, optional
        The salt of the hash that assigns units; derived from the experiment unless given.
    length : str, optional
        How long an interval lasts, such as "10m", "6h" or "1d"; `sync` needs it. Intervals end at multiples
        of it since 1970 in UTC: "1h" on the hour, "1d" at midnight.
    delay : str, optional
        How long after its end the outcomes of an interval are final, such as "7d"; at once unless given.

    Raises
    ------
    BadInput
        If a number, the salt or a time cannot be used.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.Intervals(volume=10_000, length="6h", delay="1d").lag
    4
    """

    volume: Any
    floor: float = FLOOR
    salt: str | None = None
    length: str | None = None
    delay: str | None = None

    def __post_init__(self) -> None:
        given = by_name(self.volume, "volume")
        by_group = isinstance(given, Mapping)
        volume = FrozenDict({name: _units(n) for name, n in given.items()}) if by_group else _units(given)
        object.__setattr__(self, "volume", volume)
        if not is_number(self.floor) or not 0 <= self.floor <= 0.5:
            raise BadInput(f"the floor of an interval must be from 0 to 1/2; it is {shown(self.floor)}.")
        object.__setattr__(self, "floor", float(self.floor))
        if self.salt is not None and (not isinstance(self.salt, str) or SALT.fullmatch(self.salt) is None):
            raise BadInput(f"salt must be 8 to 32 letters, digits, _ or -; it is {shown(self.salt)}.")
        if self.length is not None and seconds_in(self.length, "length") == 0:
            raise BadInput(f"the length of an interval must be more than 0; it is {shown(self.length)}.")
        if self.delay is not None:
            seconds_in(self.delay, "delay")

    @property
    def length_seconds(self) -> float | None:
        """Return the length in seconds; None where it is not given."""
        return None if self.length is None else seconds_in(self.length, "length")

    @property
    def delay_seconds(self) -> float:
        """Return the delay in seconds."""
        return 0.0 if self.delay is None else seconds_in(self.delay, "delay")

    @property
    def lag(self) -> int:
        """Return how many further intervals begin before the outcomes of one are final."""
        return 0 if self.length_seconds is None else int(-(-self.delay_seconds // self.length_seconds))

    def end_after(self, start: float) -> float:
        """Return when an interval that began then is over, in seconds since 1970.

        Intervals end at multiples of their length, such as on the hour, so that a job that runs a little late
        every time does not miss one.
        """
        length = self.length_seconds or 0.0
        return (start // length + 1.0) * length

    def volumes(self, problem: Problem) -> Array:
        """Return the expected number of units of every group."""
        names, arrivals = problem.group_names, problem.arrivals or problem.groups
        if not isinstance(self.volume, Mapping):
            return np.array([self.volume * arrivals[name] for name in names])
        if set(self.volume) != set(names):
            raise BadInput(f"volume must be given for the groups {', '.join(map(repr, names))}.")
        return np.array([self.volume[name] for name in names])

    @classmethod
    def from_dict(cls, table: Any) -> Intervals:
        """Return the intervals of the key `interval` of a study file."""
        known = [part.name for part in fields(cls)]
        if not isinstance(table, Mapping):
            raise BadInput(f"interval must be a table such as {{ volume = 10000 }}; it is {shown(table)}.")
        for key in table:
            if key not in known:
                raise BadInput(f"unknown key {key!r} in interval{nearest(key, known)}")
        if "volume" not in table:
            raise BadInput("interval needs volume, the expected number of units of an interval.")
        return cls(**table)

    def to_dict(self) -> dict[str, Any]:
        """Return the table; `from_dict` of it is equal to this."""
        volume = dict(self.volume) if isinstance(self.volume, Mapping) else self.volume
        table: dict[str, Any] = {"volume": volume, "floor": self.floor}
        given = {name: getattr(self, name) for name in ("salt", "length", "delay")}
        return table | {name: value for name, value in given.items() if value is not None}


def seconds_in(duration: Any, what: str) -> float:
    """Return the seconds of a duration such as "10m" or "7d"."""
    found = DURATION.fullmatch(duration.strip()) if isinstance(duration, str) else None
    if found is None:
        raise BadInput(
            f"{what} must be a number of s, m, h, d or w, such as '10m' or '7d'; it is {shown(duration)}."
        )
    return float(int(found[1]) * UNITS[found[2]])


def check_intervals(problem: Problem, procedure: Procedure) -> None:
    """Refuse intervals that do not go together with the problem or the rest of the procedure."""
    intervals = procedure.interval
    if intervals is None:
        return
    if problem.mode != "proportional":
        raise BadInput(
            "in an experiment in intervals groups arrive by themselves: write mode = 'proportional'; it is "
            f"{problem.mode!r}."
        )
    intervals.volumes(problem)
    most = max(problem.max_policies or 0, len(problem.policies))
    if intervals.floor * most > 1:
        raise BadInput(
            f"the floor of an interval must be from 0 to 1/{most}, one part for each policy; it is "
            f"{intervals.floor:g}."
        )


def _units(value: Any) -> float:
    if not is_number(value) or not 0 < value <= MOST_UNITS:
        raise BadInput(
            f"volume must be the expected number of units of an interval, more than 0; it is {shown(value)}."
        )
    return float(value)
