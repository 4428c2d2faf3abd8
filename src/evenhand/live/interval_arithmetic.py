"""The sums, the evidence and the shares of an experiment in intervals, computed from its log.

The outcomes of an interval are added to the state when it is closed, and the stopping rule is evaluated then.
The evidence does not depend on the order of outcomes. It holds for shares that depend on all earlier data,
because intervals are closed in order.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.live import events as ev
from evenhand.live.interval_bets import sums_by_cell
from evenhand.live.interval_counts import total
from evenhand.live.interval_pairs import add_interval_pairs
from evenhand.live.intervals import ClosedInterval, IntervalLog, OpenInterval, policies_of
from evenhand.live.protocol import Protocol
from evenhand.live.stop_event import finite_or_none
from evenhand.procedure.assignment import Shares
from evenhand.procedure.decide import check
from evenhand.procedure.evidence.interval_bets import add_interval
from evenhand.procedure.interval_steps import (
    SampleRatios,
    add_guardrail_sums,
    add_sums,
    next_allocation,
    shares_by_name,
)
from evenhand.procedure.outcome_order import FAMILIES
from evenhand.procedure.state import (
    ANSWER,
    EMPTY,
    EVIDENCE,
    NEEDED,
    NONE,
    RUNNING,
    STOPPED,
    TOLD,
    WEAKEST,
    State,
    new_work,
)

if TYPE_CHECKING:
    from evenhand.live.projection import Fold

Array = NDArray[np.float64]


class Closing(NamedTuple):
    """What closing an interval leads to."""

    state: State
    outcomes: int
    samples: int
    sums: str
    leader: str | None
    evidence: float | None
    needed: float | None
    weakest: int


def closing(protocol: Protocol, state: State, interval: OpenInterval | ClosedInterval) -> Closing:
    """Return the state with the outcomes of an interval, and the evaluated stopping rule."""
    after = State._make(table.copy() for table in state)
    _add(protocol, after, interval)
    clock, spec = after.clock, protocol.spec
    if clock[STOPPED] == RUNNING and (clock[EMPTY] == 0 or clock[TOLD] >= spec.cap):
        check(spec, after, new_work(spec))
    looked, answer = clock[EMPTY] == 0, int(clock[ANSWER])
    leads = looked and answer != NONE and not spec.screens
    return Closing(
        after,
        total(interval.cells or ()),
        int(clock[TOLD]),
        digest_of(after),
        protocol.problem.policies[answer] if leads else None,
        finite_or_none(after.level[EVIDENCE]) if looked else None,
        finite_or_none(after.level[NEEDED]) if looked else None,
        int(after.level[WEAKEST]) if looked else 0,
    )


def _add(protocol: Protocol, state: State, interval: OpenInterval | ClosedInterval) -> None:
    """Add the outcomes of an interval to the state; those of policies that have left do not count."""
    problem = protocol.problem
    family, rails = problem.family, problem.guardrails
    columns = {policy: protocol.columns.get(number) for policy, number in protocol.policies.items()}
    if protocol.spec.linear_bets:
        add_interval(protocol.spec, state, sums_by_cell(protocol, state, interval.cells or ()))
    if protocol.spec.shared_items:
        add_interval_pairs(protocol, state, interval.cells or ())
    for cell in interval.cells or ():
        column = columns[cell.policy]
        if column is None:
            continue
        group = protocol.groups[cell.group]
        at = group, column
        unit = (cell.sum - cell.n * family.low) / family.width
        if family.name in FAMILIES:
            add_sums(protocol.spec, state, column, group, float(cell.n), unit, cell.squares or 0.0)
        state.n[at] += cell.n
        state.s[at] += unit
        for j, rail in enumerate(rails):
            n, summed = (cell.metrics or {})[rail.name]
            unit = (summed - n * rail.family.low) / rail.family.width
            if rail.family.name in FAMILIES:
                squares = (cell.metric_squares or {}).get(rail.name, 0.0)
                add_guardrail_sums(protocol.spec, state, j, column, group, float(n), unit, squares)
            state.rail_n[j][at] += n
            state.rail_s[j][at] += unit
        state.clock[TOLD] += cell.n
    state.clock[EMPTY] = int((state.n == 0.0).sum())


def digest_of(state: State, pending: Array | None = None) -> str:
    """Return 64 bits over the sums of all cells, and over pending units, in hexadecimal."""
    found = hashlib.blake2b(digest_size=8)
    for table in (state.n, state.s, state.rail_n, state.rail_s):
        found.update(np.ascontiguousarray(table, dtype="<f8").tobytes())
    if pending is not None:
        found.update(np.ascontiguousarray(pending, dtype="<f8").tobytes())
    return found.hexdigest()


def first_shares(protocol: Protocol) -> Shares:
    """Return the equal shares of the first interval, valid from the creation of the experiment."""
    problem, settings = protocol.problem, protocol.procedure.interval
    assert settings is not None
    assert settings.salt is not None  # event one names it
    equal = np.full((len(problem.group_names), len(problem.policies)), 1.0 / len(problem.policies))
    made = Shares.of(shares_by_name(problem, equal), settings.salt)
    return replace(made, valid_from=protocol.at)


def next_shares(fold: Fold, valid_from: str) -> Shares:
    """Return the shares of the next interval, by virtual picks from the counts of closed intervals.

    Units of open intervals are pending: their counts where these are known, else the expected units.
    """
    protocol, log = fold.protocol, fold.intervals
    assert log is not None
    if log.latest is None:
        return first_shares(protocol)
    settings = protocol.procedure.interval
    assert settings is not None
    problem, version = protocol.problem, log.latest.version + 1
    volumes = settings.volumes(problem)
    if protocol.spec.shared_items:  # every policy serves every unit
        return replace(log.latest, version=version, valid_from=valid_from)
    allocation = next_allocation(
        protocol.spec, fold.replay.state, pending_units(protocol, log), volumes, settings.floor,
        protocol.seed, version,
    )  # fmt: skip
    return log.latest.moved(shares_by_name(problem, allocation), valid_from)


def pending_units(protocol: Protocol, log: IntervalLog) -> Array:
    """Return the units of open intervals, (L, K)."""
    settings, problem = protocol.procedure.interval, protocol.problem
    assert settings is not None
    pending, volumes = np.zeros((len(problem.group_names), len(problem.policies))), settings.volumes(problem)
    for shares, cells in log.open.values():
        for policy in policies_of(shares):
            column = protocol.columns.get(protocol.policies[policy])
            if column is not None and cells is None:
                pending[:, column] += [
                    volumes[g] * shares.share(group, policy) for g, group in enumerate(problem.group_names)
                ]
        for cell in cells or ():
            column = protocol.columns.get(protocol.policies[cell.policy])
            if column is not None:
                pending[protocol.groups[cell.group], column] += cell.n
    return pending


def publication(fold: Fold, valid_from: str, at: str, back: float = 0.0) -> ev.SharesPublished:
    """Return the event that publishes the next shares."""
    shares = next_shares(fold, valid_from)
    assert fold.intervals is not None
    return ev.SharesPublished(
        at=at, back=back, version=shares.version, valid_from=shares.valid_from or valid_from,
        hash_salt=shares.salt, ranges=dict(shares.ranges),
        state=digest_of(fold.replay.state, pending_units(fold.protocol, fold.intervals)),
    )  # fmt: skip


def add_ratios(ratios: SampleRatios, protocol: Protocol, interval: ClosedInterval) -> None:
    """Add the units of an interval to the test of the published shares; none where units are shared."""
    if protocol.spec.shared_items:
        return
    numbers = {policy: protocol.policies[policy] for policy in policies_of(interval.shares)}
    units: dict[str, dict[int, int]] = {group: {} for group in protocol.problem.group_names}
    for cell in interval.cells:
        units[cell.group][numbers[cell.policy]] = cell.n
    for g, (group, counted) in enumerate(units.items()):
        shares = {number: interval.shares.share(group, policy) for policy, number in numbers.items()}
        ratios.add(g, shares, counted)


def new_ratios(protocol: Protocol) -> SampleRatios:
    """Return the test of the published shares before the first interval."""
    problem = protocol.study.problem
    most = problem.max_policies or len(problem.policies)
    return SampleRatios(len(problem.group_names), most)
