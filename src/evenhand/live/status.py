"""Where an experiment stands: one sentence, then the numbers.

Is the experiment run as it was meant to be? Allocation against intention, cells left behind, tickets
forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from evenhand.live import sentences
from evenhand.live.clock import seconds_of
from evenhand.live.projection import View
from evenhand.live.replay_kernels import Tally
from evenhand.live.stop import finite
from evenhand.live.tickets import ticket_code
from evenhand.procedure.decide import check
from evenhand.procedure.estimates import refresh
from evenhand.procedure.evidence.by_family import threshold
from evenhand.procedure.intervals import WORDS, verdicts
from evenhand.procedure.log_space import NOT_COMPUTED
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

Status = dict[str, Any]
CHANCES = ("0.5", "0.7", "0.8", "0.9")


class Forecast(Protocol):
    """How many more samples it may take, as `judge.forecast_statement` states it."""

    def summary(self, samples: int | None = None) -> str: ...

    def to_dict(self, samples: int | None = None) -> dict[str, Any]: ...


Forecaster = Callable[[View], Forecast]


def status_of(view: View, now: float, forecast: Forecaster | None = None) -> Status:
    """The JSON of `evenhand status`, and the sentence people read."""
    stop, state = view.stop, view.state
    decided, samples = stop is not None and stop.why == "decided", int(state.clock[TOLD])
    ahead = None if forecast is None else forecast(view)
    tables, computed = _verdicts(view)
    status: Status = {
        "answer": stop.answer if stop is not None else None,
        "decided": decided,
        "samples": samples,
        "pending": view.pending,
        "evidence": finite(state.level[EVIDENCE]),
        "needed": finite(state.level[NEEDED] if has_looked(view) else _line_ahead(view)),
        "head": str(view.head),
        **(_no_forecast(decided) if ahead is None else ahead.to_dict(samples)),
        "experiment": view.protocol.experiment,
        "title": view.protocol.study.title,
        "state": state_word(view),
        "leader": _leader(view, state),
        "corrected": _with_corrections(view) if view.corrected_after_stop else None,
        "events": view.head.seq,
        "late": view.counts["late"],
        "counts": view.counts,
        "health": health_of(view, now),
        **tables,
    }
    summary = "" if ahead is None else ahead.summary(samples)
    status["sentence"] = sentences.sentence(view, status, has_looked(view), summary)
    if notes := " ".join(_notes(view, computed)):
        status["sentence"] += f" {notes}"
    return status


def _notes(view: View, computed: bool) -> list[str]:
    """What everybody must know before relying on the evidence."""
    found = []
    if is_unproven(view.protocol.problem, view.protocol.procedure):
        found.append(sentences.UNPROVEN)
    if not computed or view.state.level[EVIDENCE] == NOT_COMPUTED:
        found.append(sentences.NOT_COMPUTED)
    if view.stop is None and not view.closed and _decides_by_newer_bounds(view):
        found.append(sentences.OLDER_EVIDENCE)
    return found


def _decides_by_newer_bounds(view: View) -> bool:
    """Would the data decide by the bounds of this version, where the experiment goes on by earlier ones?"""
    spec = view.protocol.spec
    if spec.evidence == EVIDENCE_VERSION or spec.stopping != CERTIFIED or not has_looked(view):
        return False
    state = _looked_at_again(view, spec._replace(evidence=EVIDENCE_VERSION))
    return bool(state.clock[STOPPED] == DECIDED)


def state_word(view: View) -> str:
    """running, paused, decided, exhausted or closed."""
    if view.stop is not None:
        return view.stop.why
    return "closed" if view.closed else "paused" if view.paused else "running"


def _no_forecast(decided: bool) -> dict[str, Any]:
    """The keys of a forecast where none was asked for: a decision needs no more samples."""
    more = dict.fromkeys(CHANCES, 0 if decided else None)
    return {"more": more, "horizon": None, "unfinished": None, "forecast": None}


def has_looked(view: View) -> bool:
    """Has the stopping rule looked at the data yet? It does when the start is over."""
    return bool(view.state.level[NEEDED] != 0.0)


def _line_ahead(view: View) -> float:
    """What the evidence will have to reach at the first look, where that is known before."""
    spec = view.protocol.spec
    return threshold(spec) if spec.stopping == CERTIFIED else math.inf


def _with_corrections(view: View) -> dict[str, Any]:
    """What the rule would see now: the decision stands, but outcomes were corrected since."""
    state = _looked_at_again(view, view.protocol.spec)
    return {
        "leader": _leader(view, state),
        "evidence": finite(state.level[EVIDENCE]),
        "needed": finite(state.level[NEEDED]),
    }


def _looked_at_again(view: View, spec: Spec) -> State:
    """A copy of the state after the stopping rule has looked at the data as they are."""
    tables: list[Any] = [np.array(part) for part in view.state]
    state = State(*tables)
    state.clock[STOPPED] = RUNNING
    check(spec, state, new_work(spec))
    return state


def _leader(view: View, state: State) -> str | None:
    """Who leads by the last look; None before the first, and where nobody seems to meet the requirement."""
    answer = int(state.clock[ANSWER])
    return None if answer == NONE else view.protocol.problem.policies[answer]


def _verdicts(view: View) -> tuple[dict[str, Any], bool]:
    """The tables of policies and cells; and was all their evidence computed?"""
    spec, state, problem = view.protocol.spec, view.state, view.protocol.problem
    work = new_work(spec)
    refresh(spec, state, work, False)
    cells, policies, computed = verdicts(spec, state, work)
    means = _means(view, state)
    overall = np.where(np.isfinite(means).all(axis=1), means @ problem.shares, np.nan)
    tables: dict[str, Any] = {
        "policies": [
            {"policy": name, "mean": finite(overall[k]), "verdict": WORDS[policies[k]]}
            for k, name in enumerate(problem.policies)
        ],
        "cells": [
            {
                "policy": policy, "group": group, "n": int(state.n[g, k]), "mean": finite(means[k, g]),
                "pending": finite(round(state.out[g, k], 6)), "verdict": WORDS[cells[g, k]],
            }
            for k, policy in enumerate(problem.policies)
            for g, group in enumerate(problem.group_names)
        ],
    }  # fmt: skip
    return tables, computed


def _means(view: View, state: State) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Estimates K x L in the user's units; NaN where there is no outcome."""
    family = view.protocol.problem.family
    with np.errstate(invalid="ignore", divide="ignore"):
        unit = np.where(state.n > 0, state.s / state.n, np.nan)
    return family.low + family.width * unit.T


