"""Compute the status of an experiment from a view of it.

The health part compares the allocation with the intended one and lists cells with too few samples and tickets
that are open too long.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from evenhand.live import events as ev
from evenhand.live import status_sentences
from evenhand.live.clock import seconds_of
from evenhand.live.interval_status import (
    interval_p_value,
    interval_status,
    intervals_sentence,
    is_odd,
    overdue_interval,
    volume_ratio,
)
from evenhand.live.projection import View
from evenhand.live.replay_kernels import DrawTally
from evenhand.live.status import ALERT, CHANCES, ChangedPolicy, Corrected, Health, ShortCell, Status
from evenhand.live.stop_event import finite_or_none
from evenhand.live.tickets import ticket_code
from evenhand.model.phrases import missing_sentence
from evenhand.model.requirements import Penalty
from evenhand.model.result_rows import CellRow, PolicyRow, classes_of
from evenhand.procedure.decide import check
from evenhand.procedure.estimates import refresh
from evenhand.procedure.evidence.by_family import threshold
from evenhand.procedure.guardrail_rows import guardrail_rows
from evenhand.procedure.intervals import cell_rows, policy_rows, spent_on, verdicts
from evenhand.procedure.log_space import NOT_COMPUTED
from evenhand.procedure.outcome_order import evidence_method
from evenhand.procedure.spec import CERTIFIED, EVIDENCE_VERSION, Spec, is_unproven
from evenhand.procedure.state import (
    ANSWER,
    DECIDED,
    EVIDENCE,
    NEEDED,
    NONE,
    RUNNING,
    STOPPED,
    TOLD,
    State,
    new_work,
)


class Forecast(Protocol):
    """A forecast of the remaining samples, as `judge.forecast_statement` states it."""

    def summary(self, samples: int | None = None) -> str: ...

    def to_dict(self, samples: int | None = None) -> dict[str, Any]: ...


Forecaster = Callable[[View], Forecast]


def status_of(view: View, now: float, forecast: Forecaster | None = None) -> Status:
    """Return the status of an experiment at this time."""
    stop, state = view.stop, view.state
    decided, samples = stop is not None and stop.why == "decided", int(state.clock[TOLD])
    ahead = None if forecast is None else forecast(view)
    cells, policies, computed = _rows(view)
    problem = view.protocol.problem
    excludes = bool(problem.guardrails) or not isinstance(problem.constraint, Penalty)
    classes = classes_of(policies, excludes=excludes)
    status = Status(
        experiment=view.protocol.experiment,
        title=view.protocol.study.title,
        state=state_word(view),
        answer=stop.answer if stop is not None else None,
        decided=decided,
        allowed=classes.allowed,
        failed=classes.failed,
        open=classes.open,
        joined=_changed(view, ev.PolicyAdded),
        withdrawn=_changed(view, ev.PolicyWithdrawn),
        spent=_spent(view),
        samples=samples,
        pending=view.pending,
        evidence=finite_or_none(state.level[EVIDENCE]),
        needed=finite_or_none(state.level[NEEDED] if is_evaluated(view) else _first_threshold(view)),
        head=str(view.head),
        leader=_leader(view, state),
        corrected=_with_corrections(view) if view.corrected_after_stop else None,
        events=view.head.seq,
        late=view.counts["late"],
        counts=view.counts,
        health=health_of(view, now),
        policies=policies,
        cells=cells,
        guardrails=guardrail_rows(view.protocol.problem, view.protocol.spec, state, intervals=False),
        intervals=interval_status(view),
        method=evidence_method(problem, view.protocol.procedure),
        **(_no_forecast(decided) if ahead is None else ahead.to_dict(samples)),
    )
    summary = "" if ahead is None else ahead.summary(samples)
    parts = [status_sentences.sentence(view, status, is_evaluated(view), summary), *_notes(view, computed)]
    if status.intervals is not None:
        parts.append(intervals_sentence(status.intervals, status.is_over))
    if view.changes:
        parts.append(status_sentences.changes_sentence(view))
    parts += [missing_sentence(rows) for rows in status.guardrails if rows.missing]
    return replace(status, sentence=" ".join(parts))


def _changed(view: View, kind: type[ev.PolicyChange]) -> tuple[ChangedPolicy, ...]:
    """Return the policies that joined, or those that left."""
    return tuple(
        ChangedPolicy(
            event.policy, event.at, event.reason, event.by,
            sum(view.left[event.policy]) if isinstance(event, ev.PolicyWithdrawn) else None,
        )
        for event in view.changes
        if isinstance(event, kind)
    )  # fmt: skip


def _spent(view: View) -> float | None:
    """Return what the samples have cost, those of policies that have left too; None without costs."""
    problem, spent = view.protocol.problem, spent_on(view.protocol.problem, view.state)
    if spent is None:
        return None
    # where policies may leave, costs depend on the group only
    prices = problem.sampling_costs[0]
    return spent + sum(float(prices @ np.array(samples)) for samples in view.left.values())


def _notes(view: View, computed: bool) -> list[str]:
    """Return the warnings that apply to the evidence."""
    found = []
    if is_unproven(view.protocol.problem, view.protocol.procedure):
        found.append(status_sentences.UNPROVEN)
    if view.protocol.spec.linear_bets:
        found.append(
            status_sentences.LINEAR_BETS if view.intervals is None else status_sentences.INTERVAL_BETS
        )
    if not computed or view.state.level[EVIDENCE] == NOT_COMPUTED:
        found.append(status_sentences.NOT_COMPUTED)
    if view.stop is None and not view.closed and _decides_by_newer_bounds(view):
        found.append(status_sentences.OLDER_EVIDENCE)
    return found


def _decides_by_newer_bounds(view: View) -> bool:
    """Return whether the newest evidence bounds would decide, if earlier ones are in use."""
    spec = view.protocol.spec
    if spec.evidence == EVIDENCE_VERSION or spec.stopping != CERTIFIED or not is_evaluated(view):
        return False
    state = _evaluated_again(view, spec._replace(evidence=EVIDENCE_VERSION))
    return bool(state.clock[STOPPED] == DECIDED)


def state_word(view: View) -> str:
    """Return "running", "paused", "decided", "exhausted", "futile" or "closed"."""
    if view.stop is not None:
        return view.stop.why
    return "closed" if view.closed else "paused" if view.paused else "running"


def _no_forecast(decided: bool) -> dict[str, Any]:
    """Return the forecast fields without a forecast; after a decision `more` is 0."""
    more = dict.fromkeys(CHANCES, 0 if decided else None)
    return {"more": more, "horizon": None, "unfinished": None, "forecast": None}


def is_evaluated(view: View) -> bool:
    """Return whether the stopping rule has been evaluated; it is after the initial samples."""
    return bool(view.state.level[NEEDED] != 0.0)


def _first_threshold(view: View) -> float:
    """Return the threshold at the first evaluation of the stopping rule; inf if unknown."""
    spec = view.protocol.spec
    return threshold(spec) if spec.stopping == CERTIFIED else math.inf


def _with_corrections(view: View) -> Corrected:
    """Return the stopping rule's result now, if outcomes were corrected after the decision."""
    state = _evaluated_again(view, view.protocol.spec)
    return Corrected(
        _leader(view, state), finite_or_none(state.level[EVIDENCE]), finite_or_none(state.level[NEEDED])
    )


