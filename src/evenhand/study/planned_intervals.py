"""What intervals cost on paper: how many must be counted at least, and the units assigned by then."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from evenhand.study import Study
from evenhand.theory.plan import Plan


@dataclass(frozen=True)
class PlannedIntervals:
    """The least number of intervals on average, for the lower bound on samples."""

    units: int  # of an interval
    counted: int  # intervals that must be counted at least
    lag: int  # further intervals that begin before an interval is counted
    units_at_least: int  # assigned when the last of them is counted
    ratio: float  # of these units to the lower bound on samples one by one
    seconds: float | None  # from the start to the counting; None without a length

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, as `evenhand plan --json` prints them."""
        return asdict(self)

    def sentence(self) -> str:
        """Return the cost of intervals against samples one by one."""
        which = "interval" if self.counted == 1 else "intervals"
        wait = f"; {self.lag:,} more begin before the last one is final" if self.lag else ""
        took = "" if self.seconds is None else f", after {duration(self.seconds)}"
        return (
            f"In intervals of {self.units:,} units at least {self.counted:,} {which} must be counted{wait}: "
            f"{self.units_at_least:,} units are assigned by then, {self.ratio:.3g} times the bound{took}."
        )


def planned_intervals(study: Study, plan: Plan, delta: float) -> PlannedIntervals | None:
    """Return the least number of intervals of a study; None where it has none, or policies share units.

    The bound is for samples with a unit of their own.
    """
    settings = study.procedure.interval
    if settings is None or study.procedure.items is not None:
        return None
    units = max(round(float(settings.volumes(study.problem).sum())), 1)
    least = plan.samples_at_least(delta)
    counted = max(math.ceil(least / units), 1)
    total = (counted + settings.lag) * units
    length = settings.length_seconds
    seconds = None if length is None else counted * length + settings.delay_seconds
    return PlannedIntervals(units, counted, settings.lag, total, total / max(least, 1.0), seconds)


def plan_table(study: Study, plan: Plan, delta: float) -> dict[str, Any]:
    """Return the plan of a study as JSON, with its intervals."""
    intervals = planned_intervals(study, plan, delta)
    table = plan.to_dict(delta)
    return table if intervals is None else table | {"intervals": intervals.to_dict()}


def duration(seconds: float) -> str:
    """Return a duration in the largest unit of which there are at least two."""
    for size, unit in ((604_800, "weeks"), (86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} seconds"