ALERT = 0.001  # a sample-ratio p-value below this is no accident
_LEAST_SPREAD = 5.0  # below, a cell's draws are too few for the normal law
_LONG = 30 * 86_400.0  # seconds a ticket without a lease may be out before somebody should look


def health_of(view: View, now: float) -> dict[str, Any]:
    """Each finding as a number; `well` when none needs attention."""
    ratio = sample_ratio_p_value(view.tally)
    starved = _starved(view)
    limit = view.protocol.lease or _LONG
    ticket, at = view.oldest or (None, None)
    age = None if at is None else max(now - seconds_of(at), 0.0)
    too_long = age is not None and age > limit
    return {
        "well": ratio >= ALERT and not starved and not too_long and not view.counts["clock_back"],
        "sample_ratio_p": ratio,
        "starved": starved,
        "oldest_pending": None if ticket is None else ticket_code(view.protocol.hash, ticket),
        "oldest_pending_seconds": age,
        "pending_too_long": too_long,
        "clock_back": view.counts["clock_back"],
    }


def sample_ratio_p_value(tally: Tally) -> float:
    """How surprising the counts are under the probabilities that cells were drawn with.

    A draw minus its probability has mean zero given the past, whatever the rule, and variance p (1 - p). The
    largest deviation counts, times the number of cells looked at.
    """
    away = np.abs(tally.drawn - tally.expected)
    if np.any(away[tally.spread == 0.0] > 1e-6 * (1.0 + tally.drawn[tally.spread == 0.0])):
        return 0.0  # a cell without chance, and yet not drawn as it should be
    enough = tally.spread >= _LEAST_SPREAD
    if not enough.any():
        return 1.0
    largest = float(np.max(away[enough] / np.sqrt(tally.spread[enough])))
    return min(1.0, int(enough.sum()) * math.erfc(largest / math.sqrt(2.0)))


def _starved(view: View) -> list[dict[str, Any]]:
    """Cells short of their initial samples when twice as many tickets as those need were handed out."""
    problem, initial = view.protocol.problem, view.protocol.procedure.initial
    groups, policies = view.state.n.shape
    if view.counts["asked"] < 2 * initial * groups * policies:
        return []
    short = np.argwhere((view.state.n + view.state.out).T - initial < 0)
    return [
        {"policy": problem.policies[k], "group": problem.group_names[g], "samples": int(view.state.n[g, k])}
        for k, g in short.tolist()
    ]