def _evaluated_again(view: View, spec: Spec) -> State:
    """Return a copy of the state after evaluating the stopping rule on the current data."""
    tables: list[Any] = [np.array(part) for part in view.state]
    state = State(*tables)
    state.clock[STOPPED] = RUNNING
    check(spec, state, new_work(spec))
    return state


def _leader(view: View, state: State) -> str | None:
    """Return the leader at the last evaluation; None before it, if no policy qualifies or none is chosen."""
    answer = int(state.clock[ANSWER])
    return None if answer == NONE or view.protocol.spec.screens else view.protocol.problem.policies[answer]


def _rows(view: View) -> tuple[tuple[CellRow, ...], tuple[PolicyRow, ...], bool]:
    """Return the rows of cells and policies, and whether all their evidence was computed."""
    spec, state, problem = view.protocol.spec, view.state, view.protocol.problem
    work = new_work(spec)
    refresh(spec, state, work, False)
    cells, policies, computed = verdicts(spec, state, work)
    leader = NONE if spec.screens else int(state.clock[ANSWER])
    return (
        # after the stop, outcomes no longer change the state that was decided on
        cell_rows(problem, spec, state, cells, pending=state.out if view.stop is None else None),
        policy_rows(problem, spec, state, policies, leader),
        computed,
    )


