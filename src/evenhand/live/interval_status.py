"""The status of an experiment in intervals: current shares, numbers, volume and health."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evenhand.live.clock import seconds_of
from evenhand.live.intervals import policies_of
from evenhand.model.frozen_dict import frozen, plain

if TYPE_CHECKING:
    from evenhand.live.projection import View

FEW, MANY = 0.5, 2.0  # volumes outside these multiples of the expected one need attention


@dataclass(frozen=True)
class IntervalStatus:
    """The intervals of an experiment.

    Attributes
    ----------
    number : int
        The interval that began last; it is the version of the current shares.
    valid_from : str
        The time from which its shares are valid.
    closed : int
        The interval that was closed last; 0 before the first.
    open : tuple of int
        The intervals that have begun and are not closed.
    counted : tuple of int
        Those of them whose counts are recorded.
    shares : mapping
        The current shares, by group and policy.
    expected, units : mapping
        The expected units of an interval, and those of the interval closed last, by group.
    sample_ratios : mapping
        By group, the p-value of the units under the published shares; it holds at any number of looks. Empty
        where every policy serves every unit.
    late, corrected : int
        The outcomes that came after the end, and the corrections.
    shared : bool
        Whether every policy serves every unit; the shares are not used then.
    """

    number: int
    valid_from: str
    closed: int
    open: tuple[int, ...]
    counted: tuple[int, ...]
    shares: Mapping[str, Mapping[str, float]]
    expected: Mapping[str, float]
    units: Mapping[str, int]
    sample_ratios: Mapping[str, float]
    late: int = 0
    corrected: int = 0
    shared: bool = False

    def __post_init__(self) -> None:
        for name in ("shares", "expected", "units", "sample_ratios"):
            object.__setattr__(self, name, frozen(getattr(self, name)))

    def to_dict(self) -> dict[str, Any]:
        """Return the status as plain dicts, lists and numbers."""
        return {name: plain(getattr(self, name)) for name in self.__dataclass_fields__}

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> IntervalStatus:
        """Return the status that `to_dict` wrote."""
        return cls(**{**table, "open": tuple(table["open"]), "counted": tuple(table["counted"])})


def interval_status(view: View) -> IntervalStatus | None:
    """Return the status of the intervals; None for an experiment with tickets."""
    found, settings = view.intervals, view.protocol.procedure.interval
    if found is None or settings is None or found.latest is None:
        return None
    problem, last, latest = view.protocol.problem, found.last_closed, found.latest
    groups = problem.group_names
    units, shared = dict.fromkeys(groups, 0), bool(view.protocol.spec.shared_items)
    for cell in () if last is None else last.cells:
        units[cell.group] = cell.n if shared else units[cell.group] + cell.n
    return IntervalStatus(
        number=latest.version,
        valid_from=latest.valid_from or "",
        closed=0 if last is None else last.number,
        open=tuple(found.open),
        counted=tuple(number for number, interval in found.open.items() if interval.cells is not None),
        shares={
            group: {policy: latest.share(group, policy) for policy in policies_of(latest)} for group in groups
        },
        expected=dict(zip(groups, settings.volumes(problem).tolist(), strict=True)),
        units=units,
        sample_ratios={} if shared else dict(zip(groups, found.ratios, strict=True)),
        late=found.late,
        corrected=found.corrected,
        shared=shared,
    )


def volume_ratio(status: IntervalStatus | None) -> float | None:
    """Return the units of the interval closed last over the expected number; None before it."""
    if status is None or status.closed == 0:
        return None
    return sum(status.units.values()) / sum(status.expected.values())


def is_odd(ratio: float | None) -> bool:
    """Return whether a volume is so far from the expected one that it needs attention."""
    return ratio is not None and not FEW <= ratio <= MANY


def overdue_interval(view: View, now: float) -> int | None:
    """Return the oldest open interval if its counts are late by more than an interval; else None."""
    found, settings = view.intervals, view.protocol.procedure.interval
    if found is None or settings is None or settings.length_seconds is None or view.stop or view.closed:
        return None
    for number, interval in found.open.items():
        following = found.open.get(number + 1)
        begun = seconds_of(interval.shares.valid_from or view.protocol.at)
        begins = None if following is None else seconds_of(following.shares.valid_from or "")
        end = settings.end_after(begun) if begins is None else begins
        late = end + settings.delay_seconds + settings.length_seconds
        return number if now > late else None
    return None


def interval_p_value(status: IntervalStatus) -> float:
    """Return the smallest p-value of the groups, times their number; 1 where units are not assigned."""
    found = status.sample_ratios.values()
    return min(1.0, len(found) * min(found)) if found else 1.0


def intervals_sentence(status: IntervalStatus, over: bool) -> str:
    """Return which interval runs, what is open, and how many units the last one had."""
    parts = [] if over else [f"Interval {status.number} is running"]
    if not over and len(status.open) > 1:
        between = "and" if len(status.open) == 2 else "to"
        parts.append(f"{status.open[0]} {between} {status.open[-1]} are open")
    if status.closed:
        units, expected = sum(status.units.values()), sum(status.expected.values())
        parts.append(f"interval {status.closed} had {units:,} units, of {expected:,.0f} expected")
    if status.late:
        parts.append(f"{status.late:,} outcomes came after the end and do not count")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""