_LEAST_SPREAD = 5.0  # below this, a cell has too few draws for the normal approximation
_LONG = 30 * 86_400.0  # seconds after which an open ticket without a lease needs attention


def health_of(view: View, now: float) -> Health:
    """Return each finding as a number; `well` if none needs attention."""
    intervals = interval_status(view)
    ratio = sample_ratio_p_value(view.tally) if intervals is None else interval_p_value(intervals)
    volume, overdue = volume_ratio(intervals), overdue_interval(view, now)
    odd = overdue is not None or is_odd(volume)
    starved = _starved(view)
    limit = view.protocol.lease or _LONG
    ticket, at = view.oldest or (None, None)
    age = None if at is None else max(now - seconds_of(at), 0.0)
    too_long = age is not None and age > limit
    return Health(
        well=ratio >= ALERT and not (starved or too_long or odd or view.counts["clock_back"]),
        sample_ratio_p=ratio,
        starved=starved,
        oldest_pending=None if ticket is None else ticket_code(view.protocol.hash, ticket),
        oldest_pending_seconds=age,
        pending_too_long=too_long,
        clock_back=view.counts["clock_back"],
        volume_ratio=volume,
        overdue=overdue,
    )


def sample_ratio_p_value(tally: DrawTally) -> float:
    """Return the p-value of the counts under the probabilities that cells were drawn with.

    A draw minus its probability has mean zero given the past, whatever the rule, and variance p (1 - p). The
    test uses the largest deviation, with a factor for the number of cells tested.
    """
    away = np.abs(tally.drawn - tally.expected)
    if np.any(away[tally.spread == 0.0] > 1e-6 * (1.0 + tally.drawn[tally.spread == 0.0])):
        return 0.0  # a cell with probability 0 or 1 whose count contradicts it
    enough = tally.spread >= _LEAST_SPREAD
    if not enough.any():
        return 1.0
    largest = float(np.max(away[enough] / np.sqrt(tally.spread[enough])))
    return min(1.0, int(enough.sum()) * math.erfc(largest / math.sqrt(2.0)))


def _starved(view: View) -> tuple[ShortCell, ...]:
    """Return cells short of initial samples when twice as many tickets as needed were issued."""
    problem, spec = view.protocol.problem, view.protocol.spec
    if view.counts["asked"] < 2 * spec.initial_total:
        return ()
    have = view.state.n + view.state.out
    joined = [
        change.policy in problem.policies for change in view.changes if isinstance(change, ev.PolicyAdded)
    ]
    new = np.arange(len(problem.policies)) >= len(problem.policies) - sum(joined)
    recent = new & (have.sum(axis=0) < 2 * spec.initial.sum(axis=0))  # still at its initial samples
    short = np.argwhere((have < spec.initial).T & ~recent[:, None])
    return tuple(
        ShortCell(problem.policies[k], problem.group_names[g], int(view.state.n[g, k]))
        for k, g in short.tolist()
    )
